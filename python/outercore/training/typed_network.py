"""Networks of typed graphs: an encoder for each node type, and layers that run one hop at a time.

Batches of training run `TypedNetwork.layer`. Exact inference uses the same weights, but runs the
layers in the steps of `outercore.training.streamed.network`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from outercore.base.sizes import format_size, parse_size
from outercore.errors import InvalidError, NotFoundError
from outercore.training.config import ModelConfig, TrainConfig
from outercore.training.loaders import TABLE_COPIES
from outercore.training.models import Arcs, Model, norm_of

if TYPE_CHECKING:
    from outercore.data.edge_types import EdgeType
    from outercore.data.graph import Graph


_SHARE = 4
"""All tables together get the budget divided by this number."""
_ROWS, _BLOCKS = 1 << 16, 64
"""Maximum number of rows that are read to scale features, and the number of blocks of these rows.
"""
_PIECE = 1 << 17
"""Number of values that are read together."""
_CONSTANT = 1e-6
"""A column counts as constant if its deviation divided by its mean is not above this number."""
_SMALL = 1e-3
"""Deviation of initial embeddings if no node has features. Larger embeddings would be noise that
hides what the network learns."""


@dataclass(frozen=True)
class NodeInput:
    """The input of the nodes of a type.

    If `features` is above 0, it is a row with this number of values. If `rows` is above 0, it is an
    embedding of each node, in a table with this number of rows. Otherwise it is one learnt vector
    for all nodes of the type.
    """

    features: int = 0
    rows: int = 0


@dataclass(frozen=True)
class TypedSchema:
    """The types that a network uses, in the order of the data set."""

    seeds: tuple[str, ...]
    """The node types of seeds: the labelled type, or the types at the ends of links."""
    edge_types: tuple[EdgeType, ...]
    inputs: Mapping[str, NodeInput]
    """Inputs by node type. Types that cannot reach the seeds within the layers are left out."""
    layers: int

    @property
    def labelled(self) -> str:
        """The node type whose labels are learnt."""
        return self.seeds[0]

    def into(self, node_type: str) -> list[EdgeType]:
        """The edge types whose target is `node_type`."""
        return [edge_type for edge_type in self.edge_types if edge_type[2] == node_type]

    def targets(self, layer: int) -> list[str]:
        """The node types whose states `layer` computes; in the last layer, only types of seeds."""
        return self._after(layer + 1)

    def sources(self, layer: int) -> list[str]:
        """The node types whose states `layer` reads. They include its targets."""
        return self._after(layer)

    def _after(self, layer: int) -> list[str]:
        reached = reach(self.seeds, self.edge_types, self.layers - layer)
        return [name for name in self.inputs if name in reached]

    @property
    def table_rows(self) -> int:
        """The number of embeddings of nodes, over all types."""
        return sum(node_input.rows for node_input in self.inputs.values())

    def features(self, keys: Mapping[str, str]) -> dict[str, str] | None:
        """The keys of the feature arrays that the network uses, by node type; `None` without any.

        `keys` are the feature arrays of the data set.
        """
        arrays = {
            name: keys[name] for name, node_input in self.inputs.items() if node_input.features
        }
        return arrays or None

    def to_dict(self) -> dict[str, Any]:
        """The schema as plain JSON values."""
        return {
            "seeds": list(self.seeds),
            "edge_types": [list(edge_type) for edge_type in self.edge_types],
            "inputs": {
                name: {"features": node_input.features, "rows": node_input.rows}
                for name, node_input in self.inputs.items()
            },
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], layers: int) -> TypedSchema:
        """Inverse of `to_dict`."""
        return cls(
            tuple(values["seeds"]),
            tuple((source, relation, target) for source, relation, target in values["edge_types"]),
            {name: NodeInput(**node_input) for name, node_input in values["inputs"].items()},
            layers,
        )


def table_bytes(rows: int, hidden: int, *, is_saved: bool = False) -> int:
    """The bytes of a table of learned rows, including the copies for training unless `is_saved`."""
    return 4 * hidden * rows * (1 if is_saved else TABLE_COPIES)


def reach(seeds: Iterable[str], edge_types: tuple[EdgeType, ...], hops: int) -> set[str]:
    """The node types with a path of at most `hops` edges to one of `seeds`.

    Example:
        >>> types = (("author", "writes", "paper"), ("city", "houses", "author"))
        >>> sorted(reach(["paper"], types, 1))
        ['author', 'paper']
    """
    types = set(seeds)
    for _ in range(hops):
        types |= {source for source, _, target in edge_types if target in types}
    return types


def feature_keys(graph: Graph, name: str) -> dict[str, str]:
    """The key of the feature array of each node type with features.

    The name `x` stands for the features of each type. Any other name stands for the arrays with
    this name.

    Errors: `NotFoundError` if no type has an array with this name.
    """
    if name == "x":
        features = {node_type: graph.features_of(node_type) for node_type in graph.node_types}
        return {node_type: key for node_type, key in features.items() if key is not None}
    keys = {node_type: f"nodes/{node_type}/{name}" for node_type in graph.node_types}
    keys = {node_type: key for node_type, key in keys.items() if key in graph.arrays}
    if not keys:
        raise NotFoundError(
            f"data set `{graph.root}`: no node type has an array `{name}`\n"
            "hint: choose another by `--features`"
        )
    return keys


def schema_of(
    graph: Graph,
    seeds: tuple[str, ...],
    config: TrainConfig,
    keys: Mapping[str, str],
    note: Callable[[str], None],
) -> TypedSchema:
    """The schema of a new network whose batches have seeds of the types `seeds`.

    `keys` are the feature arrays by node type. Types without features get a table of embeddings if
    it fits in the budget; types with the fewest nodes come first. `note` is called for each type
    that gets only one vector.
    """
    edge_types = tuple(graph.edge_types)
    reached = reach(seeds, edge_types, config.layers)
    counts = {name: count for name, count in graph.node_types.items() if name in reached}
    bare = [name for name, count in counts.items() if name not in keys and count]
    allowed = room = parse_size(config.budget.memory) // _SHARE
    rows = dict.fromkeys(counts, 0)
    for name in sorted(bare, key=lambda name: (counts[name], name)):
        size = table_bytes(counts[name], config.model.hidden)
        if size <= room:
            rows[name] = counts[name]
            room -= size
            continue
        note(
            f"node type `{name}` has no features, and embeddings of its {counts[name]:,} nodes "
            f"would take {format_size(size)}, of {format_size(allowed)} for all tables: its nodes "
            "share one learnt vector"
        )
    inputs = {
        name: NodeInput(graph.schema.width(keys[name]) if name in keys and count else 0, rows[name])
        for name, count in counts.items()
    }
    return TypedSchema(seeds, edge_types, inputs, config.layers)


def require_same_types(
    graph: Graph, keys: Mapping[str, str], schema: TypedSchema, seeds: tuple[str, ...]
) -> None:
    """Checks that a data set has the types and inputs that a network was trained with.

    Errors: `InvalidError` names the first difference.
    """
    expected, found = (
        " ".join(",".join(node_type) for node_type in types)
        for types in (schema.edge_types, graph.edge_types)
    )
    if found != expected:
        raise _other(graph, f"edge types {expected}", found)
    if seeds != schema.seeds:
        expected, found = (
            " and ".join(f"`{node_type}`" for node_type in of) for of in (schema.seeds, seeds)
        )
        raise _other(graph, f"labels or links of node type {expected}", f"those of {found}")
    for node_type, known in schema.inputs.items():
        count = graph.node_types[node_type]
        width = graph.schema.width(keys[node_type]) if node_type in keys and count else 0
        if width != known.features:
            raise _other(
                graph, f"{known.features} features for each node of type `{node_type}`", width
            )
        if known.rows and count != known.rows:
            raise _other(graph, f"{known.rows:,} nodes of type `{node_type}`", f"{count:,}")


def _other(graph: Graph, expected: str, found: object) -> InvalidError:
    return InvalidError(
        f"data set `{graph.root}`: expected {expected}, as the model was trained with, "
        f"found {found}"
    )


def column_scales(graph: Graph, key: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The centre and the scale of each column of features: x becomes (x - centre) / scale.

    They are the mean and the deviation of the column. If more than half of a column is 0, as in a
    bag of words, its zeros stay 0: the centre is 0, and the scale is the root mean square of the
    other values, but at least 1.

    Shapes: float32 [columns] each.
    Cost: reads at most 65,536 rows in 64 blocks.
    """
    rows, *columns = graph.arrays[key]["shape"]
    width = int(columns[0]) if columns else 1
    seen, mean, squares = 0, np.zeros(width), np.zeros(width)
    others, of_others = np.zeros(width), np.zeros(width)
    for ids in _pieces(int(rows), width):
        values = graph.rows(key, ids).reshape(len(ids), width).astype(np.float64)
        own = values.mean(axis=0)
        total, step = seen + len(ids), own - mean
        # The update of Chan et al., 1979, is exact even if the mean is far above the deviation.
        squares += np.square(values - own).sum(axis=0) + np.square(step) * (seen * len(ids) / total)
        mean += step * (len(ids) / total)
        seen = total
        others += np.count_nonzero(values, axis=0)
        of_others += np.square(values).sum(axis=0)
    deviation = np.sqrt(squares / max(1, seen))
    deviation[~(deviation > _CONSTANT * np.abs(mean))] = 1
    sparse = others < seen / 2
    centre = np.where(sparse, 0, mean)
    scale = np.where(sparse, np.sqrt(of_others / np.maximum(1, others)).clip(min=1), deviation)
    usable = np.isfinite(centre) & np.isfinite(scale)
    return (
        np.where(usable, centre, 0).astype(np.float32),
        np.where(usable, scale, 1).astype(np.float32),
    )


def _pieces(rows: int, width: int) -> Iterator[NDArray[np.int64]]:
    """The ids of all rows, or of 64 evenly spaced blocks of rows, in pieces of consecutive ids."""
    starts, length = [0], rows
    if rows > _ROWS:
        length = _ROWS // _BLOCKS
        starts = [block * (rows - length) // (_BLOCKS - 1) for block in range(_BLOCKS)]
    step = max(1, _PIECE // max(1, width))
    for start in starts:
        for first in range(start, start + length, step):
            yield np.arange(first, min(first + step, start + length))


@dataclass(frozen=True)
class TypedHop:
    """The arcs into the first nodes of some types in a batch.

    Shapes: `edges` int64 [2, arcs] of local source and target, by edge type. `targets` is the
    number of target nodes of each type; they are the first nodes of their type in the batch.
    """

    edges: Mapping[EdgeType, Tensor]
    targets: Mapping[str, int]


class RelationSum(nn.Module):
    """A layer that adds a convolution for each edge type and a linear map of the target's state.

    `rgcn` maps the mean of the neighbours, with a map for each edge type; the map of the target's
    state depends on its node type. `sage` is a `SAGEConv` for each edge type, which includes a map
    of the target's state. `gat` is a `GATConv` for each edge type; the map of the target's state is
    the same as in `rgcn`.

    **Source** Schlichtkrull et al., 2018, for `rgcn`; PyG's `to_hetero` for `sage`.
    """

    def __init__(self, config: ModelConfig, schema: TypedSchema, layer: int) -> None:
        super().__init__()
        self._kind = config.kind
        self._into = {name: schema.into(name) for name in schema.targets(layer)}
        edge_types = [edge_type for into in self._into.values() for edge_type in into]
        self.relations = by_type({edge_type: _convolution(config) for edge_type in edge_types})
        self.own = by_type(
            {
                name: nn.Linear(config.hidden, config.hidden)
                for name, into in self._into.items()
                if config.kind != "sage" or not into
            }
        )

    def forward(self, x: Mapping[str, Tensor], hop: TypedHop) -> dict[str, Tensor]:
        """Computes the new states of the targets.

        Shapes: `x` float32 [sources, width] by node type; result [targets, width].
        """
        return {name: self._state(name, x, hop) for name in hop.targets}

    def _state(self, name: str, x: Mapping[str, Tensor], hop: TypedHop) -> Tensor:
        own = x[name][: hop.targets[name]]
        parts = [
            self._message(edge_type, x[edge_type[0]], own, hop.edges[edge_type])
            for edge_type in self._into[name]
        ]
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
    """A layer of the Heterogeneous Graph Transformer: a softmax over neighbours of all edge types.

    It computes the same as PyG's `HGTConv`, but queries and outputs only for the targets. A node
    type without incoming edge types keeps its state.

    **Source** Hu et al., 2020.
    """

    def __init__(self, config: ModelConfig, schema: TypedSchema, layer: int) -> None:
        super().__init__()
        self._heads, self._size = config.heads, config.hidden // config.heads
        self._into = {name: schema.into(name) for name in schema.targets(layer)}
        edge_types = [edge_type for into in self._into.values() for edge_type in into]
        sources = dict.fromkeys(source for source, _, _ in edge_types)
        hidden = config.hidden
        self.keys_and_values = by_type({name: nn.Linear(hidden, 2 * hidden) for name in sources})
        self.relations = by_type(
            {edge_type: _Relation(self._heads, self._size) for edge_type in edge_types}
        )
        self.targets = by_type({name: _Target(hidden) for name, into in self._into.items() if into})

    def forward(self, x: Mapping[str, Tensor], hop: TypedHop) -> dict[str, Tensor]:
        """Computes the new states of the targets; shapes as `RelationSum.forward`."""
        sources = dict.fromkeys(
            edge_type[0] for name in hop.targets for edge_type in self._into[name]
        )
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
            keys = map_by_head(keys, relation.attention).index_select(0, source)
            alike = (queries.index_select(0, place) * keys).sum(dim=-1)
            scores.append(alike * relation.prior)
            values.append(map_by_head(messages, relation.message).index_select(0, source))
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
    """The maps of keys and values for an edge type, and its weight, each by head."""

    def __init__(self, heads: int, size: int) -> None:
        super().__init__()
        self.attention = nn.Parameter(_glorot(heads, size))
        self.message = nn.Parameter(_glorot(heads, size))
        self.prior = nn.Parameter(torch.ones(heads))


class _Target(nn.Module):
    """The maps of a node type that receives messages."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, hidden)
        self.skip = nn.Parameter(torch.ones(1))


def map_by_head(x: Tensor, maps: Tensor) -> Tensor:
    """Applies a separate linear map to the columns of each head.

    Shapes: `x` [nodes, heads, size], `maps` [heads, size, size]; result as `x`.
    """
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
            # The target's state has a separate map, so no self-loops are added.
            convolution = GATConv((width, width), size, config.heads, add_self_loops=False)
        case "sage":
            convolution = SAGEConv(width, width)
        case _:
            convolution = SAGEConv(width, width, root_weight=False, bias=False)
    module: nn.Module = convolution
    return module


def by_type(modules: Mapping[Any, nn.Module]) -> Any:
    """Modules by node type or edge type. PyG's dictionary allows any name, and triples as keys."""
    from torch_geometric.nn.module_dict import ModuleDict

    return ModuleDict(modules)


class FeatureMap(nn.Module):
    """Standardises each column of features, then applies a linear map."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.centre: Tensor
        self.scale: Tensor
        self.register_buffer("centre", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))
        self.linear = nn.Linear(features, hidden)

    def standardise(self, centre: NDArray[np.float32], scale: NDArray[np.float32]) -> None:
        """Sets the standardisation: `centre` is subtracted, then values are divided by `scale`."""
        self.centre.copy_(torch.from_numpy(centre))
        self.scale.copy_(torch.from_numpy(scale))

    def forward(self, x: Tensor) -> Tensor:
        """Maps features. Shapes: `x` [nodes, features]; result float32 [nodes, hidden]."""
        mapped: Tensor = self.linear((x.float() - self.centre) / self.scale)
        return mapped


def feature_deviation(hidden: int) -> float:
    """The deviation of initial embeddings of length 1, the mean length of mapped feature rows."""
    return hidden**-0.5


class Encoder(nn.Module):
    """Maps the nodes of every type to states of the same width.

    Features are mapped by a `FeatureMap` for each type. Other nodes have an embedding, or one
    learnt vector for the whole type.
    """

    def __init__(self, hidden: int, schema: TypedSchema, deviation: float) -> None:
        """Makes the maps and tables. Initial embeddings and vectors have this `deviation`."""
        super().__init__()
        self.hidden = hidden
        inputs = schema.inputs
        self.maps = by_type(
            {name: FeatureMap(of.features, hidden) for name, of in inputs.items() if of.features}
        )
        self.tables = by_type(
            {name: nn.Embedding(of.rows, hidden) for name, of in inputs.items() if of.rows}
        )
        self.vectors = by_type(
            {
                name: nn.Embedding(1, hidden)
                for name, of in inputs.items()
                if not (of.features or of.rows)
            }
        )
        for table in (*self.tables.values(), *self.vectors.values()):
            nn.init.normal_(table.weight, std=deviation)

    def standardise(self, graph: Graph, keys: Mapping[str, str]) -> None:
        """Computes and sets the scales of the features, whose arrays are `keys` by node type.

        Cost: reads at most 65,536 rows of each type.
        """
        for name, features in self.maps.items():
            features.standardise(*column_scales(graph, keys[name]))

    def forward(self, node_type: str, nodes: Any) -> Tensor:
        """Computes the first states of a batch's nodes of one type.

        Shapes: `nodes` has `x` float32 [nodes, features] or `n_id` int64 [nodes]; result [nodes,
        hidden].
        """
        if node_type in self.maps:
            encoded: Tensor = self.maps[node_type](nodes.x)
            return encoded
        if node_type in self.tables:
            rows: Tensor = self.tables[node_type](nodes.n_id)
            return rows
        shared: Tensor = self.vectors[node_type].weight.expand(len(nodes.n_id), self.hidden)
        return shared


class TypedParts:
    """The nodes and edges of a batch by type. If the graph has one type, every type gives all."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._is_typed = hasattr(batch, "node_types")

    def nodes(self, node_type: str) -> Any:
        """The storage of the nodes of a type."""
        return self._batch[node_type] if self._is_typed else self._batch

    def edges(self, edge_type: EdgeType) -> Any:
        """The storage of the edges of a type."""
        return self._batch[edge_type] if self._is_typed else self._batch

    def until(self, node_type: str, hops: int) -> int:
        """The number of nodes of a type that were sampled in fewer hops than this. Seeds: hop 0."""
        return sum(map(int, self.nodes(node_type).num_sampled_nodes[:hops]))

    def index(self, edge_type: EdgeType, hops: int) -> Tensor:
        """The ends of the edges of a type in the first `hops` hops, int64 [2, edges]."""
        store = self.edges(edge_type)
        ends: Tensor = store.edge_index[:, : sum(map(int, store.num_sampled_edges[:hops]))]
        return ends


class TypedNetwork(Model):
    """A classifier for the nodes of one type of a typed graph, with one layer per hop.

    All layers have the width `hidden`; a linear map computes the outputs. Each layer computes only
    the node types that later layers need.

    `rgcn`, `sage`, `gat` and `hgt` average over neighbours. So they need no scaling for sampled
    neighbours.
    """

    def __init__(self, config: ModelConfig, schema: TypedSchema, outputs: int) -> None:
        super().__init__(schema.layers, schema.inputs[schema.labelled].features, outputs)
        self.config = config
        self.schema = schema
        self.jumping = config.jumping != "none"
        """Whether the outputs come from the states of all layers."""
        has_features = any(of.features for of in schema.inputs.values())
        deviation = feature_deviation(config.hidden) if has_features else _SMALL
        self.encoder = Encoder(config.hidden, schema, deviation)
        convolution = TransformerLayer if config.kind == "hgt" else RelationSum
        layers = range(schema.layers)
        self.convolutions = nn.ModuleList(convolution(config, schema, layer) for layer in layers)
        self.norms = nn.ModuleList(
            by_type({name: norm_of_type(config) for name in schema.targets(layer)})
            for layer in layers
        )
        self.skips = nn.ModuleList(
            by_type(
                {name: nn.Linear(config.hidden, config.hidden) for name in schema.targets(layer)}
            )
            for layer in layers
            if config.residual
        )
        from torch_geometric.nn import JumpingKnowledge

        self.join = JumpingKnowledge(config.jumping) if self.jumping else None
        joined = schema.layers if config.jumping == "cat" else 1
        self.classifier = nn.Linear(joined * config.hidden, outputs)

    def layer(self, index: int, x: Mapping[str, Tensor], hop: TypedHop) -> dict[str, Tensor]:
        """Computes the states of the targets after layer `index`, with activation and dropout.

        Shapes: `x` float32 [sources, hidden] by node type, targets first; result [targets, hidden].
        """
        states = self.convolutions[index](x, hop)
        if self.config.residual:
            skips: Any = self.skips[index]
            states = {
                name: state + skips[name](x[name][: len(state)]) for name, state in states.items()
            }
        return {name: self.finished(index, name, state) for name, state in states.items()}

    def finished(self, index: int, name: str, state: Tensor) -> Tensor:
        """Applies norm, activation and dropout of layer `index` to the states of type `name`."""
        norms: Any = self.norms[index]
        state = norms[name](state)
        if self.config.kind != "hgt":
            # A layer of `hgt` has its activation inside, before its skip connection.
            state = functional.relu(state)
        return functional.dropout(state, self.config.dropout, self.training)

    def head(self, states: list[Tensor]) -> Tensor:
        """Computes logits from the states of the same labelled nodes after each layer."""
        state = states[-1] if self.join is None else self.join(states)
        logits: Tensor = self.classifier(state)
        return logits

    def forward(self, batch: Any, degrees: Tensor | None = None) -> Tensor:
        """Computes the logits of a batch's seeds. `degrees` are not used.

        Shapes: result [seeds, outputs].
        Cost: a layer computes only the nodes that later layers need.
        """
        schema, parts = self.schema, TypedParts(batch)
        seeds = int(batch[schema.labelled].batch_size)
        x = {name: self.encoder(name, batch[name]) for name in schema.sources(0)}
        states = []
        for index in range(self.layers):
            hops = self.layers - index
            sources = {name: parts.until(name, hops + 1) for name in schema.sources(index)}
            targets = {name: parts.until(name, hops) for name in schema.targets(index)}
            edges = {
                edge_type: parts.index(edge_type, hops)
                for name in targets
                for edge_type in schema.into(name)
            }
            x = {name: x[name][:count] for name, count in sources.items()}
            x = self.layer(index, x, TypedHop(edges, targets))
            states.append(x[schema.labelled][:seeds])
        return self.head(states)


def norm_of_type(config: ModelConfig) -> nn.Module:
    """The normalisation of the states of one node type."""
    if config.norm != "batch":
        return norm_of(config)
    from torch_geometric.nn import BatchNorm

    # A batch may have only one node of a type. It is then normalised by running statistics.
    norm: nn.Module = BatchNorm(config.hidden, allow_single_element=True)
    return norm
