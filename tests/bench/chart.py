"""chart.svg: bars of convert beside cp and of engine loads, original and packed, from the tables in README.md.

    python3 tests/bench/chart.py            writes it
    python3 tests/bench/chart.py --check    fails if it differs from the tables
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


STARTS = (("gpt-oss-20b, Marlin", "H200"), ("gpt-oss-20b, Triton", "H100"),
          ("gpt-oss-120b (18 layers), Marlin", "H200"))
LOADS = (("packed", "packed", OURS), ("as published", "original", OTHER),
         ("packed, InstantTensor", "packed, InstantTensor", OURS),
         ("published, InstantTensor", "original, InstantTensor", OTHER))


def conversions():
    """Groups of bars, each (title, [(label, seconds, color)])."""
    out = []
    for backend in ("marlin", "flashinfer-cutlass"):
        r = row("convert", backend=backend, **{"page cache": "cold, synced"})
        out.append((f"4.2 GB, cold files, {backend}", [("convert", float(r["s"]), OURS),
                                                       ("cp", float(r["cp s"]), OTHER)]))
    rows = ("convert, CPU, 16 threads", OURS), ("cp -r", OTHER), ("16 processes of cp", OTHER)
    out.append(("14.7 GB in memory, 16 cores", [(name, float(row(name)["tmpfs s"]), color) for name, color in rows]))
    r = row("User Mode Linux, none")
    out.append(("NFS, client and server in one guest", [("convert", float(r["convert"]), OURS),
                                                        ("cp", float(r["cp, sync"]), OTHER)]))
    return out


def loads():
    out = []
    for model, gpu in STARTS:
        r = row(model, GPU=gpu)
        out.append((f"vLLM loads {model}, {gpu}", [(label, float(r[column]), color) for label, column, color in LOADS]))
    out.append(("vLLM loads gpt-oss-20b, Marlin, H100, cold disk",
                [(label, float(row("gpt-oss-20b")[f"{column}, cold"].split(",")[0]), color)
                 for label, column, color in LOADS[:2]]))
    return out


def svg():
    lines, y = [], 4
    groups = [(g, max(s for _, bars in part for _, s, _ in bars)) for part in (conversions(), loads()) for g in part]
    for (title, bars), largest in groups:
        lines.append(f'<text x="0" y="{y + 14}" font-weight="bold">{title}</text>')
        y += 22
        for label, seconds, color in bars:
            width = round((WIDTH - LABEL - 70) * seconds / largest)
            lines.append(f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">{label}</text>')
            lines.append(f'<rect x="{LABEL}" y="{y}" width="{width}" height="{BAR}" fill="{color}"/>')
            lines.append(f'<text x="{LABEL + width + 6}" y="{y + 15}">{seconds:g} s</text>')
            y += BAR + GAP
        y += 8
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" '
            'font-family="sans-serif" font-size="14" fill="#444">\n'
            f'<rect width="{WIDTH}" height="{y}" fill="#fff"/>')
    return "\n".join([head, *lines, "</svg>", ""])


def main():
    if "--check" not in sys.argv[1:]:
        with open(CHART, "w") as file:
            file.write(svg())
        return 0
    with open(CHART) as file:
        if file.read() == svg():
            return 0
    print("chart.svg differs from README.md; run python3 tests/bench/chart.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
