"""The layers of networks as steps. No step needs all rows of its input at once.

A node sends a `message` along each arc, and stores a row of its `own` values. For each edge type,
the messages into a node are summed. `combine` computes the new state from the sums and the stored
row. A linear map is applied before the sum if this makes the messages narrower.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from outercore.base.options import Precision
from outercore.data.edge_types import PLAIN_EDGE
from outercore.data.schema import NODE
from outercore.training.models import Network
from outercore.training.typed_network import TypedNetwork, map_by_head

if TYPE_CHECKING:
    from outercore.data.edge_types import EdgeType


@dataclass(frozen=True)
class Attention:
    """Weights of arcs: a softmax over the sum of a source's score and a target's score.

    Shapes: `of_source` maps messages [rows, width] to scores [rows, heads]; `of_target` maps inputs
    [rows, width before] to scores [rows, heads].
    """

    heads: int
    slope: float
    """Factor for a sum below 0, as in a leaky ReLU."""
    of_source: Callable[[Tensor], Tensor]
    of_target: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Relation:
    """The messages of a layer along the arcs of one edge type."""

    edge_type: EdgeType
    sends: Hashable
    """Name of the messages. Relations that send equal messages have the same name."""
    width: int
    """Number of columns of a message."""
    message: Callable[[Tensor, Tensor], Tensor]
    """Computes messages [rows, width] from inputs float32 [rows, width before] and ids int64
    [rows]."""
    loops: bool = False
    """Whether each node has exactly one self-loop, instead of the self-loops of the data."""
    attention: Attention | None = None
    """Weights of arcs. Without attention, each arc has weight 1."""

    @property
    def source(self) -> str:
        """The node type that sends messages."""
        return self.edge_type[0]

    @property
    def target(self) -> str:
        """The node type that receives messages."""
        return self.edge_type[2]

    @property
    def heads(self) -> int:
        """The number of heads of the attention; 0 without attention."""
        return 0 if self.attention is None else self.attention.heads


Combine = Callable[[str, list[Tensor], list[Tensor], Tensor, Tensor], Tensor]
"""Computes new states [rows, after], with norm and activation, of some nodes of a type.

The arguments are the type; a list of the sums of messages [rows, width], one for each relation into
the type; a list of their numbers [rows]; the stored rows [rows, own width]; and ids int64 [rows].
With queries, all relations share one sum of half the width, and the second list is empty.
"""


@dataclass(frozen=True)
class LayerSteps:
    """A layer of a network over nodes of some types."""

    relations: Sequence[Relation]
    """The relations, in the order in which their sums are added."""
    before: int
    """Number of columns of the input."""
    after: int
    """Number of columns of the new states."""
    own_width: Mapping[str, int]
    """Number of columns of stored rows, for each type whose states the layer computes."""
    own: Callable[[str, Tensor], Tensor]
    """Computes the rows [rows, own width] that nodes of a type store, from their inputs."""
    combine: Combine
    query_heads: int = 0
    """Number of heads of one softmax over the arcs of all relations; 0 without queries. The score
    of an arc is the product of its key and its target's query. The first half of a message is the
    key; the second half is the value, which is summed."""
    queries: Callable[[str, Tensor], Tensor] | None = None
    """Computes the queries [rows, half the width of a message] of nodes of a type."""

    @property
    def targets(self) -> list[str]:
        """The node types whose states the layer computes."""
        return list(self.own_width)

    def into(self, target: str) -> list[int]:
        """The indices of the relations into a node type."""
        return [place for place, relation in enumerate(self.relations) if relation.target == target]

    @property
    def widest(self) -> int:
        """The largest number of columns of any step."""
        widths = [relation.width for relation in self.relations]
        return max(self.before, self.after, *widths, *self.own_width.values())


@dataclass(frozen=True)
class Input:
    """The states of a node type before the first layer."""

    encode: Callable[[Tensor, Tensor], Tensor]
    """Computes states [rows, width] from features float32 [rows, columns] and ids int64 [rows].
    Without `key`, the features are [rows, 0]."""
    key: str | None = None
    """The manifest key of the features, or the path of an `.npy`; `None` without features."""
    precision: Precision = "exact"


@dataclass(frozen=True)
class Computation:
    """The computation of a network for all nodes, layer by layer."""

    inputs: Mapping[str, Input]
    """The inputs of all node types that the first layer reads."""
    layers: Sequence[LayerSteps]
    """The last layer has one target: the type of the nodes with outputs."""
    head: Callable[[list[Tensor]], Tensor]
    """Computes outputs from the states of the same nodes after each layer, or only the last layer.
    """
    needs_all: bool
    """Whether the outputs need the states after each layer."""


def network_steps(model: Network, rows: Input, degrees: Tensor | None) -> Computation:
    """The computation of a network whose nodes have the inputs `rows`.

    Shapes: `degrees` float32 [nodes], for networks that use in-degrees.
    """
    return Computation(
        inputs={NODE: rows},
        layers=[_layer(model, index, degrees) for index in range(model.layers)],
        head=model.head,
        needs_all=model.jumping,
    )


@dataclass(frozen=True)
class _Convolution:
    """A convolution over nodes and arcs of one type, in the steps of `LayerSteps`."""

    width: int
    message: Callable[[Tensor, Tensor], Tensor]
    own_width: int
    own: Callable[[Tensor], Tensor]
    combine: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    """Computes states before norm and activation, from sums, counts, stored rows and ids."""
    loops: bool = False
    attention: Attention | None = None


def _layer(model: Network, index: int, degrees: Tensor | None) -> LayerSteps:
    kinds = {"sage": _sage, "gcn": _gcn, "gin": _gin, "gat": _gat}
    before = model.width(index - 1) if index else model.features
    after = model.width(index)
    skip: Any = model.skips[index] if model.config.residual else None
    convolution: Any = model.gnn.convs[index]
    steps = kinds[model.config.kind](convolution, before, after, skip, degrees)

    def combine(
        target: str, sums: list[Tensor], counts: list[Tensor], own: Tensor, nodes: Tensor
    ) -> Tensor:
        return model.finished(index, steps.combine(sums[0], counts[0], own, nodes))

    relation = Relation(PLAIN_EDGE, NODE, steps.width, steps.message, steps.loops, steps.attention)
    own_width = {NODE: steps.own_width}
    return LayerSteps([relation], before, after, own_width, lambda _, x: steps.own(x), combine)


def _sage(conv: Any, before: int, after: int, skip: Any, degrees: Tensor | None) -> _Convolution:
    early = after < before

    def own(x: Tensor) -> Tensor:
        mapped: Tensor = conv.lin_r(x)
        return mapped if skip is None else mapped + skip(x)

    def combine(sums: Tensor, counts: Tensor, own: Tensor, nodes: Tensor) -> Tensor:
        mean = sums / counts.clamp(min=1).unsqueeze(1)
        mapped: Tensor = mean + conv.lin_l.bias if early else conv.lin_l(mean)
        return mapped + own

    return _Convolution(
        min(before, after),
        lambda x, _: x @ conv.lin_l.weight.T if early else x,
        after,
        own,
        combine,
    )


def _gcn(conv: Any, before: int, after: int, skip: Any, degrees: Tensor | None) -> _Convolution:
    early = after <= before

    def root(nodes: Tensor) -> Tensor:
        """The factors 1 / sqrt(degree + 1) of nodes, as a column."""
        assert degrees is not None
        return (degrees[nodes] + 1).rsqrt().unsqueeze(1).to(conv.bias.device)

    def combine(sums: Tensor, counts: Tensor, own: Tensor, nodes: Tensor) -> Tensor:
        scaled = sums * root(nodes)
        state: Tensor = (scaled if early else conv.lin(scaled)) + conv.bias
        return state if skip is None else state + own

    return _Convolution(
        min(before, after),
        lambda x, nodes: (conv.lin(x) if early else x) * root(nodes),
        0 if skip is None else after,
        lambda x: _skipped(skip, x),
        combine,
        loops=True,
    )


def _gin(conv: Any, before: int, after: int, skip: Any, degrees: Tensor | None) -> _Convolution:
    def combine(sums: Tensor, counts: Tensor, own: Tensor, nodes: Tensor) -> Tensor:
        state: Tensor = conv.nn(sums + own[:, :before])
        return state if skip is None else state + own[:, before:]

    return _Convolution(
        before,
        lambda x, _: x,
        before + (0 if skip is None else after),
        lambda x: torch.cat([(1 + conv.eps) * x, _skipped(skip, x)], dim=1),
        combine,
    )


def _gat(conv: Any, before: int, after: int, skip: Any, degrees: Tensor | None) -> _Convolution:
    def combine(sums: Tensor, counts: Tensor, own: Tensor, nodes: Tensor) -> Tensor:
        state = sums
        if not conv.concat:
            state = sums.view(-1, conv.heads, conv.out_channels).mean(dim=1)
        state = state + conv.bias
        return state if skip is None else state + own

    return _Convolution(
        conv.heads * conv.out_channels,
        lambda x, _: conv.lin(x),
        0 if skip is None else after,
        lambda x: _skipped(skip, x),
        combine,
        loops=True,
        attention=_attention(conv, conv.lin),
    )


def _skipped(skip: Any, x: Tensor) -> Tensor:
    """The result of a skip connection; no columns without a connection."""
    mapped: Tensor = x[:, :0] if skip is None else skip(x)
    return mapped


def _attention(conv: Any, of_target: Any) -> Attention:
    """The attention of a `GATConv`; `of_target` is its linear map of targets."""

    def by_head(rows: Tensor, attention: Tensor) -> Tensor:
        # Shapes: [nodes, heads * channels] and [1, heads, channels] give [nodes, heads].
        return (rows.view(-1, *attention.shape[1:]) * attention).sum(dim=-1)

    return Attention(
        conv.heads,
        float(conv.negative_slope),
        lambda message: by_head(message, conv.att_src),
        # Multiply both maps first: then targets need no rows that are as wide as a message.
        lambda x: x @ by_head(of_target.weight.T, conv.att_dst),
    )


def typed_network_steps(
    model: TypedNetwork, features: Mapping[str, str], precision: Precision = "exact"
) -> Computation:
    """The computation of a network for typed graphs. `features` are array keys by node type."""

    def encoded(name: str) -> Input:
        def encode(x: Tensor, nodes: Tensor) -> Tensor:
            return model.encoder(name, SimpleNamespace(x=x, n_id=nodes))

        key = features[name] if model.schema.inputs[name].features else None
        return Input(encode, key, precision)

    layer = _transformer_layer if model.config.kind == "hgt" else _relation_sum
    return Computation(
        inputs={name: encoded(name) for name in model.schema.sources(0)},
        layers=[layer(model, index) for index in range(model.layers)],
        head=model.head,
        needs_all=model.jumping,
    )


def _typed_layer(
    model: TypedNetwork,
    index: int,
    relation: Callable[[EdgeType], Relation],
    own: Callable[[str, Tensor], Tensor],
    combine: Callable[[str, list[Tensor], list[Tensor], Tensor], Tensor],
    **queries: Any,
) -> LayerSteps:
    """Completes a layer with its skip connections, norm and activation."""
    schema, hidden = model.schema, model.config.hidden
    targets = schema.targets(index)

    def own_with_skip(target: str, x: Tensor) -> Tensor:
        if not model.config.residual:
            return own(target, x)
        skips: Any = model.skips[index]
        return own(target, x) + skips[target](x)

    def finished(
        target: str, sums: list[Tensor], counts: list[Tensor], own: Tensor, nodes: Tensor
    ) -> Tensor:
        return model.finished(index, target, combine(target, sums, counts, own))

    return LayerSteps(
        [relation(edge_type) for target in targets for edge_type in schema.into(target)],
        hidden,
        hidden,
        dict.fromkeys(targets, hidden),
        own_with_skip,
        finished,
        **queries,
    )


def _relation_sum(model: TypedNetwork, index: int) -> LayerSteps:
    """The steps of a `RelationSum`: the sum of a mean or attention for each edge type."""
    convolution: Any = model.convolutions[index]
    kind, hidden = model.config.kind, model.config.hidden

    def relation(edge_type: EdgeType) -> Relation:
        conv = convolution.relations[edge_type]
        if kind != "gat":
            # Nodes send the same message along all edge types: their state.
            return Relation(edge_type, edge_type[0], hidden, lambda x, _: x)
        attention = _attention(conv, conv.lin_dst)
        return Relation(
            edge_type, edge_type, hidden, lambda x, _: conv.lin_src(x), attention=attention
        )

    def own(target: str, x: Tensor) -> Tensor:
        into = model.schema.into(target) if kind == "sage" else []
        parts = [convolution.relations[edge_type].lin_r(x) for edge_type in into]
        if target in convolution.own:
            parts.append(convolution.own[target](x))
        return functools.reduce(torch.add, parts)

    def combine(target: str, sums: list[Tensor], counts: list[Tensor], own: Tensor) -> Tensor:
        state = own
        for edge_type, of_arcs, count in zip(model.schema.into(target), sums, counts, strict=True):
            conv = convolution.relations[edge_type]
            if kind == "gat":
                state = state + (of_arcs + conv.bias)
            else:
                state = state + conv.lin_l(of_arcs / count.clamp(min=1).unsqueeze(1))
        return state

    return _typed_layer(model, index, relation, own, combine)


def _transformer_layer(model: TypedNetwork, index: int) -> LayerSteps:
    """The steps of a `TransformerLayer`: a softmax over the arcs of all edge types into a node."""
    convolution: Any = model.convolutions[index]
    heads, hidden = model.config.heads, model.config.hidden
    size = hidden // heads

    def relation(edge_type: EdgeType) -> Relation:
        of_source = convolution.keys_and_values[edge_type[0]]
        maps = convolution.relations[edge_type]

        def message(x: Tensor, nodes: Tensor) -> Tensor:
            keys, values = of_source(x).view(-1, 2, heads, size).unbind(dim=1)
            scale = maps.prior.unsqueeze(1) / math.sqrt(size)
            keys = map_by_head(keys, maps.attention) * scale
            values = map_by_head(values, maps.message)
            return torch.cat([keys.flatten(1), values.flatten(1)], dim=1)

        return Relation(edge_type, edge_type, 2 * hidden, message)

    def own(target: str, x: Tensor) -> Tensor:
        if not model.schema.into(target):
            return x
        return (1 - convolution.targets[target].skip.sigmoid()) * x

    def combine(target: str, sums: list[Tensor], counts: list[Tensor], own: Tensor) -> Tensor:
        if not sums:
            return own
        maps = convolution.targets[target]
        state: Tensor = own + maps.skip.sigmoid() * maps.out(functional.gelu(sums[0]))
        return state

    def queries(target: str, x: Tensor) -> Tensor:
        rows: Tensor = convolution.targets[target].query(x)
        return rows

    return _typed_layer(model, index, relation, own, combine, query_heads=heads, queries=queries)
