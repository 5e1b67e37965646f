"""Epochs of sampled neighbourhoods as NumPy arrays, without PyTorch. Prints one JSON line.

    python benchmarks/workers/sample_outercore.py DATASET --memory 512MiB
        [--epochs E] [--threads T] [--topology T]

Batches are arrays by target with ids of 32 bits, as DGL's GraphBolt delivers them; they are counted
and dropped.
"""

import argparse
import json
import time

import outercore as oc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset")
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop an epoch after so long")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--fanout", default="15,10")
    parser.add_argument("--topology", default="auto")
    options = parser.parse_args()

    sampler = oc.NeighborSampler(
        oc.open(options.dataset),
        num_neighbors=[int(one) for one in options.fanout.split(",")],
        input_nodes="train",
        batch_size=options.batch_size,
        shuffle=True,
        id_dtype="int32",
        memory=options.memory,
        threads=options.threads,
        topology=options.topology,
    )
    begun = time.perf_counter()
    plan = sampler.plan()
    planned = time.perf_counter() - begun
    epochs = []
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        counts = {"batches": 0, "seeds": 0, "rows": 0, "edges": 0}
        started = time.perf_counter()
        for batch in sampler:
            counts["batches"] += 1
            counts["seeds"] += batch.batch_size
            counts["rows"] += batch.num_nodes
            counts["edges"] += batch.num_edges
            if time.perf_counter() - started > options.seconds:
                break
        epochs.append({**counts, "seconds": time.perf_counter() - started})
    sampler.close()
    print(json.dumps({"program": "outercore", "plan_s": planned, "plan": plan, "epochs": epochs}))


if __name__ == "__main__":
    main()
