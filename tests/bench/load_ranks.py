"""How fast the ranks of one host bring their packed experts into its GPUs when all of them start at once.

    mxfp4-pack synth gpt-oss-20b R && mxfp4-pack convert R P --engine vllm --backend marlin --tp-size 8
    MXFP4_PACK_LIBRARY=build/libmxfp4_pack.so PYTHONPATH=src/loaders python3 tests/bench/load_ranks.py P
        [--ranks 1,2,4,8] [--device cuda] [--rounds 3]

Each rank is a process; with fewer GPUs than ranks, several ranks share a GPU. The ranks start together and read with
the loaders' reader, then with load_bench.py's plain program with as many threads. All files are in the page cache.
There is a line for each number of ranks. It has the bytes of all ranks over the time from the common start to the last
rank's last byte, for the median round and for all. It also has the first and the last rank's seconds in the median
round.
"""

import argparse
import multiprocessing
import os
import statistics
import time

import load_bench


def rank_of(number, options, barrier, results):
    import torch
    from mxfp4_pack import _reader
    from mxfp4_pack.manifest import read_manifest, read_tensors
    device = torch.device(options.device, number % torch.cuda.device_count()) if options.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.zeros(1, device=device)
    set_ = read_manifest(options.directory)["sets"][0]
    read_tensors(options.directory, set_)
    files = dict.fromkeys(t["file"] for t in set_["tensors"] if t["rank"] == number)
    paths = [os.path.join(options.directory, name) for name in files]
    for path in paths:
        load_bench.warm(path)
    for _ in range(options.rounds):
        opened = load_bench.prepared(options.directory, set_["engine"], number, device, _reader.SHARED)
        for way, run in (("packed", lambda: load_bench.packed(*opened, device)),
                         ("plain", lambda: load_bench.plain(paths, device, _reader.SHARED))):
            barrier.wait()
            begin = time.monotonic()
            size = run()[1]
            results.put((way, begin, time.monotonic(), size))
            if device.type == "cuda":
                torch.cuda.empty_cache()
            barrier.wait()


def together(ranks, options):
    """{way: for each round (seconds of the first rank, of the last, bytes of all)}"""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(ranks), context.Queue()
    processes = [context.Process(target=rank_of, args=(number, options, barrier, results)) for number in range(ranks)]
    for process in processes:
        process.start()
    found = {}
    for turn in range(2 * options.rounds):
        seen = [results.get(timeout=300) for _ in range(ranks)]
        begin = min(one[1] for one in seen)
        ends = [one[2] - begin for one in seen]
        found.setdefault(seen[0][0], []).append((min(ends), max(ends), sum(one[3] for one in seen)))
    for process in processes:
        process.join()
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--ranks", default="1,2,4,8")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for ranks in map(int, options.ranks.split(",")):
        for way, rounds in together(ranks, options).items():
            speeds = [size / 1e9 / last for _, last, size in rounds]
            first, last, size = sorted(rounds, key=lambda one: one[1])[len(rounds) // 2]
            print(f"{ranks} ranks, {way:6} {statistics.median(speeds):6.2f} GB/s ({', '.join(f'{s:.2f}' for s in speeds)}); "
                  f"{size / 1e9:.2f} GB, ranks done after {first:.3f} to {last:.3f} s", flush=True)


if __name__ == "__main__":
    main()
