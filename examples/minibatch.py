"""Train GraphSAGE in a custom training loop, on batches from disk.

    python examples/minibatch.py DATASET [--epochs 3] [--memory 256MiB]

`oc.NeighborLoader` replaces PyG's `NeighborLoader`; the rest is plain PyTorch and PyG.
"""

from __future__ import annotations

import argparse

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GraphSAGE

import outercore as oc


def main() -> None:
    """Train, then validate on sampled neighbourhoods."""
    arguments = _arguments()
    torch.manual_seed(0)
    graph = oc.open(arguments.dataset)
    common = {"num_neighbors": [10, 5], "batch_size": 512, "memory": arguments.memory}
    train = oc.NeighborLoader(graph, input_nodes="train", shuffle=True, **common)
    valid = oc.NeighborLoader(graph, input_nodes="valid", **common)

    model = GraphSAGE(graph.num_features, 64, num_layers=2, out_channels=graph.num_classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.005)
    for epoch in range(arguments.epochs):
        model.train()
        for batch in train:
            seeds = slice(batch.batch_size)
            optimiser.zero_grad()
            loss = cross_entropy(model(batch.x, batch.edge_index)[seeds], batch.y[seeds])
            loss.backward()
            optimiser.step()
        reads = train.counters()["counters"]["feature_reads"]
        print(f"epoch {epoch + 1}: loss {loss:.3f}, {reads['bytes'] / 2**20:.1f} MiB read")

    model.eval()
    right = 0
    with torch.no_grad():
        for batch in valid:
            seeds = slice(batch.batch_size)
            predicted = model(batch.x, batch.edge_index)[seeds].argmax(dim=1)
            right += int((predicted == batch.y[seeds]).sum())
    print(f"accuracy {right / len(graph.split('valid')):.3f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train GraphSAGE on batches from disk.")
    parser.add_argument("dataset")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--memory", default="256MiB")
    return parser.parse_args()


if __name__ == "__main__":
    main()
