"""GPT-OSS in a whole SGLang, as original and packed checkpoint, with options that move weights, wrap layers or release
weights.

    mxfp4-pack synth gpt-oss-20b R --layers 4 && mxfp4-pack convert R P --engine sglang --backend marlin
    python3 tests/engines/sglang_options.py marlin R P        (triton_kernel, flashinfer_mxfp4: P of their backends)

SGLang 0.5.17, torch_memory_saver and src/loaders must be installed; --lanes names GPUs, one start at a time on each.
Each option is given to a start of R and to one of P, each in a process of its own. offload: --cpu-offload-gb 1. lora:
--enable-lora for attention, and for experts, which SGLang must refuse with the same reason for R and P. backup: the
weights are released and resumed with --enable-weights-cpu-backup. saver: without that option; update_weights_from_disk
then loads the weights again, which may break R's own experts. Tokens and the 1000 largest log probabilities must equal
R's, and after a release those before it. Options with which R itself does not start are reported and do not count as
failures of P. Exit code 0: all comparisons agree.
"""

import argparse
import sys

from sglang_looks import answer, apart, at_once, looks, reason, started

SAVER = {"enable_memory_saver": True}
LORA = {"enable_lora": True, "max_lora_rank": 8}
OPTIONS = {"none": {}, "offload": {"cpu_offload_gb": 1},
           "attention": LORA | {"lora_target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]},
           "lora": LORA | {"lora_target_modules": ["gate_up_proj", "down_proj"]},
           "backup": SAVER | {"enable_weights_cpu_backup": True}, "saver": SAVER}


def release(one, directory, option):
    """Releases and resumes the weights. Returns the tensors after that, and the freed GiB."""
    import torch
    before = torch.cuda.mem_get_info()[0]
    one.release_memory_occupation(tags=["weights"])
    freed = (torch.cuda.mem_get_info()[0] - before) / 2**30
    one.resume_memory_occupation(tags=["weights"])
    done = (True, "") if option == "backup" else one.update_weights_from_disk(directory)
    after = {"again": answer(one), "held again": looks(one)[0]} if done[0] else {}
    return {"freed": freed, "why": "" if done[0] else str(done[1])} | after


def start(options):
    with started(options.start, options, moe_runner_backend=options.backend, **OPTIONS[options.option]) as one:
        seen = {"answer": answer(one), "held": looks(one)[0]}
        if options.option in ("backup", "saver"):
            apart.keep(seen | {"freed": 0, "why": "the server ended"}, options.result)
            seen |= release(one, options.start, options.option)
        apart.keep(seen, options.result)


def differences(option, raw, packed):
    """The reasons why a packed start is not as it must be."""
    wrong = [] if raw["answer"] == packed["answer"] else ["tokens or log probabilities"]
    if option == "offload" and (raw["held"]["host"] > 0.5) != (packed["held"]["host"] > 0.5):
        wrong.append("not as much in the host's memory")
    if packed.get("why"):
        return [*wrong, f"not loaded again: {packed['why'][:300]}"]
    if "again" in packed:
        wrong += [] if packed["again"] == packed["answer"] else ["another answer after the release"]
        before, after = packed["held"]["experts"], packed["held again"]["experts"]
        wrong += [f"{name} after the release" for name in before if before[name] != after.get(name)][:4]
    return wrong


def held(seen):
    freed = f", {seen['freed']:.2f} freed" if "freed" in seen else ""
    return f"{seen['held']['gpu']:.2f} GiB on the GPU, {seen['held']['host']:.2f} of the host's{freed}"


def of_raw(option, raw):
    """The failures of the original checkpoint itself."""
    if raw is None:
        return "SGLang does not start the raw checkpoint so"
    if raw.get("why"):
        return f"raw is not loaded again: {raw['why'][:200]}"
    return "raw answers otherwise after its release" if raw.get("again", raw["answer"]) != raw["answer"] else ""


def report(option, seen, names, plain):
    """(whether the packed start was correct, a line). If the original does not start, packed may fail for the same
    reason."""
    raw, packed = (seen[name] for name in names)
    wrong = [reason(names[1])] if packed is None else differences(option, raw or plain, packed) if raw or plain else ["no raw"]
    excused = raw is None and packed is None and reason(names[0]) == reason(names[1])
    found = f"neither starts: {wrong[0]}" if excused else ", ".join(wrong) or "tokens and log probabilities equal"
    parts = [found, of_raw(option, raw), raw and f"raw {held(raw)}", packed and f"packed {held(packed)}"]
    print(f"{'ok  ' if excused or not wrong else 'FAIL'} {option}: {'; '.join(part for part in parts if part)}", flush=True)
    return excused or not wrong


def main():
    parser = argparse.ArgumentParser()
    for name in ("backend", "raw", "packed"):
        parser.add_argument(name)
    parser.add_argument("--lanes", default="0")
    parser.add_argument("--options", default=",".join(OPTIONS))
    parser.add_argument("--port", type=int, default=30000, help="the first of four for each start")
    for name in ("start", "option", "result"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start:
        return start(options)
    jobs, places = {}, {"raw": options.raw, "packed": options.packed}
    for option in options.options.split(","):
        for kind, directory in places.items():
            port = options.port + 4 * len(jobs)
            jobs[f"{options.backend} {option} {kind}"] = (__file__, [options.backend, "-", "-", "--start", directory, "--option",
                                                                     option, "--port", str(port)], {})
    seen = at_once(jobs, [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in options.lanes.split(",")])
    plain, right = seen.get(f"{options.backend} none raw"), []
    for option in options.options.split(","):
        right.append(report(option, seen, [f"{options.backend} {option} {kind}" for kind in places], plain))
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
