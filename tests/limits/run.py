#!/usr/bin/env python3
"""Every command under every limit of the system. usage: limits/run.py MXFP4-PACK

A command that a limit stops must end with exit code 2, print an error, and leave OUT as it was; without the limit,
the same command then ends in the bytes of an undisturbed run. A command that ends with 0 must have done all of it.
verify of a wrong OUT must end with 1 and a verdict, or with 2.
root is under no limit of processes: the program is then run as another user.
"""
import hashlib
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LIMITS = {
    "nproc": (resource.RLIMIT_NPROC, "1 2 3 4 6 8 16 32 64"),
    "as": (resource.RLIMIT_AS, "64M 128M 256M 512M 1G 2G 4G"),
    "data": (resource.RLIMIT_DATA, "16M 64M 256M"),
    "stack": (resource.RLIMIT_STACK, "256K 1M"),
    "nofile": (resource.RLIMIT_NOFILE, "6 8 10 12 16 24 32 64 256 1024"),
    "fsize": (resource.RLIMIT_FSIZE, "0 100 4K 100K 500K 1M"),
    "memlock": (resource.RLIMIT_MEMLOCK, "0"),
}
NOBODY = 65534
CONVERT = ["convert", "in", "out", "--backend", "marlin", "--engine", "vllm"]
ADD = ["convert", "in", "out", "--add", "--backend", "triton-hopper", "--engine", "vllm"]
FORCE = ["convert", "in", "out", "--force", "--backend", "triton-hopper", "--engine", "vllm"]
SYNTH = ["synth", "gpt-oss-20b", "unpacked", "--tiny"]
ALL_KERNELS = ["--layers", "all", "--tokens", "1,64"]
# name: arguments, whether OUT is there before, the exit codes that are right
COMMANDS = {
    "inspect": (["inspect", "in"], False, (0, 2)),
    "convert": (CONVERT, False, (0, 2)),
    "convert -j1": ([*CONVERT, "--threads", "1"], False, (0, 2)),
    "convert -j64": ([*CONVERT, "--threads", "64"], False, (0, 2)),
    "add": (ADD, True, (0, 2)),
    "force": (FORCE, True, (0, 2)),
    "dry-run": ([*CONVERT, "--dry-run"], False, (0, 2)),
    "unchanged": (CONVERT, True, (0, 2)),
    "synth": (SYNTH, False, (0, 2)),
    "clean": (["clean", "."], True, (0, 2)),
    "verify": (["verify", "out"], True, (0, 2)),
    "verify source": (["verify", "out", "--source", "in", *ALL_KERNELS], True, (0, 2)),
    "verify source -j1": (["verify", "out", "--source", "in", *ALL_KERNELS, "--threads", "1"], True, (0, 2)),
    "verify source -j64": (["verify", "out", "--source", "in", *ALL_KERNELS, "--threads", "64"], True, (0, 2)),
    "verify wrong": (["verify", "wrong", "--source", "in"], True, (1, 2)),
    "unpack": (["unpack", "out", "unpacked"], True, (0, 2)),
    "unpack -j64": (["unpack", "out", "unpacked", "--threads", "64"], True, (0, 2)),
    "diff": (["diff", "out", "out"], True, (0, 2)),
}


def number(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def tree(folder):
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(folder.rglob("*")) if p.is_file()}


class Limits:
    def __init__(self, program, folder):
        self.program = str(pathlib.Path(program).resolve())
        self.folder = folder
        self.user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("MXFP4_PACK_")}
        self.env |= {"MXFP4_PACK_DEVICE": "cpu", "XDG_CACHE_HOME": str(folder / "cache")}
        if self.user:
            os.chmod(folder, 0o777)
        self.must("synth", "gpt-oss-20b", "in", "--tiny")
        self.must(*CONVERT)
        self.whole = tree(folder / "out")
        shutil.copytree(folder / "out", folder / "wrong")
        self.flip(folder / "wrong/packed/packed-00001.safetensors")
        shutil.move(folder / "out", folder / "made")
        self.made = {"convert": self.whole, "dest of synth": tree(folder / "in")}
        for name, command in (("add", ADD), ("force", FORCE)):
            self.begin(True)
            self.must(*command)
            self.made[name] = tree(folder / "out")
        self.must("unpack", "made", "as-unpacked")
        self.made["dest of unpack"] = tree(folder / "as-unpacked")
        self.clear()

    def flip(self, path):
        data = bytearray(path.read_bytes())
        data[4096] ^= 1
        path.write_bytes(data)

    def must(self, *args):
        run = self.run(args, None)
        if run.returncode != 0:
            sys.exit(f"FAILED: {' '.join(args)}: exit code {run.returncode}\n{run.stderr}")

    def run(self, args, limit):
        def lower():
            if limit:
                resource.setrlimit(limit[0], (limit[1], limit[1]))

        return subprocess.run([self.program, *args], cwd=self.folder, env=self.env, capture_output=True, text=True,
                              preexec_fn=lower, timeout=120, **self.user)

    def clear(self):
        for path in self.folder.iterdir():
            if path.name in ("out", "unpacked") or "mxfp4-pack" in path.name:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def begin(self, has_out):
        self.clear()
        if has_out:
            self.copy_made()

    def copy_made(self):
        shutil.copytree(self.folder / "made", self.folder / "out")
        if self.user:
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", self.folder / "out"], check=True)

    @staticmethod
    def thread_problems(name, run):
        """What one process of this user may do: work on one thread, and say that these are fewer than asked for."""
        notes = run.stderr.count("fewer threads")
        if name.endswith("-j1") and (run.returncode != 0 or notes):
            yield "it takes more than one thread"
        if name.endswith("-j64") and (run.returncode != 0 or notes != 1):
            yield f"{notes} notes of fewer threads"

    def problems(self, name, run):
        args, has_out, right = COMMANDS[name]
        code = run.returncode
        out = tree(self.folder / "out")
        before = self.whole if has_out else {}
        after = self.made.get(name.split()[0], before)
        if code not in right:
            yield f"exit code {code}"
        if code == 1 and "wrong" not in run.stdout:
            yield "no verdict is printed"
        if code == 2 and "error: " not in run.stderr:
            yield "no error is printed"
        if code == 0 and out != after:
            yield "success, but OUT is not what it should be"
        if code != 0 and out != before:
            yield "OUT is not as it was"
        dest = self.made.get("dest of " + args[0], {}) if code == 0 else {}
        if tree(self.folder / "unpacked") != dest:
            yield "DEST is not what it should be"
        if args[0] == "convert" and code == 2 and name != "dry-run":
            again = self.run(args, None)
            if again.returncode != 0 or tree(self.folder / "out") != after:
                yield f"the same without the limit: exit code {again.returncode}: {again.stderr.strip()[-200:]}"

    def cell(self, kind, value, name):
        """(the faults of a command under a limit, its exit code)"""
        args, has_out, _ = COMMANDS[name]
        self.begin(has_out)
        try:
            run = self.run(args, (LIMITS[kind][0], number(value)))
        except (subprocess.TimeoutExpired, subprocess.SubprocessError) as error:
            return [str(error)], None
        found = list(self.problems(name, run))
        if (kind, value) == ("nproc", "1"):
            found += self.thread_problems(name, run)
        if found:
            found += run.stderr.strip().splitlines()[-2:]
        return found, run.returncode


def main():
    failed = cells = stopped = 0
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(sys.argv[1], pathlib.Path(folder))
        for kind, value, name in [(k, v, n) for k in LIMITS for v in LIMITS[k][1].split() for n in COMMANDS]:
            found, code = limits.cell(kind, value, name)
            cells += 1
            stopped += code == 2
            if found:
                failed += 1
                print(f"FAILED: {kind}={value}: {name}: " + "; ".join(found), flush=True)
        if tree(limits.folder / "in") != limits.made["dest of synth"]:
            failed += 1
            print("FAILED: the checkpoint was touched")
    print(f"{cells} commands under limits, {stopped} stopped by them, {failed} failed")
    return 1 if failed or not stopped else 0


sys.exit(main())
