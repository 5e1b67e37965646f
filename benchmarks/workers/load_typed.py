"""Epochs of Outercore's typed batches, only sampling. Prints one JSON line.

python benchmarks/workers/load_typed.py DATASET [--epochs E] [--threads T]
"""

import argparse
import json
import time

import numpy as np

import outercore as oc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, default=100)
    options = parser.parse_args()
    graph = oc.open(options.dataset)
    papers = graph.node_types["paper"]
    seeds = np.random.default_rng(1).permutation(papers)[: options.batches * 1024]
    loader = oc.NeighborLoader(
        graph,
        [10, 10],
        ("paper", seeds),
        batch_size=1024,
        edge_ids=False,
        memory="4GiB",
        topology="resident",
        threads=options.threads,
    )
    loader.plan()
    epochs = []
    for _ in range(options.epochs):
        edges, started = 0, time.perf_counter()
        for batch in loader:
            edges += batch.num_edges
        epochs.append({"edges": edges, "seconds": time.perf_counter() - started})
    print(json.dumps({"program": "outercore", "epochs": epochs}))


if __name__ == "__main__":
    main()
