"""The experts of a checkpoint as it is published, in the form that formats.py takes."""

import json
import os

import torch
from safetensors import safe_open

from packed_dir import Checkpoint


def tensors_of(directory):
    found = {}
    for file in sorted(os.listdir(directory)):
        if file.endswith(".safetensors"):
            with safe_open(os.path.join(directory, file), framework="pt") as f:
                found.update({name: f.get_tensor(name) for name in f.keys()})
    return found


def gpt_oss_layers(tensors, config):
    layers = {}
    for n in range(config["num_hidden_layers"]):
        layer = layers["model", n] = {}
        for role, name in (("w13", "gate_up_proj"), ("w2", "down_proj")):
            for part, suffix in (("codes", "blocks"), ("scales", "scales"), ("bias", "bias")):
                t = tensors[f"model.layers.{n}.mlp.experts.{name}_{suffix}"]
                layer[role, part] = t.flatten(2) if part == "codes" else t
    return layers


def deepseek_layers(tensors, config):
    layers = {}
    prefixes = {("model", n): f"layers.{n}" for n in range(config["num_hidden_layers"])} | {("mtp", 0): "mtp.0"}
    for key, prefix in prefixes.items():
        def stack(w, kind):
            return torch.stack([tensors[f"{prefix}.ffn.experts.{e}.{w}.{kind}"].view(torch.uint8)
                                for e in range(config["n_routed_experts"])])
        layers[key] = {(role, part): torch.cat([stack(w, kind) for w in parts], dim=1)
                       for role, parts in (("w13", ("w1", "w3")), ("w2", ("w2",)))
                       for part, kind in (("codes", "weight"), ("scales", "scale"))}
    return layers


def checkpoint_of(source, engine, backend):
    """The Checkpoint of an engine's backend that has a published one's experts."""
    with open(os.path.join(source, "config.json")) as file:
        config = json.load(file)
    is_gpt_oss = config["model_type"] == "gpt_oss"
    layers = (gpt_oss_layers if is_gpt_oss else deepseek_layers)(tensors_of(source), config)
    intermediate = config["intermediate_size" if is_gpt_oss else "moe_intermediate_size"]
    return Checkpoint(engine, backend, config["model_type"], config["hidden_size"], intermediate, layers)
