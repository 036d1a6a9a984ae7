"""The advice in a refusal: the installed versions, and the command that writes a suitable output."""

from importlib import metadata

from ._errors import printable
from ._served import LAYOUTS

# The libraries whose conversion an engine may call.
LIBRARIES = ("flashinfer", "triton_kernels", "humming-kernels", "deep_gemm", "aiter")
# A library's name -> the installed distributions that tell its version: its own, then those that contain it.
DISTRIBUTIONS = {"flashinfer": ("flashinfer-python",), "triton_kernels": ("triton-kernels", "sglang-kernel", "vllm")}
# The engines' names for a backend -> those of mxfp4-pack.
BACKENDS = {"marlin": ("marlin",), "humming": ("humming",), "flashinfer_cutlass": ("flashinfer-cutlass",),
            "flashinfer_mxfp4": ("flashinfer-cutlass", "flashinfer-trtllm"),
            "triton_kernel": ("triton-hopper", "triton-blackwell"), "triton": ("triton-hopper", "triton-blackwell"),
            "triton_unfused": ("triton-hopper", "triton-blackwell"), "aiter_triton_mxfp4_bf16": ("aiter-triton",)}


def installed(library: str) -> str:
    names = DISTRIBUTIONS.get(library, (library,))
    for name in names:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        return version if name == names[0] else f"in {name} {version}"
    return "not installed"


def version_of_package() -> str:
    """The version of this package; "0+unknown" if it is not installed, for example in a checkout."""
    try:
        return metadata.version("mxfp4-pack")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def convert_again(directory: str, engine: str, backend: str, tp_size: int = 1, how: str = "--force",
                  layout_version: str | None = None) -> str:
    """The command that writes the requested set. how: --force replaces all sets, --add adds one."""
    layout = f" --layout-version {layout_version}" if layout_version else ""
    tp = f" --tp-size {tp_size}" if tp_size > 1 else ""
    return f"Run: mxfp4-pack convert CHECKPOINT {printable(directory)} --engine {engine} --backend {backend}{layout}{tp} {how}"


def other_layouts(fields):
    """The layout versions to try if a set's own does not fit the engine."""
    own, biased = fields["layout_version"], any(t["part"] == "bias" for t in fields["tensors"])
    groups = LAYOUTS.get((fields["engine"], fields["backend"], biased), ())
    return list(dict.fromkeys(name for group in [g for g in groups if own in g] or groups for name in group if name != own))


def after_misfit(directory, fields):
    """The next step if the engine's bytes differ from a set's."""
    if "layout_file" in fields:
        return ("Learn the layout file again from the installed engine (python3 -m mxfp4_pack.learn), and run: "
                f"mxfp4-pack convert CHECKPOINT {printable(directory)} --layout FILE --force")
    given = (directory, fields["engine"], fields["backend"], fields["moe_tp_size"], "--force")
    if others := other_layouts(fields):
        command = convert_again(*given, others[0])
        return command + "".join(f"\n  or with --layout-version {name}" for name in others[1:])
    return (f"Run: mxfp4-pack verify {printable(directory)}\n  If it finds no fault, mxfp4-pack writes no other bytes "
            f"for {fields['backend']}: serve another backend or an engine that fits. If it finds damage:\n  "
            f"{convert_again(*given, fields['layout_version'])}")


def for_kernel(directory, engine, backends, tp_size):
    """The next step if no set serves a kernel. `backends`: those that the kernel reads, Hopper's first."""
    first, *others = backends
    command = convert_again(directory, engine, first, tp_size, "--add")
    return command + "".join(f"\n  or, on a Blackwell GPU, --backend {name}" for name in others)
