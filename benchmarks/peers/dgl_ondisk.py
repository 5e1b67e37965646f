"""DGL 2.1 GraphBolt over an `OnDiskDataset`: batches, or only sampling. Prints one JSON line.

    <dgl environment>/bin/python benchmarks/peers/dgl_ondisk.py DATASET
        [--features] [--batches N] [--seconds S] [--threads T] [--epochs E]

With `--features`, the rows of `x` are fetched from disk for every batch (`in_memory: false`).
Without it, only the sampler runs. Duplicates of sampled nodes are removed (`deduplicate`), as in
every GraphBolt training script.
"""

import argparse
import json
import time

import dgl.graphbolt as gb
import torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset")
    parser.add_argument("--features", action="store_true")
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
    items = gb.ItemSampler(
        dataset.tasks[0].train_set, batch_size=options.batch_size, shuffle=True, drop_last=False
    )
    # GraphBolt's fan-outs start at the input layer; the option starts at the seeds.
    fanouts = [int(word) for word in options.fanout.split(",")][::-1]
    pipe = items.sample_neighbor(dataset.graph, fanouts, deduplicate=True)
    if options.features:
        pipe = pipe.fetch_feature(dataset.feature, node_feature_keys=["x"])
    loader = gb.DataLoader(pipe, num_workers=0)

    epochs = []
    while len(epochs) < options.epochs or sum(epoch["seconds"] for epoch in epochs) < options.least:
        counts = {"batches": 0, "seeds": 0, "rows": 0, "edges": 0}
        started = time.perf_counter()
        for batch in loader:
            counts["batches"] += 1
            counts["seeds"] += len(batch.seed_nodes)
            counts["rows"] += len(batch.input_nodes)
            counts["edges"] += sum(
                len(layer.sampled_csc.indices) for layer in batch.sampled_subgraphs
            )
            elapsed = time.perf_counter() - started
            if counts["batches"] >= options.batches or elapsed > options.seconds:
                break
        epochs.append({**counts, "seconds": time.perf_counter() - started})
    print(json.dumps({"program": "dgl", "version": "2.1.0", "epochs": epochs}))


if __name__ == "__main__":
    main()
