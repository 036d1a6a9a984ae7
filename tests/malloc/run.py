#!/usr/bin/env python3
"""Fails allocations. usage: malloc/run.py MXFP4-PACK LIBRARY CKPT [--every N] [--all] [--command NAME]

Every N-th allocation (1 unless told) of tiny commands fails in turn, with --all all later ones too. The exit code must be
2, with one line on stderr, or 0 where the command could do without; OUT must be whole, what it was before or what it is
to become; and afterwards the same command must end in the bytes of an
undisturbed run with nothing beside them. Not failed: what happens before main and after it, and the stacks of threads,
which tests/limits sees to.
"""
import argparse
import concurrent.futures
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TO_OUT = ["convert", "in", "out", "--threads", "1", "--backend", "marlin", "--engine"]
CONVERT = [*TO_OUT, "vllm"]
# name: what runs before, what runs
COMMANDS = {
    "convert": ([], CONVERT),
    "add": ([CONVERT], [*TO_OUT, "sglang", "--add"]),
    "force": ([CONVERT], [*TO_OUT, "sglang", "--force"]),
    "verify": ([CONVERT], ["verify", "out", "--source", "in", "--threads", "1", "--tokens", "1"]),
    "unpack": ([CONVERT], ["unpack", "out", "unpacked", "--threads", "1"]),
    "json": ([], [*CONVERT, "--json"]),
}


def tree(folder):
    """Paths and checksums of all that a command may have made."""
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else ""
            for p in folder.rglob("*") if p.relative_to(folder).parts[0] not in ("in", "log")}


def below(files, name):
    return {path: file for path, file in files.items() if path.split("/")[0] == name}


class Sweep:
    def __init__(self, args, name, memory):
        self.args, self.memory, self.name, self.failures = args, memory, name, []
        self.codes = {0: 0, 2: 0}
        before, self.command = COMMANDS[name]
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("MXFP4_PACK_", "MALLOC_"))}
        self.env |= {"MXFP4_PACK_DEVICE": "cpu", "XDG_CACHE_HOME": "", "HOME": ""}
        self.begin = pathlib.Path(tempfile.mkdtemp(dir=memory))
        self.library = pathlib.Path(tempfile.mkdtemp(dir=memory)) / "fail.so"
        self.library.symlink_to(os.path.abspath(args.library))  # LD_PRELOAD's names have no spaces
        os.symlink(os.path.abspath(args.checkpoint), self.begin / "in")
        for command in before:
            assert self.run(self.begin, command).returncode == 0
        self.old = tree(self.begin)
        whole = self.folder()
        done = self.run(whole, self.command, 0)
        assert done.returncode == 0, done.stderr
        self.verdict = done.stdout
        self.new = tree(whole)
        self.count = int((whole / "log").read_text())

    def folder(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.memory)) / "run"
        shutil.copytree(self.begin, folder, symlinks=True)
        return folder

    def run(self, folder, command, call=None):
        env = self.env
        if call is not None:
            env = env | {"LD_PRELOAD": str(self.library), "MALLOC_CALL": str(call), "MALLOC_LOG": "log"}
            env |= {"MALLOC_ALL": "1"} if self.args.all and call else {}
        return subprocess.run([os.path.abspath(self.args.program), *command, *(() if "--json" in command else ("-q",))],
                              cwd=folder, env=env, capture_output=True, text=True)

    def try_call(self, call):
        folder = self.folder()
        failed = self.run(folder, self.command, call)
        try:
            self.judge(folder, failed)
        except AssertionError as wrong:
            self.failures.append(f"{self.name}, allocation {call}: {wrong}; {failed.stderr}")
        shutil.rmtree(folder.parent)

    def judge(self, folder, failed):
        code = failed.returncode
        assert code in self.codes, f"exit code {code}"
        self.codes[code] += 1
        said = failed.stdout if "--json" in self.command else failed.stderr
        assert len(said.splitlines()) == 1 or code == 0, "not one line"
        now = tree(folder)
        if code == 0:
            assert self.command[0] != "verify" or failed.stdout == self.verdict, f"0, but {failed.stdout}"
            assert now == self.new, f"0, but {sorted(now.items() ^ self.new.items())}"
            return
        # The run file stays until a run has ended.
        now = {path: file for path, file in now.items() if not path.endswith("/.mxfp4-pack-run")}
        for name in ("out", "unpacked"):
            assert below(now, name) in (below(self.old, name), below(self.new, name)), f"{name} is not whole"
        if now != self.new:
            self.again(folder)

    def again(self, folder):
        again = self.run(folder, self.command)
        now = tree(folder)
        assert now == self.new, f"then {again.returncode}: {again.stderr}, {sorted(now.items() ^ self.new.items())}"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("program", "library", "checkpoint"):
        parser.add_argument(name)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--command", action="append", choices=COMMANDS)
    args = parser.parse_args()
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    wrong, refused = 0, 0
    with tempfile.TemporaryDirectory(dir=shared) as memory, concurrent.futures.ThreadPoolExecutor() as pool:
        for name in args.command or COMMANDS:
            sweep = Sweep(args, name, pathlib.Path(memory))
            # around the rename of the staging directory to OUT; without any memory, not even a line is printed
            last = () if args.all else range(max(1, sweep.count - 60), sweep.count + 1)
            calls = sorted({*range(1, sweep.count + 1, args.every), *last})
            list(pool.map(sweep.try_call, calls))
            print(f"{name}: {sweep.count} allocations, {len(calls)} failed in turn: {sweep.codes[2]} refused, "
                  f"{sweep.codes[0]} without harm, {len(sweep.failures)} wrong", flush=True)
            for line in sweep.failures[:10]:
                print("FAILED:", line)
            wrong, refused = wrong + len(sweep.failures), refused + sweep.codes[2]
    return 1 if wrong or not refused else 0


if __name__ == "__main__":
    sys.exit(main())
