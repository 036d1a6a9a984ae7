"""Runs the loaders' tests. Exit code 77 (skipped) if torch or the C library is missing. MXFP4_PACK names the program
for the tests. The library is MXFP4_PACK_LIBRARY, else the one in the program's directory.
usage: run.py [--installed] [OPTION OF UNITTEST..]; --installed: the package that this Python has, and its program.

The tests need torch >= 2.7 (any build, no GPU) and safetensors >= 0.6.2: pip install torch safetensors
"""

import ctypes
import os
import subprocess
import sys
import sysconfig

HERE = os.path.dirname(os.path.abspath(__file__))
LOADERS = os.path.abspath(os.path.join(HERE, "..", "..", "src", "loaders"))

try:
    import safetensors  # noqa: F401
    from torch import float8_e8m0fnu  # noqa: F401
except ImportError as missing:
    print("*" * 100)
    print(f"skipped: torch not installed for {sys.executable} ({missing}).")
    print("NOT TESTED: the vLLM and SGLang loaders. 'pip install torch safetensors' and run this again.")
    print("*" * 100)
    sys.exit(77)

environment = dict(os.environ, PYTHONPATH=LOADERS, PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
options = sys.argv[1:]
if "--installed" in options:
    options.remove("--installed")
    del environment["PYTHONPATH"]
    environment["MXFP4_PACK"] = os.path.join(sysconfig.get_path("scripts"), "mxfp4-pack")
else:
    beside = os.path.join(os.path.dirname(os.path.abspath(os.environ.get("MXFP4_PACK", "build/-"))), "libmxfp4_pack.so")
    try:
        ctypes.CDLL(environment.setdefault("MXFP4_PACK_LIBRARY", beside))
    except OSError as error:  # not built, or with a sanitizer, which Python does not have
        print(f"skipped: {error}\nNOT TESTED: the vLLM and SGLang loaders. Build the target mxfp4_pack and run this again.")
        sys.exit(77)
names = sorted(name.removesuffix(".py") for name in os.listdir(HERE) if name.startswith("test_"))
sys.exit(subprocess.run([sys.executable, "-m", "unittest", "-b", *options, *names], cwd=HERE, env=environment).returncode)
