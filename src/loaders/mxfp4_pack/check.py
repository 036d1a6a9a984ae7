"""Checks an output of `mxfp4-pack convert` without a server: python3 -m mxfp4_pack.check OUT

`mxfp4-pack verify OUT --level files` runs, which reads no weights. If a set's engine is installed and runs here, its own
conversion must give the set's canary.

With --source, `mxfp4-pack verify OUT --source CKPT` runs instead, at its highest level. On a GPU the installed engine's
own kernel then computes whole layers from the packed bytes, and the results are compared with those from the source.

Exit codes: 0 all comparisons agree; 1 something is wrong; 2 the output could not be checked.
"""

import argparse
import importlib
import importlib.util
import json
import os
import sys
import tempfile
from contextlib import redirect_stdout

from . import commands
from ._entries import Refused, Unconverted, counted, entry_of
from ._errors import printable
from ._library import library
from .manifest import MANIFEST, SERVED, Manifest, is_served, read_manifest, read_tensors

KERNELS = ("vllm",)  # engines with a module `kernel` in this package
TOLERANCE = 1e-2  # relative L2: engines' kernels round to bf16 several times; Marlin has 5e-3, others 3e-3


class Report:
    def __init__(self):
        self.problems, self.unchecked, self.sets = [], [], []
        self.verified = None  # the result of `mxfp4-pack verify`

    def attempt(self, step, *arguments):
        """The result of a step. If the step finds a problem, adds it to the report and returns None."""
        try:
            return step(*arguments)
        except Refused as error:
            self.problems.append(str(error))
        except OSError as error:  # a file may have been removed since the directory was listed
            self.problems.append(printable(str(error)))
        return None


def check(directory, engines=(), source=None, tolerance=TOLERANCE):
    """`engines`: those whose canaries must be compared and whose kernels must run; other engines are checked if that is
    possible. source: the checkpoint; without it no kernel runs."""
    report = Report()
    try:
        library()
    except Refused as error:
        report.unchecked.append(str(error))
        return report
    fields = report.attempt(read_manifest, directory)
    if fields is None:
        return report
    report.sets = [report.attempt(check_set, directory, set_) for set_ in fields["sets"]]
    if report.problems:
        return report
    with tempfile.TemporaryDirectory() as folder:
        kernels = [missing_for_kernel(set_) for set_ in fields["sets"]] if source is not None else []
        batches = None if all(kernels) else os.path.join(folder, "batches.safetensors")
        verify(report, directory, source, batches)
        if not report.problems:
            for number, set_ in enumerate(fields["sets"]):
                report.sets[number]["canary"] = check_canary(report, directory, set_, engines)
            held = {set_["engine"] for set_ in fields["sets"]}
            report.unchecked += [f"no set for {engine}" for engine in sorted(set(engines) - held)]
        check_kernels(report, directory, list(zip(fields["sets"], kernels)), (engines, batches, tolerance))
    return report


def check_set(directory, set_):
    """Checks a set's fields and its table as a loader does. Returns the set's entry for the report."""
    read_tensors(directory, set_)
    for t in set_["tensors"]:
        entry_of(t)
    known = {key: set_[key] for key in ("engine", "backend", "layout_version", "moe_tp_size")}
    return known | {"canary": None, "kernel": None}


def check_canary(report, directory, set_, engines):
    """The result for a set's canary, as text."""
    engine = set_["engine"]
    why = None
    if not is_served(set_):
        why = f"no loader for {set_['backend']} of {engine}"
    elif engine not in sys.modules and importlib.util.find_spec(engine) is None:
        why = f"{engine} is not installed"
    if why is None:
        try:
            compare(directory, set_)
            return "equal"
        except Unconverted as error:
            why = str(error)
        except Refused as error:
            report.problems.append(str(error))
            return "differs"
        except Exception as error:  # an engine raises exceptions of its own, for example without a GPU
            why = f"{engine} cannot convert it here: {error!r}"
    if engine in engines:
        report.unchecked.append(f"canary of {set_['backend']} of {engine}: {why}")
    return f"not compared: {why}"


def compare(directory, set_):
    import torch
    device = gpu() or torch.device("cpu")
    manifest = Manifest(directory, set_["engine"])
    packed = manifest.opened(next(s for s in manifest.sets if s == set_), 0)
    importlib.import_module(f"mxfp4_pack.{set_['engine']}.canary").compare(packed, manifest.model_type, device)


def verify(report, directory, source, batches):
    """Runs `mxfp4-pack verify`. batches: the file for the computed batches, or None."""
    level = {"level": "files"} if source is None else {"save": batches}
    try:
        said = commands.verify(directory, source=source, quiet=True, **level)
    except commands.Failed as failed:
        report.unchecked += [f"mxfp4-pack verify: {line}" for line in failed.lines]
        return
    report.problems += [f"mxfp4-pack verify: {problem}" for problem in said["problems"]]
    report.verified = f"{'right' if said['ok'] else 'wrong'} at level {said['level']}"


def check_kernels(report, directory, sets, asked):
    """sets: pairs of a set and the reason why its kernel cannot run, or None."""
    engines, path, tolerance = asked
    for number, (set_, why) in enumerate(sets):
        if why is None and not os.path.exists(path):
            why = "mxfp4-pack verify computed no layer"
        said = f"not run: {why}" if why else run_kernel(report, directory, set_, (path, tolerance))
        report.sets[number]["kernel"] = said
        if set_["engine"] in engines and said.startswith("not run"):
            report.unchecked.append(f"kernel of {set_['backend']} of {set_['engine']}: {said[9:]}")


def missing_for_kernel(set_):
    """Why the engine's kernel cannot run on a set here; None if it can."""
    engine = set_["engine"]
    if engine not in KERNELS or not is_served(set_):
        return f"this check has no kernel for {set_['backend']} of {engine}"
    if engine not in sys.modules and importlib.util.find_spec(engine) is None:
        return f"{engine} is not installed"
    return None if gpu() else "there is no GPU"


def gpu():
    import torch
    return torch.device("cuda", 0) if torch.cuda.is_available() else None


def run_kernel(report, directory, set_, wanted):
    """The result for a set's layers on the engine's kernel, as text."""
    from . import kernels
    path, tolerance = wanted
    manifest = Manifest(directory, set_["engine"])
    try:
        batches = kernels.read_batches(path)
        results = kernels.compute(manifest, next(s for s in manifest.sets if s == set_), batches, gpu())
    except Refused as error:
        report.problems.append(str(error))
        return "refused"
    except Exception as error:  # an engine raises exceptions of its own
        return f"not run: {set_['engine']} fails: {error!r}"
    replaced = any(r.beside_engine is not None for r in results)
    on = "with MXFP4_PACK_KERNEL=1" if replaced else f"on {set_['engine']}'s own kernel"
    beside = f"beside {set_['engine']}'s own kernel"
    far = [(r, "error ", "", r.relative_l2) for r in results]
    far += [(r, "", f" {beside}", r.beside_engine) for r in results if replaced]
    wrong = [f"{r.layer}, {counted(r.tokens, 'token')} {on}: relative L2 {error}{size:.2g}{where}, at most {tolerance:.2g} "
             "expected" for r, error, where, size in far if not size <= tolerance]  # NaN is wrong, too
    report.problems += wrong
    worst = max(r.relative_l2 for r in results)
    return (f"{'wrong' if wrong else 'right'}: {len(results)} batches{f' {on}' if replaced else ''}, relative L2 error at most "
            f"{worst:.2g}{f', at most {max(r.beside_engine for r in results):.2g} {beside}' if replaced else ''}")


def exit_code(report):
    return 1 if report.problems else 2 if report.unchecked else 0


def show(report):
    for problem in report.problems:
        print(f"wrong: {problem}")
    for what in report.unchecked:
        print(f"not checked: {what}")
    if report.verified:
        print(f"mxfp4-pack verify: {report.verified}")
    for set_ in filter(None, report.sets):
        print(f"{set_['backend']} of {set_['engine']}, layout version {set_['layout_version']}, MoE tensor-parallel size "
              f"{set_['moe_tp_size']}: canary {set_['canary'] or 'not compared: something else is wrong'}"
              f"{'; kernel ' + set_['kernel'] if set_['kernel'] else ''}")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python3 -m mxfp4_pack.check", description=__doc__.splitlines()[0])
    parser.add_argument("directory", metavar="OUT")
    parser.add_argument("--engine", action="append", choices=sorted(SERVED), default=[],
                        help="its canaries must be compared and, with --source, its kernel run: else exit code 2")
    parser.add_argument("--source", metavar="CKPT",
                        help="the checkpoint: also mxfp4-pack verify, and layers computed by the engine's own kernel")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, metavar="X",
                        help="largest relative L2 error of them, %(default)s by default")
    parser.add_argument("--json", action="store_true", help="one object on stdout")
    options = parser.parse_args(arguments)
    if not os.path.lexists(os.path.join(options.directory, MANIFEST)):
        report = Report()
        shown = printable(options.directory)
        report.unchecked.append(f"{shown} has no {MANIFEST}: no output of mxfp4-pack"
                                if os.path.isdir(options.directory) else f"{shown}: no such directory")
    else:
        with redirect_stdout(sys.stderr):  # engines log to stdout, which is reserved for the report
            report = check(options.directory, options.engine, options.source, options.tolerance)
    if options.json:
        print(json.dumps({"exit_code": exit_code(report), "problems": report.problems, "unchecked": report.unchecked,
                          "verify": report.verified, "sets": report.sets}))
    else:
        show(report)
    return exit_code(report)


if __name__ == "__main__":
    sys.exit(main())
