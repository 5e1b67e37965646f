"""Epochs of Outercore batches: only sampling, or with features. Prints one JSON line.

    python benchmarks/workers/load_outercore.py DATASET --memory 512MiB [--no-features] [--arrays]
        [--epochs E] [--threads T] [--backend B] [--topology T] [--policy P]

The loader delivers finished PyG batches, which are counted and dropped. With `--arrays`, batches
are NumPy arrays by target with 32-bit ids, like those of DGL's GraphBolt, and PyTorch is not
loaded.
"""

import argparse
import json
import time
from functools import partial

import outercore as oc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset")
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--no-features", action="store_true")
    parser.add_argument("--arrays", action="store_true", help="NumPy instead of PyG")
    parser.add_argument("--batches", type=int, default=1 << 30)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop an epoch after so long")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1, help="at least so many")
    parser.add_argument("--least", type=float, default=0.0, help="epochs for at least so long")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--fanout", default="15,10")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--topology", default="auto")
    parser.add_argument("--policy", default="window")
    parser.add_argument("--hotness", default="presample")
    parser.add_argument("--group", type=int, help="batches fetched together")
    options = parser.parse_args()

    kind = partial(oc.NeighborSampler, id_dtype="int32") if options.arrays else oc.NeighborLoader
    loader = kind(
        oc.open(options.dataset),
        num_neighbors=[int(word) for word in options.fanout.split(",")],
        input_nodes="train",
        batch_size=options.batch_size,
        shuffle=True,
        edge_ids=False,
        labels=None,
        features=None if options.no_features else "x",
        memory=options.memory,
        threads=options.threads,
        backend=options.backend,
        topology=options.topology,
        policy=options.policy,
        hotness=options.hotness,
        group=options.group,
    )
    begun = time.perf_counter()
    plan = loader.plan()
    planned = time.perf_counter() - begun
    epochs = []
    while len(epochs) < options.epochs or sum(epoch["seconds"] for epoch in epochs) < options.least:
        loader.set_epoch(len(epochs))
        counts = {"batches": 0, "seeds": 0, "rows": 0, "edges": 0}
        started = time.perf_counter()
        for batch in loader:
            counts["batches"] += 1
            counts["seeds"] += int(batch.batch_size)
            counts["rows"] += len(batch.n_id)
            counts["edges"] += batch.num_edges
            elapsed = time.perf_counter() - started
            if counts["batches"] >= options.batches or elapsed > options.seconds:
                break
        seconds = time.perf_counter() - started
        counters = loader.counters()
        counters.pop("timeline", None)
        epochs.append({**counts, "seconds": seconds, "counters": counters})
    config = loader.config
    loader.close()
    result = {"plan_s": planned, "plan": plan, "config": config, "epochs": epochs}
    print(json.dumps({"program": "outercore", **result}))


if __name__ == "__main__":
    main()
