"""Networks that embed the ends of links, and heads that score pairs of embeddings."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from outercore.training.config import LinkHead, LinkLoss, TrainConfig
from outercore.training.models import Model, build_model
from outercore.training.typed_network import (
    Encoder,
    TypedParts,
    TypedSchema,
    by_type,
    feature_deviation,
    norm_of_type,
)

if TYPE_CHECKING:
    from outercore.data.edge_types import EdgeType


_WAVES = 32
_FINEST = 1e6
"""Number of periods of the fastest wave in the span of the training times."""


class LinkModel(Model):
    """A graph network that embeds nodes, and a head that scores pairs of nodes.

    Nodes without features have rows in a learned table of width `hidden`.
    """

    def __init__(self, config: TrainConfig, features: int, table_rows: int = 0) -> None:
        """Makes the layers. `features` is the number of inputs of a node.

        With `table_rows`, the inputs are rows of a learned table with this number of rows.
        """
        super().__init__(config.layers, features, config.model.hidden)
        self.table_rows = table_rows
        self.encoder = build_model(config.model, config.layers, features, config.model.hidden)
        self.needs_degrees = self.encoder.needs_degrees
        self.counts_loops = self.encoder.counts_loops
        self.head = PairHead(config.link.head, config.model.hidden, config.model.dropout)
        self.table = nn.Embedding(table_rows, features) if table_rows else None
        if self.table is not None:
            nn.init.xavier_uniform_(self.table.weight)

    def forward(self, batch: Any, degrees: Tensor | None = None) -> Tensor:
        """Computes the embeddings of a batch's seeds, float32 [seeds, outputs].

        `degrees` is as for `Network.forward`. If there is a table, `batch.x` is set to its rows.
        """
        if self.table is not None:
            batch.x = self.table(batch.n_id)
        embeddings: Tensor = self.encoder(batch, degrees)
        return embeddings


class PairHead(nn.Module):
    """Computes a score from two embeddings.

    The score does not depend on their order, except for a directed `mlp`: it takes both embeddings
    and their product.
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
        """Computes the scores float32 [pairs] of two arrays of embeddings [pairs, width]."""
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
    """The loss of the scores of edges and of their negatives; never below 0.

    `binary` is cross entropy; all edges together have the same weight as all negatives together.
    `triplet` is the loss of Bayesian personalised ranking (BPR), which has no margin to choose.

    Shapes: `positive` [edges]. `negative` [edges, negatives of each edge].
    Source: Rendle et al., BPR, 2009, for `triplet`.
    """
    if kind == "binary":
        return functional.softplus(-positive).mean() + functional.softplus(negative).mean()
    return functional.softplus(negative - positive.unsqueeze(1)).mean()


@dataclass(frozen=True)
class TimedSchema:
    """The graph of a temporal network: its types, the edges with times, and their span."""

    types: TypedSchema
    """The types of nodes and edges. Its seeds are the node types at both ends of the links."""
    timed: frozenset[EdgeType]
    array: str
    """Name of the arrays with the times of edges."""
    span: int
    """Difference between the last and the first training time, in the unit of the times."""

    def to_dict(self) -> dict[str, Any]:
        """The schema as plain JSON values."""
        timed = [list(edge_type) for edge_type in self.types.edge_types if edge_type in self.timed]
        return {**self.types.to_dict(), "timed": timed, "array": self.array, "span": self.span}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], layers: int) -> TimedSchema:
        """Inverse of `to_dict`."""
        timed = frozenset(
            (source, relation, target) for source, relation, target in values["timed"]
        )
        types = TypedSchema.from_dict(values, layers)
        return cls(types, timed, values["array"], values["span"])


class TimeEncoding(nn.Module):
    """Encodes the age of an edge as cosines with fixed frequencies, and as its logarithm.

    The frequencies are a geometric sequence. The slowest wave has one period in the span of the
    training times.

    **Source** Cong et al., "Do We Really Need Complicated Model Architectures for Temporal
    Networks?", ICLR 2023, section 3.1, with frequencies that fit the unit of the times.
    """

    width = _WAVES + 1

    def __init__(self, span: int) -> None:
        super().__init__()
        self._span = float(span)
        self._frequencies: Tensor
        powers = torch.linspace(0.0, math.log(_FINEST), _WAVES, dtype=torch.float64)
        self.register_buffer(
            "_frequencies", powers.exp() * 2 * math.pi / self._span, persistent=False
        )

    def forward(self, ages: Tensor) -> Tensor:
        """Encodes ages. Shapes: `ages` int64 [edges], 0 or more; result float32 [edges, width]."""
        # In single precision, the fast waves of old edges would be lost.
        ages = ages.double()
        waves = torch.cos(ages.unsqueeze(1) * self._frequencies)
        decades = torch.log1p(ages * (_FINEST / self._span)) / math.log1p(_FINEST)
        return torch.cat([waves, decades.unsqueeze(1)], dim=1).float()


class TimedRelation(nn.Module):
    """Sends messages along the edges of one type, and combines them for each target.

    A message is a linear layer with ReLU over the source's state and the age of the edge. The
    result for a target is computed from the number of its messages and their mean. `sage` takes the
    plain mean, `gat` a mean weighted by attention as in GATv2.

    **Source** Brody et al., "How Attentive are Graph Attention Networks?", ICLR 2022, for `gat`.
    """

    def __init__(self, config: TrainConfig, ages: int) -> None:
        super().__init__()
        hidden, model = config.model.hidden, config.model
        self.source = nn.Linear(hidden, hidden)
        self.age = nn.Linear(ages, hidden, bias=False) if ages else None
        self._heads = model.heads if model.kind == "gat" else 0
        if self._heads:
            self.query = nn.Linear(hidden, hidden, bias=False)
            self.attention = nn.Parameter(torch.empty(self._heads, hidden // self._heads))
            nn.init.xavier_uniform_(self.attention)
        self.out = nn.Linear(hidden + 1, hidden)

    def forward(self, x: Tensor, own: Tensor, edge_index: Tensor, ages: Tensor | None) -> Tensor:
        """Computes the combined messages of each target.

        Shapes: `x` [sources, hidden]; `own` [targets, hidden], the states of the targets; `ages`
        [edges, width of ages]; result [targets, hidden].
        """
        sources, targets = edge_index
        messages = self.source(x).index_select(0, sources)
        if self.age is not None:
            messages = messages + self.age(ages)
        count = torch.bincount(targets, minlength=len(own)).float().unsqueeze(1)
        if self._heads:
            mean = self._attended(messages, own, targets)
        else:
            sums = torch.zeros_like(own).index_add(0, targets, functional.relu(messages))
            mean = sums / count.clamp(min=1)
        state: Tensor = self.out(torch.cat([mean, torch.log1p(count)], dim=1))
        return state

    def _attended(self, messages: Tensor, own: Tensor, targets: Tensor) -> Tensor:
        from torch_geometric.utils import softmax

        shape = (-1, self._heads, self.attention.shape[1])
        queries = self.query(own).index_select(0, targets)
        scores = functional.leaky_relu(messages + queries, 0.2).view(shape) * self.attention
        weights = softmax(scores.sum(dim=-1), targets, num_nodes=len(own))
        weighted = functional.relu(messages).view(shape) * weights.unsqueeze(-1)
        sums = torch.zeros_like(own).index_add(0, targets, weighted.flatten(1))
        return sums


class TimedLayer(nn.Module):
    """Computes new states of the targets: a map of their states, plus messages by edge type."""

    def __init__(self, config: TrainConfig, schema: TimedSchema, layer: int) -> None:
        super().__init__()
        types, hidden = schema.types, config.model.hidden
        self._into = {name: types.into(name) for name in types.targets(layer)}
        width = TimeEncoding.width
        self.relations = by_type(
            {
                edge_type: TimedRelation(config, width if edge_type in schema.timed else 0)
                for into in self._into.values()
                for edge_type in into
            }
        )
        self.own = by_type({name: nn.Linear(hidden, hidden) for name in self._into})
        self.norms = by_type({name: norm_of_type(config.model) for name in self._into})
        self._dropout = config.model.dropout

    def forward(
        self, x: Mapping[str, Tensor], targets: Mapping[str, int], edges: Mapping[EdgeType, _Edges]
    ) -> dict[str, Tensor]:
        """Computes the new states of the first `targets` nodes of each type.

        Shapes: `x` [nodes, hidden] by node type; result [targets, hidden].
        """
        return {name: self._state(name, x, count, edges) for name, count in targets.items()}

    def _state(
        self, name: str, x: Mapping[str, Tensor], count: int, edges: Mapping[EdgeType, _Edges]
    ) -> Tensor:
        own = x[name][:count]
        parts = [self.own[name](own)]
        for edge_type in self._into[name]:
            relation: Any = self.relations[edge_type]
            parts.append(
                relation(x[edge_type[0]], own, edges[edge_type].index, edges[edge_type].ages)
            )
        state = functional.relu(self.norms[name](functools.reduce(torch.add, parts)))
        return functional.dropout(state, self._dropout, self.training)


@dataclass(frozen=True)
class _Edges:
    """The edges of one type in a batch.

    Shapes: `index` int64 [2, edges]; `ages` float32 [edges, width of ages].
    """

    index: Tensor
    ages: Tensor | None


class TemporalLinkModel(Model):
    """Scores links from the neighbourhoods that their ends had before the time of the link.

    It takes batches of `LinkNeighborLoader` with triplets. The graph may have one or several types.
    """

    def __init__(self, config: TrainConfig, schema: TimedSchema) -> None:
        hidden, types = config.model.hidden, schema.types
        super().__init__(types.layers, types.inputs[types.seeds[0]].features, hidden)
        self.schema = schema
        self.encoder = Encoder(hidden, schema.types, feature_deviation(hidden))
        self.time = TimeEncoding(schema.span)
        self.stack = nn.ModuleList(
            TimedLayer(config, schema, layer) for layer in range(schema.types.layers)
        )
        dropout = config.model.dropout
        self.head = PairHead(config.link.head, hidden, dropout, is_directed=True)

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Computes the scores of the links of a batch and of their negatives.

        Shapes: float32 [links] and [links, negatives of each link].
        """
        types, parts = self.schema.types, TypedParts(batch)
        source_type, target_type = types.seeds[0], types.seeds[-1]
        sources, targets = parts.nodes(source_type), parts.nodes(target_type)
        states = self._embedded(parts, sources.seed_time)
        of_source = states[source_type][sources.src_index]
        negatives = targets.dst_neg_index.view(len(of_source), -1)
        positive = self.head(of_source, states[target_type][targets.dst_pos_index])
        repeated = of_source.repeat_interleave(negatives.shape[1], dim=0)
        negative = self.head(repeated, states[target_type][negatives.flatten()])
        return positive, negative.view(negatives.shape)

    def _embedded(self, parts: TypedParts, seed_time: Tensor) -> dict[str, Tensor]:
        """The states of the seeds, by node type. `seed_time` int64 [links] are their times."""
        types = self.schema.types
        x = {name: self.encoder(name, parts.nodes(name)) for name in types.sources(0)}
        for index, layer in enumerate(self.stack):
            hops = self.layers - index
            targets = {name: parts.until(name, hops) for name in types.targets(index)}
            edges = {
                edge_type: self._edges(parts, edge_type, hops, seed_time)
                for name in targets
                for edge_type in types.into(name)
            }
            x = layer(x, targets, edges)
        return x

    def _edges(
        self, parts: TypedParts, edge_type: EdgeType, hops: int, seed_time: Tensor
    ) -> _Edges:
        store = parts.edges(edge_type)
        index = parts.index(edge_type, hops)
        if edge_type not in self.schema.timed:
            return _Edges(index, None)
        links = parts.nodes(edge_type[2]).batch[index[1]]
        ages = seed_time[links] - store[f"edge_{self.schema.array}"][: index.shape[1]]
        return _Edges(index, self.time(ages))
