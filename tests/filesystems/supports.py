#!/usr/bin/env python3
"""What a file system can do: yes or no. usage: supports.py exchange|hard|reflink|locks FOLDER"""
import ctypes
import fcntl
import os
import sys
import tempfile

AT_FDCWD, RENAME_EXCHANGE, FICLONE = -100, 2, 0x40049409


def new(path):
    return open(path, "w+b", buffering=0)


def exchange(a, b):
    os.mkdir(a)
    os.mkdir(b)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, a.encode(), AT_FDCWD, b.encode(), RENAME_EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def reflink(a, b):
    with new(a) as one, new(b) as other:
        one.write(bytes(4096))
        fcntl.ioctl(other, FICLONE, one.fileno())


def hard(a, b):
    new(a).close()
    os.link(a, b)


def locks(a, _):
    with new(a) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


TESTS = {test.__name__: test for test in (exchange, reflink, hard, locks)}
with tempfile.TemporaryDirectory(dir=sys.argv[2]) as folder:
    try:
        TESTS[sys.argv[1]](folder + "/a", folder + "/b")
        print("yes")
    except OSError:
        print("no")
