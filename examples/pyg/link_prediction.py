"""PyG's link prediction between users and movies, from disk: only the loader differs.

python examples/pyg/link_prediction.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch_geometric.data import HeteroData
from torch_geometric.nn import SAGEConv, to_hetero

import outercore as oc
from outercore import LinkNeighborLoader  # PyG: from torch_geometric.loader import ...
from outercore.sources.typed.graph import TypedInputs, import_typed

RATES = ("user", "rates", "movie")


def written(folder: Path, users: int = 400, movies: int = 200) -> tuple[oc.Graph, torch.Tensor]:
    """Users who mostly rate movies of their taste, as a data set; and ratings to test with."""
    random = np.random.default_rng(0)
    tastes = {"user": random.integers(4, size=users), "movie": random.integers(4, size=movies)}
    user, movie = random.integers(users, size=20_000), random.integers(movies, size=20_000)
    likes = tastes["user"][user] == tastes["movie"][movie]
    kept = likes | (random.random(len(user)) < 0.03)
    edges = np.unique(np.stack([user, movie], axis=1)[kept], axis=0)
    random.shuffle(edges)
    np.savetxt(folder / "rates.csv", edges[500:], "%d", ",")
    for name, of in tastes.items():
        x = np.eye(4)[of].repeat(4, axis=1) + random.normal(size=(len(of), 16))
        np.save(folder / f"{name}.npy", x.astype(np.float32))
    inputs = TypedInputs(
        nodes=(f"user={users}", f"movie={movies}"),
        edges=(f"user,rates,movie={folder / 'rates.csv'}",),
        features=(f"user={folder / 'user.npy'}", f"movie={folder / 'movie.npy'}"),
        add_reverse=True,  # PyG: T.ToUndirected()
    )
    import_typed(inputs, folder / "ratings")
    return oc.open(folder / "ratings"), torch.from_numpy(edges[:500].T.copy())


class GNN(torch.nn.Module):
    """The model for one type, which `to_hetero` makes one for all types."""

    def __init__(self, hidden: int) -> None:
        """Two layers."""
        super().__init__()
        self.conv1 = SAGEConv((-1, -1), hidden)
        self.conv2 = SAGEConv((-1, -1), hidden)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """States of each node."""
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


def scores(model: torch.nn.Module, batch: HeteroData) -> torch.Tensor:
    """How likely each user rates each movie."""
    states = model(batch.x_dict, batch.edge_index_dict)
    user, movie = batch[RATES].edge_label_index
    return (states["user"][user] * states["movie"][movie]).sum(dim=-1)


def main() -> None:
    """Train on ratings and pairs without one; then test on ratings held out."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        data_set, held_out = written(Path(folder))
        common = {"num_neighbors": [8, 4], "batch_size": 128, "neg_sampling": "binary"}
        train_loader = LinkNeighborLoader(
            data_set, edge_label_index=(RATES, None), shuffle=True, **common
        )
        test_loader = LinkNeighborLoader(data_set, edge_label_index=(RATES, held_out), **common)

        batch = next(iter(train_loader))
        model = to_hetero(GNN(32), batch.metadata())
        with torch.no_grad():  # Initialize lazy modules.
            scores(model, batch)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
        for _ in range(2):
            for batch in train_loader:
                optimizer.zero_grad()
                label = batch[RATES].edge_label
                binary_cross_entropy_with_logits(scores(model, batch), label).backward()
                optimizer.step()
        with torch.no_grad():
            found = [((scores(model, one) > 0) == one[RATES].edge_label) for one in test_loader]
    print(f"accuracy {torch.cat(found).float().mean():.3f}")


if __name__ == "__main__":
    main()
