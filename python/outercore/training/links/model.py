"""A network that embeds nodes, and a head that scores pairs of them."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from outercore.training.config import LinkHead, LinkLoss, TrainConfig
from outercore.training.models import build_model


class LinkModel(nn.Module):
    """Embeddings of nodes by a graph network, scores of pairs by a head.

    Nodes without features have rows in a learned table of width `hidden`.
    """

    def __init__(self, config: TrainConfig, features: int, table_rows: int = 0) -> None:
        """`features` of a node, or the width of the table, which has `table_rows` rows."""
        super().__init__()
        self.encoder = build_model(config.model, config.layers, features, config.model.hidden)
        self.head = PairHead(config.link.head, config.model.hidden, config.model.dropout)
        self.table = nn.Embedding(table_rows, features) if table_rows else None
        if self.table is not None:
            nn.init.xavier_uniform_(self.table.weight)

    @property
    def layers(self) -> int:
        """Layers of the encoder."""
        return self.encoder.layers

    @property
    def features(self) -> int:
        """Features that the encoder takes of a node."""
        return self.encoder.features

    @property
    def outputs(self) -> int:
        """Width of an embedding."""
        return self.encoder.outputs

    @property
    def needs_degrees(self) -> bool:
        """Whether the encoder weighs arcs by in-degree."""
        return self.encoder.needs_degrees

    @property
    def table_rows(self) -> int:
        """Nodes with a row in the table; 0 without one."""
        return 0 if self.table is None else self.table.num_embeddings

    def forward(self, batch: Any, degrees: Tensor | None = None) -> Tensor:
        """Embeddings of a batch's seeds, float32 [seeds, outputs]; `degrees` as `Network` has them.

        Sets `batch.x` to rows of the table where there is one.
        """
        if self.table is not None:
            batch.x = self.table(batch.n_id)
        embeddings: Tensor = self.encoder(batch, degrees)
        return embeddings


class PairHead(nn.Module):
    """One score of two embeddings.

    It is the same in either order, except for a directed `mlp`, which takes both embeddings and
    their product.
    """

    def __init__(
        self, kind: LinkHead, width: int, dropout: float, *, is_directed: bool = False
    ) -> None:
        super().__init__()
        self._is_directed = is_directed
        self.kind = kind
        self.dropout = dropout
        self.diagonal = nn.Parameter(torch.ones(width)) if kind == "diagonal" else None
        sizes = [width * (3 if is_directed else 1), width, 1] if kind == "mlp" else []
        self.linears = nn.ModuleList(
            nn.Linear(before, after) for before, after in itertools.pairwise(sizes)
        )

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Scores float32 [pairs] of embeddings [pairs, width]."""
        product = first * second
        if self.kind == "mlp":
            seen = torch.cat([first, second, product], dim=1) if self._is_directed else product
            hidden = functional.relu(self.linears[0](seen))
            hidden = functional.dropout(hidden, self.dropout, self.training)
            score: Tensor = self.linears[1](hidden)
            return score.squeeze(1)
        if self.diagonal is not None:
            product = product * self.diagonal
        return product.sum(dim=1)


def link_loss(kind: LinkLoss, positive: Tensor, negative: Tensor) -> Tensor:
    """How far edges are from scoring higher than negatives; never below 0.

    `binary`: cross entropy, in which all edges weigh as much as all negatives. `triplet`: the loss
    of Bayesian personalised ranking, whose slope needs no margin to be chosen.

    Shapes: scores [edges] and [edges, negatives of each].
    Source: Rendle et al., BPR, 2009, for `triplet`.
    """
    if kind == "binary":
        return functional.softplus(-positive).mean() + functional.softplus(negative).mean()
    return functional.softplus(negative - positive.unsqueeze(1)).mean()
