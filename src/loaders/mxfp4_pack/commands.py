"""The program's commands as functions. Each function runs `mxfp4-pack COMMAND --json` and returns the printed object.
mxfp4-pack(1) describes the objects and the options: `tp_size=2, force=True` is --tp-size 2 --force. Options that print
something else (--help, --version) are for the command line only.

Ctrl-C ends the program as SIGTERM does, so that OUT never exists in a partial state. The program also ends if the
calling Python ends or is killed. The program's messages go to the logger `mxfp4_pack`, with a line every 30 seconds that
says how far a long run is.
"""

import json
import logging
import os
import subprocess
import tempfile
from typing import Any

from ._errors import Refused, printable
from ._program import MISSING, environment, program
from .manifest import Manifest, read_manifest

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Option = str | int | float | bool | list | tuple | None
DONE, NO = 0, 1  # exit codes with a result
OTHERS = ("help", "version", "json")  # options that are not for functions
LEVELS = {"warning: ": logging.WARNING, "error: ": logging.ERROR}  # by how a message begins
logger = logging.getLogger(__package__)


class Failed(RuntimeError):
    """A command has failed. kind: usage, input, io, device, interrupted. lines: one for each problem."""

    def __init__(self, kind: str, lines: list[str]):
        super().__init__("\n".join(lines))
        self.kind = kind
        self.lines = lines

    def __reduce__(self):
        return Failed, (self.kind, self.lines)


def inspect(checkpoint: Path, **options: Option) -> dict[str, Any]:
    """Describes a checkpoint or an output."""
    return run("inspect", checkpoint, options=options)


def plan(checkpoint: Path, out: Path, *, backend: str | None = None, engine: str | None = None,
         **options: Option) -> dict[str, Any]:
    """The plan of `convert` (--dry-run). Writes nothing."""
    return run("convert", checkpoint, out, options={"backend": backend, "engine": engine, **options, "dry_run": True})


def convert(checkpoint: Path, out: Path, *, backend: str | None = None, engine: str | None = None,
            **options: Option) -> dict[str, Any]:
    """Writes `out`, completely or not at all. backend and engine are required unless `layout` is given."""
    return run("convert", checkpoint, out, options={"backend": backend, "engine": engine, **options})


def verify(out: Path, *, source: Path | None = None, **options: Option) -> dict[str, Any]:
    """Compares an output with its manifest and its source. The result has `ok` and `problems`."""
    source = None if source is None else os.fspath(source)
    return run("verify", out, options={"source": source, **options})


def unpack(out: Path, dest: Path, **options: Option) -> dict[str, Any]:
    """Restores the checkpoint's original files."""
    return run("unpack", out, dest, options=options)


def open_output(out: Path, engine: str | None = None) -> Manifest:
    """Opens an output for one engine. The name may be omitted if the output has sets for one engine only."""
    out = os.fsdecode(out)
    if engine is None:
        engines = sorted({set_["engine"] for set_ in read_manifest(out)["sets"]})
        if len(engines) != 1:
            raise Refused(f"{printable(out)} was packed for {', '.join(engines)}: name one with `engine`")
        engine = engines[0]
    return Manifest(out, engine)


def run(command: str, *paths: Path, options: dict[str, Option]) -> dict[str, Any]:
    path = program()
    if path is None:
        raise Failed("usage", [MISSING])
    if others := [name for name in OTHERS if options.get(name)]:
        raise Failed("usage", [f"{name} is an option of the command line only" for name in others])
    arguments = [path, command, *words(options), "--json", "--"]
    with tempfile.TemporaryFile() as output:
        code = follow([*arguments, *map(os.fspath, paths)], output)
        output.seek(0)
        try:
            return result(command, code, output.read())
        except Failed as failed:
            raise Failed(failed.kind, [said(line, options) for line in failed.lines]) from None


def words(options):
    """The options as command-line arguments."""
    for name, value in options.items():
        if value is None or value is False:
            continue
        word = "--" + name.replace("_", "-")
        text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        yield word if value is True else f"{word}={text}"


def said(line, options):
    """A line of an error. A missing value is reported in terms of Python's arguments."""
    for name, value in options.items():
        if value is True and line.startswith(f"--{name.replace('_', '-')}: its value is missing"):
            return f"{name}=True: a value was expected"
    return line


def follow(arguments, output):
    """Runs the program; its messages go to the log. Returns the exit code."""
    process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, text=True,
                               errors="replace", env=environment())
    try:
        with process.stderr:
            for line in process.stderr:
                hear(line)
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def hear(line):
    """Logs a line of the program's stderr, without the program's name."""
    text = line.rstrip().removeprefix("mxfp4-pack: ")
    for begin, level in LEVELS.items():
        if text.startswith(begin):
            return logger.log(level, "%s", text.removeprefix(begin))
    return logger.info("%s", text)


def result(command, code, text):
    """The printed object. Raises `Failed` if it is an error."""
    try:
        fields = json.loads(text)
        if code in (DONE, NO):
            return fields
        raise Failed(**fields["error"])
    except (KeyError, ValueError):
        kind = "interrupted" if code < 0 or code > 2 else "io"
        raise Failed(kind, [f"mxfp4-pack {command} ended with exit code {code} and no result"]) from None
