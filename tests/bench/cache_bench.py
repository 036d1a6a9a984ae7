"""Starts of vLLM, original and packed, by the content of the page cache: load_model and the time to the first token.

    python3 tests/bench/cache_bench.py --program mxfp4-pack --dir DIR [--rounds 3] [--formats default,instanttensor]
        [--limit GIB] [--memory GIB] [--rows REGEX] [--set NAME=VALUE ..] [--seconds S]
        [--model 'gpt-oss-20b --layers 4'] [--go-on]

DIR is on the measured disk and has free space for twice the model. The checkpoint DIR/raw and its output DIR/packed are
created if they are missing. vLLM is first started once with each format, original and packed, and the results of these
starts are compared. Each round then starts, with each format:

    raw and packed, cold; again; a third time: /proc/sys/vm/drop_caches empties the page cache before the first of the three
    packed after `convert`, and after `convert` and `verify`: no page of either directory is cached before `convert`
    with --limit, in a memory cgroup of so many GiB: raw and packed, cold; again; a third time (the first format only)
    with --memory, while the machine has only so many GiB available: the same (the rest is taken as huge pages)

--rows: only those whose names match, as in the table; the page cache is emptied only before a first of three. On a tmpfs
use '^(raw|packed) again', since only the engine's own libraries can be cold there.
One line for each start: seconds of load_model and its parts as in start_bench.py; `first`, from the engine's constructor to its
first token, after a prompt of 160; GB of the model's files in the page cache before and after; GB that the disk read. --set
sets an environment variable in every start and command. Lines of JSON are added to DIR/results.jsonl: a second call goes on
where the first ended. With --seconds it ends in time for the longest start. With --go-on it measures even if the first starts
generate other tokens than raw, as gpt-oss-120b does from load to load. The last lines are a table: medians (and all).
"""

import argparse
import ctypes
import glob
import json
import multiprocessing
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import start_bench
import start_measure
import start_vllm

CACHESTAT = 451  # the system call's number
ORDER = ("cold", "again", "third")
HUGE_PAGES = "/proc/sys/vm/nr_hugepages"  # of 2 MiB
LONGEST = 150  # seconds of a start, which is ended then
COLUMNS = ("load", "first", "weights", "convert", "packed", "host", "before", "after", "disk")


def tensor_files(directory):
    return glob.glob(os.path.join(directory, "**", "*.safetensors"), recursive=True)


def cached_pages(path):
    """How many pages of a file are in the page cache."""
    counts = (ctypes.c_uint64 * 5)()
    with open(path, "rb") as file:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(CACHESTAT, file.fileno(), ctypes.byref((ctypes.c_uint64 * 2)()), ctypes.byref(counts), 0):
            raise OSError(ctypes.get_errno(), "cachestat")
    return counts[0]


def cached_gb(directory):
    return sum(map(cached_pages, tensor_files(directory))) * os.sysconf("SC_PAGE_SIZE") / 1e9


def disk_gb(directory):
    """The bytes that the disk under a directory has read since the machine was booted."""
    device = os.stat(directory).st_dev
    try:
        with open(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat") as file:
            return int(file.read().split()[2]) * 512 / 1e9
    except OSError:  # of a file system that says no disk's number
        return 0.0


def empty_page_cache(directories):
    """Returns a description of the action."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3")
        return "drop_caches"
    except OSError:
        for directory in directories:
            start_bench.drop(directory)
        return "posix_fadvise"


def available_gib():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:")) / 2**20


def take_memory(gib):
    """Makes only so many GiB available, by huge pages that nothing uses; with None, all again."""
    for _ in range(3):  # a machine can get more memory as it is used
        with open(HUGE_PAGES) as file:
            taken = int(file.read())
        wanted = max(0, taken + int((available_gib() - gib) * 512)) if gib else 0
        if abs(wanted - taken) > 128 or not gib:
            with open(HUGE_PAGES, "w") as file:
                file.write(str(wanted))


def make_group(gib):
    """A memory cgroup (v1 or v2) of that size below the root; its folder."""
    root = "/sys/fs/cgroup/memory"
    limit = "memory.limit_in_bytes"
    if not os.path.isdir(root):
        root, limit = "/sys/fs/cgroup", "memory.max"
        if not os.path.exists(f"{root}/cgroup.controllers"):
            subprocess.run(["mount", "-t", "cgroup2", "none", root], check=True)
        with open(f"{root}/cgroup.subtree_control", "w") as file:
            file.write("+memory")
    group = f"{root}/mxfp4-cache-bench"
    os.makedirs(group, exist_ok=True)
    with open(f"{group}/{limit}", "w") as file:
        file.write(str(gib << 30))
    return group


def engine_start(directory, engine, group, path, result):
    """In a process of its own."""
    if group:
        with open(f"{group}/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
    from vllm import SamplingParams
    start_vllm.measure_loads(path, False)
    begin = time.monotonic()
    llm = start_vllm.engine_of(directory, engine)
    sampling = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, detokenize=False)
    prompt = {"prompt_token_ids": start_bench.PROMPT}
    token = llm.generate([prompt], sampling, use_tqdm=False)[0].outputs[0].token_ids[0]
    result.put({"first": time.monotonic() - begin, "token": token})


class Bench:
    def __init__(self, options):
        self.options = options
        self.group = None
        self.begin, self.longest = time.monotonic(), 60
        self.raw, self.packed, self.log = (os.path.join(options.dir, n) for n in ("raw", "packed", "results.jsonl"))
        self.done = start_measure.read(self.log) if os.path.exists(self.log) else []
        self.engine_options = argparse.Namespace(engine="vllm", backend="marlin", tp=1, ep=False, cold=False, again=False,
                                                 load_only=False, fallback=None, raw=self.raw, packed=self.packed)

    def run(self, *arguments):
        """A command of the program; its seconds."""
        begin = time.monotonic()
        subprocess.run([self.options.program, *arguments, "-q"], check=True)
        return time.monotonic() - begin

    def convert(self):
        shutil.rmtree(self.packed, ignore_errors=True)
        start_bench.drop(self.raw)
        return self.run("convert", self.raw, self.packed, "--engine", "vllm", "--backend", "marlin",
                        *shlex.split(self.options.convert))

    def prepare(self, formats):
        """The checkpoint and the first starts, which load kernels that later ones find."""
        if os.path.exists(self.log):
            return True
        if not os.path.exists(self.raw):
            print(f"synth: {self.run('synth', *shlex.split(self.options.model), self.raw):.1f} s", flush=True)
            os.sync()
        print(f"convert: {self.convert():.1f} s", flush=True)
        for directory in (self.raw, self.packed):
            seconds, size = start_bench.read_seconds(directory)
            print(f"a plain program reads {directory} cold: {size / 1e9:.2f} GB in {seconds:.2f} s, "
                  f"{size / 1e9 / seconds:.2f} GB/s", flush=True)
        bench = start_bench.Bench(self.engine_options)
        bench.round(0, formats)
        bench.table()
        open(self.log, "a").close()
        return self.options.go_on or not bench.failed

    def over(self):
        return self.options.seconds and time.monotonic() - self.begin + self.longest > self.options.seconds

    def start(self, turn, row, which, format, more):
        """One measured start; `more` is kept with it."""
        directory = getattr(self, which)
        group = self.group if row.startswith("limit") else None
        if row.startswith("memory"):
            take_memory(self.options.memory)
            more = more | {"available": available_gib()}
        before, disk = cached_gb(directory), disk_gb(directory)
        context = multiprocessing.get_context("fork")
        result = context.Queue()
        engine = start_vllm.engine_options(self.engine_options, format)
        with tempfile.NamedTemporaryFile() as file:
            process = context.Process(target=engine_start, args=(directory, engine, group, file.name, result))
            process.start()
            end = time.monotonic() + LONGEST
            while process.is_alive() and result.empty() and time.monotonic() < end:
                time.sleep(0.05)
            found = {"failed": process.exitcode} if result.empty() else result.get(timeout=5)
            start_vllm.stop(process)
            seen = (start_measure.read(file.name) or [{}])[0]
        seen.pop("experts", None)
        one = {"turn": turn, "row": row, "format": format, "which": which} | more | seen | found
        one |= {"before": before, "after": cached_gb(directory), "disk": disk_gb(directory) - disk}
        with open(self.log, "a") as file:
            file.write(json.dumps(one) + "\n")
        self.done.append(one)
        figures = " ".join(f"{k} {v:.2f}" for k, v in one.items() if isinstance(v, float))
        print(f"{turn} {row}, {format}: {figures} {'' if 'first' in found else found} {seen.get('report', '')}", flush=True)

    def rows(self, limits):
        """(its rows, which, what comes before the first of them); rows of one group need one another. limits: of little
        memory, with which some rows are repeated."""
        for which in ("raw", "packed"):
            yield [f"{which} {when}" for when in ORDER], which, self.emptied
        yield ["after convert"], "packed", self.converted
        yield ["after convert and verify"], "packed", self.verified
        for limit in limits:
            for which in ("raw", "packed"):
                yield [f"{limit}, {which} {when}" for when in ORDER], which, self.emptied

    def wanted(self, row):
        return re.search(self.options.rows, row)

    def emptied(self):
        return {"by": empty_page_cache((self.raw, self.packed))}

    def converted(self):
        return {"convert_s": self.convert()}

    def verified(self):
        return {"convert_s": self.convert(), "verify_s": self.run("verify", self.packed)}

    def round(self, turn, formats):
        """Whether there was time for it."""
        limits = [name for name in ("limit", "memory") if getattr(self.options, name)]
        for format in formats:
            for rows, which, before in self.rows(limits if format == formats[0] else []):
                last = next(filter(self.wanted, reversed(rows)), None)
                if not last or any((one["turn"], one["row"], one["format"]) == (turn, last, format) for one in self.done):
                    continue
                begin = time.monotonic()
                if self.over():
                    return False
                more = before() if self.wanted(rows[0]) else {}
                for row in filter(self.wanted, rows):
                    self.start(turn, row, which, format, more)
                    more = {}
                if last.startswith("memory"):
                    take_memory(None)
                self.longest = max(self.longest, time.monotonic() - begin)
        return True

    def table(self):
        print(f"| | load_model s (all) | first token s (all) | {' | '.join(COLUMNS[2:])} |\n|{'---|' * (len(COLUMNS) + 1)}")
        for way in dict.fromkeys((one["row"], one["format"]) for one in self.done):
            ones = {one["turn"]: one for one in self.done if (one["row"], one["format"]) == way}.values()
            cells = []
            for key in COLUMNS:
                values = [one[key] for one in ones if one.get(key) is not None]
                cell = f"{statistics.median(values):.2f}" if values else ""
                cells.append(cell + (f" ({', '.join(f'{v:.2f}' for v in values)})" if key in COLUMNS[:2] else ""))
            print(f"| {', '.join(way)} | {' | '.join(cells)} |")
        for key in ("convert_s", "verify_s"):
            print(f"{key}: {', '.join(f'{one[key]:.1f}' for one in self.done if key in one)}")
        print("first tokens: " + ", ".join(map(str, sorted({one["token"] for one in self.done if "token" in one}))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--model", default="gpt-oss-20b")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--formats", default="default,instanttensor")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--memory", type=int)
    parser.add_argument("--rows", default="")
    parser.add_argument("--go-on", action="store_true")
    parser.add_argument("--set", action="append", default=[], dest="environment")
    parser.add_argument("--convert", default="", help="further options of convert, in one string")
    parser.add_argument("--seconds", type=float)
    options = parser.parse_args()
    os.environ |= dict(one.split("=", 1) for one in options.environment)
    formats = options.formats.split(",")
    os.makedirs(options.dir, exist_ok=True)
    bench = Bench(options)
    start_vllm.prepare()
    if not bench.prepare(formats):
        return 1
    bench.group = make_group(options.limit) if options.limit else None
    whole = all(bench.round(turn, formats) for turn in range(options.rounds))
    bench.table()
    print("all rounds are done" if whole else "not all rounds are done: call it again")
    return 0


if __name__ == "__main__":
    sys.exit(main())
