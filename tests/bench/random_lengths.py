#!/usr/bin/env python3
"""Whole vLLM engines that share a GPU run the same requests of random lengths, until WORK/stop exists.

random_lengths.py WORK --arms NAME:KERNEL:VARIANT:DIR,..: an arm is an engine of the packed checkpoint DIR. KERNEL is `ours`
(MXFP4_PACK_KERNEL=1) or `engine`. Needs vLLM, mxfp4_pack and a GPU with 18 GiB for each arm of gpt-oss-20b.

A chunk is --requests requests of 1 to 4096 tokens in and 1 to 192 out, greedy, which follow from the chunk's number. A variant is
an order and steps of arrival, so that the batches of two variants differ. Each arm steps its engine itself, and scheduling is
synchronous: equal variants have equal batches. Each fifth chunk runs twice with variant 0. An arm of ours that is ahead of the
others repeats chunks with other variants. Results are WORK/ARM/CHUNK.VARIANT.npz; random_compare.py compares them.
"""

import argparse
import multiprocessing
import os
import random
import time
import traceback

TOP = 8  # log probabilities of a position, beside that of its token


def requests_of(chunk, count):
    """Pairs (prompt, number of tokens out)."""
    r = random.Random(f"requests {chunk}")
    lengths = [int(2 ** r.uniform(0, 12)) for _ in range(count)]
    outs = [int(2 ** r.uniform(0, 7.6)) for _ in range(count)]
    return [([r.randrange(1000, 190000) for _ in range(n)], m) for n, m in zip(lengths, outs)]


def arrivals_of(chunk, variant, count):
    """Pairs (steps to wait, numbers of requests that arrive)."""
    r = random.Random(f"arrivals {chunk} {variant}")
    order = list(range(count))
    r.shuffle(order)
    result = []
    while order:
        some = r.choice((1, 1, 2, 3, 5, 8, 13, 21, 32, 64))
        result.append((r.choice((0, 1, 2, 4, 8, 16)), order[:some]))
        order = order[some:]
    return result


def open_engine(directory, kv):
    from vllm import LLM
    return LLM(model=directory, skip_tokenizer_init=True, max_model_len=8448, max_num_batched_tokens=8192,
               max_num_seqs=64, enable_prefix_caching=False, generation_config="vllm", seed=0, max_logprobs=TOP,
               enable_flashinfer_autotune=False, gpu_memory_utilization=0.2, kv_cache_memory_bytes=int(kv * 2**30),
               async_scheduling=False,
               compilation_config={"cudagraph_capture_sizes": [1, 2, 4, *range(8, 65, 8)]}).llm_engine


def add(engine, name, prompt, out):
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind
    engine.add_request(name, {"type": "token", "prompt_token_ids": prompt}, SamplingParams(
        temperature=0.0, max_tokens=out, logprobs=TOP, flat_logprobs=True, ignore_eos=True, detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY))


def run_chunk(engine, chunk, variant, options):
    """The outputs of a chunk, or None if WORK/stop exists."""
    import numpy
    given, begin = requests_of(chunk, options.requests), time.monotonic()
    waiting = arrivals_of(chunk, variant, len(given))
    step, next_step, made = 0, waiting[0][0], {}
    while waiting or engine.has_unfinished_requests():
        while waiting and (step >= next_step or not engine.has_unfinished_requests()):
            for i in waiting.pop(0)[1]:
                add(engine, str(i), *given[i])
            if waiting:
                next_step = step + waiting[0][0]
        made.update((int(o.request_id), o.outputs[0]) for o in engine.step() if o.finished)
        step += 1
        if os.path.exists(options.work + "/stop"):
            return None
    ids, values = [], []
    for i, (_, out) in enumerate(given):
        logprobs = made[i].logprobs
        assert len(made[i].token_ids) == out and len(logprobs.token_ids) == out * (TOP + 1)
        ids.append(numpy.array(logprobs.token_ids, numpy.int32).reshape(out, TOP + 1))
        values.append(numpy.array(logprobs.logprobs, numpy.float32).reshape(out, TOP + 1))
        assert list(ids[-1][:, 0]) == list(made[i].token_ids)
    ids, values = numpy.concatenate(ids), numpy.concatenate(values)
    return {"ins": numpy.array([len(p) for p, _ in given]), "outs": numpy.array([o for _, o in given]), "ids": ids,
            "values": values, "seconds": time.monotonic() - begin, "ended": time.time(), "steps": step,
            "bad": int((~numpy.isfinite(values)).sum() + (values > 1e-6).sum())}


def finished(options, arm):
    """The number of chunks that an arm has finished, each with its own variant."""
    n = options.first
    while os.path.exists(f"{options.work}/{arm[0]}/{n}.{arm[2]}.npz"):
        n += 1
    return n - options.first


def jobs(options, variant, followed):
    """Triples (chunk, variant, repeat), without end."""
    other = 10 + variant
    for chunk in range(options.first, 10**9):
        yield chunk, variant, ""
        if (chunk - options.first) % 5 == 0:
            yield chunk, 0, "" if variant else ".again"
        while followed and chunk - options.first >= min(finished(options, a) for a in followed) + 2:
            yield chunk, other, ""
            other += 10


def child(options, arm, followed):
    name, kernel, variant, directory = arm
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["MXFP4_PACK_KERNEL"] = "1" if kernel == "ours" else "0"
    os.makedirs(f"{options.work}/{name}", exist_ok=True)
    log = os.open(f"{options.work}/{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        import numpy
        from mxfp4_pack.vllm import own_kernel
        engine = open_engine(directory, options.kv)
        assert bool(own_kernel.layers) == (kernel == "ours")
        for chunk, v, repeat in jobs(options, int(variant), followed):
            result = run_chunk(engine, chunk, v, options)
            if result is None:
                break
            path = f"{options.work}/{name}/{chunk}.{v}{repeat}"
            numpy.savez(path + ".part.npz", **result)
            os.rename(path + ".part.npz", path + ".npz")
            print(name, f"chunk {chunk} variant {v}: {result['seconds']:.1f} s, {result['steps']} steps, "
                  f"{result['bad']} bad log probabilities", flush=True)
    except BaseException:
        traceback.print_exc()
    os._exit(0)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("work")
    p.add_argument("--arms", required=True)
    p.add_argument("--kv", type=float, default=3, help="GiB of KV cache of each arm")
    p.add_argument("--requests", type=int, default=256)
    p.add_argument("--first", type=int, default=0, help="the first chunk")
    options = p.parse_args()
    arms = [a.split(":", 3) for a in options.arms.split(",")]
    started = []
    for arm in arms:
        followed = [a for a in arms if a[1] == "engine"] if arm[1] == "ours" else []
        started.append(multiprocessing.get_context("spawn").Process(target=child, args=(options, arm, followed)))
        os.makedirs(options.work, exist_ok=True)
        started[-1].start()
        time.sleep(4)  # else two engines may choose one port
    for process in started:
        process.join()


if __name__ == "__main__":
    main()
