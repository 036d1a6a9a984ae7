"""Maintains tests/engines/matrix.json, the tested combinations of loaders and outputs, and the tables that are derived
from it.

    python3 tests/engines/matrix.py --run vllm PATH        runs the cells that can run here, keeps the others
    python3 tests/engines/matrix.py --learn vllm PATH      learns the layouts that can be learned here, keeps the others;
                                                           --backends REGEX: both only for these backends
    python3 tests/engines/matrix.py --choose vllm PATH     asks the engine's own chooser, on every GPU
    python3 tests/engines/matrix.py --models vllm PATH     runs the classes of whole models
    python3 tests/engines/matrix.py                        writes the tables of README, the man pages, the program
                                                           and the loaders
    python3 tests/engines/matrix.py --check [PROGRAM]      fails if the tables differ from matrix.json, or if the
                                                           program names other layouts than were learned, or, in
                                                           the newest release, layouts with a loader that have no
                                                           cell

PATH: directories with the engine's Python sources and its dependencies, separated by colons. MXFP4_PACK names the
program, MXFP4_PACK_LIBRARY its C library.
A cell is an engine's version, a backend in one layout version, a family, a tensor-parallel size, a GPU ("" for none),
and `shown`, best first (layout "file": a layout file that was learned from the engine):

hardware          the engine ran on that GPU: expert tensors and results equal those of the original checkpoint
real classes      the engine's own classes and functions on a CPU: the loader's layer equals, in names, dtypes, shapes,
                  strides and bytes, the engine's own conversion of the original checkpoint. All functions that move
                  bytes are the engine's; those for a GPU only are compiled from its source
not               not shown

A row of `learned` is the layout that `python3 -m mxfp4_pack.learn` derived from the engine's own weight loaders and
conversion, for hidden and intermediate on a rank. It is `equal` to the built-in layout version, or holds the refusal.
With `gpu` "" it ran on a CPU (learn_cells.py), else on that GPU with the unchanged engine. Rows with a GPU are entered
by hand (tests/bench/results).

A row of `chosen` is the `order` in which the engine's own chooser prefers kernels, by the engine's names, on a machine
that appears to have that GPU (choosers.py). tests/unit/src/backends/choosers_test.cpp compares with the rules of
--backend auto.

A row of `models` is a form of tests/cases/loaded.py in the engine's class of the whole model (vllm_models.py), with
`shown` as in a cell. With "not" it has the reason, and neither backend nor tensor-parallel size.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from claims import claims_against, claims_without_cells, version_key

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
MATRIX = os.path.join(HERE, "matrix.json")
PROGRAM_TABLE = os.path.join(ROOT, "src", "backends", "loaders.cpp")
RELEASES_TABLE = os.path.join(ROOT, "src", "backends", "releases.h")
LOADERS_TABLE = os.path.join(ROOT, "src", "loaders", "mxfp4_pack", "_served.py")
MAN = {engine: os.path.join(ROOT, "man", f"mxfp4-pack-{engine}.7") for engine in ("vllm", "sglang")}
README = os.path.join(ROOT, "README.md")
ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}
# Releases that are older than the loaders.
ONLY_READ = {"sglang": [f"0.5.{n}" for n in range(11, 17)]}
SHOWN = ("hardware", "real classes", "not")
# For each table: the key fields of its rows, and the fields of results. Common fields have the same name in all tables.
TABLES = {
    "cells": (("engine", "version", "backend", "layout", "family", "tp", "gpu"), ("shown", "how")),
    "learned": (("engine", "version", "backend", "layout", "family", "hidden", "intermediate", "tp", "gpu"), ("learned",)),
    "chosen": (("engine", "version", "family", "gpu"), ("order",)),
    "models": (("engine", "version", "form", "backend", "tp"), ("shown", "how")),
}
# The scripts that fill a table, for each engine, with their arguments. Each runs in a process of its own.
SCRIPTS = {
    "cells": {engine: [(f"{engine}_classes.py",)] for engine in MAN},
    "learned": {engine: [("learn_cells.py", engine)] for engine in MAN},
    "chosen": {"vllm": [("choosers.py", which) for which in ("vllm", "gfx942", "gfx950")],
               "sglang": [("choosers.py", "sglang")]},
    "models": {"vllm": [("vllm_models.py",)], "sglang": []},
}


def order(row):
    return [version_key(value) if field == "version" else value for field, value in row.items()]


def read_matrix():
    """{table: rows}"""
    with open(MATRIX) as file:
        matrix = json.load(file)
    assert list(matrix) == list(TABLES)
    for table, (key, found) in TABLES.items():
        for row in matrix[table]:
            assert tuple(row) == (*key, *found) and row.get("shown", "not") in SHOWN, row
    return matrix


def write_matrix(matrix):
    texts = (json.dumps(table) + ": [\n" + ",\n".join(json.dumps(row) for row in sorted(rows, key=order)) + "\n]"
             for table, rows in matrix.items())
    with open(MATRIX, "w") as file:
        file.write("{" + ", ".join(texts) + "}\n")


def run(scripts, path, backends):
    """The rows that scripts find with these sources; backends: a pattern of names, "" for all."""
    ours = [os.path.join(ROOT, "src", "loaders"), os.path.join(ROOT, "tests", "loaders")]
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([*path.split(os.pathsep), *ours]),
                                    "MXFP4_PACK_CELLS": file.name, "MXFP4_PACK_BACKENDS": backends}
        for script, *arguments in scripts:
            subprocess.run([sys.executable, os.path.join(HERE, script), *arguments], env=environment)
        return [json.loads(line) for line in file]


def merged(table, rows, found_now):
    """Those that were found now take the place of earlier ones of the same key."""
    key, found = TABLES[table]
    return list({tuple(row[f] for f in key): {f: row[f] for f in (*key, *found)} for row in [*rows, *found_now]}.values())


def program_table(cells):
    """One row for the families in which any version was shown to read an engine's backend and layout version: the first
    of these versions, and the tensor-parallel sizes."""
    since, sizes, families = {}, {}, {}
    for cell in cells:
        if cell["shown"] != "not":
            key = tuple(cell[f] for f in ("engine", "backend", "layout", "family"))
            since[key] = min(since.get(key, cell["version"]), cell["version"], key=version_key)
            sizes.setdefault(key, set()).add(cell["tp"])
    for key in sorted(since):
        families.setdefault((*key[:3], since[key], " ".join(map(str, sorted(sizes[key])))), []).append(key[3])
    rows = sorted(families, key=lambda row: (version_key(row[3]), row[:3], families[row]))
    fields = ((*row[:3], " ".join(families[row]), *row[3:]) for row in rows)
    return "".join(f"    {{{', '.join(map(json.dumps, row))}}},\n" for row in fields)


def releases_table(cells):
    text = ("// Each engine's releases whose sources were read, the oldest first. tests/engines/matrix.py writes this file.\n"
            "#pragma once\n\n// clang-format off\nnamespace mxfp4::engine {\n\n")
    for engine in ENGINES:
        releases = {cell["version"] for cell in cells if cell["engine"] == engine}.union(ONLY_READ.get(engine, ()))
        rows = "".join(f'    "{release}",\n' for release in sorted(releases, key=version_key))
        text += f"inline constexpr const char* {engine}_releases[] = {{\n{rows}}};\n"
    return text + "\n}  // namespace mxfp4::engine\n"


def loaders_table(cells):
    """The Python module with the backends that any version of an engine was shown to read."""
    text = ('"""What each engine\'s loader reads. tests/engines/matrix.py writes this file."""\n\n'
            "# The backends.\nSERVED = {\n")
    for engine in MAN:
        served = sorted({cell["backend"] for cell in cells if cell["engine"] == engine and cell["shown"] != "not"})
        text += f'    "{engine}": (\n' + "".join(f'        "{backend}",\n' for backend in served) + "    ),\n"
    text += "}\n# Engine, backend, whether experts have biases -> the layout versions of one family, the newest first.\nLAYOUTS = {\n"
    for key, groups in sorted(layout_groups(cells).items()):
        text += f"    {key!r}: (\n".replace("'", '"') + "".join(
            f"        ({', '.join(map(json.dumps, group))}{',' * (len(group) == 1)}),\n" for group in groups) + "    ),\n"
    return text + "}\n"


def layout_groups(cells):
    """{(engine, backend, biased): the layout versions of each family, in the order of their newest release, then of their
    oldest}, if a family has several"""
    releases, families = {}, {}
    for cell in cells:
        if cell["shown"] != "not" and cell["layout"] != "file":
            engine, backend, layout, family = (cell[field] for field in ("engine", "backend", "layout", "family"))
            releases.setdefault((engine, backend, layout), set()).add(cell["version"])
            families.setdefault((engine, backend, family == "gpt-oss"), {}).setdefault(family, set()).add(layout)

    def age(key):
        versions = [version_key(version) for version in releases[key]]
        return max(versions), min(versions), key

    groups = {key: {tuple(sorted(layouts, key=lambda layout: age((*key[:2], layout)), reverse=True))
                    for layouts in of.values()} for key, of in families.items()}
    return {key: sorted(group for group in found if not any(set(group) < set(other) for other in found))
            for key, found in groups.items() if any(len(group) > 1 for group in found)}


# Where each backend runs, as `mxfp4-pack backends` says; tests/cli/backends.sh compares.
GPUS = {
    "aiter-a16w4": "gfx950",
    "aiter-triton": "gfx942, gfx950",
    "aiter-w4a4": "gfx950",
    "cutlass-mxfp4": "SM10x, SM12x",
    "deepgemm": "SM10x, SM12x",
    "flashinfer-cutlass": "SM90",
    "flashinfer-cutlass-mxfp8": "SM10x, SM12x",
    "flashinfer-humming": "SM90",
    "flashinfer-trtllm": "SM10x",
    "humming": "SM90",
    "humming-w4a8": "SM90",
    "marlin": {"vllm": "SM75, SM80 and later", "sglang": "SM90 and later"},
    "marlin-fp8": "SM89, SM12x",
    "triton-blackwell": {"vllm": "SM10x, SM12x", "sglang": "SM10x"},
    "triton-hopper": "SM90",
    "triton-rocm": "gfx942, gfx950",
    "vllm-cpu": "CPU (AVX-512, AMX)",
}


# The engine's own name for each backend, as `mxfp4-pack backends -v` says; tests/cli/backends.sh compares.
KERNELS = {
    "aiter-a16w4": "aiter",
    "aiter-triton": "aiter_triton_mxfp4_bf16",
    "aiter-w4a4": "aiter_mxfp4_mxfp4",
    "cutlass-mxfp4": "no name",
    "deepgemm": "deep_gemm",
    "flashinfer-cutlass": {"vllm": "flashinfer_cutlass", "sglang": "flashinfer_mxfp4"},
    "flashinfer-cutlass-mxfp8": {"vllm": "flashinfer_cutlass_afp8", "sglang": "flashinfer_mxfp4"},
    "flashinfer-humming": "flashinfer_mxfp4",
    "flashinfer-trtllm": {"vllm": "flashinfer_trtllm or flashinfer_trtllm_afp8", "sglang": "flashinfer_mxfp4"},
    "humming": "humming",
    "humming-w4a8": "humming",
    "marlin": "marlin",
    "marlin-fp8": "marlin",
    "triton-blackwell": {"vllm": "triton or triton_unfused", "sglang": "triton_kernel"},
    "triton-hopper": {"vllm": "triton or triton_unfused", "sglang": "triton_kernel"},
    "triton-rocm": "triton or triton_unfused",
    "vllm-cpu": "cpu",
}


def in_engine(values, engine, backend):
    """The value of GPUS or KERNELS."""
    value = values[backend]
    return value if isinstance(value, str) else value[engine]


FAMILY_NAMES = {"gpt-oss": "GPT-OSS", "deepseek-v4": "DeepSeek-V4", "deepseek-v4.1": "DeepSeek-V4.1", "kimi-k3": "Kimi-K3",
                "mimo": "MiMo", "ling": "Ling", "quark": "Quark", "compressed-tensors": "compressed-tensors",
                "auto-round": "AutoRound"}


def names_of(families):
    return ", ".join(name for family, name in FAMILY_NAMES.items() if family in families)


def how_tested(group):
    """In words: the families that ran on a GPU in a whole engine, or that none did."""
    ran = {cell["family"] for cell in group if cell["shown"] == "hardware"}
    return f"on a GPU: {names_of(ran)}" if ran else "CPU only"


def limits_of(group, first):
    """In brackets: the backend's first release if the engine has earlier ones, and which of the main families it lacks."""
    families = {cell["family"] for cell in group}
    since = min((cell["version"] for cell in group), key=version_key)
    notes = [f"{since}+"] if since != first else []
    lacking = {"gpt-oss", "deepseek-v4"} - families
    if len(families) == 1:
        notes.append(f"only {names_of(families)}")
    elif lacking:
        notes.append(f"not {names_of(lacking)}")
    return f" ({', '.join(notes)})" if notes else ""


def readme_table(cells):
    """A row for each kind of GPU and way of testing, a column for each engine: the backends that a loader reads. The tables
    of the manual pages have each backend's families and releases."""
    backends, releases = {}, {}
    for cell in cells:
        if cell["shown"] != "not" and cell["layout"] != "file":
            backends.setdefault((cell["engine"], cell["backend"]), []).append(cell)
            releases.setdefault(cell["engine"], set()).add(cell["version"])
    first = {engine: min(versions, key=version_key) for engine, versions in releases.items()}
    last = {engine: max(versions, key=version_key) for engine, versions in releases.items()}
    rows = {}
    for (engine, backend), group in sorted(backends.items()):
        row = rows.setdefault((in_engine(GPUS, engine, backend), how_tested(group)), {})
        row.setdefault(engine, []).append(f"`{backend}`{limits_of(group, first[engine])}")
    heads = [f"{name} {first[engine]} to {last[engine]}" for engine, name in ENGINES.items()]
    lines = [f"| GPU | tested | {' | '.join(heads)} |", "|---|---|---|---|"]
    for (gpu, how), row in sorted(rows.items(), key=lambda r: (r[0][1] == "CPU only", r[0])):
        lines.append(f"| {gpu} | {how} | {' | '.join(', '.join(row.get(engine, [])) for engine in ENGINES)} |")
    return "\n".join([*lines, ""])


def spans(versions, releases):
    """The runs of tested releases; "0.27.0+" is a run that ends with the newest."""
    runs = []
    for at in sorted(releases.index(version) for version in versions):
        if runs and runs[-1][1] == at - 1:
            runs[-1][1] = at
        else:
            runs.append([at, at])

    def span(first, last):
        if last == len(releases) - 1:
            return f"{releases[first]}+"
        return releases[first] if first == last else f"{releases[first]} to {releases[last]}"

    return ", ".join(span(*run) for run in runs)


def man_table(engine, cells):
    """The tested releases; of each backend the kernel, the GPUs, and the families with the releases that read them."""
    read = [cell for cell in cells if cell["engine"] == engine and cell["shown"] != "not" and cell["layout"] != "file"]
    releases = sorted({cell["version"] for cell in read}, key=version_key)
    lines = [f"Tested releases: {', '.join(releases)}.", ".Pp", ".Bl -tag -width Ds -compact"]
    for backend in sorted({cell["backend"] for cell in read}):
        lines += [f".It Cm {backend}", f"{in_engine(KERNELS, engine, backend)}, on {in_engine(GPUS, engine, backend)}."]
        own = [cell for cell in read if cell["backend"] == backend]
        on_gpu = {(cell["family"], cell["version"]) for cell in own if cell["shown"] == "hardware"}
        on_cpu = {(cell["family"], cell["version"]) for cell in own} - on_gpu
        for how, tested in (("On a GPU", on_gpu), ("CPU only", on_cpu)):
            families = {}
            for family in sorted({family for family, _ in tested}, key=list(FAMILY_NAMES).index):
                versions = [version for of, version in tested if of == family]
                families.setdefault(spans(versions, releases), []).append(FAMILY_NAMES[family])
            if families:
                lines.append(f"{how}: {'; '.join(', '.join(names) + ' ' + span for span, names in families.items())}.")
    return "\n".join([*lines, ".El", ""])


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
    texts[RELEASES_TABLE] = releases_table(cells)
    texts[LOADERS_TABLE] = loaders_table(cells)
    for engine, path in MAN.items():
        table = man_table(engine, cells)
        texts[path] = with_table(path, '.\\" tests/engines/matrix.py writes this table', '.\\" to here', table)
    texts[README] = with_table(README, "<!-- tests/engines/matrix.py writes this table -->", "<!-- to here -->",
                               "\n" + readme_table(cells) + "\n")
    return texts


def main():
    parser = argparse.ArgumentParser()
    for name, table in (("--run", "cells"), ("--learn", "learned"), ("--choose", "chosen"), ("--models", "models")):
        parser.add_argument(name, nargs=2, action="append", default=[], metavar=("ENGINE", "PATH"), dest=table)
    parser.add_argument("--backends", default="", metavar="REGEX")
    parser.add_argument("--check", nargs="?", const="", metavar="PROGRAM")
    options = parser.parse_args()
    matrix = read_matrix()
    asked = [(table, *of) for table in TABLES for of in getattr(options, table)]
    for table, engine, path in asked:
        matrix[table] = merged(table, matrix[table], run(SCRIPTS[table][engine], path, options.backends))
    if asked:
        write_matrix(matrix)
    cells, learned = matrix["cells"], matrix["learned"]
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
    wrong = []
    if options.check:
        wrong = claims_without_cells(options.check, cells, ENGINES) + claims_against(options.check, learned)
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    print(", ".join(f"{sum(c['shown'] == shown for c in cells)} {shown}" for shown in SHOWN)
          + f"; learned and equal: {sum(row['learned'] == 'equal' for row in learned)} of {len(learned)}"
          + f"; chosen: {len(matrix['chosen'])}; models: {sum(row['shown'] != 'not' for row in matrix['models'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
