"""What a layer of a typed network makes of the neighbours of each node type."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from outercore.training.config import ModelConfig
from outercore.training.neighbours import Arcs
from outercore.training.typed.inputs import Schema

if TYPE_CHECKING:
    from outercore.data.edge_types import EdgeType


@dataclass(frozen=True)
class TypedHop:
    """The arcs into some target nodes of some types, among the nodes of a batch.

    Shapes: `edges` int64 [2, arcs] of local source and target, by edge type; `targets` how many
    nodes of each type, the first ones in the batch.
    """

    edges: Mapping[EdgeType, Tensor]
    targets: Mapping[str, int]


class RelationSum(nn.Module):
    """The sum of a convolution for each edge type, and of a map of the target's own state.

    `rgcn` maps the mean of the neighbours through each edge type, and the own state by a map for
    each node type. `sage` is a `SAGEConv` for each edge type, which has a map of the own state in
    it. `gat` is a `GATConv` for each edge type, and the map of the own state is as in `rgcn`.

    **Source** Schlichtkrull et al., 2018, for `rgcn`; PyG's `to_hetero` for `sage`.
    """

    def __init__(self, config: ModelConfig, schema: Schema, layer: int) -> None:
        super().__init__()
        self._kind = config.kind
        self._into = {name: schema.into(name) for name in schema.targets(layer)}
        edge_types = [one for into in self._into.values() for one in into]
        self.relations = by_type({one: _convolution(config) for one in edge_types})
        self.own = by_type(
            {
                name: nn.Linear(config.hidden, config.hidden)
                for name, into in self._into.items()
                if config.kind != "sage" or not into
            }
        )

    def forward(self, x: Mapping[str, Tensor], hop: TypedHop) -> dict[str, Tensor]:
        """The new states of the targets.

        Shapes: `x` float32 [sources, width] by node type; result [targets, width].
        """
        return {name: self._state(name, x, hop) for name in hop.targets}

    def _state(self, name: str, x: Mapping[str, Tensor], hop: TypedHop) -> Tensor:
        own = x[name][: hop.targets[name]]
        parts = [self._message(one, x[one[0]], own, hop.edges[one]) for one in self._into[name]]
        if name in self.own:
            parts.append(self.own[name](own))
        return functools.reduce(torch.add, parts)

    def _message(self, edge_type: EdgeType, x: Tensor, own: Tensor, edge_index: Tensor) -> Tensor:
        convolution: Any = self.relations[edge_type]
        if self._kind == "gat":
            message: Tensor = convolution((x, own), edge_index, size=(len(x), len(own)))
            return message
        mean = convolution.lin_l(Arcs(edge_index, len(own), len(x)).mean(x))
        return mean + convolution.lin_r(own) if self._kind == "sage" else mean


class TransformerLayer(nn.Module):
    """The Heterogeneous Graph Transformer: one softmax over the neighbours of all edge types.

    The same as PyG's `HGTConv`, which computes queries and outputs of all nodes of a batch where
    only those of the targets are needed. A node type without incoming edge types keeps its state.

    **Source** Hu et al., 2020.
    """

    def __init__(self, config: ModelConfig, schema: Schema, layer: int) -> None:
        super().__init__()
        self._heads, self._size = config.heads, config.hidden // config.heads
        self._into = {name: schema.into(name) for name in schema.targets(layer)}
        edge_types = [one for into in self._into.values() for one in into]
        sources = dict.fromkeys(source for source, _, _ in edge_types)
        hidden = config.hidden
        self.keys_and_values = by_type({name: nn.Linear(hidden, 2 * hidden) for name in sources})
        self.relations = by_type({one: _Relation(self._heads, self._size) for one in edge_types})
        self.targets = by_type({name: _Target(hidden) for name, into in self._into.items() if into})

    def forward(self, x: Mapping[str, Tensor], hop: TypedHop) -> dict[str, Tensor]:
        """The new states of the targets; shapes as `RelationSum.forward`."""
        sources = dict.fromkeys(one[0] for name in hop.targets for one in self._into[name])
        shape = (-1, 2, self._heads, self._size)
        mapped = {name: self.keys_and_values[name](x[name]).view(shape) for name in sources}
        return {
            name: self._state(name, x[name][:count], mapped, hop)
            for name, count in hop.targets.items()
        }

    def _state(self, name: str, own: Tensor, mapped: Mapping[str, Tensor], hop: TypedHop) -> Tensor:
        if not self._into[name]:
            return own
        from torch_geometric.utils import softmax

        target: Any = self.targets[name]
        queries = target.query(own).view(-1, self._heads, self._size)
        scores, values, places = [], [], []
        for edge_type in self._into[name]:
            source, place = hop.edges[edge_type]
            relation: Any = self.relations[edge_type]
            keys, messages = mapped[edge_type[0]].unbind(dim=1)
            # `index_select` has a faster gradient than brackets.
            keys = of_head(keys, relation.attention).index_select(0, source)
            alike = (queries.index_select(0, place) * keys).sum(dim=-1)
            scores.append(alike * relation.prior)
            values.append(of_head(messages, relation.message).index_select(0, source))
            places.append(place)
        index = torch.cat(places)
        weights = softmax(torch.cat(scores) / math.sqrt(self._size), index, num_nodes=len(own))
        sums = torch.zeros_like(queries)
        sums = sums.index_add(0, index, torch.cat(values) * weights.unsqueeze(-1))
        out = target.out(functional.gelu(sums.flatten(1)))
        share = target.skip.sigmoid()
        state: Tensor = share * out + (1 - share) * own
        return state


class _Relation(nn.Module):
    """What an edge type makes of keys and values, by head, and how much it counts."""

    def __init__(self, heads: int, size: int) -> None:
        super().__init__()
        self.attention = nn.Parameter(_glorot(heads, size))
        self.message = nn.Parameter(_glorot(heads, size))
        self.prior = nn.Parameter(torch.ones(heads))


class _Target(nn.Module):
    """The maps of a node type that messages come to."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, hidden)
        self.skip = nn.Parameter(torch.ones(1))


def of_head(x: Tensor, maps: Tensor) -> Tensor:
    """What the map of each head makes of its share of a row.

    Shapes: `x` [nodes, heads, size], `maps` [heads, size, size]; result as `x`."""
    return torch.einsum("nhd,hde->nhe", x, maps)


def _glorot(heads: int, size: int) -> Tensor:
    bound = math.sqrt(3 / size)
    return torch.empty(heads, size, size).uniform_(-bound, bound)


def _convolution(config: ModelConfig) -> nn.Module:
    from torch_geometric.nn import GATConv, SAGEConv

    width = config.hidden
    match config.kind:
        case "gat":
            size = width // config.heads
            # A self-loop is an edge of one type; the own state has a map besides.
            convolution = GATConv((width, width), size, config.heads, add_self_loops=False)
        case "sage":
            convolution = SAGEConv(width, width)
        case _:
            convolution = SAGEConv(width, width, root_weight=False, bias=False)
    module: nn.Module = convolution
    return module


def by_type(modules: Mapping[Any, nn.Module]) -> Any:
    """Modules by node type or edge type; PyG's dictionary takes any name, and triples."""
    from torch_geometric.nn.module_dict import ModuleDict

    return ModuleDict(modules)
