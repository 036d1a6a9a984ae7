#!/usr/bin/env python3
"""Two runs at once on one OUT. usage: run.py MXFP4-PACK [--pairs N] [--seed S] [--only NAME,NAME]

Each pair begins with a copy of a state of OUT and runs two random commands at once. Afterwards OUT's parent folder must
equal, byte for byte, the result of the two commands one after the other, in either order. Or one of them must have
refused (exit code 2), with the result of the other command alone.
verify and unpack must never report success for an OUT that is wrong.

Delays before the start, and with strace delays of random system calls, make the two meet at different moments.
"""
import argparse
import dataclasses
import hashlib
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import choose
from choose import COMMANDS, STATES, WRITERS

@dataclasses.dataclass
class Outcome:
    codes: tuple[int, int]
    tree: dict[str, str]


def digest(path):
    if path.is_symlink():
        return "link to " + os.readlink(path)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"


def tree(folder):
    """Every name under a folder and its content. An empty journal is a free lock and is left out."""
    found = {str(p.relative_to(folder)): digest(p) for p in sorted(folder.rglob("*"))}
    empty = hashlib.sha256(b"").hexdigest()
    return {name: what for name, what in found.items() if not (name.endswith(".journal") and what == empty)}


class Bench:
    """The program, a checkpoint, the states of OUT, and what pairs of commands leave one after the other."""

    def __init__(self, program, folder):
        self.program = str(pathlib.Path(program).resolve())
        self.folder = folder
        self.source = folder / "in"
        self.known = {}
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("MXFP4_PACK_")}
        self.env |= {"MXFP4_PACK_DEVICE": "cpu", "XDG_CACHE_HOME": str(folder / "cache")}
        self.must("synth", "gpt-oss-20b", self.source, "--tiny", "--layers", "4", "--seed", "3")
        self.make_states()
        self.unpacked = self.make_unpacked()

    def must(self, *args):
        subprocess.run([self.program, *map(str, args), "-q"], check=True, env=self.env, stdout=subprocess.DEVNULL)

    def state(self, name):
        return self.folder / "states" / name

    def make_states(self):
        for name in STATES:
            self.state(name).mkdir(parents=True)
        for name in ("one-set", "two-sets", "damaged"):
            self.must("convert", self.source, self.state(name) / "out", *WRITERS["convert"])
        self.must("convert", self.source, self.state("two-sets") / "out", *WRITERS["add-hopper"], "--tp-size", "2")
        with open(self.state("damaged") / "out/packed/packed-00001.safetensors", "r+b") as f:
            f.seek(4096)
            byte = f.read(1)[0]
            f.seek(4096)
            f.write(bytes([byte ^ 1]))
        self.make_partial(self.state("partial"))

    def make_partial(self, folder):
        """What a conversion leaves that SIGKILL ended after its first job."""
        journal = folder / ".out.mxfp4-pack/journal"
        for _ in range(300):
            process = subprocess.Popen(self.command("convert", folder), env=self.env, stderr=subprocess.DEVNULL)
            while process.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") > 1):
                pass
            process.kill()
            process.wait()
            if not (folder / "out").exists():
                return
            shutil.rmtree(folder / "out")
        sys.exit("FAILED: no conversion could be cut short")

    def make_unpacked(self):
        self.must("unpack", self.state("one-set") / "out", self.folder / "unpacked")
        return tree(self.folder / "unpacked")

    def command(self, name, folder, which=0):
        out = str(folder / "out")
        if name in WRITERS:
            return [self.program, "convert", str(self.source), out, *WRITERS[name]]
        if name == choose.CLEAN:
            return [self.program, "clean", str(folder), "--remove"]
        if name == "unpack":
            return [self.program, "unpack", out, str(folder / f"unpacked-{which}"), "--threads", "1"]
        source = ["--source", str(self.source), "--tokens", "1"] if name == "verify-source" else []
        return [self.program, "verify", out, *source, "--threads", "1"]

    def in_turn(self, state, commands):
        """(exit codes, tree) after the commands (name, which) ran one after the other."""
        key = (state, commands)
        if key not in self.known:
            folder = self.fresh(state)
            codes = {}
            for name, which in commands:
                run = subprocess.run(self.command(name, folder, which), env=self.env, capture_output=True)
                codes[which] = run.returncode
            self.known[key] = codes, tree(folder)
            shutil.rmtree(folder)
        return self.known[key]

    def fresh(self, state):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        shutil.copytree(self.state(state), folder, symlinks=True, dirs_exist_ok=True)
        return folder

    def allowed(self, pair):
        first, second = [(name, which) for which, name in enumerate(pair.commands)]
        outcomes = []
        for order in ((first, second), (second, first)):
            codes, left = self.in_turn(pair.state, order)
            outcomes.append(Outcome((codes[0], codes[1]), left))
        for alone, refused in ((first, 1), (second, 0)):
            codes, left = self.in_turn(pair.state, (alone,))
            outcomes.append(Outcome((codes.get(0, 2), codes.get(1, 2)), left))
        return outcomes

    def run(self, pair, folder):
        """Runs both at once: (exit codes, outputs, whether one began before the other ended)."""
        begin = time.monotonic()
        order = sorted((0, 1), key=lambda which: pair.waits[which])
        running, overlap = {}, False
        for which in order:
            time.sleep(max(0.0, begin + pair.waits[which] - time.monotonic()))
            overlap = any(p.poll() is None for p in running.values())
            running[which] = subprocess.Popen(
                [*pair.inject[which], *self.command(pair.commands[which], folder, which)],
                env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = {which: p.communicate(timeout=120)[0] for which, p in running.items()}
        return (running[0].returncode, running[1].returncode), (said[0], said[1]), overlap


def problems(bench, pair, folder, codes):
    now = tree(folder)
    allowed = bench.allowed(pair)
    if not any(codes == o.codes and now == o.tree for o in allowed):
        if not any(now == o.tree for o in allowed):
            yield "left behind what no order leaves"
            nearest = min((o.tree for o in allowed), key=lambda t: len(t.items() ^ now.items()))
            names = sorted({name for name, _ in nearest.items() ^ now.items()})
            yield "nearest order differs in: " + ", ".join(names[:8])
        else:
            yield f"exit codes {codes} where orders give {sorted({o.codes for o in allowed})}"
    for which in (0, 1):
        unpacked = folder / f"unpacked-{which}"
        if unpacked.exists() and (codes[which] != 0 or tree(unpacked) != bench.unpacked):
            yield f"unpack left something else than the source, exit code {codes[which]}"
    wrote = any(name in WRITERS and code == 0 for name, code in zip(pair.commands, codes))
    if wrote and pair.state != "damaged" and (folder / "out").exists():
        verify = subprocess.run(bench.command("verify-source", folder), env=bench.env, capture_output=True, text=True)
        if verify.returncode != 0:
            said = (verify.stdout + verify.stderr).splitlines()
            yield "OUT is wrong afterwards: " + "\n".join(said[:3] + said[-1:])


def report(number, pair, codes, said, found):
    print(f"FAILED: pair {number}: OUT: {pair.state}; {pair.commands[0]} and {pair.commands[1]}")
    for which in (0, 1):
        inject = " ".join(pair.inject[which][6:]) or "no delays"
        print(f"  {pair.commands[which]}: after {pair.waits[which] * 1000:.1f} ms, {inject}: exit code {codes[which]}")
        print("".join(f"    {line}\n" for line in said[which].splitlines()[-6:]), end="")
    for line in found:
        print("  " + line.replace("\n", "\n    "))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--only", default="", help="commands to choose from, of: " + ", ".join(COMMANDS))
    return parser.parse_args()


def pairs(bench, args, has_strace):
    only = args.only.split(",") if args.only else []
    directed = []
    if has_strace and not only:
        directed = list(choose.directed_pairs(bench.command("verify", bench.state("one-set")), bench.env))
    random_ = random.Random(args.seed)
    return (directed + [choose.random_pair(random_, has_strace, only) for _ in range(args.pairs)])[: args.pairs]


def refusals(pair, codes, said):
    """The exit codes, with 2 instead of 0 for a clean that skipped the files of an active run."""
    return tuple(2 if name == choose.CLEAN and code == 0 and "a run is writing it" in text else code
                 for name, code, text in zip(pair.commands, codes, said))


def try_pair(bench, number, pair):
    """Whether the two met, and whether all is well."""
    place = bench.fresh(pair.state)
    codes, said, met = bench.run(pair, place)
    found = list(problems(bench, pair, place, refusals(pair, codes, said)))
    if found:
        report(number, pair, codes, said, found)
    shutil.rmtree(place)
    return met, not found


def main():
    args = arguments()
    has_strace = choose.strace_works()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.program, pathlib.Path(folder))
        source = tree(bench.source)
        results = [try_pair(bench, number, pair) for number, pair in enumerate(pairs(bench, args, has_strace))]
        untouched = tree(bench.source) == source
    met = sum(m for m, _ in results)
    failed = sum(not right for _, right in results)
    if not untouched:
        print("FAILED: the checkpoint was touched")
    if met == 0:
        print("FAILED: no two runs met")
    strace = "with" if has_strace else "without"
    print(f"{len(results)} pairs, {met} met, {failed} failed; seed {args.seed}, {strace} strace")
    return 0 if untouched and met and not failed else 1


sys.exit(main())
