#!/usr/bin/env python3
"""How long N nodes take for Kimi-K3, by measured figures. usage: nodes.py [--node GB/S] [--plan S] [--merge S]

A simulation, not a measurement. Files of the published sizes are divided as in src/plan/deal.cpp. Every node plans,
then reads and writes its share at its own speed or at its part of the file system's speed, whichever is lower. The
merge follows the last node.
"""
import argparse
import heapq

LAYERS, EXPERTS, HIDDEN, INTERMEDIATE = 92, 896, 3584, 3072  # of the routed experts: src/synth/kimi-k3.json


def files():
    """Bytes of the packed files: a tensor each, for no two of a layer's four fit into 5 GB."""
    w13 = EXPERTS * 2 * INTERMEDIATE * HIDDEN
    w2 = EXPERTS * HIDDEN * INTERMEDIATE
    return [w13 // 2, w13 // 32, w2 // 2, w2 // 32] * LAYERS


def dealt(sizes, nodes):
    loads = [(0, node) for node in range(nodes)]
    for size in sorted(sizes, reverse=True):
        load, node = heapq.heappop(loads)
        heapq.heappush(loads, (load + size, node))
    return sorted(load for load, _ in loads)


def seconds(shares, node, disk):
    """Until all shares are written; disk: bytes read and written in a second, by all nodes together."""
    now = done = 0.0
    for index, share in enumerate(shares):
        rate = min(node, disk / 2 / (len(shares) - index))
        now += (share - done) / rate
        done = share
    return now


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--node", type=float, default=13.8, help="GB/s of output of one node by itself")
    parser.add_argument("--plan", type=float, default=2.9, help="seconds until a node begins to write")
    parser.add_argument("--merge", type=float, default=4.7, help="seconds of the merge, its plan included")
    o = parser.parse_args()
    sizes = files()
    print(f"{sum(sizes) / 1e12:.2f} TB in {len(sizes)} files; a node alone {o.node} GB/s")
    print("| file system | nodes | least and most of a node, GB | minutes | times as fast |")
    print("|---|---|---|---|---|")
    for disk in (5, 50):
        alone = None
        for nodes in (1, 8, 64):
            shares = dealt(sizes, nodes)
            total = o.plan + seconds(shares, o.node * 1e9, disk * 1e9)
            total += o.merge if nodes > 1 else 0
            alone = alone or total
            print(f"| {disk} GB/s | {nodes} | {shares[0] / 1e9:.1f} to {shares[-1] / 1e9:.1f} | {total / 60:.1f} "
                  f"| {alone / total:.1f} |")


main()
