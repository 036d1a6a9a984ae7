#!/usr/bin/env python3
"""What the program says of checkpoints that are incomplete, altered or unusual.

usage: run.py MXFP4-PACK [--table FILE] [--only TEXT]

Prints a table of kinds, instances, verdicts and messages, and fails if a verdict or a message is another than the case
expects. It also fails if the table in table.txt differs. --table FILE writes the table into FILE instead; --only runs
the cases whose kind, instance or model contains a text.
"""

import argparse
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import advice
import contents
import families
import files
import golden
import layouts
import missing
import published
import twins
from case import Bench, Wrong, convert_and_verify

CASES = [
    *missing.CASES,
    *contents.CASES,
    *published.CASES,
    *layouts.CASES,
    *families.CASES,
    *twins.CASES,
    *golden.CASES,
    *files.CASES,
    *advice.CASES,
]
TABLE = Path(__file__).resolve().with_name("table.txt")


def shown(line, folder):
    """A message for the table: the same on every machine, in one cell."""
    line = line.replace(f"{folder}/", "")
    line = re.sub(r"\b([0-9a-f]{6})[0-9a-f]{26,}\b", r"\1..", line)
    line = re.sub(r"\(\d+ packed and .* in [\d.]+ s\)", "(..)", line)
    return line.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*").replace("_", "\\_")


def try_case(program, case, folder):
    """(row of the table, failure or None)"""
    result = None
    try:
        bench = Bench(program, case, folder)
        result = (case.act or convert_and_verify)(bench)
        if result.verdict != case.verdict:
            raise Wrong(f"{result.verdict}, {case.verdict} expected: {result.lines}")
        line = next((line for line in result.lines if re.search(case.message, line)), None) if case.message else ""
        if line is None:
            raise Wrong(f"no line has {case.message!r}: {result.lines}")
        instance = shown(f"{case.model.replace('tiny/', 'tiny ')}: {case.instance}", folder)
        return f"| {case.kind} | {instance} | {result.verdict} | {shown(line, folder)} |\n", None
    except (Wrong, AssertionError) as e:
        return "", f"FAILED: {case.kind}: {case.model}: {case.instance}: {e}"


def try_all(program, cases):
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(2) as pool:
        folders = [Path(work).resolve() / str(i) for i in range(len(cases))]
        done = list(pool.map(try_case, [program] * len(cases), cases, folders))
    table = "| kind | instance | verdict | message |\n|---|---|---|---|\n" + "".join(row for row, _ in done)
    return table, [failure for _, failure in done if failure]


def few_instances():
    """Kinds of which fewer than two instances are tried."""
    kinds = [case.kind for case in CASES]
    return [f"FAILED: one instance only: {kind}" for kind in dict.fromkeys(kinds) if kinds.count(kind) < 2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--only", default="")
    o = parser.parse_args()
    cases = [c for c in CASES if o.only in f"{c.kind} {c.model}: {c.instance}"]
    table, failures = try_all(str(Path(o.program).resolve()), cases)
    failures += few_instances()
    print(table, end="")
    if o.table and not failures:
        o.table.write_text(table)
    elif not o.only and TABLE.read_text() != table:
        failures.append("FAILED: the table in tests/cases/table.txt differs")
    print(f"{len(cases)} instances of {len({c.kind for c in cases})} kinds, {len(failures)} failures")
    print("\n".join(failures))
    return 1 if failures or not cases else 0


sys.exit(main())
