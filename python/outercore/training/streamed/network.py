"""The layers of networks in steps, so that no step needs all rows of its input.

A node sends a `message` along each arc and stores a row of its `own`. For each edge type the
messages into a node are summed. `combine` makes the new state from the sums and the stored row.
A linear map comes before the sum where that makes the messages narrower.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from outercore.base.options import Precision
from outercore.errors import InternalError
from outercore.training.models import Network
from outercore.training.typed_network import TypedNetwork, map_by_head

if TYPE_CHECKING:
    from outercore.data.edge_types import EdgeType


class Relation(ABC):
    """The messages along the arcs of an edge type in a layer.

    Shapes: `x` float32 [rows, width before]; `nodes` int64 [rows] ids.
    """

    loops = False
    """Whether each node has exactly one arc from itself, instead of self-loops of the data."""
    heads = 0
    """Of an attention by a score of the source and one of the target; 0 for plain sums."""
    slope = 0.0
    """Of that attention below 0."""
    width: int
    """Of a message."""

    def __init__(self, edge_type: EdgeType) -> None:
        self.source, _, self.target = self.edge_type = edge_type

    @property
    def sends(self) -> Hashable:
        """What names the messages; relations whose messages are the same have the same."""
        return self.edge_type

    @property
    def sum_width(self) -> int:
        """Of what messages add up to."""
        return self.width

    @abstractmethod
    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        """What nodes send, [rows, width]."""

    def source_scores(self, message: Tensor) -> Tensor:
        """Of nodes as sources of arcs, [rows, heads]."""
        raise InternalError("these arcs have no attention")

    def target_scores(self, x: Tensor) -> Tensor:
        """Of nodes as targets of arcs, [rows, heads]."""
        raise InternalError("these arcs have no attention")


class LayerSteps(ABC):
    """A layer of a network over nodes of some types."""

    relations: Sequence[Relation]
    """In the order in which their sums are added."""
    targets: Sequence[str]
    """The node types whose states it computes."""
    before: int
    """Of the input."""
    after: int
    """Of the states."""
    query_heads = 0
    """Of one softmax over the arcs of all relations, by the product of a key, the first half of a
    message, with the target's query. The other half is summed. 0 for none."""

    @abstractmethod
    def own_width(self, target: str) -> int:
        """Of what a node of a type keeps."""

    @abstractmethod
    def own(self, target: str, x: Tensor) -> Tensor:
        """What nodes keep, [rows, own width]."""

    def queries(self, target: str, x: Tensor) -> Tensor:
        """What nodes compare keys with, [rows, sum width of their relations]."""
        raise InternalError("this layer has no queries")

    @abstractmethod
    def combine(
        self, target: str, sums: list[Tensor], counts: list[Tensor], own: Tensor, nodes: Tensor
    ) -> Tensor:
        """The new states [rows, after], with norm and activation.

        Shapes: `sums` [rows, sum width] of `counts` [rows] messages, for each relation into
        `target`; with queries one for all.
        """

    def into(self, target: str) -> list[int]:
        """The relations into a node type, by number."""
        return [place for place, one in enumerate(self.relations) if one.target == target]

    @property
    def widest(self) -> int:
        """Numbers a row, at most."""
        widths = [self.before, self.after, *(one.width for one in self.relations)]
        return max(*widths, *(self.own_width(target) for target in self.targets))


@dataclass(frozen=True)
class Input:
    """The states of a node type before the first layer."""

    encode: Callable[[Tensor, Tensor], Tensor]
    """States [rows, width] of features float32 [rows, columns], without `key` [rows, 0], and ids
    int64 [rows]."""
    key: str | None = None
    """The array of features."""
    precision: Precision = "exact"


@dataclass(frozen=True)
class Computation:
    """The computation of a network for all nodes, a layer at a time."""

    inputs: Mapping[str, Input]
    """By node type; all that a layer reads."""
    layers: Sequence[LayerSteps]
    """The last one has one target: the nodes that outputs are for."""
    head: Callable[[list[Tensor]], Tensor]
    """The outputs from the states of the same nodes after each layer, or after the last one."""
    needs_all: bool
    """Whether the outputs need the states after each layer."""


_NODE = "node"


def network_steps(model: Network, rows: Input, degrees: Tensor | None) -> Computation:
    """The computation of a network from `rows` of its nodes.

    Shapes: `degrees` float32 [nodes] where it needs them.
    """
    kinds: dict[str, type[_PlainLayer]] = {"sage": _Sage, "gcn": _Gcn, "gin": _Gin, "gat": _Gat}
    kind = kinds[model.config.kind]
    return Computation(
        inputs={_NODE: rows},
        layers=[kind(model, index, degrees) for index in range(model.layers)],
        head=model.head,
        needs_all=model.jumping,
    )


class _PlainLayer(Relation, LayerSteps):
    """A layer over nodes of one type, and the arcs of one."""

    targets = (_NODE,)

    def __init__(self, model: Network, index: int, degrees: Tensor | None) -> None:
        super().__init__((_NODE, "edge", _NODE))
        self._model, self._index = model, index
        self._conv: Any = model.gnn.convs[index]
        self._skip: Any = model.skips[index] if model.config.residual else None
        self._degrees = degrees
        self.relations = [self]
        self.before = model.width(index - 1) if index else model.features
        self.after = model.width(index)
        self.width = self.before

    def own_width(self, target: str) -> int:
        return self.after if self._skip is not None else 0

    def own(self, target: str, x: Tensor) -> Tensor:
        kept: Tensor = x[:, :0] if self._skip is None else self._skip(x)
        return kept

    def combine(
        self, target: str, sums: list[Tensor], counts: list[Tensor], own: Tensor, nodes: Tensor
    ) -> Tensor:
        state = self._combined(sums[0], counts[0], own, nodes)
        return self._model.finished(self._index, state)

    @abstractmethod
    def _combined(self, sums: Tensor, counts: Tensor, own: Tensor, nodes: Tensor) -> Tensor:
        """The states before norm and activation."""

    def _root(self, nodes: Tensor) -> Tensor:
        """1 / sqrt(degree + 1), as a column."""
        assert self._degrees is not None
        return (self._degrees[nodes] + 1).rsqrt().unsqueeze(1).to(self._conv.bias.device)


class _Sage(_PlainLayer):
    def __init__(self, model: Network, index: int, degrees: Tensor | None) -> None:
        super().__init__(model, index, degrees)
        self._early = self.after < self.before
        self.width = min(self.before, self.after)

    def own_width(self, target: str) -> int:
        return self.after

    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        return x @ self._conv.lin_l.weight.T if self._early else x

    def own(self, target: str, x: Tensor) -> Tensor:
        kept: Tensor = self._conv.lin_r(x)
        return kept if self._skip is None else kept + self._skip(x)

    def _combined(self, sums: Tensor, counts: Tensor, own: Tensor, nodes: Tensor) -> Tensor:
        mean = sums / counts.clamp(min=1).unsqueeze(1)
        mapped: Tensor = mean + self._conv.lin_l.bias if self._early else self._conv.lin_l(mean)
        return mapped + own


class _Gcn(_PlainLayer):
    loops = True

    def __init__(self, model: Network, index: int, degrees: Tensor | None) -> None:
        super().__init__(model, index, degrees)
        self._early = self.after <= self.before
        self.width = min(self.before, self.after)

    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        sent: Tensor = self._conv.lin(x) if self._early else x
        return sent * self._root(nodes)

    def _combined(self, sums: Tensor, counts: Tensor, own: Tensor, nodes: Tensor) -> Tensor:
        scaled = sums * self._root(nodes)
        state: Tensor = (scaled if self._early else self._conv.lin(scaled)) + self._conv.bias
        return state if self._skip is None else state + own


class _Gin(_PlainLayer):
    def own_width(self, target: str) -> int:
        return self.before + super().own_width(target)

    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        return x

    def own(self, target: str, x: Tensor) -> Tensor:
        return torch.cat([(1 + self._conv.eps) * x, super().own(target, x)], dim=1)

    def _combined(self, sums: Tensor, counts: Tensor, own: Tensor, nodes: Tensor) -> Tensor:
        state: Tensor = self._conv.nn(sums + own[:, : self.before])
        return state if self._skip is None else state + own[:, self.before :]


class _Gat(_PlainLayer):
    loops = True

    def __init__(self, model: Network, index: int, degrees: Tensor | None) -> None:
        super().__init__(model, index, degrees)
        self.heads = self._conv.heads
        self.width = self.heads * self._conv.out_channels
        self.slope = float(self._conv.negative_slope)

    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        sent: Tensor = self._conv.lin(x)
        return sent

    def source_scores(self, message: Tensor) -> Tensor:
        return by_head(message, self._conv.att_src)

    def target_scores(self, x: Tensor) -> Tensor:
        return x @ folded(self._conv.lin.weight, self._conv.att_dst)

    def _combined(self, sums: Tensor, counts: Tensor, own: Tensor, nodes: Tensor) -> Tensor:
        state = sums
        if not self._conv.concat:
            state = sums.view(-1, self.heads, self._conv.out_channels).mean(dim=1)
        state = state + self._conv.bias
        return state if self._skip is None else state + own


def by_head(rows: Tensor, attention: Tensor) -> Tensor:
    """The product of each head's share of a row with its vector.

    Shapes: `rows` [nodes, heads * channels], `attention` [1, heads, channels]; result
    [nodes, heads].
    """
    return (rows.view(-1, *attention.shape[1:]) * attention).sum(dim=-1)


def folded(weight: Tensor, attention: Tensor) -> Tensor:
    """The map from rows to the result of a linear map and `by_head`.

    Shapes: `weight` [heads * channels, before], `attention` [1, heads, channels]; result
    [before, heads].
    """
    return by_head(weight.T, attention)


def typed_network_steps(
    model: TypedNetwork, features: Mapping[str, str], precision: Precision = "exact"
) -> Computation:
    """The computation of a network; `features` are arrays by node type."""
    kind = _TransformerLayer if model.config.kind == "hgt" else _RelationSum
    return Computation(
        inputs={name: _input(model, name, features, precision) for name in model.schema.sources(0)},
        layers=[kind(model, index) for index in range(model.layers)],
        head=model.head,
        needs_all=model.jumping,
    )


def _input(
    model: TypedNetwork, name: str, features: Mapping[str, str], precision: Precision
) -> Input:
    def encode(x: Tensor, nodes: Tensor) -> Tensor:
        return model.encoder(name, SimpleNamespace(x=x, n_id=nodes))

    key = features[name] if model.schema.inputs[name].features else None
    return Input(encode, key, precision)


class _TypedLayer(LayerSteps):
    """A layer over nodes of several types."""

    def __init__(self, model: TypedNetwork, index: int) -> None:
        self._model, self._index = model, index
        self._convolution: Any = model.convolutions[index]
        self.before = self.after = model.config.hidden
        self.targets = model.schema.targets(index)
        self.relations = [
            self._relation(edge_type)
            for target in self.targets
            for edge_type in model.schema.into(target)
        ]

    @abstractmethod
    def _relation(self, edge_type: EdgeType) -> Relation:
        """The messages along the arcs of a type."""

    @abstractmethod
    def _kept(self, target: str, x: Tensor) -> Tensor:
        """The own rows of nodes, without the skip connection."""

    def own_width(self, target: str) -> int:
        return self.after

    def own(self, target: str, x: Tensor) -> Tensor:
        kept = self._kept(target, x)
        if self._model.config.residual:
            skips: Any = self._model.skips[self._index]
            kept = kept + skips[target](x)
        return kept


class _RelationSum(_TypedLayer):
    """A `RelationSum`: means or attention of each edge type, added up."""

    def _relation(self, edge_type: EdgeType) -> Relation:
        kind = _Attention if self._model.config.kind == "gat" else _Mean
        return kind(edge_type, self._convolution.relations[edge_type], self.before)

    def _kept(self, target: str, x: Tensor) -> Tensor:
        parts = [
            self._convolution.relations[one.edge_type].lin_r(x)
            for one in self.relations
            if one.target == target and self._model.config.kind == "sage"
        ]
        if target in self._convolution.own:
            parts.append(self._convolution.own[target](x))
        return functools.reduce(torch.add, parts)

    def combine(
        self, target: str, sums: list[Tensor], counts: list[Tensor], own: Tensor, nodes: Tensor
    ) -> Tensor:
        state = own
        for place, of_arcs, count in zip(self.into(target), sums, counts, strict=True):
            relation: Any = self.relations[place]
            state = state + relation.mapped(of_arcs, count)
        return self._model.finished(self._index, target, state)


class _Mean(Relation):
    """The mean of the sources, mapped: sources send what they are along every edge type."""

    def __init__(self, edge_type: EdgeType, convolution: Any, width: int) -> None:
        super().__init__(edge_type)
        self._convolution, self.width = convolution, width

    @property
    def sends(self) -> Hashable:
        return self.source

    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        return x

    def mapped(self, sums: Tensor, counts: Tensor) -> Tensor:
        """The part of the new states that comes from the edge type."""
        mean: Tensor = self._convolution.lin_l(sums / counts.clamp(min=1).unsqueeze(1))
        return mean


class _Attention(Relation):
    """A `GATConv` between two types, or within one."""

    def __init__(self, edge_type: EdgeType, convolution: Any, width: int) -> None:
        super().__init__(edge_type)
        self._convolution, self.width = convolution, width
        self.heads = convolution.heads
        self.slope = float(convolution.negative_slope)

    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        sent: Tensor = self._convolution.lin_src(x)
        return sent

    def source_scores(self, message: Tensor) -> Tensor:
        return by_head(message, self._convolution.att_src)

    def target_scores(self, x: Tensor) -> Tensor:
        return x @ folded(self._convolution.lin_dst.weight, self._convolution.att_dst)

    def mapped(self, sums: Tensor, counts: Tensor) -> Tensor:
        """The part of the new states that comes from the edge type."""
        mapped: Tensor = sums + self._convolution.bias
        return mapped


class _TransformerLayer(_TypedLayer):
    """A `TransformerLayer`: one softmax over the arcs of all edge types into a node."""

    @property
    def query_heads(self) -> int:  # type: ignore[override]
        return int(self._model.config.heads)

    def _relation(self, edge_type: EdgeType) -> Relation:
        return _KeysAndValues(edge_type, self._convolution, self.before, self.query_heads)

    def _kept(self, target: str, x: Tensor) -> Tensor:
        if not self.into(target):
            return x
        return (1 - self._convolution.targets[target].skip.sigmoid()) * x

    def queries(self, target: str, x: Tensor) -> Tensor:
        found: Tensor = self._convolution.targets[target].query(x)
        return found

    def combine(
        self, target: str, sums: list[Tensor], counts: list[Tensor], own: Tensor, nodes: Tensor
    ) -> Tensor:
        state = own
        if sums:
            maps = self._convolution.targets[target]
            state = state + maps.skip.sigmoid() * maps.out(functional.gelu(sums[0]))
        return self._model.finished(self._index, target, state)


class _KeysAndValues(Relation):
    """The keys and values of the sources of an edge type."""

    def __init__(self, edge_type: EdgeType, convolution: Any, width: int, heads: int) -> None:
        super().__init__(edge_type)
        self._of_source = convolution.keys_and_values[self.source]
        self._maps = convolution.relations[edge_type]
        self._shape = (-1, 2, heads, width // heads)
        self.width = 2 * width

    @property
    def sum_width(self) -> int:
        return self.width // 2

    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        keys, values = self._of_source(x).view(self._shape).unbind(dim=1)
        scale = self._maps.prior.unsqueeze(1) / math.sqrt(self._shape[-1])
        keys = map_by_head(keys, self._maps.attention) * scale
        values = map_by_head(values, self._maps.message)
        return torch.cat([keys.flatten(1), values.flatten(1)], dim=1)
