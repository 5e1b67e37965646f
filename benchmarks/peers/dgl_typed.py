"""DGL 2.1's sampler on a graph of several types, in memory. Prints one JSON line.

    <dgl environment>/bin/python benchmarks/peers/dgl_typed.py EDGES.npz [--epochs E] [--threads T]

Each array `source__relation__target` [2, edges] of the archive is an edge type; its reverse is
added.
"""

import argparse
import json
import time

import dgl
import numpy as np
import torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("edges")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    edges, counts = {}, {}
    for name, ends in np.load(options.edges).items():
        source, relation, target = name.split("__")
        sources, targets = map(torch.from_numpy, ends)
        edges[source, relation, target] = sources, targets
        edges[target, f"rev_{relation}", source] = targets, sources
        for end, ids in ((source, sources), (target, targets)):
            counts[end] = max(counts.get(end, 0), int(ids.max()) + 1)
    graph = dgl.heterograph(edges, num_nodes_dict=counts).formats(["csc"])
    graph.create_formats_()
    seeds = np.random.default_rng(1).permutation(counts["paper"])[: options.batches * 1024]
    loader = dgl.dataloading.DataLoader(
        graph,
        {"paper": torch.from_numpy(seeds)},
        dgl.dataloading.NeighborSampler([10, 10]),
        batch_size=1024,
        num_workers=0,
    )
    epochs = []
    for _ in range(options.epochs):
        sampled, started = 0, time.perf_counter()
        for _, _, blocks in loader:
            sampled += sum(block.num_edges() for block in blocks)
        epochs.append({"edges": sampled, "seconds": time.perf_counter() - started})
    print(json.dumps({"program": "dgl-typed", "version": "2.1.0", "epochs": epochs}))


if __name__ == "__main__":
    main()
