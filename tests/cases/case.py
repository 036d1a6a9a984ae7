"""One altered checkpoint, and what the commands must do with it."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parents[2]
PREFIX = re.compile(r"^mxfp4-pack: ")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("MXFP4_PACK_") and k != "HF_HUB_CACHE"}
ENVIRONMENT |= {"MXFP4_PACK_DEVICE": "cpu", "XDG_CACHE_HOME": "", "HOME": ""}


class Wrong(Exception):
    """The program did something else than the case expects."""


@dataclass
class Case:
    kind: str
    instance: str  # the alteration
    model: str  # of synth, or tiny/NAME of testdata
    alter: Callable  # of the checkpoint's folder
    options: tuple = ()  # of synth
    convert: tuple = ()  # further options
    inspect: tuple = ()
    seen: str = "headers"  # headers: inspect says so, too; contents: convert alone
    allowed: bool | str = False  # whether --allow-incomplete converts it; another warning than the error, as a pattern
    act: Callable | None = None  # of the case's Bench, instead of convert and verify; returns a Result


@dataclass
class Row:
    """Of the table: what a case must give."""

    verdict: str = ""  # refused, warned or right
    message: str = ""  # a line as shown() prints it


@dataclass
class Result:
    verdict: str
    lines: list = field(default_factory=list)


class Bench:
    """A folder of a case's own, with the checkpoint "ckpt"; outputs are made beside it."""

    def __init__(self, program, case, row, folder):
        self.program, self.case, self.row, self.folder = program, case, row, folder
        self.ckpt, self.environment = folder / "ckpt", dict(ENVIRONMENT)
        folder.mkdir()
        self.make(case.model, case.options, self.ckpt)
        case.alter(self.ckpt)

    def make(self, model, options, to):
        if model.startswith("tiny/"):
            shutil.copytree(ROOT / "testdata" / model, to)
        else:
            layers = () if "--layers" in options else ("--layers", "4")
            self.must(0, "synth", model, to, "--tiny", *layers, *options, "-q")

    def run(self, *words):
        command = [self.program, *map(str, words)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=300,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
        )

    def must(self, code, *words):
        done = self.run(*words)
        if done.returncode != code:
            raise Wrong(f"exit {done.returncode}, {code} expected: {' '.join(map(str, words))}: {told(done)}")
        return done

    def convert(self, ckpt, out, *options):
        return self.run("convert", ckpt, out, "--backend", "marlin", "--engine", "vllm==0.33.0", "--no-loader", *options)

    def names(self):
        return sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*"))

    def shown(self, line):
        """A message for the table: the same on every machine."""
        line = line.replace(f"{self.folder}/", "")
        line = re.sub(r"\b([0-9a-f]{6})[0-9a-f]{26,}\b", r"\1..", line)
        return escaped(re.sub(r"\(\d+ packed and .* in [\d.]+ s\)", "(..)", line))

    def message_of(self, lines):
        """The row's message if one of the lines is that, else the first that has the verdict's cause."""
        lines = [self.shown(line) for line in lines]
        first = next((line for line in lines if line.startswith(("error: ", "warning: "))), "")
        return self.row.message if self.row.message in ["", *lines] and self.row.verdict else first

    def must_repeat(self, done, message, where):
        if message not in [self.shown(line) for line in lines_of(done)]:
            raise Wrong(f"{where} does not say {message!r}: {told(done)}")

    def must_say(self, done, pattern, where):
        if not any(re.search(pattern, line) for line in lines_of(done)):
            raise Wrong(f"{where} does not say {pattern!r}: {told(done)}")


def escaped(text):
    """For one cell of the table"""
    return text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*").replace("_", "\\_")


def lines_of(done):
    return [PREFIX.sub("", line) for line in (done.stderr + done.stdout).splitlines()]


def told(done):
    return (done.stderr + done.stdout).strip()


def verdict_of(done):
    """Of convert, by its exit code and warnings."""
    if done.returncode == 2:
        return "refused"
    if done.returncode:
        raise Wrong(f"exit {done.returncode}: {told(done)}")
    return "warned" if any(line.startswith("warning: ") for line in lines_of(done)) else "right"


def check_refused(bench, before, message):
    case = bench.case
    if bench.names() != before:
        raise Wrong(f"left behind: {sorted(set(bench.names()) ^ set(before))}")
    inspected = bench.run("inspect", "ckpt", "-q", *case.inspect)
    if case.seen == "headers":
        if inspected.returncode != 2:
            raise Wrong(f"inspect: exit {inspected.returncode}, 2 expected")
        bench.must_repeat(inspected, message, "inspect")
    allowed = bench.convert("ckpt", "out", "--allow-incomplete", *case.convert)
    if not case.allowed:
        if allowed.returncode != 2:
            raise Wrong(f"--allow-incomplete: exit {allowed.returncode}, 2 expected: {told(allowed)}")
        if bench.names() != before:
            raise Wrong("--allow-incomplete left something behind")
        return
    check_allowed(bench, allowed, message)


def check_allowed(bench, allowed, message):
    if allowed.returncode:
        raise Wrong(f"--allow-incomplete: exit {allowed.returncode}: {told(allowed)}")
    if isinstance(bench.case.allowed, str):
        bench.must_say(allowed, bench.case.allowed, "--allow-incomplete")
    else:
        bench.must_repeat(allowed, re.sub("^error", "warning", message), "--allow-incomplete")
    if '"allow_incomplete": true,' not in (bench.folder / "out/mxfp4-pack.json").read_text():
        raise Wrong("the manifest has no allow_incomplete")
    verified = bench.must(0, "verify", "out", "--source", "ckpt")
    bench.must_say(verified, "right at level .*; the checkpoint is incomplete: ", "verify")
    bench.must_say(bench.must(0, "verify", "out"), "the checkpoint is incomplete: ", "verify without the source")


def check_converted(bench, verdict, message):
    case = bench.case
    inspected = bench.must(0, "inspect", "ckpt", *case.inspect)
    if verdict == "warned" and case.seen == "headers":
        bench.must_repeat(inspected, message, "inspect")
    if verdict == "right" and "warning: " in inspected.stderr:
        raise Wrong(f"inspect: {inspected.stderr}")
    links = [option for option in case.inspect if option == "--follow-links"]
    verified = bench.must(0, "verify", "out", "--source", "ckpt", *links)
    bench.must_say(verified, "right at level ", "verify")
    if "incomplete" in told(verified):
        raise Wrong(f"verify: {told(verified)}")


def convert_and_verify(bench):
    """The usual act: inspect, convert, with --allow-incomplete if it is refused, and verify."""
    before = bench.names()
    done = bench.convert("ckpt", "out", *bench.case.convert)
    result = Result(verdict_of(done), lines_of(done))
    message = bench.message_of(result.lines)
    if result.verdict == "refused":
        check_refused(bench, before, message)
    else:
        check_converted(bench, result.verdict, message)
    return result
