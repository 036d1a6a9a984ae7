"""The canary of a layout file: an expert defined in mxfp4-pack-layout(5), and its converted form."""

import hashlib

import numpy

from .probe import PARTS

SCALES = range(64, 192)  # the canary's scale bytes


def canary(probe, predicted, pairs):
    """{name: SHA-256 of the canary's converted expert}. Bytes that the conversion does not write count with their
    predicted values."""
    layer = canary_layer(probe, pairs)
    made = probe.run(layer)
    sums = {}
    for t in predicted:
        data = numpy.where(t.free, t.bytes_of(layer[t.name][0]), made[t.key].data[0])
        sums[t.key] = hashlib.sha256(data.tobytes()).hexdigest()
    return sums


def canary_layer(probe, pairs):
    """The layer defined in mxfp4-pack-layout(5), the same for all experts."""
    layer = probe.layer()
    for number, name in enumerate(PARTS):
        if name not in layer:
            continue
        shape, dtype = layer[name].shape[1:], layer[name].dtype
        data = stream(number, shape[0] * int(numpy.prod(shape[1:])) * dtype.itemsize).view(dtype)
        if PARTS[name] != "codes":
            data = SCALES[0] + data % len(SCALES) if PARTS[name] == "scales" else data & 0xBFFF
        rows = data.reshape(shape)
        if name.startswith("w13") and pairs:
            rows = numpy.stack(numpy.split(rows, 2), 1).reshape(shape)
        layer[name][...] = rows.astype(dtype)
    return layer


def stream(number, size):
    """SplitMix64's numbers from number << 40 on, as bytes."""
    x = numpy.arange(1, size // 8 + 2, dtype=numpy.uint64) + numpy.uint64(number << 40)
    x *= numpy.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ x >> numpy.uint64(shift)) * numpy.uint64(factor)
    return (x ^ x >> numpy.uint64(31)).astype("<u8").view(numpy.uint8)[:size]
