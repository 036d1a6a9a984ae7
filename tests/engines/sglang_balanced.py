"""DeepSeek-V4 in a whole SGLang on two GPUs, as original and packed checkpoint, while its load balancer moves experts.

    mxfp4-pack synth deepseek-v4-flash R --layers 4 --experts 16
    mxfp4-pack convert R P --engine sglang==0.5.17 --backend marlin
    python3 tests/engines/sglang_balanced.py R P

SGLang 0.5.17 and src/loaders must be installed. R and P are started expert-parallel with --enable-eplb and four
redundant experts, which SGLang places again every four forward passes. After each answer, every row of each rank of P
is compared with the file's bytes of the expert that SGLang's map names. The last comparison follows
update_weights_from_disk of P. Tokens, the 1000 largest log probabilities and maps must equal R's. SGLang 0.5.17 itself
stops when it balances R, because NCCL does not support its F8_E8M0 scales. Therefore the R for comparison passes its
parameters to SGLang as bytes (get_moe_weights); R is also started unchanged. The starts run one after the other,
because SGLang fails if other processes allocate memory during a start. A machine's first start compiles kernels for
minutes. Exit code 0: all comparisons agree, and experts moved.
"""

import argparse
import sys
from itertools import zip_longest

from sglang_looks import answer, apart, at_once, looks, started

RANKS, REDUNDANT, ANSWERS = 2, 4, 5
BALANCED = {"tp_size": RANKS, "ep_size": RANKS, "enable_eplb": True, "ep_num_redundant_experts": REDUNDANT,
            "eplb_rebalance_num_iterations": 4, "disable_custom_all_reduce": True}


def start(options):
    """Keeps (answer, [(map, rows)] of the ranks) for each answer; packed also after an update."""
    packed = options.start if options.is_packed else None
    with started(options.start, options, moe_runner_backend="marlin", **BALANCED) as one:
        seen = []
        for turn in range(ANSWERS + bool(packed)):
            given = answer(one, turn) if turn < ANSWERS else str(one.update_weights_from_disk(packed))
            seen.append((given, [(rank["map"], rank["rows"]) for rank in looks(one, packed)]))
            apart.keep(seen, options.result)


def look_at(seen):
    """Whether every row is the expert that the maps say, and how many places hold others than one answer before."""
    before, moved, right = None, 0, True
    for turn, (given, ranks) in enumerate(seen):
        placed, wrong = ranks[0][0], sum(rows[0] for _, rows in ranks)
        other = 0 if before is None else sum(a != b for old, new in zip(before, placed) for a, b in zip(old, new))
        what = f"answer {turn}" if isinstance(given, tuple) else f"update {given[:80]}"
        print(f"{'FAIL' if wrong else 'ok  '} {what}: {sum(rows[1] for _, rows in ranks)} rows, wrong {wrong}; experts that are "
              f"elsewhere than after the answer before: {other}", flush=True)
        before, moved, right = placed, moved + other, right and not wrong
    return right and len(seen) > ANSWERS and "True" in seen[-1][0], moved


def compared(raw, packed):
    """The same tokens, log probabilities and maps."""
    if None in (raw, packed):
        print(f"FAIL raw {'started' if raw else 'did not start'}, packed {'started' if packed else 'did not start'}")
        return False
    parts = [[(given, [map_ for map_, _ in ranks]) for given, ranks in seen[:ANSWERS]] for seen in (raw, packed)]
    other = [turn for turn, pair in enumerate(zip_longest(*parts)) if pair[0] != pair[1]]
    print(f"{'FAIL' if other else 'ok  '} packed beside raw: "
          f"{f'answers {other} differ' if other else 'tokens, log probabilities and maps equal'}")
    return not other


def main():
    parser = argparse.ArgumentParser()
    for name in ("raw", "packed"):
        parser.add_argument(name)
    parser.add_argument("--gpus", default="0,1")
    parser.add_argument("--port", type=int, default=32000)
    parser.add_argument("--is-packed", action="store_true", help=argparse.SUPPRESS)
    for name in ("start", "result"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start:
        return start(options)

    def job(directory, number, *more, **environment):
        return __file__, ["-", "-", "--start", directory, "--port", str(options.port + 8 * number), *more], environment
    jobs = {"balanced raw as bytes": job(options.raw, 1, MOVE_AS_BYTES="1"),
            "balanced packed": job(options.packed, 0, "--is-packed"), "balanced raw": job(options.raw, 2)}
    seen = at_once(jobs, [{"CUDA_VISIBLE_DEVICES": options.gpus}])
    print(f"     raw as it is gave {len(seen['balanced raw'] or ())} of {ANSWERS} answers")
    rows, moved = look_at(seen["balanced packed"]) if seen["balanced packed"] else (False, 0)
    same = compared(seen["balanced raw as bytes"], seen["balanced packed"])
    return 0 if rows and moved and same else 1


if __name__ == "__main__":
    sys.exit(main())
