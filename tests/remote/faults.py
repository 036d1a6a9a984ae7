#!/usr/bin/env python3
"""Conversions from a server that fails, and conversions that are killed.

usage: faults.py MXFP4-PACK [--every N] [--kills N] [--stall]

For each way to fail, request 1, 1 + N, 1 + 2N, .. of a conversion fails in turn. A fault that passes must leave an OUT
that equals the conversion of local files. A fault that stays must end with exit code 2, with one line and without OUT,
and the same command must then make that OUT. Then conversions are killed at random times and continued, which must end
with that OUT too. --stall adds the fault that takes 20 seconds.
"""

import argparse
import filecmp
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import server  # noqa: E402

RUN_FILE = ".mxfp4-pack-run"  # the last file that a run removes
OPTIONS = ["--backend", "marlin", "--engine", "vllm", "--device", "cpu", "--no-loader", "-q"]


def files_in(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def equal(a, b, besides=()):
    names = files_in(b)
    return set(names) == set(files_in(a)) - set(besides) and not any(filecmp.cmpfiles(a, b, names, shallow=False)[1:])


class Test:
    def __init__(self, program, folder):
        self.program, self.folder = str(pathlib.Path(program).resolve()), folder
        self.failed = 0
        self.out = folder / "out"
        self.environment = dict(os.environ, HOME=str(folder), TMPDIR=str(folder / "tmp"), XDG_CACHE_HOME=str(folder / "cache"),
                                AWS_ACCESS_KEY_ID="AK", AWS_SECRET_ACCESS_KEY="SK")
        for name in ("HF_HOME", "HF_TOKEN", "HF_HUB_CACHE"):
            self.environment.pop(name, None)
        (folder / "tmp").mkdir()
        (folder / "own").mkdir()
        self.run("synth", "gpt-oss-20b", folder / "own/model", "--tiny", "--layers", "4", "-q")
        self.server = server.Server(server.parser().parse_args([str(folder), "--keys", "AK:SK"]))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.origin = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.environment |= {"HF_ENDPOINT": self.origin, "AWS_ENDPOINT_URL": self.origin + "/s3"}

    def command(self, *arguments):
        return [self.program, *map(str, arguments)]

    def run(self, *arguments):
        return subprocess.run(self.command(*arguments), env=self.environment, capture_output=True, text=True)

    def convert(self, source, *options):
        return self.run("convert", source, self.out, *OPTIONS, *options)

    def clean(self):
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.rmtree(self.folder / ".out.mxfp4-pack", ignore_errors=True)
        shutil.rmtree(self.folder / "cache", ignore_errors=True)

    def check(self, name, right, shown=None):
        if not right:
            self.failed += 1
            print(f"FAILED: {name}", f"exit {shown.returncode}: {shown.stderr}" if shown else "", sep="\n  ")

    def expected(self, source, *options):
        """The OUT without faults, and the number of its requests."""
        self.clean()
        self.server.begin()
        r = self.convert(source, *options)
        if r.returncode != 0:
            sys.exit(f"FAILED: {source}: {r.stderr}")
        kept = self.folder / "expected"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.out, kept)
        return kept, self.server.number

    def fault(self, source, kind, at, expected):
        name = f"{source}: {kind} at request {at}"
        self.clean()
        self.server.begin(kind, at)
        r = self.convert(source)
        passes = kind in server.PASSING
        if r.returncode == 0:
            return self.check(name, equal(self.out, expected), r)
        self.check(name + ": should pass", not passes, r)
        self.check(name + ": one line", r.returncode == 2 and r.stderr.count("\n") == 1 and not self.out.exists(), r)
        self.server.begin()
        r = self.convert(source)
        self.check(name + ": not continued", r.returncode == 0 and equal(self.out, expected), r)

    def faults(self, every, kinds):
        runs = 0
        for source in ("hf://own/model", self.origin + "/plain/own/model", "s3://own/model"):
            expected, requests = self.expected(source)
            for kind in kinds:
                if kind == "flip" and not source.startswith("hf"):
                    continue  # no hash is published
                for at in range(1, requests + 1, every):
                    self.fault(source, kind, at, expected)
                    runs += 1
        print(f"{runs} faults")

    def kills(self, count):
        """SIGKILL after a random time, then the same command, which may be killed again."""
        source = "hf://own/model"
        expected, _ = self.expected(source)
        start = time.monotonic()
        self.clean()
        self.convert(source)
        whole, done, killed = time.monotonic() - start, 0, 0
        self.clean()
        while killed < count:
            process = subprocess.Popen(self.command("convert", source, self.out, *OPTIONS), env=self.environment,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                error = process.communicate(timeout=random.uniform(0, 1.1 * whole))[1]
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                killed += 1
                self.check("OUT after a kill", not self.out.exists() or equal(self.out, expected, [RUN_FILE]))
                continue
            done += 1
            self.check(f"after kills: {error}", process.returncode == 0 and equal(self.out, expected))
            self.clean()
        r = self.convert(source)
        self.check("after the last kill", r.returncode == 0 and equal(self.out, expected), r)
        left = [p for p in (self.folder / "tmp").iterdir()]
        self.check(f"left in TMPDIR: {left}", not left)
        print(f"{killed} kills, {done + 1} conversions")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--stall", action="store_true")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        test = Test(options.program, folder)
        test.faults(options.every, [k for k in server.FAULTS if k != "stall"])
        if options.stall:
            expected, requests = test.expected("hf://own/model")
            for at in (1, 6, requests):
                test.fault("hf://own/model", "stall", at, expected)
        test.kills(options.kills)
    finally:
        shutil.rmtree(folder)
    print(f"{test.failed} failed" if test.failed else "all right")
    return 1 if test.failed else 0


if __name__ == "__main__":
    sys.exit(main())
