"""python3 -m mxfp4_pack ARGUMENTS: the program."""

import os
import sys

from ._program import MISSING, NAME, program

path = program()
if path is None:
    print(f"{NAME}: error: {MISSING}", file=sys.stderr)
    sys.exit(2)
os.execv(path, [NAME, *sys.argv[1:]])
