"""What each engine's loader reads. tests/engines/matrix.py writes this file."""

# The backends.
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
# Engine, backend, whether experts have biases -> the layout versions of one family, the newest first.
LAYOUTS = {
    ("sglang", "aiter-a16w4", False): (
        ("1-k3", "1-ones", "1"),
    ),
    ("sglang", "aiter-a16w4", True): (
        ("1-ones", "1"),
    ),
    ("sglang", "flashinfer-cutlass", False): (
        ("v2", "v1"),
    ),
    ("sglang", "flashinfer-cutlass", True): (
        ("v2-corner", "v2", "v1-corner", "v1"),
    ),
    ("sglang", "flashinfer-cutlass-mxfp8", True): (
        ("3", "2"),
    ),
    ("sglang", "flashinfer-trtllm", False): (
        ("i128-k3", "i128-ones"),
        ("i128-ones", "i128"),
    ),
    ("sglang", "flashinfer-trtllm", True): (
        ("i128-ones", "i128"),
    ),
    ("sglang", "marlin", False): (
        ("i64-corner", "i64", "1"),
        ("k3", "1"),
    ),
    ("sglang", "triton-hopper", True): (
        ("c64", "b64", "b64-pairs"),
    ),
    ("vllm", "aiter-a16w4", False): (
        ("2", "1"),
    ),
    ("vllm", "aiter-triton", False): (
        ("transposed", "cdna4", "strided"),
    ),
    ("vllm", "aiter-triton", True): (
        ("transposed", "cdna4", "strided"),
    ),
    ("vllm", "aiter-w4a4", True): (
        ("4", "3"),
    ),
    ("vllm", "flashinfer-cutlass", False): (
        ("v2", "v1"),
    ),
    ("vllm", "flashinfer-cutlass", True): (
        ("v2", "v1"),
    ),
    ("vllm", "flashinfer-trtllm", False): (
        ("i128", "i256"),
    ),
    ("vllm", "flashinfer-trtllm", True): (
        ("i128", "i256"),
    ),
    ("vllm", "triton-hopper", False): (
        ("c", "a"),
    ),
    ("vllm", "triton-hopper", True): (
        ("c", "a"),
    ),
    ("vllm", "triton-rocm", False): (
        ("transposed-128", "transposed", "cdna4", "strided"),
    ),
    ("vllm", "triton-rocm", True): (
        ("transposed", "cdna4", "strided"),
    ),
}
