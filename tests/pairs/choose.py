"""Which two commands meet, on which OUT, and when."""
import dataclasses
import subprocess

VLLM = ["--backend", "marlin", "--engine", "vllm", "--threads", "1"]
SGLANG = ["--backend", "marlin", "--engine", "sglang", "--threads", "1"]
HOPPER = ["--backend", "triton-hopper", "--engine", "vllm", "--threads", "1"]
WRITERS = {
    "convert": VLLM,
    "force": [*SGLANG, "--force"],
    "force-same": [*VLLM, "--force"],
    "add-sglang": [*SGLANG, "--add"],
    "add-hopper": [*HOPPER, "--add"],
}
READERS = ["verify", "verify-source", "unpack"]
CLEAN = "clean"
COMMANDS = [*WRITERS, *READERS, CLEAN]
STATES = ["nothing", "one-set", "two-sets", "damaged", "partial"]
DELAYED_CALLS = ["flock", "renameat2", "renameat", "unlinkat", "openat", "fsync", "mkdirat", "linkat"]


@dataclasses.dataclass
class Pair:
    state: str
    commands: tuple[str, str]
    waits: tuple[float, float]  # seconds before the start
    inject: tuple[list[str], list[str]]  # strace and its options, or nothing


def strace_works():
    try:
        command = ["strace", "-o", "/dev/null", "-e", "trace=flock", "-e", "inject=flock:delay_enter=1", "true"]
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def delayed(call, side, milliseconds, when=""):
    """strace, which delays the program's calls of one kind."""
    inject = f"inject={call}:delay_{side}={milliseconds * 1000}{when}"
    return ["strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]


def calls_until(command, call, name, env):
    """The number of the command's first call of a kind that names a file."""
    trace = subprocess.run(["strace", "-f", "-o", "/dev/stdout", "-e", f"trace={call}", *command], env=env,
                           capture_output=True, text=True).stdout
    lines = [line for line in trace.splitlines() if f"{call}(" in line]
    return 1 + next(i for i, line in enumerate(lines) if name in line)


def directed_pairs(verify, env):
    """One run has read the manifest and stops, before the lock or at once; the other one runs to its end."""
    slow = delayed("flock", "enter", 300)
    for commands in (("add-hopper", "add-sglang"), ("add-hopper", "force"), ("force", "add-hopper"),
                     ("force-same", "add-hopper"), ("add-hopper", "convert")):
        yield Pair("one-set", commands, (0.0, 0.08), (slow, []))
    manifest = calls_until(verify, "openat", '"mxfp4-pack.json"', env)
    slow = delayed("openat", "exit", 300, f":when={manifest}")
    for commands in (("verify", "force"), ("verify-source", "add-hopper"), ("unpack", "force"),
                     ("unpack", "add-hopper")):
        yield Pair("one-set", commands, (0.0, 0.15), (slow, []))


def random_inject(random_):
    """A delay of one system call, most often that of the lock, before which OUT may have been read."""
    call = random_.choice(["flock"] * 4 + DELAYED_CALLS)
    every = call in ("flock", "mkdirat", "renameat2")
    when = "" if every else f":when={random_.randint(1, 40 if call == 'openat' else 8)}"
    side = random_.choice(["enter", "exit"])
    return delayed(call, side, random_.randint(20, 120), when)


def random_pair(random_, has_strace, only):
    often = [*WRITERS, "add-sglang", "add-hopper", "add-sglang", "add-hopper", "force", CLEAN]
    commands = (random_.choice(only or often), random_.choice(only or [*often, *READERS, *READERS]))
    waits = [random_.uniform(0, 0.03), random_.uniform(0, 0.03)]
    inject = ([], [])
    if has_strace and random_.random() < 0.7:
        slow = random_.randint(0, 1)
        inject[slow].extend(random_inject(random_))
        waits[1 - slow] += 0.03  # strace itself takes time to start
    states = [s for s in STATES if s != "damaged" or any(c in READERS for c in commands)]
    if any("add" in c for c in commands):
        states += ["one-set", "one-set", "two-sets"]
    return Pair(random_.choice(states), commands, (waits[0], waits[1]), inject)
