"""The experts' sizes in a model's config.json, and whole checkpoint tensors that contain a rank's share."""

import os
from typing import NamedTuple

import torch

from . import NoRearrangement
from .._errors import Refused
from .._files import CONFIG_LIMIT, read_json
from ..manifest import text_of

# Bytes of other ranks' columns, by the number of experts. Layers with one more expert are also proved, with other
# bytes, so that a pad made of these bytes is not mistaken for a constant.
NOISE = 0x5A, 0x27
# Keys of the experts' sizes in a config, as the program reads them.
HIDDEN = "moe_hidden_size", "routed_expert_hidden_size", "hidden_size"
INTERMEDIATE = ("moe_intermediate_size", "expert_ffn_hidden_size", "expert_hidden_dim", "expert_intermediate_size",
                "intermediate_size")
GPT_OSS = {("w13", "codes"): "gate_up_proj_blocks", ("w13", "scales"): "gate_up_proj_scales",
           ("w13", "bias"): "gate_up_proj_bias", ("w2", "codes"): "down_proj_blocks",
           ("w2", "scales"): "down_proj_scales", ("w2", "bias"): "down_proj_bias"}


class Model(NamedTuple):
    """config: of the text model. quantization: the model's quantization_config."""
    config: dict
    quantization: dict
    model_type: str
    hidden: int   # the experts' input size
    intermediate: int
    activation: str

    @property
    def is_gpt_oss(self):
        """Whether the checkpoint has GPT-OSS's form: rows of w13 are gate, up, gate, up, ..; a layer's experts are one
        tensor; there are biases."""
        return self.model_type == "gpt_oss"

    def share(self, tp_size, rank):
        """The columns of w2 for a rank: whole groups of 32. The last rank may have fewer."""
        step = -(-self.intermediate // 32 // tp_size) * 32
        if not self.is_gpt_oss and step * tp_size != self.intermediate:
            raise NoRearrangement(f"intermediate size {self.intermediate} on {tp_size} ranks: no whole groups of 32")
        return min(rank * step, self.intermediate), min((rank + 1) * step, self.intermediate)


def first_of(config, keys):
    return config[next((key for key in keys if config.get(key)), keys[-1])]


def read_model(path):
    """Reads a checkpoint's directory, or its config.json alone."""
    path = os.path.join(path, "config.json") if os.path.isdir(path) else path
    try:
        whole = read_json(path, CONFIG_LIMIT)
        config = text_of(whole)
        gpt_oss = whole["model_type"] == "gpt_oss"
        quantization = whole.get("quantization_config") or whole.get("compression_config")
        return Model(config, quantization or config["quantization_config"], whole["model_type"],
                     int(first_of(config, HIDDEN)),
                     int(config["intermediate_size"] if gpt_oss else first_of(config, INTERMEDIATE)),
                     config.get("hidden_act", "silu"))
    except OSError as e:
        raise NoRearrangement(f"{path}: {e.strerror}") from e
    except Refused as e:
        raise NoRearrangement(e) from None
    except KeyError as e:
        raise NoRearrangement(f"{path}: no {e.args[0]}; the config of a model with MXFP4 experts was expected") from e
    except (ValueError, TypeError, AttributeError) as e:
        raise NoRearrangement(f"{path}: no config of a model ({e})") from e


class Whole:
    """A layer's whole tensors, which contain a rank's share."""

    def __init__(self, model, tp_size, rank):
        self.model = model
        self.begin, self.end = model.share(tp_size, rank)

    def __call__(self, layer):
        """Dict of the probe's tensors -> (role, part): [experts, rows, columns] of all ranks."""
        return {key_of(name): self.embedded(key_of(name), t) for name, t in layer.items()}

    def embedded(self, key, given):
        whole_of = self.model.intermediate
        if key == ("w2", "bias"):
            return given
        per = {"codes": 2, "scales": 32}.get(key[1], 1)
        shape = list(given.shape)
        shape[1 if key[0] == "w13" else 2] = 2 * whole_of if key[0] == "w13" else whole_of // per
        out = torch.full(shape, NOISE[len(given) % 2], dtype=given.dtype)
        if key[0] == "w2":
            out[:, :, self.begin // per:self.end // per] = given
        elif self.model.is_gpt_oss:
            out[:, 2 * self.begin:2 * self.end] = given
        else:
            for half, rows in zip(out.chunk(2, dim=1), given.chunk(2, dim=1)):
                half[:, self.begin:self.end] = rows
        return out


def key_of(name):
    role, _, part = name.partition("_")
    return role, {"": "codes", "scale": "scales"}.get(part, part)


def gpt_oss_checkpoint(whole, prefix):
    """(name, tensor) as in GPT-OSS checkpoints: blocks of 16 bytes."""
    for key, t in whole.items():
        yield prefix + GPT_OSS[key], t.reshape(*t.shape[:2], -1, 16) if key[1] == "codes" else t


def of_experts(whole):
    """(expert, "w1", "w2" or "w3", part, tensor) as in other checkpoints."""
    for (role, part), t in whole.items():
        halves = zip(("w1", "w3"), t.chunk(2, dim=1)) if role == "w13" else [("w2", t)]
        for shard, rows in halves:
            for expert, one in enumerate(rows):
                yield expert, shard, part, one
