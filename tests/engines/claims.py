"""Whether the program says the same as matrix.json."""

import json
import re
import subprocess


def version_key(version):
    return [int(n) for n in re.findall(r"\d+", version)]


def claims_against(program, learned):
    """The versions of an engine for which the program names other layouts than were learned."""
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


def claims_without_cells(program, cells, engines):
    """The layouts of each engine's newest release that the program says a loader reads, and no cell shows."""
    listed = subprocess.run([program, "backends", "--json"], capture_output=True, check=True)
    backends, missing = json.loads(listed.stdout)["backends"], []
    for engine in engines:
        newest = max((of["range"].split()[-1] for b in backends for name, of in b["fits"].items() if name == engine),
                     key=version_key)
        fitting = subprocess.run([program, "backends", "--engine", f"{engine}=={newest}", "--json"], capture_output=True,
                                 check=True)
        shown = {(cell["backend"], cell["layout"]) for cell in cells
                 if (cell["engine"], cell["version"]) == (engine, newest) and cell["shown"] != "not"}
        claimed = {(b["backend"], b["layout_version"]) for b in json.loads(fitting.stdout)["backends"] if b["loader"]}
        missing += [f"{engine} {newest} {backend} {layout} has no cell: run matrix.py --run {engine} PATH, or end the range "
                    f"of its row in src/backends" for backend, layout in sorted(claimed - shown)]
    return missing
