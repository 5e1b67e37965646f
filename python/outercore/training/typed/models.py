"""Networks of typed graphs: an encoder for each node type, and layers that run a hop at a time.

Training on sampled batches and exact inference call the same `TypedNetwork.layer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from outercore.training.config import ModelConfig
from outercore.training.models import norm_of
from outercore.training.typed.convolutions import (
    RelationSum,
    TransformerLayer,
    TypedHop,
    by_type,
)
from outercore.training.typed.inputs import Schema
from outercore.training.typed.scales import column_scales

if TYPE_CHECKING:
    from outercore.data.graph import Graph


class FeatureMap(nn.Module):
    """A linear map of features that are standardised column by column."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.centre: Tensor
        self.scale: Tensor
        self.register_buffer("centre", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))
        self.linear = nn.Linear(features, hidden)

    def standardise(self, centre: NDArray[np.float32], scale: NDArray[np.float32]) -> None:
        """Sets what comes of a column: its values less `centre`, divided by `scale`."""
        self.centre.copy_(torch.from_numpy(centre))
        self.scale.copy_(torch.from_numpy(scale))

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: `x` [nodes, features]; result float32 [nodes, hidden]."""
        mapped: Tensor = self.linear((x.float() - self.centre) / self.scale)
        return mapped


def as_features(hidden: int) -> float:
    """The deviation of rows of length 1, about as long as what a map makes of a row of features."""
    return hidden**-0.5


_SMALL = 1e-3
"""The deviation where no node has features: long rows would be noise that hides what is learnt."""


class Encoder(nn.Module):
    """Brings the nodes of every type to the same width.

    Features by a `FeatureMap` for each type, other nodes by their embedding, or by one learnt
    vector for the type.
    """

    def __init__(self, hidden: int, schema: Schema, deviation: float) -> None:
        """`deviation` of the initial embeddings and vectors."""
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
        """Measures the features of each node type, the arrays `keys`; sets their scales.

        Cost: reads at most 65,536 rows of each type.
        """
        for name, features in self.maps.items():
            features.standardise(*column_scales(graph, keys[name]))

    def forward(self, node_type: str, nodes: Any) -> Tensor:
        """The states of a batch's nodes of a type.

        Shapes: `nodes` with `x` float32 [nodes, features] or `n_id` int64 [nodes]; result
        [nodes, hidden].
        """
        if node_type in self.maps:
            encoded: Tensor = self.maps[node_type](nodes.x)
            return encoded
        if node_type in self.tables:
            rows: Tensor = self.tables[node_type](nodes.n_id)
            return rows
        shared: Tensor = self.vectors[node_type].weight.expand(len(nodes.n_id), self.hidden)
        return shared


class TypedNetwork(nn.Module):
    """A classifier of the nodes of one type of a typed graph, of one layer a hop.

    All layers are `hidden` wide; a linear map makes the outputs. Each layer computes only the node
    types that later layers need.

    `rgcn`, `sage`, `gat` and `hgt` average: over the sampled neighbours as over all of them.
    """

    def __init__(self, config: ModelConfig, schema: Schema, outputs: int) -> None:
        super().__init__()
        self.config = config
        self.schema = schema
        self.layers = schema.layers
        self.features = schema.inputs[schema.labelled].features
        self.outputs = outputs
        has_features = any(of.features for of in schema.inputs.values())
        deviation = as_features(config.hidden) if has_features else _SMALL
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

    @property
    def needs_degrees(self) -> bool:
        """No layer weighs by in-degree."""
        return False

    @property
    def jumping(self) -> bool:
        """Whether the outputs come from the states of all layers."""
        return self.config.jumping != "none"

    def layer(self, index: int, x: Mapping[str, Tensor], hop: TypedHop) -> dict[str, Tensor]:
        """The states of the targets after layer `index`, activation and dropout included.

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
        """Norm, activation and dropout of layer `index` for a node type."""
        norms: Any = self.norms[index]
        state = norms[name](state)
        if self.config.kind != "hgt":
            # A layer of `hgt` has its activation within, before its own skip connection.
            state = functional.relu(state)
        return functional.dropout(state, self.config.dropout, self.training)

    def head(self, states: list[Tensor]) -> Tensor:
        """Logits from the states of the same labelled nodes after each layer."""
        state = states[-1] if self.join is None else self.join(states)
        logits: Tensor = self.classifier(state)
        return logits

    def forward(self, batch: Any, degrees: Tensor | None = None) -> Tensor:
        """Logits of a batch's seeds; no layer weighs by `degrees`.

        Shapes: result [seeds, outputs].
        Cost: a layer computes only the nodes that later layers need.
        """
        schema = self.schema
        seeds = int(batch[schema.labelled].batch_size)
        x = self.encode(batch, schema.sources(0))
        states = []
        for index in range(self.layers):
            hops = self.layers - index
            sources = {
                name: sum(map(int, batch[name].num_sampled_nodes[: hops + 1]))
                for name in schema.sources(index)
            }
            targets = {
                name: sum(map(int, batch[name].num_sampled_nodes[:hops]))
                for name in schema.targets(index)
            }
            edges = {
                edge_type: batch[edge_type].edge_index[
                    :, : sum(map(int, batch[edge_type].num_sampled_edges[:hops]))
                ]
                for name in targets
                for edge_type in schema.into(name)
            }
            x = {name: x[name][:count] for name, count in sources.items()}
            x = self.layer(index, x, TypedHop(edges, targets))
            states.append(x[schema.labelled][:seeds])
        return self.head(states)

    def encode(self, batch: Any, node_types: Iterable[str]) -> dict[str, Tensor]:
        """The states before the first layer of a batch's nodes."""
        return {name: self.encoder(name, batch[name]) for name in node_types}


def norm_of_type(config: ModelConfig) -> nn.Module:
    """The normalisation of the states of one node type."""
    if config.norm != "batch":
        return norm_of(config)
    from torch_geometric.nn import BatchNorm

    # A batch may have one node of a type, or none: it is normalised by what was seen before.
    norm: nn.Module = BatchNorm(config.hidden, allow_single_element=True)
    return norm
