"""PyG's "Link prediction on MovieLens", from disk: only the loader differs.

python examples/pyg/link_prediction.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot
from torch_geometric.data import HeteroData
from torch_geometric.nn import SAGEConv, to_hetero
from torch_geometric.transforms import RandomLinkSplit, ToUndirected

import outercore as oc
from outercore import LinkNeighborLoader  # PyG: from torch_geometric.loader import ...

RATES = ("user", "rates", "movie")


def ratings(users: int = 400, movies: int = 200, tastes: int = 4) -> HeteroData:
    """Users who mostly rate movies of their taste."""
    taste = {"user": torch.randint(tastes, (users,)), "movie": torch.randint(tastes, (movies,))}
    data = HeteroData()
    for name, of in taste.items():
        x = one_hot(of, tastes).float().repeat(1, 4)
        data[name].x = x + torch.randn(len(of), 4 * tastes)
    user, movie = torch.randint(users, (20_000,)), torch.randint(movies, (20_000,))
    rated = (taste["user"][user] == taste["movie"][movie]) | (torch.rand(20_000) < 0.03)
    data[RATES].edge_index = torch.stack([user, movie])[:, rated].unique(dim=1)
    return ToUndirected()(data)


class GNN(torch.nn.Module):
    """A model for one type; `to_hetero` converts it to a model for all types."""

    def __init__(self, hidden: int) -> None:
        """Two layers."""
        super().__init__()
        self.conv1 = SAGEConv((-1, -1), hidden)
        self.conv2 = SAGEConv((-1, -1), hidden)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """States of each node."""
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


def scores(model: torch.nn.Module, batch: HeteroData) -> torch.Tensor:
    """Scores of the (user, movie) pairs of a batch, [pairs]; higher means a more likely rating."""
    states = model(batch.x_dict, batch.edge_index_dict)
    user, movie = batch[RATES].edge_label_index
    return (states["user"][user] * states["movie"][movie]).sum(dim=-1)


def main() -> None:
    """Train on ratings and on pairs without a rating, then test on held-out ratings."""
    torch.manual_seed(0)
    split = RandomLinkSplit(
        num_val=0.0,
        num_test=0.1,
        # Edges with labels are not edges for message passing.
        disjoint_train_ratio=0.3,
        neg_sampling_ratio=1.0,
        add_negative_train_samples=False,
        edge_types=RATES,
        rev_edge_types=("movie", "rev_rates", "user"),
    )
    train_data, _, test_data = split(ratings())
    with tempfile.TemporaryDirectory() as folder:
        train_set, test_set = (
            oc.from_pyg(of, Path(folder) / name)
            for name, of in (("train", train_data), ("test", test_data))
        )
        train_loader = LinkNeighborLoader(
            train_set,
            num_neighbors=[8, 4],
            neg_sampling_ratio=1.0,
            edge_label_index=(RATES, train_data[RATES].edge_label_index),
            edge_label=train_data[RATES].edge_label,
            batch_size=128,
            shuffle=True,
        )
        test_loader = LinkNeighborLoader(
            test_set,
            num_neighbors=[8, 4],
            edge_label_index=(RATES, test_data[RATES].edge_label_index),
            edge_label=test_data[RATES].edge_label,
            batch_size=3 * 128,
        )

        model = to_hetero(GNN(32), train_data.metadata())
        with torch.no_grad():  # Initialize lazy modules.
            scores(model, next(iter(train_loader)))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
        for _ in range(4):
            for batch in train_loader:
                optimizer.zero_grad()
                label = batch[RATES].edge_label
                binary_cross_entropy_with_logits(scores(model, batch), label).backward()
                optimizer.step()
        with torch.no_grad():
            correct = [
                (scores(model, batch) > 0) == batch[RATES].edge_label for batch in test_loader
            ]
    print(f"accuracy {torch.cat(correct).float().mean():.3f}")


if __name__ == "__main__":
    main()
