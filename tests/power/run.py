#!/usr/bin/env python3
"""Cuts the power. usage: power/run.py MXFP4-PACK RECORDER CKPT [--every N] [--random N] [--again N] [--scenario NAME]

Runs of a tiny convert are recorded call by call. For the moments between two calls (every N-th, 1 unless told) disks are
made as a loss of power may leave them (disk.py): four kinds of loss, and --random N (4) others. On each of them OUT must
be whole, what it was before or what it is to become, and the same command must end in the bytes of an
undisturbed run with nothing beside them. In that run the power fails again, --again N (0) times. The source lies
outside of what may be changed: the recorder ends a run that changes it.
"""
import argparse
import concurrent.futures
import hashlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

from disk import POLICIES, Disk, Luck, contents, names_of, read_log, tree_of, write_tree

FIRST = ["--backend", "marlin", "--engine", "sglang"]
THEN = ["--backend", "marlin", "--engine", "vllm"]
OTHER = ["--backend", "triton-blackwell", "--engine", "vllm", "--tp-size", "2"]
# name: what made OUT before, the run that loses power, and the share of its calls after which it was killed and resumed
SCENARIOS = {
    "convert": (None, THEN, None),
    "add": (FIRST, [*THEN, "--add"], None),
    "force": (OTHER, [*THEN, "--force"], None),
    "convert, killed": (None, THEN, 0.6),
    "add, killed": (FIRST, [*THEN, "--add"], 0.7),
    "force, killed": (OTHER, [*THEN, "--force"], 0.5),
    "force, killed late": (OTHER, [*THEN, "--force"], 0.95),
}


class Program:
    def __init__(self, args, memory):
        self.program, self.recorder = os.path.abspath(args.program), memory / "recorder.so"
        self.recorder.symlink_to(os.path.abspath(args.recorder))  # LD_PRELOAD's names have no spaces
        self.source = memory / "in"
        shutil.copytree(args.checkpoint, self.source)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("MXFP4_PACK_")}
        self.env |= {"MXFP4_PACK_DEVICE": "cpu", "XDG_CACHE_HOME": "", "HOME": ""}

    def run(self, *args, env=()):
        return subprocess.run([self.program, *map(str, args)], capture_output=True, text=True, env=self.env | dict(env))

    def convert(self, folder, options, log=None, kill=0):
        env = {"LD_PRELOAD": str(self.recorder), "POWER_LOG": str(log), "POWER_ROOT": str(folder), "POWER_KILL": str(kill)}
        return self.run("convert", self.source, folder / "out", "--threads", "1", *options, env=env if log else {})


class Scenario:
    def __init__(self, name, program, disk, memory):
        before, self.options, share = SCENARIOS[name]
        self.name, self.program, self.memory, self.failures, self.states = name, program, memory, [], set()
        folder = self.folder(disk)
        if before:
            self.must(folder, before)
        self.old = tree_of(folder)
        self.disk = Disk(folder)
        self.log = folder.with_suffix(".log")
        self.goal, calls = self.undisturbed()
        if share:
            killed = program.convert(folder, self.options, self.log, int(calls * share))
            assert killed.returncode == -9, killed.stderr
        self.must(folder, self.options, self.log)
        self.compare(tree_of(folder), "recorded")
        self.whole = [contents(self.old, "out"), contents(tree_of(folder), "out")]

    def folder(self, below, tree=None):
        folder = pathlib.Path(tempfile.mkdtemp(dir=below))
        write_tree(tree or {"": (0o755, None)}, folder)
        return folder

    def must(self, folder, options, log=None):
        done = self.program.convert(folder, options, log)
        assert done.returncode == 0, f"{self.name}: {done.returncode}: {done.stderr}"

    def undisturbed(self):
        folder = self.folder(self.memory, self.old)
        log = folder.with_suffix(".log")
        self.must(folder, self.options, log)
        verified = self.program.run("verify", folder / "out", "--source", self.program.source)
        assert verified.returncode == 0, verified.stderr
        return contents(tree_of(folder)), sum(1 for _ in read_log(log))

    def lose_power(self, args, pool):
        """Hands states to the pool; the number of calls."""
        calls = 0
        for calls, entry in enumerate([None, *read_log(self.log)]):
            if entry and not (args.without_sync and entry[0] == "sync" and re.search(args.without_sync, entry[3])):
                self.disk.do(*entry)
            if calls % args.every:
                continue
            for kind in [*POLICIES, *range(args.random)]:
                label = f"{self.name}, call {calls}, {kind}"
                tree = self.disk.after_loss(Luck(random.Random(label), kind))
                if self.is_new(tree):
                    yield pool.submit(self.judge, label, tree, args.again)
        assert contents(self.disk.after_loss(Luck(None, "nothing is lost"))) == self.goal, "not what was recorded"
        print(f"{self.name}: {calls} calls", flush=True)

    def is_new(self, tree):
        digest = hashlib.sha256()
        for path, (mode, data) in contents(tree).items():
            digest.update(f"{path} {mode} {data and len(data)}\n".encode())
            digest.update(data or b"")
        before = len(self.states)
        self.states.add(digest.digest())
        return len(self.states) > before

    def judge(self, label, tree, again):
        folder = self.folder(self.memory, tree)
        try:
            self.recover(label, tree, folder, again)
        except AssertionError as wrong:
            self.failures.append(f"{label}: {wrong}")
        shutil.rmtree(folder)

    def recover(self, label, tree, folder, again):
        out = contents(tree, "out")
        is_marked = bool(out) and out.pop("/.mxfp4-pack-run", None)  # until the run has removed the replaced output
        assert out in self.whole, f"OUT is neither what it was nor what it was to become; {sorted(tree)}"
        if out == self.whole[1] and names_of(tree) == {"out"} and not is_marked:
            return
        log = folder.with_suffix(".log") if again else None
        done = self.program.convert(folder, self.options, log)
        assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
        self.compare(tree_of(folder), f"from {sorted(tree)}: {done.stderr}")
        if again:
            self.lose_power_again(label, tree, folder, log, again)

    def compare(self, tree, how):
        now = contents(tree)
        wrong = sorted(path for path in {*now, *self.goal} if now.get(path) != self.goal.get(path))
        assert not wrong, f"{how}: not as undisturbed: {wrong}"

    def lose_power_again(self, label, tree, folder, log, again):
        calls = list(read_log(log))
        log.unlink()
        for i in range(again):
            label2 = f"{label}, again {i}"
            chance = random.Random(label2)
            before = self.folder(self.memory, tree)
            disk = Disk(before, folder)
            shutil.rmtree(before)
            for entry in calls[:chance.randint(0, len(calls))]:
                disk.do(*entry)
            tree2 = disk.after_loss(Luck(chance))
            if self.is_new(tree2):
                self.judge(label2, tree2, 0)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("recorder")
    parser.add_argument("checkpoint")
    for option, default in (("--every", 1), ("--random", 4), ("--again", 0)):
        parser.add_argument(option, type=int, default=default)
    parser.add_argument("--without-sync")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS)
    args = parser.parse_args()
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    states, failures = 0, []
    with tempfile.TemporaryDirectory() as disk, tempfile.TemporaryDirectory(dir=shared) as memory, \
            concurrent.futures.ThreadPoolExecutor() as pool:
        program = Program(args, pathlib.Path(memory))
        source = contents(tree_of(program.source))
        for name in args.scenario or SCENARIOS:
            scenario = Scenario(name, program, pathlib.Path(disk), pathlib.Path(memory))
            for waiting in list(scenario.lose_power(args, pool)):
                waiting.result()
            states += len(scenario.states)
            failures += scenario.failures
        assert contents(tree_of(program.source)) == source, "the source was changed"
    for line in failures[:20]:
        print("FAILED:", line)
    print(f"{states} states after a loss of power, {len(failures)} wrong")
    return 1 if failures or states == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
