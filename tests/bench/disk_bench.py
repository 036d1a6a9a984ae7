#!/usr/bin/env python3
"""How long convert takes with parts of its source in the page cache, beside cp and fio on the same file system.

usage: disk_bench.py MXFP4-PACK DIR [--cached 0,50,94,100] [--runs 5] [--layers 1] [--before OTHER-MXFP4-PACK]

A checkpoint of random bytes (gpt-oss-20b) is made in DIR, and removed; 8 GB are needed with one layer. For each
percentage P the source's page cache is dropped, and P of each 100 MiB are read again, spread over each file. fincore
then reports the cached bytes. In turn, each with the same cache, everything synced before:
  convert  ends with all data on disk, its default
  before   the same with another build
  beside cat, before beside cat  both while cat reads the source once, if nothing is cached
  cp       cp -r --reflink=never of the source, which has as many bytes as the output, and sync
  no-sync  convert --no-sync
  cp alone the same cp without the sync
  fio      reads as many bytes as are missing of the source and at once writes as many as convert does, both direct, in
           requests of 1 MiB, 8 of each in flight, fsync at the end
The first round is discarded. Printed: medians of seconds and CPU seconds, and medians of the rounds' ratios: of convert's
seconds to each row's, and of those of no-sync to those of cp alone.
"""
import argparse
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys

from convert_bench import first_line, timed, tree_bytes

MIB = 1 << 20
# In every other round from the last to the first: pages that the one before freed are cheaper than those that a virtual
# machine's host has to bring back.
WAYS = ("convert", "before", "beside cat", "before beside cat", "cp", "fio", "no-sync", "cp alone")


def files_in(directory):
    return sorted(os.path.join(d, n) for d, _, names in os.walk(directory) for n in names)


def set_cached(files, percent):
    """Brings `percent` of each 100 MiB of a file into the page cache, the same ones each time."""
    subprocess.run(["sync"], check=True)
    for path in files:
        chosen = random.Random(path)
        with open(path, "rb", buffering=0) as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            picks = []
            for at in range(0, os.fstat(f.fileno()).st_size, MIB):
                picks = picks or chosen.sample(range(100), 100)
                if picks.pop() < percent:
                    os.pread(f.fileno(), MIB, at)


def cached_bytes(files):
    text = subprocess.run(["fincore", "-b", "-n", "-r", "-o", "RES", *files], check=True, capture_output=True, text=True)
    return sum(map(int, text.stdout.split()))


def fio(files, missing, out, written):
    command = ["fio", "--direct=1", "--ioengine=io_uring", "--iodepth=8", "--bs=1M", "--output=/dev/null",
               "--thread", "--invalidate=0"]
    if missing >= MIB:
        large = [f for f in files if os.path.getsize(f) > 64 * MIB]
        command += ["--name=read", "--rw=read", "--allow_file_create=0", "--filename=" + ":".join(large),
                    f"--io_size={missing}"]
    command += ["--name=write", "--rw=write", f"--filename={out}", f"--size={written}", "--end_fsync=1"]
    return command


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("dir")
    parser.add_argument("--cached", default="0,50,94,100")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--before")
    o = parser.parse_args()
    root = os.path.join(os.path.abspath(o.dir), "mxfp4-pack-disk-bench")
    source, out = os.path.join(root, "in"), os.path.join(root, "out")
    os.mkdir(root)
    try:
        subprocess.run([o.program, "synth", "gpt-oss-20b", source, "--layers", str(o.layers), "-q"], check=True)
        bench(o, source, out)
    finally:
        shutil.rmtree(root)


def bench(o, source, out):
    files = files_in(source)
    size = tree_bytes(source)
    arguments = [source, out, "--backend", "marlin", "--engine", "vllm", "-q"]
    print(f"{os.cpu_count()} cores, {first_line('/proc/cpuinfo', 'model name')}, Linux {platform.release()}, "
          f"{size / 1e9:.2f} GB, medians of {o.runs}")
    print("| cached | | s | CPU s | ours to these |\n|---|---|---|---|---|")
    for percent in map(int, o.cached.split(",")):
        times = {}
        for i in range(o.runs + 1):
            for name in WAYS[::1 if i % 2 else -1]:
                if name.startswith("before") and not o.before or name.endswith("beside cat") and percent:
                    continue
                if name.endswith("beside cat"):  # each with memory that the machine's host has there
                    subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)
                set_cached(files, percent)
                missing = size - cached_bytes(files)
                reader = subprocess.Popen(["cat", *files], stdout=subprocess.DEVNULL) if name.endswith("beside cat") else None
                what = "convert" if name == "beside cat" else name.removesuffix(" beside cat")
                command = {"convert": [o.program, "convert", *arguments],
                           "before": [o.before, "convert", *arguments],
                           "cp": ["cp", "-r", "--reflink=never", source, out],
                           "no-sync": [o.program, "convert", *arguments, "--no-sync"],
                           "cp alone": ["cp", "-r", "--reflink=never", source, out],
                           "fio": fio(files, missing, out, size)}[what]
                times.setdefault(name, []).append(timed(command, os.path.dirname(out) if name == "cp" else None))
                if reader:
                    reader.wait()
                print(f"  {percent} %, {100 - 100 * missing / size:.0f} % cached, {name}: "
                      "{:.2f} s, {:.2f} CPU s".format(*times[name][-1]), file=sys.stderr, flush=True)
                (shutil.rmtree if os.path.isdir(out) else os.remove)(out)
        for name in filter(times.get, WAYS):
            rows = times[name]
            ours = times["no-sync" if name in ("no-sync", "cp alone") else "convert"]
            ratios = [a[0] / b[0] for a, b in zip(ours[1:], rows[1:])]
            print(f"| {percent} % | {name} | {statistics.median(r[0] for r in rows[1:]):.2f} | "
                  f"{statistics.median(r[1] for r in rows[1:]):.2f} | {statistics.median(ratios):.2f} |", flush=True)


if __name__ == "__main__":
    main()
