"""Makes an archive of an engine's wheels for one kind of GPU, small enough to be carried to a machine without registry.

    python3 tests/engines/cut_wheels.py vllm.tar.xz --arch 90 --preset vllm WHEEL..
    mkdir site && tar -xJf vllm.tar.xz -C site && PYTHONPATH=site:.. python3 ..

In every fat binary of a shared library, only the code for GPUs of that compute capability is kept: the machine code or,
if there is none, the newest PTX that such a GPU can compile. The rest is overwritten with zeros, which compress well.
Files that a start does not import are left out (PRESETS), so a preset is valid only for the tested releases of one
engine. vLLM 0.26.0 also imports xgrammar and llguidance. If they are too large to carry, use modules whose attributes
are all `object`. Of the 53 MB of xgrammar's shared library, which SGLang 0.5.17 imports, 51 MB are symbols: `strip` it
first.
"""

import argparse
import fnmatch
import io
import struct
import sys
import tarfile
import zipfile

FATBIN = 0xBA55ED50
PTX, MACHINE_CODE = 1, 2
# RECORD stays: xgrammar finds its library by it.
EVERYWHERE = ("*.dist-info/licenses/*", "*/tests/*", "*.pyi", "*.a")
# engine -> (files to leave out, replacements of modules: file -> text)
PRESETS = {
    # vLLM 0.26.0 with --attention-backend TRITON_ATTN, whose flash-attention package wants one of two modules
    "vllm": (("vllm/vllm_flash_attn/*.so", "vllm/vllm-rs", "vllm/_flashmla*.so", "vllm/_qutlass*.so", "*.hpp", "*.cuh",
              "*.inl", "*.h", "vllm/third_party/deep_gemm/*.so", "*/instrumentator/static/*", "vllm/third_party/fmha_sm100/*"),
             {"vllm/vllm_flash_attn/_vllm_fa2_C.py": ""}),
    # SGLang 0.5.17: DeepSeek-V4, and GPT-OSS with --attention-backend triton. It imports IPython for notebooks; kernels are
    # compiled at run time
    "sglang": (("sgl_kernel/flash_ops*.so", "sgl_kernel/infllm_ops*.so", "sgl_kernel/sm100/*", "sglang/multimodal_gen/*",
                "sglang/srt/*/_core.*.so", "sglang/test/*", "tilelang/3rdparty/composable_kernel/*", "z3_solver-*.data/*"),
               {"IPython/__init__.py": "", "IPython/display.py": "HTML = display = object\n"}),
}


def section(data, name):
    """(offset, size) of a section of a 64-bit ELF file, or None."""
    table, = struct.unpack_from("<Q", data, 40)
    count, names = struct.unpack_from("<HH", data, 60)
    heads = [struct.unpack_from("<IIQQQQ", data, table + 64 * i) for i in range(count)]
    for head in heads:
        begin = heads[names][4] + head[0]
        if data[begin:data.index(b"\0", begin)] == name:
            return head[4], head[5]
    return None


def entries(data, begin, end):
    """(kind, capability, offset, size) of the code for each GPU in one fat binary."""
    found = []
    while begin < end:
        kind, _, header, size = struct.unpack_from("<HHIQ", data, begin)
        capability, = struct.unpack_from("<I", data, begin + 28)
        found.append((kind, capability, begin + header, size))
        begin += header + size
    return found


def runnable(found, arch):
    """Those that a GPU of compute capability `arch` runs; with none of its own, the newest PTX for it."""
    own = [e for e in found if e[:2] == (MACHINE_CODE, arch)]
    older = [e for e in found if e[0] == PTX and e[1] <= arch]
    return own or [e for e in older if e[1] == max(o[1] for o in older)]


def cut(data, arch):
    """A shared library without other GPUs' code."""
    place = section(data, b".nv_fatbin") if data[:4] == b"\x7fELF" else None
    if place is None:
        return data
    data = bytearray(data)
    at, end = place[0], sum(place)
    while at < end:
        magic, _, header, size = struct.unpack_from("<IHHQ", data, at) if end - at >= 16 else (0,) * 4
        if magic != FATBIN:
            at += 8  # between two of them
            continue
        found = entries(data, at + header, at + header + size)
        keep = runnable(found, arch)
        for entry in found:
            if entry not in keep:
                data[entry[2]:entry[2] + entry[3]] = bytes(entry[3])
        at += header + size
    return bytes(data)


def add(archive, name, data):
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o755
    archive.addfile(info, io.BytesIO(data))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("archive")
    parser.add_argument("wheels", nargs="+")
    parser.add_argument("--arch", type=int, required=True, help="compute capability: 90")
    parser.add_argument("--preset", choices=PRESETS, required=True)
    parser.add_argument("--without", action="append", default=[], help="further files to leave out, with wildcards")
    options = parser.parse_args()
    without, stand_ins = PRESETS[options.preset]
    without = (*EVERYWHERE, *without, *options.without)
    with tarfile.open(options.archive, "w:xz") as archive:
        for path in options.wheels:
            with zipfile.ZipFile(path) as wheel:
                names = [n for n in wheel.namelist() if not n.endswith("/")]
                for name in sorted(names):
                    if not any(fnmatch.fnmatch(name, pattern) for pattern in without):
                        add(archive, name, cut(wheel.read(name), options.arch))
        for name, text in stand_ins.items():
            add(archive, name, text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
