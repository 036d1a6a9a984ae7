#!/usr/bin/env python3
"""Counts by which the tree is kept small: house.py [ROOT] prints one line each for src/, kernels/ and tests/.

Needs universal-ctags, which gives every function's first and last line and its parameters.
"""

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

SOURCES = {".h", ".cpp", ".cu", ".cuh"}
LINES_OF_FILE, LINES_OF_FUNCTION, PARAMETERS = 400, 50, 6


def sources(root, folders, suffixes=SOURCES):
    return sorted(p for f in folders for p in (root / f).rglob("*") if p.suffix in suffixes)


def lines_of(path):
    return path.read_text().count("\n")


def functions(files):
    """(lines, parameters, name) of every function that has a body; a lambda is part of its function."""
    command = ["ctags", "-f", "-", "--output-format=json", "--languages=C++", "--map-C++=+.cu.cuh"]
    command += ["--kinds-C++=f", "--fields=+neS", "-L", "-"]
    tags = subprocess.run(command, input="\n".join(map(str, files)), capture_output=True, text=True, check=True)
    for line in tags.stdout.splitlines():
        tag = json.loads(line)
        if "end" in tag and not tag["name"].startswith("__anon"):
            yield tag["end"] - tag["line"] + 1, parameters(tag.get("signature", "()")), f"{tag['path']}: {tag['name']}"


def parameters(signature):
    """Commas outside of any bracket, and one."""
    inner, depth, commas = signature.strip()[1 : signature.rindex(")")].strip(), 0, 0
    for c in inner:
        depth += c in "(<[{"
        depth -= c in ")>]}"
        commas += c == "," and depth == 0
    return commas + 1 if inner and inner != "void" else 0


def includes(root, files):
    for path in files:
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
            if (root / name).exists():
                yield path.relative_to(root), Path(name)


def floors(edges):
    """The longest chain of files, each of which includes the next."""
    included_by = {}
    for file, included in edges:
        included_by.setdefault(file, []).append(included)

    @functools.cache
    def height(file):
        return 1 + max(map(height, included_by.get(file, ())), default=0)

    return max(map(height, included_by))


def climbing(root, edges):
    """Includes that go down the list of modules in src/README.md; '-' if there is no such list."""
    readme = root / "src/README.md"
    rooms = re.findall(r"^\| `((?:kernels|src)[a-z0-9_/]*)` \|", readme.read_text(), re.M) if readme.exists() else []
    rank = {room: i for i, room in enumerate(rooms)}
    return sum(rank[str(i.parent)] > rank[str(f.parent)] for f, i in edges) if rank else "-"


def report(root, title, names):
    print(f"{'  ' + title:50}{len(names):8}")
    for name in names:
        print(f"    {Path(name).relative_to(root) if name.startswith('/') else name}")


def count_lines(root, what, files):
    print(f"{'lines of ' + what:50}{sum(map(lines_of, files)):8}")
    report(root, f"files over {LINES_OF_FILE} lines", [str(p) for p in files if lines_of(p) > LINES_OF_FILE])


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    program, tests = sources(root, ["src", "kernels"]), sources(root, ["tests"])
    edges = list(includes(root, program))
    print(f"{'folders of src and kernels':50}{len({p.parent for p in program}):8}")
    print(f"{'floors: longest chain of includes':50}{floors(edges):8}")
    print(f"{'includes against the order of modules':50}{climbing(root, edges):>8}")
    for what, files in ("src and kernels", program), ("tests", tests):
        found = list(functions(files))
        count_lines(root, what, files)
        too_long = [f[2] for f in found if f[0] > LINES_OF_FUNCTION]
        too_wide = [f[2] for f in found if f[1] > PARAMETERS]
        report(root, f"functions over {LINES_OF_FUNCTION} lines, of {len(found)}", too_long)
        report(root, f"functions of more than {PARAMETERS} parameters", too_wide)
    count_lines(root, "the Python package", sources(root, ["src"], {".py"}))
    count_lines(root, "tests in Python and shell", sources(root, ["tests"], {".py", ".sh"}))


main()
