"""One start of an installed SGLang for start_bench.py: sglang.Engine, whose scheduler is a new process each time."""

import faulthandler
import functools
import json
import os
import tempfile
from contextlib import contextmanager
from unittest import mock

import start_measure

LOADED = "START_BENCH_LOADED"  # the file to which each process that loads a model appends what it saw
TOP = 1000  # log probabilities of a step
TOKENS = 16384  # of the KV cache; a tenth of them is DeepSeek-V4's window, in pages of 256
LONG = 120  # seconds after which a scheduler says where it is: compiling kernels, most likely


def prepare():
    import sglang.srt.entrypoints.engine  # noqa: F401  once: the schedulers import it again, before they load


def engine_options(directory, options, format):
    chosen = {"moe_runner_backend": options.backend, "tp_size": options.tp}
    with open(os.path.join(directory, "config.json")) as file:
        if json.load(file)["model_type"] != "deepseek_v4":  # which has an attention of its own
            chosen |= {"attention_backend": "triton"}
    if options.ep:
        chosen |= {"ep_size": options.tp}
    if options.tp > 1:
        chosen |= {"disable_custom_all_reduce": True}
    return chosen | ({} if format == "default" else {"load_format": format})


def experts_of(model):
    """{name: digest} of every parameter and buffer, and of what Triton's methods hold beside them. A raw start keeps the
    checkpoint's scales as parameters that Triton's kernels do not read; they are left out."""
    from vllm_experts import digest
    held = dict(model.named_parameters()) | dict(model.named_buffers())
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        for role in ("w13", "w2"):
            if (weight := getattr(method, f"{role}_weight_triton_tensor", None)) is not None:
                held[f"{name}.{role} codes"] = weight.storage.data
                config = getattr(method, f"{role}_precision_config")
                scale = config.b_mx_scale if hasattr(config, "b_mx_scale") else config.weight_scale
                held[f"{name}.{role} scales"] = scale.storage.data
                held.pop(f"{name}.{role}_weight_scale", None)
    return {name: digest(tensor.data) for name, tensor in held.items()}


def measure_loads():
    from sglang.srt.model_loader import loader
    path, compare = os.environ[LOADED].split(":")
    seen, lines = {}, start_measure.Lines("sglang", "mxfp4_pack")
    timed, default = start_measure.timed, loader.DefaultModelLoader
    loader._initialize_model = timed(seen, "build", loader._initialize_model)
    finish, load_model = default.load_weights_and_postprocess, timed(seen, "load", default.load_model)

    def finished(model, *args):
        model.load_weights = timed(seen, "own", model.load_weights)
        timed(seen, "convert", finish)(model, *args)
        seen["convert"] -= seen.pop("own")

    @functools.wraps(load_model)
    def measured(*args, **kwargs):
        model = load_model(*args, **kwargs)
        start_measure.write(path, seen, lines, lambda: experts_of(model) if compare else {})
        return model

    default.load_weights_and_postprocess, default.load_model = staticmethod(finished), measured


def run_scheduler(*args, **kwargs):
    from sglang.srt.managers.scheduler import run_scheduler_process
    from sglang.srt.plugins import load_plugins
    faulthandler.dump_traceback_later(LONG)
    load_plugins()
    measure_loads()
    run_scheduler_process(*args, **kwargs)


def scheduler_failed(*_):
    """In the place of SGLang's handler, which would end this process; Engine raises an exception then."""


@contextmanager
def engine(directory, chosen, scheduler=run_scheduler):
    from sglang.srt.entrypoints.engine import Engine

    class Measured(Engine):
        run_scheduler_process_func = staticmethod(scheduler)

    one = Measured(model_path=directory, skip_tokenizer_init=True, disable_cuda_graph=True,
                   sampling_backend="pytorch", mem_fraction_static=0.5, context_length=512, max_total_tokens=TOKENS,
                   random_seed=0, disable_radix_cache=True, disable_flashinfer_autotune=True, log_level="info",
                   custom_sigquit_handler=scheduler_failed, **chosen)
    try:
        yield one
    finally:
        one.shutdown()


def generated(one, prompt):
    sampling = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}
    out = one.generate(input_ids=prompt, sampling_params=sampling, return_logprob=True, top_logprobs_num=TOP)
    steps = [sorted((token, value) for value, token, _ in step) for step in out["meta_info"]["output_top_logprobs"]]
    return {"tokens": out["output_ids"], "logprobs": [[value for _, value in step] for step in steps]}


def started(directory, options, format, environment, compare, prompt):
    """(the observations of each rank, the generated text)"""
    results = {}
    with tempfile.NamedTemporaryFile() as file:
        own = {LOADED: f"{file.name}:{'compare' if compare else ''}"}
        with mock.patch.dict(os.environ, environment | own):
            try:
                with engine(directory, engine_options(directory, options, format)) as one:
                    results = generated(one, prompt) if prompt else {}
            except RuntimeError as error:
                print(error, flush=True)
        return start_measure.read(file.name), results
