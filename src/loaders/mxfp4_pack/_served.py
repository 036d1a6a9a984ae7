"""The backends that each engine's loader reads. tests/engines/matrix.py writes this file."""

SERVED = {
    "vllm": (
        "aiter-a16w4",
        "aiter-triton",
        "aiter-w4a4",
        "cutlass-mxfp4",
        "deepgemm",
        "flashinfer-cutlass",
        "flashinfer-cutlass-mxfp8",
        "flashinfer-trtllm",
        "humming",
        "humming-w4a8",
        "marlin",
        "marlin-fp8",
        "triton-blackwell",
        "triton-hopper",
        "triton-rocm",
        "vllm-cpu",
    ),
    "sglang": (
        "aiter-a16w4",
        "deepgemm",
        "flashinfer-cutlass",
        "flashinfer-cutlass-mxfp8",
        "flashinfer-humming",
        "flashinfer-trtllm",
        "humming",
        "marlin",
        "triton-blackwell",
        "triton-hopper",
    ),
}
