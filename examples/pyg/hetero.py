"""PyG's heterogeneous graph learning with `to_hetero`, from disk: only the loader differs.

python examples/pyg/hetero.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import HeteroData
from torch_geometric.nn import SAGEConv, to_hetero

import outercore as oc
from outercore import NeighborLoader  # PyG: from torch_geometric.loader import NeighborLoader
from outercore.sources.typed.graph import TypedInputs, import_typed


def written(folder: Path, papers: int = 900, authors: int = 400) -> oc.Graph:
    """Papers and authors with one of three fields, as a data set."""
    random = np.random.default_rng(0)
    field, of_author = random.integers(3, size=papers), random.integers(3, size=authors)
    paper = np.repeat(np.arange(papers), 4)
    author = random.integers(authors, size=len(paper))
    own = np.where(
        random.random(len(paper)) < 0.8, field[paper], random.integers(3, size=len(paper))
    )
    author = np.where(of_author[author] == own, author, random.integers(authors, size=len(paper)))
    np.savetxt(folder / "writes.csv", np.stack([author, paper], axis=1), "%d", ",")
    for name, fields in (("paper", field), ("author", of_author)):
        x = np.eye(3)[fields].repeat(4, axis=1) + 1.5 * random.normal(size=(len(fields), 12))
        np.save(folder / f"{name}.npy", x.astype(np.float32))
    np.save(folder / "field.npy", field)
    inputs = TypedInputs(
        nodes=(f"paper={papers}", f"author={authors}"),
        edges=(f"author,writes,paper={folder / 'writes.csv'}",),
        features=(f"paper={folder / 'paper.npy'}", f"author={folder / 'author.npy'}"),
        label=f"paper={folder / 'field.npy'}",
        add_reverse=True,  # PyG: T.ToUndirected()
    )
    import_typed(inputs, folder / "papers")
    return oc.open(folder / "papers")


class GNN(torch.nn.Module):
    """The model for one type, which `to_hetero` makes one for all types."""

    def __init__(self, hidden: int, out: int) -> None:
        """Two layers."""
        super().__init__()
        self.conv1 = SAGEConv((-1, -1), hidden)
        self.conv2 = SAGEConv((-1, -1), out)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Logits of each node."""
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


def main() -> None:
    """Train on sampled neighbourhoods of papers, then test."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        data_set = written(Path(folder))
        common = {"num_neighbors": [8, 8], "batch_size": 64}
        train_loader = NeighborLoader(data_set, input_nodes="train", shuffle=True, **common)
        test_loader = NeighborLoader(data_set, input_nodes="test", **common)

        batch: HeteroData = next(iter(train_loader))
        model = to_hetero(GNN(32, 3), batch.metadata(), aggr="sum")
        with torch.no_grad():  # Initialize lazy modules.
            model(batch.x_dict, batch.edge_index_dict)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(4):
            for batch in train_loader:
                optimizer.zero_grad()
                seeds = batch["paper"].batch_size
                out = model(batch.x_dict, batch.edge_index_dict)["paper"][:seeds]
                cross_entropy(out, batch["paper"].y[:seeds]).backward()
                optimizer.step()
        correct = total = 0
        with torch.no_grad():
            for batch in test_loader:
                seeds = batch["paper"].batch_size
                out = model(batch.x_dict, batch.edge_index_dict)["paper"][:seeds]
                correct += int((out.argmax(dim=-1) == batch["paper"].y[:seeds]).sum())
                total += seeds
    print(f"accuracy {correct / total:.3f}")


if __name__ == "__main__":
    main()
