"""PyG's "Scaling GNNs via neighbor sampling", from disk: only the loader's import differs.

python examples/pyg/neighbor_sampling.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy, one_hot
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import outercore as oc
from outercore import NeighborLoader  # PyG: from torch_geometric.loader import NeighborLoader


def communities(nodes: int = 1500, classes: int = 4) -> Data:
    """A graph whose neighbours mostly have the same class."""
    y = torch.arange(nodes) % classes
    target = torch.arange(nodes).repeat_interleave(8)
    source = torch.randint(nodes // classes, target.shape) * classes + y[target]
    source = torch.where(torch.rand(len(target)) < 0.2, torch.randint(nodes, target.shape), source)
    x = one_hot(y, classes).float().repeat(1, 4) + 2 * torch.randn(nodes, 4 * classes)
    train_mask = torch.rand(nodes) < 0.5
    edge_index = torch.stack([source, target])
    return Data(x=x, y=y, edge_index=edge_index, train_mask=train_mask, test_mask=~train_mask)


def main() -> None:
    """Train on sampled neighbourhoods, then test."""
    torch.manual_seed(0)
    data = communities()
    with tempfile.TemporaryDirectory() as folder:
        data_set = oc.from_pyg(data, Path(folder) / "communities")
        common = {"num_neighbors": [10, 10], "batch_size": 128, "num_workers": 2}
        train_loader = NeighborLoader(
            data_set, input_nodes=data.train_mask, shuffle=True, persistent_workers=True, **common
        )
        test_loader = NeighborLoader(data_set, input_nodes=data.test_mask, **common)

        model = GraphSAGE(data.num_features, 32, num_layers=2, out_channels=4)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(3):
            for batch in train_loader:
                optimizer.zero_grad()
                out = model(batch.x, batch.edge_index)[: batch.batch_size]
                cross_entropy(out, batch.y[: batch.batch_size]).backward()
                optimizer.step()

        correct = 0
        with torch.no_grad():
            for batch in test_loader:
                out = model(batch.x, batch.edge_index)[: batch.batch_size]
                correct += int((out.argmax(dim=-1) == batch.y[: batch.batch_size]).sum())
    print(f"accuracy {correct / int(data.test_mask.sum()):.3f}")


if __name__ == "__main__":
    main()
