"""Networks of whole graphs: the networks of nodes, a readout, and a perceptron on top."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from outercore.training.config import ModelConfig, Readout
from outercore.training.graph_batches import GraphBatch
from outercore.training.models import Hop, Network, build_model


class GraphNetwork(nn.Module):
    """Outputs of whole graphs.

    The states of all nodes after `layers` layers over all neighbours, `hidden` wide, become one by
    `readout`; a perceptron of one hidden layer makes the outputs of it. Categories enter by the sum
    of one learnt embedding a column: for one column, a linear map of its one-hot code.
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
        """`of_degrees`: the one column of categories is the in-degree."""
        super().__init__()
        self.config = config
        self.layers = layers
        self.features = features
        self.outputs = outputs
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
        """Outputs of a batch's graphs.

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
    """The states of each graph's nodes as one.

    Shapes: `states` float32 [nodes, width]; result [graphs, width]. Every graph has a node.
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
