#!/usr/bin/env python3
"""random_scale.py DIR: multiplies tensors of a synth checkpoint of gpt-oss by powers of two, in place, for random_lengths.py.

With synth's values, outputs of two correct kernels differ at the first token: embeddings are small beside a layer's output, and
experts are often as good as tied. Larger embeddings, routers, logits and biases let rounding differ from faults.
"""

import glob
import json
import sys

POWERS = {"model.embed_tokens.weight": 8, "lm_head.weight": 2, "mlp.router.weight": 2, "mlp.experts.gate_up_proj_bias": 4,
          "mlp.experts.down_proj_bias": 4}


def scale(path):
    import numpy
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    data, count = numpy.memmap(path, numpy.uint8, "r+", 8 + size), 0
    for name, tensor in header.items():
        for suffix, power in POWERS.items():
            if name.endswith(suffix):
                values = data[slice(*tensor["data_offsets"])].view(numpy.uint16)  # bf16
                assert tensor["dtype"] == "BF16" and ((values >> 7 & 255) > 0).all()
                values += numpy.uint16(power << 7)
                count += 1
    data.flush()
    return count


if __name__ == "__main__":
    print(sum(scale(f) for f in glob.glob(sys.argv[1] + "/*.safetensors")), "tensors")
