"""chart.svg: convert beside cp, and a server's load raw beside packed, as measured in the tables of README.md here.

    python3 tests/bench/chart.py            writes it
    python3 tests/bench/chart.py --check    fails where it is not that of the tables
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CHART = os.path.join(HERE, "chart.svg")
WIDTH, LABEL, BAR, GAP = 640, 190, 20, 6
OURS, OTHER = "#2b7a4b", "#9aa0a6"


def tables():
    """Every table of README.md: a list of rows, each {column: cell}."""
    out, header = [], None
    with open(os.path.join(HERE, "README.md")) as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else None
            if not cells:
                header = None
            elif header is None:
                header = cells
                out.append([])
            elif set(cells[0]) != {"-"}:
                out[-1].append(dict(zip(header, cells)))
    return out


def row(first, **cells):
    """The only row whose first cell, and whose others, are these."""
    found = [r for table in tables() for r in table
             if next(iter(r.values())) == first and all(r.get(k) == v for k, v in cells.items())]
    assert len(found) == 1, (first, cells, found)
    return found[0]


def starts():
    """The first tables of starts of a whole engine, vLLM's: gpt-oss-20b with Marlin, with Triton, gpt-oss-120b."""
    found = [{r[""]: float(r["load_model s"].split()[0]) for r in table} for table in tables()
             if "load_model s" in table[0] and {"raw", "packed"} <= {r[""] for r in table}]
    assert len(found) >= 3, found
    return found[:3]


def groups():
    out = []
    for backend in ("marlin", "flashinfer-cutlass"):
        r = row("convert", backend=backend, **{"page cache": "cold, synced"})
        out.append((f"4.2 GB, cold files, {backend}", [("convert", float(r["s"]), OURS),
                                                       ("cp", float(r["cp or cat s"]), OTHER)]))
    for name, seconds in zip(("20b, Marlin", "20b, Triton", "120b of 18 layers, Marlin"), starts()):
        out.append((f"vLLM loads gpt-oss-{name}", [("packed", seconds["packed"], OURS),
                                                  ("as published", seconds["raw"], OTHER)]))
    return out


def svg():
    lines, y = [], 4
    largest = [max(s for _, bars in part for _, s, _ in bars) for part in (groups()[:2], groups()[2:])]
    for i, (title, bars) in enumerate(groups()):
        lines.append(f'<text x="0" y="{y + 14}" font-weight="bold">{title}</text>')
        y += 22
        for label, seconds, color in bars:
            width = round((WIDTH - LABEL - 70) * seconds / largest[i >= 2])
            lines.append(f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">{label}</text>')
            lines.append(f'<rect x="{LABEL}" y="{y}" width="{width}" height="{BAR}" fill="{color}"/>')
            lines.append(f'<text x="{LABEL + width + 6}" y="{y + 15}">{seconds:g} s</text>')
            y += BAR + GAP
        y += 8
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" '
            'font-family="sans-serif" font-size="14" fill="#444">')
    return "\n".join([head, *lines, "</svg>", ""])


def main():
    if "--check" not in sys.argv[1:]:
        with open(CHART, "w") as file:
            file.write(svg())
        return 0
    with open(CHART) as file:
        if file.read() == svg():
            return 0
    print("chart.svg is not that of README.md; run python3 tests/bench/chart.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
