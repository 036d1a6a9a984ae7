#!/usr/bin/env python3
"""The cost of the page cache for convert, and its gain for later starts: convert, then two reads of the same packed
files.

usage: warm_bench.py MXFP4-PACK DIR [--layers 2] [--runs 3] [--cold] [--source-cold] [--settings no,auto,yes]
       [--other PROGRAM]

A checkpoint of random bytes (gpt-oss-20b) and the outputs are made in DIR, on a disk, and removed. Rows:
  convert      with each --page-cache of the settings, its checkpoint in the page cache (with --source-cold, dropped from
               there), everything synced before
  first start  the C library's reader, of libmxfp4_pack.so beside the program, reads all packed files into memory by 12
               threads, right after convert
  second start the same once more
The same setting holds in each row. With --cold OUT is dropped from the page cache after convert, as after a reboot.
--other is a program without --page-cache, of which convert is measured too.
The settings come in another order in each run, as each leaves memory in another state to the next. Printed: medians (least
to greatest) of seconds, of CPU seconds and of GB in the page cache afterwards.
"""
import argparse
import glob
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys

from convert_bench import first_line, timed

OTHER = "other program"
READ = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli", "read_all.py")


def cached_gb(files):
    text = subprocess.run(["fincore", "-b", "-n", "-r", "-o", "RES", *files], check=True, capture_output=True, text=True)
    return sum(map(int, text.stdout.split())) / 1e9


def drop(files):
    for path in files:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(directory):
    for path in glob.glob(os.path.join(directory, "*")):
        subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)


def measure(o, source, out, setting, rows):
    """One convert and two starts; its rows are seconds, CPU seconds and GB in the page cache afterwards."""
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run(["sync"], check=True)
    drop(glob.glob(os.path.join(source, "*"))) if o.source_cold else warm(source)
    library = os.path.join(os.path.dirname(os.path.abspath(o.program)), "libmxfp4_pack.so")
    options = ["--backend", "marlin", "--engine", "vllm", "-q", *([] if setting == OTHER else ["--page-cache", setting])]
    convert = [o.other if setting == OTHER else o.program, "convert", source, out, *options]
    os.environ["MXFP4_PACK_PAGE_CACHE"] = setting
    rows.setdefault(("convert", setting), []).append(timed(convert)[:2])
    files = glob.glob(os.path.join(out, "packed", "packed-*"))
    rows["convert", setting][-1] += (cached_gb(files),)
    if o.cold:
        drop(files)
    for name in ("first start", "second start") if setting != OTHER else ():
        seconds = timed([sys.executable, READ, "--into-memory", library, "0", *files])[:2]
        rows.setdefault((name, setting), []).append(seconds + (cached_gb(files),))
    print(setting, [rows[key][-1] for key in rows if key[1] == setting], file=sys.stderr, flush=True)
    return sum(map(os.path.getsize, files)) / 1e9


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("dir")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--source-cold", action="store_true")
    parser.add_argument("--settings", default="no,auto,yes")
    parser.add_argument("--other")
    o = parser.parse_args()
    settings = o.settings.split(",") + ([OTHER] if o.other else [])
    root = os.path.join(os.path.abspath(o.dir), "mxfp4-pack-warm-bench")
    source, out = os.path.join(root, "in"), os.path.join(root, "out")
    os.mkdir(root)
    try:
        subprocess.run([o.program, "synth", "gpt-oss-20b", source, "--layers", str(o.layers), "-q"], check=True)
        rows = {}
        order = random.Random(0)
        for _ in range(o.runs):
            for setting in order.sample(settings, len(settings)):
                size = measure(o, source, out, setting, rows)
    finally:
        shutil.rmtree(root)
    print(f"{os.cpu_count()} cores, {first_line('/proc/cpuinfo', 'model name')}, Linux {platform.release()}, "
          f"{size:.2f} GB packed, medians of {o.runs}{', source dropped before convert' if o.source_cold else ''}"
          f"{', OUT dropped after convert' if o.cold else ''}")
    print("| | page cache | s | CPU s | GB cached afterwards |\n|---|---|---|---|---|")
    for (name, setting), found in sorted(rows.items()):
        cells = [f"{statistics.median(c):.2f} ({min(c):.2f} to {max(c):.2f})" for c in zip(*found)]
        print(f"| {name} | {setting} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
