"""Finds the program mxfp4-pack of this package."""

import os
import shutil
from importlib import metadata

NAME = "mxfp4-pack"
MISSING = f"the program {NAME} was not found, neither in this package's installation nor in the PATH"
HERE = os.path.dirname(os.path.abspath(__file__))


def program() -> str | None:
    """The path of the program: the one that pip installed with this package, else the one in PATH; None if there is
    none."""
    return next(filter(is_program, candidates()), None) or shutil.which(NAME)


def environment() -> dict[str, str]:
    """The environment for a run of the program. The program ends when the calling thread ends or this process is
    killed."""
    return {**os.environ, "MXFP4_PACK_PARENT": str(os.getpid())}


def candidates():
    yield os.path.join(os.path.dirname(HERE), "bin", NAME)  # pip install --target
    try:
        installed = metadata.distribution(NAME)
    except metadata.PackageNotFoundError:
        return
    if os.path.realpath(installed.locate_file("mxfp4_pack")) == os.path.realpath(HERE):
        yield from (str(file.locate()) for file in installed.files or () if file.name == NAME and file.parent.name == "bin")


def is_program(path):
    return os.path.isfile(path) and os.access(path, os.X_OK)
