"""The layers of a `TypedNetwork` in steps, as `outercore.training.streamed` takes them."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Hashable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from outercore.base.options import Precision
from outercore.training.streamed.network import by_head, folded
from outercore.training.streamed.steps import Computation, Input, LayerSteps, Relation
from outercore.training.typed.models import TypedNetwork, map_by_head

if TYPE_CHECKING:
    from outercore.data.edge_types import EdgeType


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
