"""Common parts of scripts that start a whole SGLang, several at once; the schedulers report their tensors."""

import json
import os
import signal
import sys
import tempfile
import threading
from contextlib import contextmanager

FOLDER = os.path.dirname(os.path.abspath(__file__))
SHARED = [os.path.join(FOLDER, "..", name) for name in ("support", "bench")]
sys.path += [FOLDER, *SHARED]

import apart  # noqa: E402
import start_sglang  # noqa: E402

LOGS = os.environ.get("OUT", tempfile.gettempdir())
PROMPT = 160  # tokens: DeepSeek-V4 compresses 128 to one. From 1024 choices on (171 tokens of six experts) SGLang sorts them
# in another order each time (moe_align_block_size), so that Marlin adds otherwise and answers differ


def run_scheduler(*arguments, **given):
    from sglang.srt.managers.scheduler import Scheduler, run_scheduler_process
    from sglang.srt.plugins import load_plugins
    load_plugins()
    Scheduler.look = look
    if os.environ.get("MOVE_AS_BYTES"):
        move_as_bytes()
    run_scheduler_process(*arguments, **given)


def move_as_bytes():
    """Makes SGLang move experts of the original checkpoint in a dtype that NCCL supports."""
    import torch
    from sglang.srt.models.deepseek_v2 import DeepseekV2MoE
    original = DeepseekV2MoE.get_moe_weights
    DeepseekV2MoE.get_moe_weights = lambda block: [weight.view(torch.uint8) for weight in original(block)]


def look(scheduler, path, directory=None):
    """Each rank appends a description of its tensors; with a packed directory also whether its rows are the experts of
    SGLang's map."""
    import torch
    from sglang.srt.eplb.expert_location import get_global_expert_location_metadata
    model = scheduler.tp_worker.model_runner.model
    placed = get_global_expert_location_metadata()
    map_ = placed.physical_to_logical_map_cpu.tolist() if placed is not None else None
    rank = torch.distributed.get_rank()
    seen = {"rank": rank, "map": map_, "gpu": torch.cuda.memory_allocated() / 2**30,
            "host": sum(p.nbytes for p in model.parameters() if p.device.type == "cpu") / 2**30,
            "experts": start_sglang.experts_of(model),
            "rows": wrong_rows(model, directory, map_, rank) if directory else None}
    with open(path, "a") as file:
        file.write(json.dumps(seen) + "\n")


def wrong_rows(model, directory, placed, rank):
    """(rows of this rank that are not the expert that the map says, rows)"""
    import torch
    from mxfp4_pack.packed_set import flat
    want, wrong, rows = files_of(directory), 0, 0
    for layer in model.modules():
        packed = getattr(layer, "mxfp4_pack", None)
        for key, entry in packed.entries.items() if packed else ():
            held = flat(packed.held[key]).view(layer.num_local_experts, -1)
            for row, bytes_ in enumerate(held):
                rows += 1
                expert = placed[layer.layer_id][rank * len(held) + row]
                wrong += not torch.equal(bytes_.cpu(), want[entry.name][expert])
    return wrong, rows


def files_of(directory):
    import glob
    import torch
    from safetensors import safe_open
    found = {}
    for path in glob.glob(os.path.join(directory, "packed", "packed-*.safetensors")):
        with safe_open(path, "pt") as file:
            found |= {name: file.get_tensor(name) for name in file.keys()}
    return {name: t.view(len(t), -1).view(torch.uint8) for name, t in found.items()}


def looks(one, directory=None):
    """What each rank sees now."""
    with tempfile.NamedTemporaryFile() as file:
        one.collective_rpc("look", path=file.name, directory=directory)
        with open(file.name) as lines:
            return sorted((json.loads(line) for line in lines), key=lambda seen: seen["rank"])


def answer(one, turn=0):
    """The tokens and log probabilities of an answer."""
    found = start_sglang.generated(one, [1000 + 37 * i + 7919 * turn for i in range(PROMPT)])
    return found["tokens"], found["logprobs"]


@contextmanager
def started(directory, options, **chosen):
    """A server. If a scheduler fails later, this process ends, with the observations kept so far, if any."""
    with open(os.path.join(directory, "config.json")) as file:
        of_model = {} if json.load(file)["model_type"] == "deepseek_v4" else {"attention_backend": "triton"}
    ports = {"port": options.port, "nccl_port": options.port + 1}
    with start_sglang.engine(directory, of_model | ports | chosen, run_scheduler) as one:
        signal.signal(signal.SIGQUIT, lambda *_: os._exit(0 if os.path.exists(options.result) else 1))
        yield one


def at_once(jobs, lanes):
    """{name: the start's observations, or None} of jobs {name: (script, arguments, environment)}. One job at a time
    runs in each lane, an environment. Each job has its own log file."""
    seen, waiting, lock = {}, list(jobs.items()), threading.Lock()

    def work(lane):
        while True:
            with lock:
                if not waiting:
                    return
                name, (script, arguments, environment) = waiting.pop(0)
            with open(log_of(name), "w") as log:
                seen[name] = apart.seen_by(script, *arguments, environment=lane | environment, log=log,
                                           seconds=int(os.environ.get("SECONDS_OF_A_START", 240)))
            print(f"     {name}: {'seen' if seen[name] else 'did not start, or failed: ' + reason(name)}", flush=True)
    workers = [threading.Thread(target=work, args=(lane,)) for lane in lanes]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return seen


def log_of(name):
    return os.path.join(LOGS, name.replace(" ", "-") + ".log")


def reason(name):
    """The last exception in a scheduler's log."""
    with open(log_of(name), errors="replace") as file:
        lines = [line.strip() for line in file]
    found = [line for line in lines if line.split(":")[0].endswith(("Error", "Refused", "Exception")) and "SIGQUIT" not in line]
    scheduler = [line for line in found if "Rank 0 scheduler" not in line and "RuntimeError: Initialization" not in line]
    return (scheduler or found or lines or [""])[0][:300]
