"""Epochs of training, the same program at any budget. Prints one JSON line.

    python benchmarks/workers/epoch.py DATASET --memory 512MiB [--hidden 256] [--epochs 3]

GraphSAGE of two layers over `oc.NeighborLoader`, Adam, on the CPU. `--compute none` runs without
the network, so that the time is that of loading.
"""

import argparse
import json
import time

import torch
from torch_geometric.nn.models import GraphSAGE

import outercore as oc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset")
    parser.add_argument("--memory", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--fanout", default="15,10")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compute", choices=["sage", "none"], default="sage")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)

    graph = oc.open(options.dataset)
    fanout = [int(word) for word in options.fanout.split(",")]
    loader = oc.NeighborLoader(
        graph,
        num_neighbors=fanout,
        input_nodes="train",
        batch_size=options.batch_size,
        shuffle=True,
        edge_ids=False,
        memory=options.memory,
        threads=options.threads,
    )
    model = GraphSAGE(graph.num_features, options.hidden, len(fanout), graph.num_classes)
    adam = torch.optim.Adam(model.parameters(), lr=0.003)
    begun = time.perf_counter()
    loader.plan()
    planned = time.perf_counter() - begun
    epochs = []
    for epoch in range(options.epochs):
        loader.set_epoch(epoch)
        seeds, loss_sum, started = 0, 0.0, time.perf_counter()
        for batch in loader:
            count = int(batch.batch_size)
            seeds += count
            if options.compute == "none":
                continue
            adam.zero_grad(set_to_none=True)
            out = model(
                batch.x,
                batch.edge_index,
                num_sampled_nodes_per_hop=batch.num_sampled_nodes,
                num_sampled_edges_per_hop=batch.num_sampled_edges,
            )
            loss = torch.nn.functional.cross_entropy(out[:count], batch.y[:count])
            loss.backward()
            adam.step()
            loss_sum += float(loss.detach()) * count
        seconds = time.perf_counter() - started
        counters = loader.counters()
        counters.pop("timeline", None)
        epochs.append(
            {
                "seeds": seeds,
                "seconds": seconds,
                "loss": loss_sum / max(seeds, 1),
                "counters": counters,
            }
        )
    print(json.dumps({"program": "outercore", "plan_s": planned, "epochs": epochs}))


if __name__ == "__main__":
    main()
