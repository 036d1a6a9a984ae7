#!/usr/bin/env python3
"""What convert's checks cost: seconds and CPU seconds with and without published hashes, beside sha256sum.

usage: checks_bench.py MXFP4-PACK DIR [--without PROGRAM] [--layers 8] [--rounds 5]

Makes a gpt-oss-20b checkpoint with its SHA256SUMS in DIR, and removes both. The rows are converted in random order in
each round: with hashes, without them, and with PROGRAM. PROGRAM is a build whose NumberScanner::operator() returns at
once, so it does not look for zeros, NaN and infinity. Printed are medians, for a checkpoint that is not in the page
cache (cold) and one that is (warm).
"""

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path


def evict(folder):
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fill(folder):
    for path in folder.iterdir():
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 22):
                pass


def timed(command, folder):
    """(seconds, CPU seconds)"""
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command}: exit code {process.returncode}")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime


def rows_of(program, without, folder):
    convert = ["convert", "ck", "out", "--backend", "marlin", "--engine", "vllm", "--page-cache", "no", "-q"]
    rows = {
        "convert": [program, *convert, "--no-published"],
        "convert --published": [program, *convert, "--published", "SUMS"],
        "sha256sum": ["sha256sum", *(str(p.relative_to(folder)) for p in (folder / "ck").iterdir())],
    }
    if without:
        rows["convert without content checks"] = [without, *convert, "--no-published"]
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--without", type=Path)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    o = parser.parse_args()
    folder, checkpoint = o.folder.resolve(), o.folder.resolve() / "ck"
    program, without = str(o.program.resolve()), o.without and str(o.without.resolve())
    folder.mkdir(exist_ok=True)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    subprocess.run([program, "synth", "gpt-oss-20b", checkpoint, "--layers", str(o.layers), "-q"], check=True)
    subprocess.run("sha256sum * > ../SUMS", shell=True, cwd=checkpoint, check=True)
    rows = rows_of(program, without, folder)
    print("| cache | | s | CPU s | CPU s, least to most |\n|---|---|---|---|---|")
    for cache, prepare in (("cold", evict), ("warm", fill)):
        results = {name: [] for name in rows}
        for _ in range(o.rounds):
            for name in random.sample(list(rows), len(rows)):
                shutil.rmtree(folder / "out", ignore_errors=True)
                prepare(checkpoint)
                results[name].append(timed(rows[name], folder))
        for name, runs in results.items():
            seconds, cpu = ([run[i] for run in runs] for i in (0, 1))
            median = statistics.median
            print(f"| {cache} | {name} | {median(seconds):.2f} | {median(cpu):.2f} | {min(cpu):.2f} to {max(cpu):.2f} |")
    for name in ("ck", "out", "cache"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "SUMS").unlink()


main()
