#!/usr/bin/env python3
"""Puts the program's lists of options into mxfp4-pack(1): options.py MXFP4-PACK PAGE [--check].

A list is between `.\\" {NAME` and `.\\" }`. --check writes nothing; the exit code is 1 if the page
differs.
"""

import re
import subprocess
import sys
from pathlib import Path

LIST = re.compile(r'^\.\\" \{(.*)\n(?:.*\n)*?\.\\" \}\n', re.MULTILINE)


def main():
    program, page = sys.argv[1], Path(sys.argv[2])
    made = subprocess.run([program, "--manual-lists"], capture_output=True, text=True, check=True).stdout
    lists = {m[1]: m[0] for m in LIST.finditer(made)}
    text = page.read_text()
    if absent := set(lists) ^ {m[1] for m in LIST.finditer(text)}:
        sys.exit(f"{page}: lists that only the page or only the program has: {', '.join(sorted(absent))}")
    fresh = LIST.sub(lambda m: lists[m[1]], text)
    if "--check" not in sys.argv:
        page.write_text(fresh)
    elif fresh != text:
        sys.exit(f"{page}: its options are not the program's; run man/options.py {program} {page}")


main()
