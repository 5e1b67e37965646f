"""Networks as stacks of PyG convolutions that run one bipartite layer at a time.

Training on sampled batches and exact inference over all neighbours call the same
`Network.layer`; that is why they agree.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from outercore.errors import InternalError
from outercore.training.config import ModelConfig
from outercore.training.neighbours import Arcs


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switches dropout off and freezes running statistics within the block."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@dataclass(frozen=True)
class Hop:
    """The arcs into some target nodes, among the nodes of a batch.

    Shapes: `edge_index` int64 [2, arcs] of local source and target; `nodes` int64 [sources]
    node ids, targets first; `degrees` float32 [sources] in-degrees in the whole graph (`None`
    for networks that need none).
    """

    edge_index: Tensor
    targets: int
    nodes: Tensor
    degrees: Tensor | None

    @cached_property
    def arcs(self) -> Arcs:
        """What sums over the neighbours, each arc with weight 1."""
        return Arcs(self.edge_index, self.targets, len(self.nodes))


class Network(nn.Module):
    """A node classifier of one layer a hop.

    `gnn` is a PyG model (`GraphSAGE`, `GCN`, `GAT`, `GIN`), so that its weights load there too.

    **Sampled neighbours.** `sage` takes a mean and `gat` a softmax: of the sample as of all
    neighbours. `gcn` and `gin` take sums: each sampled term is scaled by in-degree / sample
    size, which makes the sum right on average, and exactly the full sum where all neighbours are
    taken. `gcn` normalises by the degrees in the whole graph, plus one self-loop, never by those
    in the batch: a node weighs the same in every batch and in full inference.
    """

    def __init__(self, config: ModelConfig, layers: int, features: int, outputs: int) -> None:
        super().__init__()
        self.config = config
        self.layers = layers
        self.features = features
        self.outputs = outputs
        self.gnn = _build_gnn(config, layers, features, outputs)
        self.skips = nn.ModuleList(
            nn.Linear(*widths) for widths in self._widths() if config.residual
        )

    @property
    def needs_degrees(self) -> bool:
        """Whether the layers weigh arcs by in-degree."""
        return self.config.kind in ("gcn", "gin")

    @property
    def counts_loops(self) -> bool:
        """Whether a self-loop of the data counts as a neighbour; `gcn` and `gat` add their own."""
        return self.config.kind not in ("gcn", "gat")

    @property
    def jumping(self) -> bool:
        """Whether the outputs come from the states of all layers."""
        return self.config.jumping != "none"

    def width(self, layer: int) -> int:
        """Values a node after `layer`."""
        return self._widths()[layer][1]

    def layer(self, index: int, x: Tensor, hop: Hop) -> Tensor:
        """The state of the targets after layer `index`, activation and dropout included.

        Shapes: `x` float32 [sources, width before]; result [targets, width after].
        """
        own = x[: hop.targets]
        state = self._convolve(index, x, own, hop)
        if self.config.residual:
            state = state + self.skips[index](own)
        return self.finished(index, state)

    def finished(self, index: int, state: Tensor) -> Tensor:
        """Norm, activation and dropout of layer `index`."""
        if index == self.layers - 1 and not self.jumping:
            return state
        state = functional.relu(self.gnn.norms[index](state))
        return functional.dropout(state, self.config.dropout, self.training)

    def head(self, states: list[Tensor]) -> Tensor:
        """Logits from the states of the same nodes after each layer."""
        if not self.jumping:
            return states[-1]
        return self.gnn.lin(self.gnn.jk(states))

    def forward(self, batch: Any, degrees: Tensor | None = None) -> Tensor:
        """Logits of a batch's seeds.

        Shapes: `degrees` float32 [batch nodes]; result [seeds, outputs].
        Cost: a layer computes only the nodes that later layers need.
        """
        nodes = [int(count) for count in batch.num_sampled_nodes]
        edges = [int(count) for count in batch.num_sampled_edges]
        x, states = batch.x.float(), []
        for index in range(self.layers):
            hops = self.layers - index
            sources = sum(nodes[: hops + 1])
            hop = Hop(
                edge_index=batch.edge_index[:, : sum(edges[:hops])],
                targets=sum(nodes[:hops]),
                nodes=batch.n_id[:sources],
                degrees=None if degrees is None else degrees[:sources],
            )
            x = self.layer(index, x[:sources], hop)
            states.append(x[: nodes[0]])
        return self.head(states)

    def _convolve(self, index: int, x: Tensor, own: Tensor, hop: Hop) -> Tensor:
        conv: Any = self.gnn.convs[index]
        size = (x.size(0), hop.targets)
        match self.config.kind:
            case "sage":
                return conv.lin_l(hop.arcs.mean(x)) + conv.lin_r(own)
            case "gat":
                return conv((x, own), _without_loops(hop), size=size)
            case "gin":
                scale = _sample_scale(hop, hop.edge_index[1])
                return conv.nn(hop.arcs.sum(x) * scale.unsqueeze(1) + (1 + conv.eps) * own)
            case "gcn":
                edge_index, weight = _normalised(hop)
                return Arcs(edge_index, *size[::-1], weight).sum(conv.lin(x)) + conv.bias
            case kind:
                raise InternalError(f"model `{kind}` has no convolution")

    def _widths(self) -> list[tuple[int, int]]:
        inner = [self.config.hidden] * (self.layers - 1)
        last = self.config.hidden if self.jumping else self.outputs
        return list(zip([self.features, *inner], [*inner, last], strict=True))


class Perceptron(nn.Module):
    """A classifier of the node's own features: the baseline that sees no edge."""

    def __init__(self, config: ModelConfig, layers: int, features: int, outputs: int) -> None:
        super().__init__()
        self.config = config
        self.layers = layers
        self.features = features
        self.outputs = outputs
        widths = [features, *[config.hidden] * (layers - 1), outputs]
        self.linears = nn.ModuleList(
            nn.Linear(before, after) for before, after in itertools.pairwise(widths)
        )
        self.norms = nn.ModuleList(norm_of(config) for _ in range(layers - 1))
        self.skips = nn.ModuleList(
            nn.Linear(before, after)
            for before, after in itertools.pairwise(widths[:-1])
            if config.residual
        )

    @property
    def needs_degrees(self) -> bool:
        """No arc is looked at."""
        return False

    def forward(self, batch: Any, degrees: Tensor | None = None) -> Tensor:
        """Logits of a batch's seeds; shapes as `Network.forward`."""
        x = batch.x[: batch.batch_size].float()
        for index, linear in enumerate(self.linears):
            state = linear(x)
            if index < self.layers - 1:
                if self.config.residual:
                    state = state + self.skips[index](x)
                state = functional.relu(self.norms[index](state))
                state = functional.dropout(state, self.config.dropout, self.training)
            x = state
        return x


def build_model(
    config: ModelConfig, layers: int, features: int, outputs: int
) -> Network | Perceptron:
    """A freshly initialised network; a function of the arguments and PyTorch's seed."""
    kind = Perceptron if config.kind == "mlp" else Network
    return kind(config, layers, features, outputs)


def _build_gnn(config: ModelConfig, layers: int, features: int, outputs: int) -> Any:
    from torch_geometric.nn import models

    kinds = {"sage": models.GraphSAGE, "gcn": models.GCN, "gat": models.GAT, "gin": models.GIN}
    options: dict[str, dict[str, Any]] = {
        # Weights and self-loops come from `_normalised`, which knows the whole graph's degrees.
        "gcn": {"normalize": False, "add_self_loops": False},
        "gat": {"heads": config.heads},
    }
    return kinds[config.kind](
        features,
        config.hidden,
        layers,
        outputs,
        dropout=config.dropout,
        norm={"none": None, "batch": "batch_norm", "layer": "layer_norm"}[config.norm],
        # Normalise each node separately. Over a batch, a state would depend on the other nodes.
        norm_kwargs={"mode": "node"} if config.norm == "layer" else None,
        jk=None if config.jumping == "none" else config.jumping,
        **options.get(config.kind, {}),
    )


def norm_of(config: ModelConfig) -> nn.Module:
    """The normalisation between two layers."""
    match config.norm:
        case "batch":
            return nn.BatchNorm1d(config.hidden)
        case "layer":
            return nn.LayerNorm(config.hidden)
        case _:
            return nn.Identity()


def _without_loops(hop: Hop) -> Tensor:
    # By node id: a seed that occurs twice in a batch has two places there.
    source, target = hop.edge_index
    return hop.edge_index[:, hop.nodes[source] != hop.nodes[target]]


def _sample_scale(hop: Hop, targets: Tensor) -> Tensor:
    """In-degree / sampled arcs of each target; 1 for a target without arcs."""
    if hop.degrees is None:
        raise InternalError("this model needs in-degrees, none were given")
    sampled = torch.bincount(targets, minlength=hop.targets)
    return hop.degrees[: hop.targets].clamp(min=1.0) / sampled.clamp(min=1)


def _normalised(hop: Hop) -> tuple[Tensor, Tensor]:
    """Arcs and self-loops with the weights of D^-1/2 (A + I) D^-1/2, sampled arcs scaled up."""
    edge_index = _without_loops(hop)
    source, target = edge_index
    scale = _sample_scale(hop, target)
    assert hop.degrees is not None
    root = (hop.degrees + 1).rsqrt()
    loops = torch.arange(hop.targets, device=edge_index.device)
    weight = torch.cat([root[source] * root[target] * scale[target], root[: hop.targets].square()])
    return torch.cat([edge_index, loops.expand(2, -1)], dim=1), weight
