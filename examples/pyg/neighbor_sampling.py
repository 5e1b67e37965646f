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


def basic_usage(folder: Path) -> None:
    """The batch that the tutorial prints, and its advanced options."""
    source, target = [2, 3, 3, 4, 5, 6, 7], [0, 0, 1, 1, 2, 3, 4]
    x, y = torch.randn(8, 32), torch.randint(0, 4, (8,))
    data = Data(x=x, y=y, edge_index=torch.tensor([source, target]))
    data_set = oc.from_pyg(data, folder / "tree")
    options = {"input_nodes": torch.tensor([0, 1]), "num_neighbors": [2, 1], "batch_size": 1}
    batch = next(iter(NeighborLoader(data_set, replace=False, shuffle=False, **options)))
    assert batch.edge_index.tolist() == [[1, 2, 3, 4], [0, 0, 1, 2]]
    assert batch.n_id.tolist() == [0, 2, 3, 5, 6]
    assert batch.n_id[batch.edge_index].tolist() == [[2, 3, 5, 6], [0, 0, 2, 3]]
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert batch.batch_size == 1

    options["batch_size"] = 2
    batch = next(iter(NeighborLoader(data_set, disjoint=True, **options)))
    assert batch.batch[batch.n_id == 3].tolist() == [0, 1]
    batch = next(iter(NeighborLoader(data_set, subgraph_type="induced", **options)))
    assert batch.num_edges == 7
    batch = next(iter(NeighborLoader(data_set, subgraph_type="bidirectional", **options)))
    assert batch.is_undirected()


def main() -> None:
    """Train on sampled neighbourhoods, then test."""
    torch.manual_seed(0)
    data = communities()
    with tempfile.TemporaryDirectory() as folder:
        basic_usage(Path(folder))
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
                # Trimmed to the layer: each layer computes only the nodes that later layers need.
                out = model(
                    batch.x,
                    batch.edge_index,
                    num_sampled_nodes_per_hop=batch.num_sampled_nodes,
                    num_sampled_edges_per_hop=batch.num_sampled_edges,
                )[: batch.batch_size]
                correct += int((out.argmax(dim=-1) == batch.y[: batch.batch_size]).sum())
    print(f"accuracy {correct / int(data.test_mask.sum()):.3f}")


if __name__ == "__main__":
    main()
