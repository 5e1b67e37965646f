"""DGL 2.1's classic sampler (`dgl.dataloading.NeighborSampler`) on a prepared data set.

    <dgl environment>/bin/python benchmarks/peers/dgl_classic.py DATASET [--batches N] [--threads T]

Reads the data set of `dgl_prepare.py`; prints one JSON line like `dgl_ondisk.py`. DGL's examples of
node classification use this sampler; its blocks hold every sampled node once.
"""

import argparse
import json
import time

import dgl
import dgl.graphbolt as gb
import torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset")
    parser.add_argument("--batches", type=int, default=1 << 30)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1, help="at least so many")
    parser.add_argument("--least", type=float, default=0.0, help="epochs for at least so long")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--fanout", default="15,10")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    dataset = gb.OnDiskDataset(options.dataset, force_preprocess=False).load()
    topology = dataset.graph
    columns = topology.csc_indptr.long(), topology.indices.long(), torch.tensor([]).long()
    graph = dgl.graph(("csc", columns), num_nodes=len(topology.csc_indptr) - 1)
    seeds = dataset.tasks[0].train_set._items[0].long()
    fanouts = [int(word) for word in options.fanout.split(",")][::-1]
    loader = dgl.dataloading.DataLoader(
        graph,
        seeds,
        dgl.dataloading.NeighborSampler(fanouts),
        batch_size=options.batch_size,
        shuffle=True,
        num_workers=0,
    )
    epochs = []
    while len(epochs) < options.epochs or sum(epoch["seconds"] for epoch in epochs) < options.least:
        counts = {"batches": 0, "seeds": 0, "rows": 0, "edges": 0}
        started = time.perf_counter()
        for input_nodes, output_nodes, blocks in loader:
            counts["batches"] += 1
            counts["seeds"] += len(output_nodes)
            counts["rows"] += len(input_nodes)
            counts["edges"] += sum(block.num_edges() for block in blocks)
            elapsed = time.perf_counter() - started
            if counts["batches"] >= options.batches or elapsed > options.seconds:
                break
        epochs.append({**counts, "seconds": time.perf_counter() - started})
    print(json.dumps({"program": "dgl-classic", "version": "2.1.0", "epochs": epochs}))


if __name__ == "__main__":
    main()
