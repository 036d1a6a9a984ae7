"""What start_bench.py measures of one start, in the processes that load the model."""

import functools
import json
import logging
import re
import time


class Lines(logging.Handler):
    """A log handler that keeps the messages."""

    def __init__(self, *names):
        super().__init__()
        self.lines = []
        for name in names:
            logging.getLogger(name).addHandler(self)

    def emit(self, record):
        self.lines.append(record.getMessage())

    def report(self):
        """The loader's line at the end of a load."""
        return next((line for line in reversed(self.lines) if line.startswith("mxfp4-pack:")), "")


def host_peak_gib():
    with open("/proc/self/status") as file:
        return int(re.search(r"VmHWM:\s*(\d+)", file.read()).group(1)) / 2**20


def timed(seen, key, function):
    @functools.wraps(function)  # by which the plugin for SGLang knows that its hooks are there
    def run(*args, **kwargs):
        import torch
        begin = time.monotonic()
        result = function(*args, **kwargs)
        torch.cuda.synchronize()
        seen[key] = time.monotonic() - begin
        return result
    return run


def write(path, seen, lines, experts):
    """Appends a line of JSON; `seen` has the seconds of load, build and convert. experts() makes the digests, which take
    memory themselves: it is called after the peaks were read."""
    import torch
    report = lines.report()
    found = re.search(r" GB in ([\d.]+) s", report)
    seen = seen | {"weights": seen["load"] - seen["build"] - seen["convert"], "report": report,
                   "packed": float(found.group(1)) if found else None,
                   "gpu": torch.cuda.max_memory_allocated() / 2**30, "host": host_peak_gib()}
    seen["experts"] = json.dumps(experts())
    with open(path, "a") as file:
        file.write(json.dumps(seen) + "\n")


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.endswith("\n")]
