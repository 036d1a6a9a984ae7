"""One start of an installed vLLM for start_bench.py, in a process of its own that is forked after vLLM was imported."""

import multiprocessing
import os
import tempfile
import time
from contextlib import suppress

import start_measure
from vllm_experts import experts_of

THREADS = {"enable_multithread_load": True, "num_threads": 8}


def prepare():
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
    import vllm.entrypoints.llm  # noqa: F401  before the processes fork: its seconds are not measured
    import vllm.model_executor.models.gpt_oss  # noqa: F401
    import vllm.v1.worker.gpu_worker  # noqa: F401


def format_options(name):
    if name == "default":
        return {}
    return {"model_loader_extra_config": THREADS} if name == "8 threads" else {"load_format": name}


def engine_options(options, format):
    chosen = {"moe_backend": options.backend, "tensor_parallel_size": options.tp} | format_options(format)
    if options.tp > 1:
        chosen |= {"enable_expert_parallel": options.ep, "disable_custom_all_reduce": True}
    return chosen


def measure_loads(path, compare):
    """Every process that loads a model appends its observations to the file."""
    from vllm.model_executor.model_loader import base_loader
    seen = {}
    timed = start_measure.timed
    base_loader.initialize_model = timed(seen, "build", base_loader.initialize_model)
    base_loader.process_weights_after_loading = timed(seen, "convert", base_loader.process_weights_after_loading)
    load_model = timed(seen, "load", base_loader.BaseModelLoader.load_model)

    def measured(*args, **kwargs):
        lines = start_measure.Lines("vllm", "mxfp4_pack")  # here: from 0.31 on an engine takes away what stood there before
        model = load_model(*args, **kwargs)
        start_measure.write(path, seen, lines, lambda: experts_of(model) if compare else {})
        return model

    base_loader.BaseModelLoader.load_model = measured


def engine_of(directory, engine):
    from vllm import LLM
    return LLM(model=directory, skip_tokenizer_init=True, enforce_eager=True, max_model_len=256, max_logprobs=-1,
               gpu_memory_utilization=0.5, attention_backend="TRITON_ATTN", generation_config="vllm", seed=0,
               max_num_batched_tokens=256, max_num_seqs=4, enable_flashinfer_autotune=False,
               kv_cache_memory_bytes=2 << 30, **engine)


def start(directory, engine, prompt, result):
    from vllm import SamplingParams
    llm = engine_of(directory, engine)
    if not prompt:
        return
    sampling = SamplingParams(temperature=0, max_tokens=8, logprobs=-1, ignore_eos=True, detokenize=False)
    out = llm.generate([{"prompt_token_ids": prompt}], sampling)[0].outputs[0]
    steps = [[p.logprob for _, p in sorted(step.items())] for step in out.logprobs]  # of all tokens, by their numbers
    result.put({"tokens": list(out.token_ids), "logprobs": steps})


def child(directory, engine, environment, compare, prompt, path, result):
    os.environ |= environment
    measure_loads(path, compare)
    start(directory, engine, prompt, result)


def started(directory, options, format, environment, compare, prompt):
    """(the observations of each rank, the generated text); without a prompt the start ends when the ranks have
    loaded."""
    context = multiprocessing.get_context("fork")
    result = context.Queue()
    with tempfile.NamedTemporaryFile() as file:
        arguments = directory, engine_options(options, format), environment, compare, prompt, file.name, result
        process = context.Process(target=child, args=arguments)
        process.start()
        while process.is_alive() and result.empty() and (prompt or len(start_measure.read(file.name)) < options.tp):
            time.sleep(0.05)
        seen = start_measure.read(file.name)
        generated = result.get(timeout=5) if not result.empty() else {}
        stop(process)
    return seen, generated


def stop(process):
    """Ends it and the ranks that it started."""
    import psutil
    processes = []
    with suppress(psutil.NoSuchProcess):
        processes = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.join()
    for rank in processes:
        with suppress(psutil.NoSuchProcess):
            rank.kill()
    psutil.wait_procs(processes)
