#!/usr/bin/env python3
"""What the program says of checkpoints that are incomplete, altered or unusual.

usage: run.py MXFP4-PACK [--table FILE] [--only TEXT]

Prints a table of kinds, instances, verdicts and messages. It fails if the table differs from table.txt, which has the
verdict and the message that each case must give. --table FILE writes the table into FILE instead: a new case has the
first error or warning as its message. --only runs the cases whose kind, instance or model contains a text.
"""

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import advice
import contents
import families
import files
import loaded
import layouts
import missing
import published
import twins
from case import Bench, Row, Wrong, convert_and_verify, escaped

CASES = [
    *missing.CASES,
    *contents.CASES,
    *layouts.CASES,
    *families.CASES,
    *twins.CASES,
    *loaded.CASES,
    *files.CASES,
    *published.CASES,
    *advice.CASES,
]
TABLE = Path(__file__).resolve().with_name("table.txt")


def key_of(case):
    return case.kind, escaped(f"{case.model.replace('tiny/', 'tiny ')}: {case.instance}")


def read_table():
    """The rows by kind and instance"""
    rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in TABLE.read_text().splitlines()[2:]]
    return {(kind, instance): Row(verdict, *message) for kind, instance, verdict, *message in rows}


def try_case(program, case, row, folder):
    """(row of the table, failure or None)"""
    try:
        bench = Bench(program, case, row, folder)
        result = (case.act or convert_and_verify)(bench)
        found = result.verdict, bench.message_of(result.lines)
    except (Wrong, AssertionError) as e:
        return "", f"FAILED: {': '.join(key_of(case))}: {e}"
    return f"| {' | '.join([*key_of(case), *found])} |\n", None


def try_all(program, cases):
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(2) as pool:
        folders = [Path(work).resolve() / str(i) for i in range(len(cases))]
        rows = read_table()
        rows = [rows.get(key_of(case), Row()) for case in cases]
        return zip(*pool.map(try_case, [program] * len(cases), cases, rows, folders))


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
    rows, failures = try_all(str(Path(o.program).resolve()), cases)
    failures = [f for f in failures if f] + few_instances()
    table = "| kind | instance | verdict | message |\n|---|---|---|---|\n" + "".join(rows)
    print(table, end="")
    if o.table and not failures:
        o.table.write_text(table)
    elif not o.table:
        expected = TABLE.read_text()
        failures += [f"FAILED: not in table.txt: {row}" for row in rows if row not in expected]
        if not o.only and not failures and table != expected:
            failures.append("FAILED: table.txt has rows of no case, or in another order")
    print(f"{len(cases)} instances of {len({c.kind for c in cases})} kinds, {len(failures)} failures")
    print("\n".join(failures))
    return 1 if failures or not cases else 0


sys.exit(main())
