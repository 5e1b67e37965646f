"""PyG's "Heterogeneous graph learning", from disk: only the loader's import differs.

python examples/pyg/hetero.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from bibliography import bibliography
from torch.nn.functional import cross_entropy
from torch_geometric.data import HeteroData
from torch_geometric.nn import GATConv, HGTConv, Linear, SAGEConv, to_hetero

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


class GAT(torch.nn.Module):
    """A model for one type with attention and learnt skip connections."""

    def __init__(self, hidden: int, out: int) -> None:
        """Two layers."""
        super().__init__()
        self.conv1 = GATConv((-1, -1), hidden, add_self_loops=False)
        self.lin1 = Linear(-1, hidden)
        self.conv2 = GATConv((-1, -1), out, add_self_loops=False)
        self.lin2 = Linear(-1, out)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Logits of each node."""
        x = (self.conv1(x, edge_index) + self.lin1(x)).relu()
        return self.conv2(x, edge_index) + self.lin2(x)


class HGT(torch.nn.Module):
    """A model for all types."""

    def __init__(self, data: HeteroData, hidden: int, out: int) -> None:
        """Two layers of two heads."""
        super().__init__()
        self.lin_dict = torch.nn.ModuleDict({key: Linear(-1, hidden) for key in data.node_types})
        convs = [HGTConv(hidden, hidden, data.metadata(), heads=2) for _ in range(2)]
        self.convs = torch.nn.ModuleList(convs)
        self.lin = Linear(hidden, out)

    def forward(
        self,
        x_dict: dict[str, torch.Tensor],
        edge_index_dict: dict[tuple[str, str, str], torch.Tensor],
    ) -> dict[str, torch.Tensor]:
        """Logits of papers."""
        x_dict = {key: self.lin_dict[key](x).relu() for key, x in x_dict.items()}
        for conv in self.convs:
            x_dict = conv(x_dict, edge_index_dict)
        return {"paper": self.lin(x_dict["paper"])}


def train(model: torch.nn.Module, loader: NeighborLoader) -> None:
    """Train a model to predict the field of each seed."""
    batch = next(iter(loader))
    with torch.no_grad():  # Initialize lazy modules.
        model(batch.x_dict, batch.edge_index_dict)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(4):
        for batch in loader:
            optimizer.zero_grad()
            batch_size = batch["paper"].batch_size
            out = model(batch.x_dict, batch.edge_index_dict)["paper"][:batch_size]
            cross_entropy(out, batch["paper"].y[:batch_size]).backward()
            optimizer.step()


@torch.no_grad()
def test(model: torch.nn.Module, loader: NeighborLoader) -> float:
    """Accuracy."""
    correct = total = 0
    for batch in loader:
        batch_size = batch["paper"].batch_size
        out = model(batch.x_dict, batch.edge_index_dict)["paper"][:batch_size]
        correct += int((out.argmax(dim=-1) == batch["paper"].y[:batch_size]).sum())
        total += batch_size
    return correct / total


def main() -> None:
    """Train each model on sampled neighbourhoods of papers, then test it."""
    torch.manual_seed(0)
    data = bibliography()
    models = {
        "GNN": to_hetero(GNN(32, 3), data.metadata(), aggr="sum"),
        "GAT": to_hetero(GAT(32, 3), data.metadata(), aggr="sum"),
        "HGT": HGT(data, 32, 3),
    }
    with tempfile.TemporaryDirectory() as folder:
        data_set = oc.from_pyg(data, Path(folder) / "papers")
        train_loader = NeighborLoader(
            data_set,
            # A fan-out for each edge type.
            num_neighbors={key: [8] * 2 for key in data.edge_types},
            batch_size=64,
            shuffle=True,
            input_nodes=("paper", data["paper"].train_mask),
        )
        val_loader = NeighborLoader(
            data_set,
            num_neighbors=[8] * 2,
            batch_size=64,
            input_nodes=("paper", data["paper"].val_mask),
        )
        for name, model in models.items():
            train(model, train_loader)
            print(f"{name}: accuracy {test(model, val_loader):.3f}")


if __name__ == "__main__":
    main()
