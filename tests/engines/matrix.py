"""Which loader was shown to read what: tests/engines/matrix.json, and what is made of it.

    python3 tests/engines/matrix.py --run vllm PATH        runs the cells that can run here, keeps the others
    python3 tests/engines/matrix.py --learn vllm PATH      learns the layouts that can be learned here, keeps the others;
                                                           --backends REGEX: both only for these backends
    python3 tests/engines/matrix.py                        writes the tables of the man pages and of the program
    python3 tests/engines/matrix.py --check                fails where they are not those of matrix.json, or where the
                                                           program says that other layouts fit than were learned

PATH: directories with the engine's Python sources and what it imports, separated by colons. MXFP4_PACK names the program.
A cell is an engine's version, a backend in one layout version, a family, a tensor-parallel size, a GPU ("" for none), and
`shown`, best first:

hardware          the engine ran on that GPU: expert tensors and results equal those of the raw checkpoint
real classes      the engine's own classes and functions on a CPU: what the loader leaves in a layer is, in names, dtypes,
                  shapes, strides and bytes, what the engine's own conversion of the raw checkpoint leaves
source unchanged  the engine's converter is, in its source, that of a version with one of the above
stand-in          as real classes, but a function that moves bytes runs on a GPU alone and was ours: no proof of bytes
not               not shown

A row of `learned` is the layout that `python3 -m mxfp4_pack.learn` made of the engine's own weight loaders and conversion,
for hidden and intermediate on a rank: `equal` to the built-in layout version, or what it said. With `gpu` "" it ran on a
CPU (learn_cells.py), else on that GPU with nothing of the engine exchanged; such rows are entered by hand (tests/README.md).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
MATRIX = os.path.join(HERE, "matrix.json")
PROGRAM_TABLE = os.path.join(ROOT, "src", "backends", "loaders.cpp")
MAN = {engine: os.path.join(ROOT, "man", f"mxfp4-pack-{engine}.7") for engine in ("vllm", "sglang")}
README = os.path.join(ROOT, "README.md")
SHOWN = ("hardware", "real classes", "source unchanged", "stand-in", "not")
FIELDS = ("engine", "version", "backend", "layout", "family", "tp", "gpu", "shown", "how")
KEY = FIELDS[:-2]
LEARNED = ("engine", "version", "backend", "layout", "family", "hidden", "intermediate", "tp", "gpu", "learned")


def version_key(version):
    return [int(n) for n in re.findall(r"\d+", version)]


def order(row):
    return [version_key(value) if field == "version" else value for field, value in row.items()]


def read_matrix():
    """(cells, learned layouts)"""
    with open(MATRIX) as file:
        matrix = json.load(file)
    for cell in matrix["cells"]:
        assert tuple(cell) == FIELDS and cell["shown"] in SHOWN, cell
    assert all(tuple(row) == LEARNED for row in matrix["learned"])
    return matrix["cells"], matrix["learned"]


def write_matrix(*tables):
    texts = (",\n".join(json.dumps(row) for row in sorted(rows, key=order)) for rows in tables)
    with open(MATRIX, "w") as file:
        file.write('{{"cells": [\n{}\n], "learned": [\n{}\n]}}\n'.format(*texts))


def run(script, path, backends, *arguments):
    """The rows that an engine's script shows with these sources; backends: a pattern of names, "" for all."""
    ours = [os.path.join(ROOT, "src", "loaders"), os.path.join(ROOT, "tests", "loaders")]
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([*path.split(os.pathsep), *ours]),
                                    "MXFP4_PACK_CELLS": file.name, "MXFP4_PACK_BACKENDS": backends}
        subprocess.run([sys.executable, os.path.join(HERE, script), *arguments], env=environment)
        return [json.loads(line) for line in file]


def merged(rows, shown, fields, key):
    """Those that were shown now take the place of earlier ones of the same key."""
    return list({tuple(row[f] for f in key): {f: row[f] for f in fields} for row in [*rows, *shown]}.values())


def claims_against(program, learned):
    """Where the program says that other layouts fit an engine's version than were learned from it."""
    fitting, wrong = {}, []
    for row in learned:
        release = f"{row['engine']}=={row['version']}"
        if release not in fitting:
            said = subprocess.run([program, "backends", "--engine", release, "--json"], capture_output=True, check=True)
            fitting[release] = {(b["backend"], b["layout_version"]) for b in json.loads(said.stdout)["backends"]}
        claimed = (row["backend"], row["layout"]) in fitting[release]
        if claimed != (row["learned"] == "equal"):
            wrong.append(f"{release} {row['backend']} {row['layout']}: {row['learned']} at {row['family']}, tp {row['tp']}, "
                         f"and the program says that it {'fits' if claimed else 'does not fit'}")
    return wrong


def program_table(cells):
    """One row for an engine's backend, layout version and family that any version was shown to read."""
    since = {}
    for cell in cells:
        if cell["shown"] != "not":
            key = tuple(cell[f] for f in ("engine", "backend", "layout", "family"))
            since[key] = min(since.get(key, cell["version"]), cell["version"], key=version_key)
    return "".join(f"    {{{', '.join(json.dumps(field) for field in (*key, version))}}},\n"
                   for key, version in sorted(since.items(), key=lambda row: (version_key(row[1]), row[0])))


def man_table(cells):
    """What was shown of each backend, layout version and family: versions, best first."""
    rows = {}
    for cell in sorted(cells, key=order):
        how = cell["shown"] + (f" ({cell['gpu']})" if cell["gpu"] else "")
        row = rows.setdefault((cell["backend"], cell["layout"], cell["family"]), {})
        row.setdefault((SHOWN.index(cell["shown"]), how), []).append(cell)

    def versions(group):
        found = {}
        for cell in group:
            found.setdefault(cell["version"], []).append(str(cell["tp"]))
        return ", ".join(f"{v} (tp {' '.join(tp)})" for v, tp in found.items())

    lines = [".Bl -tag -width 4n -compact"]
    for (backend, layout, family), row in sorted(rows.items()):
        lines.append(f".It Sy {backend} No {layout}, {family}")
        lines.append("; ".join(f"{how}: {versions(group)}" for (_, how), group in sorted(row.items())))
    return "\n".join([*lines, ".El", ""])


# Where each backend runs, as `mxfp4-pack backends` says; tests/cli/backends.sh compares.
GPUS = {
    "aiter-a16w4": "gfx950",
    "aiter-w4a4": "gfx950",
    "cutlass-mxfp4": "SM10x, SM12x",
    "deepgemm": "SM100",
    "flashinfer-cutlass": "SM90",
    "flashinfer-cutlass-mxfp8": "SM100, SM103, SM120",
    "flashinfer-humming": "SM90",
    "flashinfer-trtllm": "SM100, SM103",
    "humming": "SM90",
    "humming-w4a8": "SM90",
    "marlin": {"vllm": "SM75, SM80 and later", "sglang": "SM90 and later"},
    "marlin-fp8": "SM89, SM12x",
    "triton-blackwell": "SM100, SM103",
    "triton-hopper": "SM90",
    "vllm-cpu": "CPU (AVX-512, AMX)",
}


def gpu_of(engine, backend):
    gpu = GPUS[backend]
    return gpu if isinstance(gpu, str) else gpu[engine]


def readme_table(cells):
    """A row for each backend of an engine that a loader reads: where it runs, and of each family the versions shown."""
    families = sorted({cell["family"] for cell in cells if cell["shown"] != "not"},
                      key=lambda f: (f not in ("gpt-oss", "deepseek-v4"), f != "gpt-oss", f))
    rows = {}
    for cell in cells:
        if cell["shown"] != "not":
            row = rows.setdefault((cell["engine"], cell["backend"]), {})
            row.setdefault(cell["family"], []).append(cell)

    def shown(group):
        if not group:
            return ""
        versions = sorted({cell["version"] for cell in group}, key=version_key)
        mark = {"hardware": " **", "real classes": " *", "source unchanged": " *"}
        best = min((cell["shown"] for cell in group), key=SHOWN.index)
        return " to ".join(dict.fromkeys((versions[0], versions[-1]))) + mark.get(best, "").replace("*", "\\*")

    lines = ["| engine | backend | GPU | " + " | ".join(families) + " |", "|---" * (3 + len(families)) + "|"]
    for (engine, backend), row in sorted(rows.items(), key=lambda r: (r[0][0] != "vllm", r[0])):
        cells_of = [engine, f"`{backend}`", gpu_of(engine, backend), *(shown(row.get(f, [])) for f in families)]
        lines.append("| " + " | ".join(cells_of) + " |")
    return "\n".join([*lines, ""])


def with_table(path, begin, end, table):
    """The file's text with what stands between two lines exchanged."""
    with open(path) as file:
        text = file.read()
    head, found, rest = text.partition(begin + "\n")
    _, also, tail = rest.partition(end)
    assert found and also, f"{path} lacks {begin} or {end}"
    return head + found + table + also + tail


def rendered(cells):
    """{file: its text with the tables of these cells}"""
    texts = {PROGRAM_TABLE: with_table(PROGRAM_TABLE, "const Loader loaders[] = {", "};", program_table(cells))}
    for engine, path in MAN.items():
        own = [cell for cell in cells if cell["engine"] == engine]
        texts[path] = with_table(path, '.\\" tests/engines/matrix.py writes this table', '.\\" to here', man_table(own))
    texts[README] = with_table(README, "<!-- tests/engines/matrix.py writes this table -->", "<!-- to here -->",
                               "\n" + readme_table(cells) + "\n")
    return texts


def main():
    parser = argparse.ArgumentParser()
    for name in ("--run", "--learn"):
        parser.add_argument(name, nargs=2, action="append", default=[], metavar=("ENGINE", "PATH"))
    parser.add_argument("--backends", default="", metavar="REGEX")
    parser.add_argument("--check", nargs="?", const="", metavar="PROGRAM")
    options = parser.parse_args()
    cells, learned = read_matrix()
    for engine, path in options.run:
        cells = merged(cells, run(f"{engine}_classes.py", path, options.backends), FIELDS, KEY)
    for engine, path in options.learn:
        learned = merged(learned, run("learn_cells.py", path, options.backends, engine), LEARNED, LEARNED[:-1])
    if options.run or options.learn:
        write_matrix(cells, learned)
    wrong = []
    for path, text in rendered(cells).items():
        with open(path) as file:
            if file.read() == text:
                continue
        wrong.append(os.path.relpath(path, ROOT))
        if options.check is None:
            with open(path, "w") as file:
                file.write(text)
    if options.check is not None and wrong:
        print(f"not as in matrix.json: {', '.join(wrong)}; run python3 tests/engines/matrix.py", file=sys.stderr)
        return 1
    if options.check and (wrong := claims_against(options.check, learned)):
        print("\n".join(wrong), file=sys.stderr)
        return 1
    print(", ".join(f"{sum(c['shown'] == shown for c in cells)} {shown}" for shown in SHOWN)
          + f"; learned and equal: {sum(row['learned'] == 'equal' for row in learned)} of {len(learned)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
