"""Makes the wheel of mxfp4-pack: a zip file of the package and its metadata.

A build backend (PEP 517) of its own, because it needs nothing but Python: pip fetches nothing, and nothing is written
beside the sources, which may lie below a system prefix.
"""

import base64
import hashlib
import os
import zipfile

NAME, VERSION = "mxfp4_pack", "0.1.0"
INFORMATION = f"{NAME}-{VERSION}.dist-info"
METADATA = f"""\
Metadata-Version: 2.1
Name: mxfp4-pack
Version: {VERSION}
Summary: vLLM and SGLang load packed MXFP4 experts of mxfp4-pack without converting them again
Requires-Python: >=3.10
Provides-Extra: verify
Requires-Dist: xxhash>=3.0; extra == "verify"
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: mxfp4-pack
Root-Is-Purelib: true
Tag: py3-none-any
"""
ENTRY_POINTS = """\
[vllm.general_plugins]
mxfp4-pack = mxfp4_pack.vllm:register

[sglang.srt.plugins]
mxfp4-pack = mxfp4_pack.sglang:register
"""


def sources(root):
    """{name in the wheel: bytes} of the package's modules"""
    found = {}
    for folder, _, names in os.walk(os.path.join(root, NAME)):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    found[os.path.relpath(path, root).replace(os.sep, "/")] = file.read()
    return dict(sorted(found.items()))


def record(files):
    """RECORD: name, checksum and size of every file, of itself the name alone."""
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join(lines) + f"{INFORMATION}/RECORD,,\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = sources(os.path.dirname(os.path.abspath(__file__)))
    for name, text in (("METADATA", METADATA), ("WHEEL", WHEEL), ("entry_points.txt", ENTRY_POINTS)):
        files[f"{INFORMATION}/{name}"] = text.encode()
    files[f"{INFORMATION}/RECORD"] = record(files).encode()
    wheel = f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data)
    return wheel
