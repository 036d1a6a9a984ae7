"""Times of engines' own MoE kernels on a Hopper GPU, measured like `mxfp4_moe_bench`: the median of 15
replays of a CUDA graph. The graph has several layers' forwards, each with other experts.

    python3 tests/bench/engine_moe_bench.py SHAPE KERNEL..    shapes and kernels: the tables SHAPES and KERNELS

A forward is the engine's work after the router: the assignment of rows to experts, both products, the activation
between them, the weighted sum. The engine's own functions convert random codes, and four tokens are compared with
float64 first. Needs torch, vLLM and humming-kernels. Several processes may compile at once; a file lock lets one at a
time measure. Prints a line of JSON for each number of tokens."""
import fcntl
import json
import statistics
import sys
import tempfile
from importlib import metadata
from types import SimpleNamespace

import torch
from torch.nn.functional import pad

SHAPES = {"deepseek-v4-flash": dict(hidden=4096, intermediate=2048, experts=256, top_k=6, biases=False),
          "gpt-oss-20b": dict(hidden=2880, intermediate=2880, experts=32, top_k=4, biases=True)}
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 8192)
REPLAYS = 15
CHECKED = 4
FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
SILU = "(a / (1.f + expf(-a))) * b"
CLAMPED = "[](float a, float b) { const float gate = fminf(a, 7.f); const float up = fmaxf(fminf(b, 7.f), -7.f); " \
          "return gate / (1.f + expf(-1.702f * gate)) * (up + 1.f); }(a, b)"


def random_layer(hidden, intermediate, experts, top_k, biases):
    """Codes [E, n, k/2] and scales [E, n, k/32] in 2^-9..2^-3 of both products; biases [E, n] of 0. With biases gate
    and up alternate and SwiGLU is clamped, as in GPT-OSS."""
    torch.manual_seed(1)
    layer = SimpleNamespace(hidden=hidden, intermediate=intermediate, experts=experts, top_k=top_k, paired=biases)
    for name, n, k in (("w13", 2 * intermediate, hidden), ("w2", hidden, intermediate)):
        codes = torch.randint(0, 256, (experts, n, k // 2), dtype=torch.uint8, device="cuda")
        scales = torch.randint(118, 125, (experts, n, k // 32), dtype=torch.uint8, device="cuda")
        bias = torch.zeros(experts, n, dtype=torch.bfloat16, device="cuda") if biases else None
        setattr(layer, name, (codes, scales, bias))
    return layer


def clamped(rows):
    gate, up = rows[..., ::2].clamp(max=7), rows[..., 1::2].clamp(-7, 7)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


def halves(rows):
    gate, up = rows.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def reference(layer, batch, activation):
    """[tokens, hidden] in float64, straight from codes and scales."""
    def matrix(part, expert):
        codes, scales, _ = part
        values = FP4.cuda()[torch.stack((codes[expert] & 15, codes[expert] >> 4), -1).flatten(1).long()]
        return values * torch.exp2(scales[expert].double() - 127).repeat_interleave(32, 1)
    out = torch.zeros(len(batch.x), layer.hidden, dtype=torch.float64, device="cuda")
    for token, (experts, weights) in enumerate(zip(batch.ids.tolist(), batch.weights.tolist())):
        for expert, weight in zip(experts, weights):
            between = activation(matrix(layer.w13, expert) @ batch.x[token].double())
            out[token] += weight * (matrix(layer.w2, expert) @ between)
    return out


def random_batch(layer, tokens):
    """Every token's experts are distinct and uniform; logits are whole numbers, exact in bf16."""
    logits = torch.rand(tokens, layer.experts, device="cuda").argsort(1).bfloat16() / 32
    top = logits.float().topk(layer.top_k)
    x = (torch.rand(tokens, layer.hidden, device="cuda") * 3 - 1.5).bfloat16()
    return SimpleNamespace(x=x, logits=logits, ids=top.indices.int(), weights=top.values.softmax(1))


class Marlin:
    """vLLM's fused_marlin_moe, with the sizes that vLLM pads to."""

    def __init__(self, layer):
        from vllm import _custom_ops
        from vllm.model_executor.layers.fused_moe.activation import MoEActivation
        from vllm.model_executor.layers.fused_moe.experts.marlin_moe import fused_marlin_moe
        from vllm.model_executor.layers.quantization.utils import marlin_utils_fp4
        from vllm.scalar_type import scalar_types
        self.hidden, self.more = layer.hidden, -layer.hidden % 256
        rows, columns = 2 * (-layer.intermediate % 128), self.more
        parts = []
        for codes, scales, bias in (layer.w13, layer.w2):
            parts.append((pad(codes, (0, columns // 2, 0, rows)), pad(scales, (0, columns // 32, 0, rows)),
                          None if bias is None else pad(bias, (0, rows))))
            rows, columns = columns, rows // 2
        prepared = marlin_utils_fp4.prepare_moe_mxfp4_layer_for_marlin(
            SimpleNamespace(params_dtype=torch.bfloat16), *(part[i] for i in range(3) for part in parts))
        w13, w2, scale13, scale2, bias13, bias2 = prepared
        activation = MoEActivation.SWIGLUOAI if layer.paired else MoEActivation.SILU
        self.reference = clamped if layer.paired else halves

        def forward(x, weights, ids):
            return fused_marlin_moe(x, w13, w2, bias13, bias2, scale13, scale2, topk_weights=weights, topk_ids=ids,
                                    quant_type_id=scalar_types.float4_e2m1f.id, activation=activation,
                                    moe_sum=lambda rows, out, *_: _custom_ops.moe_sum(rows, out) or out,
                                    output=torch.empty_like(x))
        self.forward = forward

    def __call__(self, batch):
        x = pad(batch.x, (0, self.more)) if self.more else batch.x
        return self.forward(x, batch.weights, batch.ids)[:, :self.hidden]


class Triton:
    """vLLM's triton_kernels as GPT-OSS runs them: SwiGLU clamped in the first product; routing from the logits or,
    where top_k is no power of two, from the choice."""
    reference = staticmethod(clamped)

    def __init__(self, layer):
        from vllm.model_executor.layers.fused_moe.config import mxfp4_w4a16_moe_quant_config
        from vllm.model_executor.layers.fused_moe.experts import gpt_oss_triton_kernels_moe as experts
        from vllm.model_executor.layers.quantization.utils.mxfp4_utils import _swizzle_mxfp4
        from triton_kernels.matmul_ogs import FlexCtx, PrecisionConfig
        weights, precisions, biases = [], [], []
        for codes, scales, bias in (layer.w13, layer.w2):
            weight, flex, scale = _swizzle_mxfp4(codes, scales)
            weights.append(weight)
            precisions.append(PrecisionConfig(weight_scale=scale, flex_ctx=FlexCtx(rhs_data=flex)))
            biases.append(None if bias is None else bias.float())
        config = mxfp4_w4a16_moe_quant_config(w1_scale=precisions[0], w2_scale=precisions[1],
                                              w1_bias=biases[0], w2_bias=biases[1])

        def from_logits(batch):
            return experts.triton_kernel_moe_forward(batch.x, *weights, batch.logits, topk=layer.top_k,
                                                     renormalize=True, quant_config=config)

        def from_choice(batch):
            routing = experts.make_routing_data(batch.ids, batch.weights, layer.experts)
            return experts.triton_kernel_fused_experts(torch.empty_like(batch.x), batch.x, *weights, *routing,
                                                       topk=layer.top_k, quant_config=config)
        self.forward = from_choice if layer.top_k & (layer.top_k - 1) else from_logits

    def __call__(self, batch):
        return self.forward(batch)


class Humming:
    """humming's indexed products, as vLLM 0.33's HummingIndexedExperts runs them."""

    def __init__(self, layer, w4a8=False):
        from humming import dtypes
        from humming.config import InputQuantizationMode
        from humming.schema import HummingInputSchema, HummingWeightSchema
        from vllm.model_executor.layers.fused_moe.moe_align_block_size import moe_align_block_size
        from vllm.model_executor.layers.fused_moe.moe_fused_mul_sum import moe_fused_mul_sum
        self.align, self.sum = moe_align_block_size, moe_fused_mul_sum
        self.experts, self.top_k = layer.experts, layer.top_k
        self.locks = torch.zeros(8 * torch.cuda.get_device_properties(0).multi_processor_count, dtype=torch.int32,
                                 device="cuda")
        self.inputs = HummingInputSchema()
        if w4a8:
            self.inputs = HummingInputSchema(a_dtype=dtypes.float8e4m3, input_scale_group_size=128,
                                             input_scale_dtype=dtypes.float32,
                                             input_quant_mode=InputQuantizationMode.DynamicGroup)
        self.weights = HummingWeightSchema(b_dtype=dtypes.float4e2m1, bs_dtype=dtypes.float8e8m0,
                                           weight_scale_group_size=32)
        self.w13, self.w2 = self.product(layer.w13), self.product(layer.w2)
        self.reference = clamped if layer.paired else halves
        self.activation = dict(activation_type="binary_interleaved" if layer.paired else "binary_split",
                               activation_impl=CLAMPED if layer.paired else SILU)

    def product(self, part):
        """All experts' matrices by humming's own conversion, and its kernels for each number of rows."""
        from humming import transform, tune
        codes, scales, bias = part
        tensors = {"weight": codes.view(torch.int32), "weight_scale": scales.view(torch.float8_e8m0fnu)}
        if bias is not None:
            tensors["bias"] = bias
        config, packed = transform.prepare_and_transform_humming_tensors(
            tensors, shape_n=codes.shape[1], shape_k=codes.shape[2] * 2, weight_schema=self.weights,
            input_schema=self.inputs, num_experts=self.experts, pad_n_to_multiple=256, pad_k_to_multiple=128,
            has_bias=bias is not None, torch_dtype=torch.bfloat16)
        tuning = tune.get_heuristics_config(config, gemm_type="indexed")
        return SimpleNamespace(config=config, packed=packed, tuning=tuning, tuning_text=json.dumps(tuning))

    def multiply(self, product, x, scales, batch, top_k):
        from humming.forward import humming_forward
        m = batch.ids.numel()
        block = next(entry[2]["block_shape"][0] for entry in product.tuning if entry[0] < m <= entry[1])
        sorted_ids, expert_ids, padded = self.align(batch.ids, block, self.experts, ignore_invalid_experts=True)
        return humming_forward(product.config, inputs=x, input_scale=scales, sorted_ids=sorted_ids,
                               expert_ids=expert_ids, num_tokens_padded=padded, locks=self.locks, top_k=top_k,
                               valid_shape_m=m, compute_config='{"gemm_type": "indexed"}',
                               tuning_config=product.tuning_text, **product.packed)

    def __call__(self, batch):
        from humming.forward import may_process_input
        x, scales, _ = may_process_input(self.w13.config, inputs=batch.x)
        rows = self.multiply(self.w13, x, scales, batch, self.top_k)
        between, scales, _ = may_process_input(self.w2.config, inputs=rows, **self.activation)
        rows = self.multiply(self.w2, between, scales, batch, 1)
        return self.sum(inputs=rows.view(*batch.ids.shape, -1), topk_weights=batch.weights, topk_ids=batch.ids)


KERNELS = {"marlin": Marlin, "triton": Triton, "humming": Humming,
           "humming-w4a8": lambda layer: Humming(layer, w4a8=True)}


def microseconds(kernel, batches):
    for batch in batches[:2]:
        kernel(batch)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for batch in batches:
            kernel(batch)
    times = []
    for _ in range(2 + REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[2:]) * 1000 / len(batches)


def main(shape, *names):
    layer = random_layer(**SHAPES[shape])
    lock = open(tempfile.gettempdir() + "/engine_moe_bench.lock", "w")
    for name in names:
        fcntl.flock(lock, fcntl.LOCK_SH)
        kernel = KERNELS[name](layer)
        batch = random_batch(layer, CHECKED)
        want = reference(layer, batch, kernel.reference)
        error = ((kernel(batch).double() - want).norm() / want.norm()).item()
        for tokens in TOKENS:
            kernel(random_batch(layer, tokens))
        torch.cuda.synchronize()
        fcntl.flock(lock, fcntl.LOCK_UN)
        fcntl.flock(lock, fcntl.LOCK_EX)
        for tokens in TOKENS:
            batches = [random_batch(layer, tokens) for _ in range(24 if tokens <= 16 else 8 if tokens <= 256 else 3)]
            print(json.dumps({"shape": shape, "kernel": name, "tokens": tokens, "error": round(error, 5),
                              "microseconds": round(microseconds(kernel, batches), 1)}), flush=True)
        fcntl.flock(lock, fcntl.LOCK_UN)


if __name__ == "__main__":
    print(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                      "versions": {name: metadata.version(name) for name in ("vllm", "humming-kernels")}}))
    main(*sys.argv[1:])
