"""PyG's "Scaling up GNNs via remote backends": a data set on disk is the back end.

python examples/pyg/remote.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from bibliography import bibliography
from torch.nn.functional import cross_entropy
from torch_geometric.data import FeatureStore, GraphStore, HeteroData
from torch_geometric.nn import SAGEConv, to_hetero

import outercore as oc
from outercore import NeighborLoader  # PyG: from torch_geometric.loader import NeighborLoader


class GNN(torch.nn.Module):
    """A model for one type; `to_hetero` converts it to a model for all types."""

    def __init__(self, hidden: int, out: int) -> None:
        """Two layers."""
        super().__init__()
        self.conv1 = SAGEConv((-1, -1), hidden)
        self.conv2 = SAGEConv((-1, -1), out)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Logits of each node."""
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


def look(data: HeteroData, feature_store: FeatureStore, graph_store: GraphStore) -> None:
    """Access features and edges, which the stores read from disk."""
    assert torch.equal(feature_store["paper", "x"], data["paper"].x)
    assert torch.equal(feature_store["paper"].x, data["paper"].x)
    assert torch.equal(feature_store["author", "x", 0:20], data["author"].x[0:20])
    for edge_type in data.edge_types:
        row, col = graph_store[edge_type, "coo"]
        stored = torch.stack([row, col])
        # The edges equal the edges of the data, in any order.
        numbers = [
            index[1] * data.num_nodes + index[0] for index in (stored, data[edge_type].edge_index)
        ]
        assert torch.equal(numbers[0].sort().values, numbers[1].sort().values)


def main() -> None:
    """Train on batches from the stores, then test."""
    torch.manual_seed(0)
    data = bibliography()
    with tempfile.TemporaryDirectory() as folder:
        feature_store, graph_store = oc.from_pyg(data, Path(folder) / "papers").pyg()
        look(data, feature_store, graph_store)
        train_loader, val_loader = (
            # Instead of a data object, a tuple of both stores.
            NeighborLoader(
                (feature_store, graph_store),
                num_neighbors=[8, 8],
                batch_size=64,
                shuffle=True,
                input_nodes=("paper", mask),
            )
            for mask in (data["paper"].train_mask, data["paper"].val_mask)
        )
        model = to_hetero(GNN(32, 3), data.metadata(), aggr="sum")
        with torch.no_grad():  # Initialize lazy modules.
            batch = next(iter(train_loader))
            model(batch.x_dict, batch.edge_index_dict)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(4):
            for batch in train_loader:
                optimizer.zero_grad()
                batch_size = batch["paper"].batch_size
                out = model(batch.x_dict, batch.edge_index_dict)["paper"][:batch_size]
                cross_entropy(out, batch["paper"].y[:batch_size]).backward()
                optimizer.step()
        correct = total = 0
        with torch.no_grad():
            for batch in val_loader:
                batch_size = batch["paper"].batch_size
                out = model(batch.x_dict, batch.edge_index_dict)["paper"][:batch_size]
                correct += int((out.argmax(dim=-1) == batch["paper"].y[:batch_size]).sum())
                total += batch_size
    print(f"accuracy {correct / total:.3f}")


if __name__ == "__main__":
    main()
