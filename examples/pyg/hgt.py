"""PyG's "to_hetero" on papers and authors with HGT sampling, from disk: only the loader differs.

python examples/pyg/hgt.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from bibliography import bibliography
from torch.nn import ReLU
from torch.nn.functional import cross_entropy
from torch_geometric.data import HeteroData
from torch_geometric.nn import Linear, SAGEConv, Sequential, to_hetero

import outercore as oc
from outercore import HGTLoader  # PyG: from torch_geometric.loader import HGTLoader


def model_of(data: HeteroData, classes: int) -> torch.nn.Module:
    """A model for one type, converted by `to_hetero` to a model for all types."""
    layers = [
        (SAGEConv((-1, -1), 64), "x, edge_index -> x"),
        ReLU(inplace=True),
        (SAGEConv((-1, -1), 64), "x, edge_index -> x"),
        ReLU(inplace=True),
        (Linear(-1, classes), "x -> x"),
    ]
    return to_hetero(Sequential("x, edge_index", layers), data.metadata(), aggr="sum")


def main() -> None:
    """Train on batches with equal numbers of nodes of each type, then test."""
    torch.manual_seed(0)
    data = bibliography()
    with tempfile.TemporaryDirectory() as folder:
        data_set = oc.from_pyg(data, Path(folder) / "papers")
        kwargs = {"batch_size": 64, "num_workers": 6, "persistent_workers": True}
        train_loader = HGTLoader(
            data_set,
            num_samples=[128] * 4,
            shuffle=True,
            input_nodes=("paper", data["paper"].train_mask),
            **kwargs,
        )
        val_loader = HGTLoader(
            data_set,
            num_samples={key: [128] * 4 for key in data.node_types},
            input_nodes=("paper", data["paper"].val_mask),
            **kwargs,
        )

        model = model_of(data, classes=3)
        with torch.no_grad():  # Initialize lazy parameters.
            batch = next(iter(train_loader))
            model(batch.x_dict, batch.edge_index_dict)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(3):
            for batch in train_loader:
                optimizer.zero_grad()
                batch_size = batch["paper"].batch_size
                out = model(batch.x_dict, batch.edge_index_dict)["paper"][:batch_size]
                cross_entropy(out, batch["paper"].y[:batch_size]).backward()
                optimizer.step()

        total_examples = total_correct = 0
        with torch.no_grad():
            for batch in val_loader:
                batch_size = batch["paper"].batch_size
                out = model(batch.x_dict, batch.edge_index_dict)["paper"][:batch_size]
                total_correct += int((out.argmax(-1) == batch["paper"].y[:batch_size]).sum())
                total_examples += batch_size
    print(f"accuracy {total_correct / total_examples:.3f}")


if __name__ == "__main__":
    main()
