"""mxfp4-pack itself in the tests. MXFP4_PACK names the program."""

import os
import subprocess
import unittest
from contextlib import contextmanager
from unittest import mock

from golden import TESTDATA
from mxfp4_pack import _program

PROGRAM = os.environ.get("MXFP4_PACK", "")
needs_program = unittest.skipUnless(PROGRAM, "MXFP4_PACK names no mxfp4-pack: its output is not tested here")
TINY = os.path.join(TESTDATA, "tiny", "gpt-oss")
# the versions of the layouts that formats.py makes
VERSIONS = {"marlin": ["--layout-version", "1"], "flashinfer-cutlass": ["--layout-version", "v1"],
            "triton-hopper": ["--layout-version", "a"]}
SGLANG_VERSIONS = VERSIONS | {"flashinfer-cutlass": ["--layout-version", "v1-corner"],
                              "triton-hopper": ["--layout-version", "b64-pairs"]}


def run(*arguments):
    subprocess.run([PROGRAM, *arguments, "-q"], check=True)


def convert(source, out, engine, backend, *options):
    run("convert", source, out, "--engine", engine, "--backend", backend, *options, "--no-loader")


@contextmanager
def no_program():
    """In this context the program is neither installed with the package nor in PATH."""
    with mock.patch.dict(os.environ, PATH="/nowhere"), mock.patch.object(_program, "candidates", tuple):
        yield


def in_path(test):
    """The program is in PATH until the end of the test."""
    path = f"{os.path.dirname(PROGRAM)}:{os.environ['PATH']}"
    test.enterContext(mock.patch.dict(os.environ, PATH=path))
