"""As another user, exchanges two names for each other: once, or again and again until it is killed.

usage: exchange.py once|loop A B
"""
import ctypes
import os
import sys

NOBODY = 65534
HERE, RENAME_EXCHANGE = -100, 2

how, a, b = sys.argv[1:]
os.setgroups([])
os.setgid(NOBODY)
os.setuid(NOBODY)
libc = ctypes.CDLL(None)
while libc.renameat2(HERE, a.encode(), HERE, b.encode(), RENAME_EXCHANGE) == 0 and how == "loop":
    pass
