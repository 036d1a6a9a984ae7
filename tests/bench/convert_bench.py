#!/usr/bin/env python3
"""How long convert takes beside `cp -r --reflink=never` of its output on the same file system, and verify beside `cat`.

usage: convert_bench.py MXFP4-PACK DIR [--what convert,files,bytes] [--backends marlin,flashinfer-cutlass]
                        [--modes warm,cold] [--runs 5] [--layers 4]
       convert_bench.py MXFP4-PACK DIR --what devices [--threads cpu:1,cpu:4,cpu:16,cuda:4,cuda:16] [--copies 4,16]
                        [--out DIR2] [..]

DIR is on the file system to measure. A checkpoint of random bytes and the outputs are made in DIR (14 GB with 4 layers)
and removed. With --out, the timed commands write to DIR2, on another file system.
  warm   the files to read are in the page cache; a run ends when the program does
  cold   the page cache is dropped before each run (as root); a run ends when all is on disk: sync is part of it
  convert  beside cp of the output
  files    verify --level files beside cat of the output
  bytes    verify --level bytes beside cat of the output and of the checkpoint
  devices  convert with so many threads on the CPU and on a GPU, page cache warm; cp; and by several processes at once
           cp of the files, and reading them into one and writing them from another 16 MB, which is the least that a
           GPU leaves to the CPU: seconds, GB/s of output, CPU seconds and their ratio to cp's
Runs of the two alternate. Before each run outputs are removed and all is synced; the first pair is discarded. Printed
are medians of seconds and of CPU seconds (user + system), and the ratio of the medians. Also printed are the least and
the greatest ratio of a pair, and the program's peak resident memory.
"""
import argparse
import contextlib
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time


def first_line(path, key):
    with open(path) as f:
        for line in f:
            if line.startswith(key):
                return line.split(":", 1)[1].strip()
    return "?"


def timed(command, sync_path=None):
    """Seconds, CPU seconds and peak resident bytes of a command; on request including a sync of its output."""
    start = time.monotonic()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command}: exit code {process.returncode}")
    if sync_path:
        subprocess.run(["sync", "-f", sync_path], check=True)
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def read_all(directory):
    for folder, _, names in os.walk(directory):
        for name in names:
            with open(os.path.join(folder, name), "rb", buffering=0) as f:
                buffer = bytearray(1 << 22)
                while f.readinto(buffer):
                    pass


def prepare(mode, sources, target):
    if target:
        shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["sync"], check=True)
    if mode == "cold":
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3\n")
    else:
        for source in sources:
            read_all(source)


def tree_bytes(directory):
    return sum(os.path.getsize(os.path.join(d, n)) for d, _, names in os.walk(directory) for n in names)


def cat(*directories):
    return ["sh", "-c", 'find "$@" -type f -exec cat {} + >/dev/null', "sh", *directories]


def measure(mode, ours, theirs, runs):
    """Timings of two commands in turn. ours, theirs: (command, the directories that it reads, its output or None)."""
    rows = []
    for i in range(runs + 1):
        pair = []
        for command, sources, target in (ours, theirs):
            prepare(mode, sources, target)
            pair.append(timed(command, os.path.dirname(target) if target and mode == "cold" else None))
            if target:
                shutil.rmtree(target)
        if i > 0:
            rows.append(pair)
        print(f"  {'discarded ' if i == 0 else ''}{pair[0][0]:.2f} {pair[1][0]:.2f}", file=sys.stderr)
    return rows


def measure_devices(cases, cached, out, runs, output_bytes):
    """cases: (name, command that makes `out`), timed in turn, cp first. cached: the files that must be in the page
    cache."""
    times = {name: [] for name, _ in cases}
    for _ in range(runs + 1):
        for directory in cached:
            read_all(directory)
        for name, command in cases:
            times[name].append(timed(command))
            print("{}: {:.2f} s, {:.2f} CPU s".format(name, *times[name][-1]), file=sys.stderr, flush=True)
            shutil.rmtree(out)
    middle = {name: [statistics.median(t[k] for t in all_times[1:]) for k in range(2)]
              for name, all_times in times.items()}
    cp_cpu = middle[cases[0][0]][1]
    for name, (seconds, cpu) in middle.items():
        yield f"| {name} | {output_bytes / seconds / 1e9:.2f} | {seconds:.2f} | {cpu:.2f} | {cpu / cp_cpu:.2f} |"


# argv: a file, and the path of a copy of its size. The buffers are larger than a core's own cache, like those for a
# GPU.
COPY_THROUGH_MEMORY = """
import os, sys
size, block = 16 << 20, 4 << 20
given, taken = (memoryview(bytearray(b"x") * size) for _ in range(2))
source = os.open(sys.argv[1], os.O_RDONLY)
os.makedirs(os.path.dirname(sys.argv[2]), exist_ok=True)
copy = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_EXCL)
at = 0
while got := os.preadv(source, [given[at % size:at % size + block]], at):
    at += os.pwrite(copy, taken[at % size:at % size + got], at)
"""


def device_cases(o, arguments, checkpoint, reference, out):
    files = 'mkdir "$2" && cd "$1" && find . -type f | xargs -P "$3" -I{} '
    yield "cp -r --reflink=never", ["cp", "-r", "--reflink=never", reference, out]
    for processes in filter(None, o.copies.split(",")):
        yield (f"cp of the files, processes {processes}",
               ["sh", "-c", files + 'cp --reflink=never --parents {} "$2"', "sh", reference, out, processes])
        yield (f"through memory, processes {processes}",
               ["sh", "-c", files + 'python3 -I -S -c "$4" {} "$2"/{}', "sh", reference, out, processes,
                COPY_THROUGH_MEMORY])
    for one in o.threads.split(","):
        device, threads = one.rsplit(":", 1)
        yield (f"{device}, threads {threads}",
               [o.program, "convert", checkpoint, out, *arguments, "--device", device, "--threads", threads])


def row(what, backend, mode, rows):
    mid = [[statistics.median(r[i][k] for r in rows) for k in range(3)] for i in range(2)]
    ratios = [r[0][0] / r[1][0] for r in rows]
    return (f"| {what} | {backend} | {mode} | {mid[0][0]:.2f} | {mid[1][0]:.2f} | {mid[0][0] / mid[1][0]:.2f} | "
            f"{min(ratios):.2f} to {max(ratios):.2f} | {mid[0][1]:.2f} | {mid[1][1]:.2f} | {mid[0][2] / 2**20:.0f} |")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("dir")
    parser.add_argument("--what", default="convert,files,bytes")
    parser.add_argument("--backends", default="marlin,flashinfer-cutlass")
    parser.add_argument("--modes", default="warm,cold")
    parser.add_argument("--threads", default="cpu:1,cpu:4,cpu:16,cuda:4,cuda:16")
    parser.add_argument("--copies", default="4,16")
    parser.add_argument("--out")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--layers", type=int, default=4)
    o = parser.parse_args()

    roots = [os.path.join(os.path.abspath(d), "mxfp4-pack-bench") for d in (o.dir, o.out) if d]
    checkpoint, reference = (os.path.join(roots[0], n) for n in ("in", "reference"))
    out, copy = (os.path.join(roots[-1], n) for n in ("out", "copy"))
    with contextlib.ExitStack() as made:
        for one in roots:
            os.mkdir(one)
            made.callback(shutil.rmtree, one)
        kinds = subprocess.run(["stat", "-f", "-c", "%T", *roots], capture_output=True, text=True, check=True).stdout.split()
        print(f"{os.cpu_count()} cores, {first_line('/proc/cpuinfo', 'model name')}, {' to '.join(kinds)}, "
              f"Linux {platform.release()}")
        subprocess.run([o.program, "synth", "gpt-oss-20b", checkpoint, "--layers", str(o.layers), "-q"], check=True)
        if o.what == "devices":
            arguments = ["--backend", o.backends.split(",")[0], "--engine", "vllm", "-q"]
            subprocess.run([o.program, "convert", checkpoint, reference, *arguments], check=True)
            cases = list(device_cases(o, arguments, checkpoint, reference, out))
            print("| | GB/s of output | s | CPU s | of cp's |\n|---|---|---|---|---|")
            cached = [] if kinds[0] == "tmpfs" else [checkpoint, reference]
            print("\n".join(measure_devices(cases, cached, out, o.runs, tree_bytes(reference))))
            return
        print("| | backend | page cache | s | cp or cat s | ratio | pairs | CPU s | cp or cat CPU s | peak MiB |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for backend in o.backends.split(","):
            arguments = ["--backend", backend, "--engine", "vllm", "-q"]
            shutil.rmtree(reference, ignore_errors=True)
            subprocess.run([o.program, "convert", checkpoint, reference, *arguments], check=True)
            verify = [o.program, "verify", reference, "-q", "--level"]
            both = [reference, checkpoint]
            cases = {
                "convert": (([o.program, "convert", checkpoint, out, *arguments], [checkpoint], out),
                            (["cp", "-r", "--reflink=never", reference, copy], [reference], copy)),
                "files": (([*verify, "files"], [reference], None), (cat(reference), [reference], None)),
                "bytes": (([*verify, "bytes", "--source", checkpoint], both, None), (cat(*both), both, None)),
            }
            for what in o.what.split(","):
                for mode in o.modes.split(","):
                    print(row(what, backend, mode, measure(mode, *cases[what], o.runs)), flush=True)
            print(f"{backend}: {tree_bytes(checkpoint) / 1e9:.2f} GB in, {tree_bytes(reference) / 1e9:.2f} GB out",
                  file=sys.stderr)


if __name__ == "__main__":
    main()
