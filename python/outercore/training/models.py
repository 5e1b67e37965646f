"""Networks as stacks of PyG convolutions that run one bipartite layer at a time.

Batches of training run `Network.layer`. Exact inference uses the same weights, but runs the layers
in the steps of `outercore.training.streamed.network`.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from outercore.errors import InternalError
from outercore.training.config import ModelConfig, Readout
from outercore.training.graph_batches import GraphBatch

# We only use the product with a dense matrix. Without the filter, its first use would warn.
warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")


class Arcs:
    """Weighted arcs from sources to targets.

    With any number of threads, the arcs of a target are added in their order; in the gradient, the
    arcs of a source are added in their order. So the sums are bit-identical to a loop over the
    arcs.

    **Cost**: sorts the arcs by source at the first gradient, and by target if they are not sorted.
    All layers with the same arcs can use one object.
    """

    def __init__(
        self, edge_index: Tensor, targets: int, sources: int, weight: Tensor | None = None
    ) -> None:
        """Binds the arcs. `targets` and `sources` are numbers of nodes.

        Shapes: `edge_index` int64 [2, arcs] of source and target; `weight` float32 [arcs], by
        default 1.
        """
        self._source, self._target = edge_index
        self._sizes = targets, sources
        ones = torch.ones(edge_index.size(1), device=edge_index.device)
        self._weight = ones if weight is None else weight

    def sum(self, x: Tensor) -> Tensor:
        """The weighted sum of each target's sources.

        Shapes: `x` float32 [sources, width]; result [targets, width].
        """
        result: Tensor = _Product.apply(x, self)
        return result

    def mean(self, x: Tensor) -> Tensor:
        """The mean of each target's sources, for arcs with weight 1; 0 for a target without arcs.

        Shapes: as `sum`.
        """
        count = torch.bincount(self._target, minlength=self._sizes[0]).clamp(min=1)
        return self.sum(x) / count.unsqueeze(1)

    @cached_property
    def incoming(self) -> Tensor:
        """The sparse matrix [targets, sources] of the weights."""
        return _compressed(self._target, self._source, self._weight, self._sizes)

    @cached_property
    def outgoing(self) -> Tensor:
        """The transpose of `incoming`, [sources, targets]."""
        return _compressed(self._source, self._target, self._weight, self._sizes[::-1])


class _Product(torch.autograd.Function):
    """The sum of `Arcs` with a gradient that reuses one transposed matrix for all layers.

    PyTorch's gradient would transpose the matrix again in each layer.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, arcs: Arcs) -> Tensor:
        ctx.arcs = arcs
        return arcs.incoming @ x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.arcs.outgoing @ gradients[0].contiguous(), None


def _compressed(rows: Tensor, columns: Tensor, values: Tensor, sizes: tuple[int, ...]) -> Tensor:
    if not bool((rows[1:] >= rows[:-1]).all()):
        order = torch.argsort(rows, stable=True)
        rows, columns, values = rows[order], columns[order], values[order]
    starts = rows.new_zeros(sizes[0] + 1)
    torch.cumsum(torch.bincount(rows, minlength=sizes[0]), 0, out=starts[1:])
    return torch.sparse_csr_tensor(starts, columns, values, sizes, check_invariants=False)


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
    """The arcs into the first `targets` nodes of a batch.

    Shapes: `edge_index` int64 [2, arcs] of local source and target; `nodes` int64 [sources], the
    node ids, targets first; `degrees` float32 [sources], the in-degrees in the whole graph, or
    `None` for networks without them.
    """

    edge_index: Tensor
    targets: int
    nodes: Tensor
    degrees: Tensor | None

    @cached_property
    def arcs(self) -> Arcs:
        """The arcs with weight 1, to sum over neighbours."""
        return Arcs(self.edge_index, self.targets, len(self.nodes))


class Model(nn.Module):
    """Base class of all networks that can be trained."""

    needs_degrees = False
    """Whether the layers weigh arcs by in-degrees in the whole graph."""
    counts_loops = True
    """Whether the self-loops of the data count in these in-degrees."""

    def __init__(self, layers: int, features: int, outputs: int) -> None:
        """Stores the numbers of layers, and of inputs and outputs of a node."""
        super().__init__()
        self.layers, self.features, self.outputs = layers, features, outputs


class Network(Model):
    """A node classifier with one layer per hop.

    `gnn` is a PyG model (`GraphSAGE`, `GCN`, `GAT`, `GIN`), so its weights also load into PyG.

    **Sampled neighbours.** `sage` takes a mean and `gat` a softmax, over the sample in the same way
    as over all neighbours. `gcn` and `gin` take sums. Each sampled term is scaled by in-degree /
    sample size. So the sum is right on average, and equals the full sum if all neighbours are
    taken. `gcn` normalises by the degrees in the whole graph plus one self-loop, never by degrees
    in the batch. So a node has the same weight in every batch and in exact inference.
    """

    def __init__(self, config: ModelConfig, layers: int, features: int, outputs: int) -> None:
        super().__init__(layers, features, outputs)
        self.config = config
        self.needs_degrees = config.kind in ("gcn", "gin")
        # `gcn` and `gat` add a self-loop to each node.
        self.counts_loops = config.kind not in ("gcn", "gat")
        self.jumping = config.jumping != "none"
        """Whether the outputs come from the states of all layers."""
        self.gnn = _build_gnn(config, layers, features, outputs)
        self.skips = nn.ModuleList(
            nn.Linear(*widths) for widths in self._widths() if config.residual
        )

    def width(self, layer: int) -> int:
        """The number of values of a node after `layer`."""
        return self._widths()[layer][1]

    def layer(self, index: int, x: Tensor, hop: Hop) -> Tensor:
        """Computes the states of the targets after layer `index`, with activation and dropout.

        Shapes: `x` float32 [sources, width before]; result [targets, width after].
        """
        own = x[: hop.targets]
        state = self._convolve(index, x, own, hop)
        if self.config.residual:
            state = state + self.skips[index](own)
        return self.finished(index, state)

    def finished(self, index: int, state: Tensor) -> Tensor:
        """Applies norm, activation and dropout of layer `index`."""
        if index == self.layers - 1 and not self.jumping:
            return state
        state = functional.relu(self.gnn.norms[index](state))
        return functional.dropout(state, self.config.dropout, self.training)

    def head(self, states: list[Tensor]) -> Tensor:
        """Computes logits from the states of the same nodes after each layer."""
        if not self.jumping:
            return states[-1]
        return self.gnn.lin(self.gnn.jk(states))

    def forward(self, batch: Any, degrees: Tensor | None = None) -> Tensor:
        """Computes the logits of a batch's seeds.

        Shapes: `degrees` float32 [batch nodes], in-degrees in the whole graph; result [seeds,
        outputs].
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


class Perceptron(Model):
    """A classifier by the features of a node only: a baseline that uses no edges."""

    def __init__(self, config: ModelConfig, layers: int, features: int, outputs: int) -> None:
        super().__init__(layers, features, outputs)
        self.config = config
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

    def forward(self, batch: Any, degrees: Tensor | None = None) -> Tensor:
        """Computes the logits of a batch's seeds; shapes as `Network.forward`."""
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
    """A new network. Its weights depend only on the arguments and PyTorch's random state."""
    kind = Perceptron if config.kind == "mlp" else Network
    return kind(config, layers, features, outputs)


def _build_gnn(config: ModelConfig, layers: int, features: int, outputs: int) -> Any:
    from torch_geometric.nn import models

    kinds = {"sage": models.GraphSAGE, "gcn": models.GCN, "gat": models.GAT, "gin": models.GIN}
    options: dict[str, dict[str, Any]] = {
        # `_normalised` adds weights and self-loops, because it has the whole graph's degrees.
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
    # Compare node ids: a seed that occurs twice in a batch has two local ids.
    source, target = hop.edge_index
    return hop.edge_index[:, hop.nodes[source] != hop.nodes[target]]


def _sample_scale(hop: Hop, targets: Tensor) -> Tensor:
    """In-degree / sampled arcs of each target; 1 for a target without arcs."""
    if hop.degrees is None:
        raise InternalError("this model needs in-degrees, none were given")
    sampled = torch.bincount(targets, minlength=hop.targets)
    return hop.degrees[: hop.targets].clamp(min=1.0) / sampled.clamp(min=1)


def _normalised(hop: Hop) -> tuple[Tensor, Tensor]:
    """The arcs and self-loops, with the weights of D^-1/2 (A + I) D^-1/2.

    The weights of sampled arcs are multiplied by in-degree / sample size.
    """
    edge_index = _without_loops(hop)
    source, target = edge_index
    scale = _sample_scale(hop, target)
    assert hop.degrees is not None
    root = (hop.degrees + 1).rsqrt()
    loops = torch.arange(hop.targets, device=edge_index.device)
    weight = torch.cat([root[source] * root[target] * scale[target], root[: hop.targets].square()])
    return torch.cat([edge_index, loops.expand(2, -1)], dim=1), weight


class GraphNetwork(Model):
    """Computes outputs of whole graphs.

    A network of `layers` layers computes the states of all nodes from all neighbours. `readout`
    combines the states of a graph into one vector of width `hidden`. A perceptron with one hidden
    layer maps it to the outputs. If the inputs are categories, the input of a node is the sum of
    learnt embeddings, one for each column.
    """

    def __init__(
        self,
        config: ModelConfig,
        layers: int,
        features: int,
        outputs: int,
        *,
        categories: tuple[int, ...] = (),
        readout: Readout = "mean",
        of_degrees: bool = False,
    ) -> None:
        """Makes the layers. `of_degrees`: whether the categories are in-degrees, in one column."""
        super().__init__(layers, features, outputs)
        self.config = config
        self.categories = categories
        self.readout = readout
        self.of_degrees = of_degrees
        hidden = config.hidden
        self.embeddings = nn.ModuleList(nn.Embedding(count, hidden) for count in categories)
        self.nodes = build_model(config, layers, hidden if categories else features, hidden)
        self.head = nn.Sequential(
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(hidden, outputs),
        )

    def forward(self, batch: GraphBatch) -> Tensor:
        """Computes the outputs of a batch's graphs.

        Shapes: result float32 [graphs, outputs].
        """
        x = batch.x
        if self.categories:
            x = torch.stack(
                [table(column) for table, column in zip(self.embeddings, x.T, strict=True)]
            ).sum(dim=0)
        return self.head(pooled(self._states(x, batch), batch, self.readout))

    def _states(self, x: Tensor, batch: GraphBatch) -> Tensor:
        if not isinstance(self.nodes, Network):
            states: Tensor = self.nodes(SimpleNamespace(x=x, batch_size=len(x)))
            return states
        hop = Hop(
            edge_index=batch.edge_index,
            targets=len(x),
            nodes=torch.arange(len(x), device=x.device),
            # A batch has all arcs of its graphs.
            degrees=self._degrees(batch) if self.nodes.needs_degrees else None,
        )
        after = []
        for index in range(self.layers):
            x = self.nodes.layer(index, x, hop)
            after.append(x)
        return self.nodes.head(after)

    def _degrees(self, batch: GraphBatch) -> Tensor:
        assert isinstance(self.nodes, Network)
        source, target = batch.edge_index
        if not self.nodes.counts_loops:
            target = target[source != target]
        return torch.bincount(target, minlength=len(batch.x)).to(torch.float32)


def pooled(states: Tensor, batch: GraphBatch, readout: Readout) -> Tensor:
    """Combines the states of each graph's nodes into one state. Every graph must have a node.

    Shapes: `states` float32 [nodes, width]; result [graphs, width].
    """
    size = (batch.batch_size, states.size(1))
    if readout == "max":
        places = batch.graph.unsqueeze(1).expand_as(states)
        return states.new_zeros(size).scatter_reduce(0, places, states, "amax", include_self=False)
    sums = states.new_zeros(size).index_add(0, batch.graph, states)
    if readout == "sum":
        return sums
    counts = torch.bincount(batch.graph, minlength=batch.batch_size)
    return sums / counts.unsqueeze(1)
