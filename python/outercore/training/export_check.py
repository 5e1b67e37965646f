"""Whether an exported model says what the network says that it came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from outercore import _core
from outercore.errors import InternalError
from outercore.loading.reference import ReferenceBatch, sample_batch
from outercore.training.export_parts import network_of
from outercore.training.graph_batches import GraphBatch
from outercore.training.graph_models import GraphNetwork
from outercore.training.links.model import LinkModel
from outercore.training.model_files import Model
from outercore.training.models import Network

NODES = 60
TOLERANCE = 1e-5
"""Largest difference, as a share of the largest logit where that is above 1: some are sums of far
larger terms."""


@dataclass(frozen=True)
class Example:
    """A sampled neighbourhood of a small random graph, with what a model takes of its nodes.

    Its seeds come twice, have self-loops, and one of them has no arc. For models of graphs the
    seeds are all nodes, in two graphs.
    """

    batch: ReferenceBatch
    x: NDArray[Any]
    """As the network takes it; [nodes, columns]."""
    degrees: NDArray[np.float32]
    sizes: tuple[int, ...] = ()
    """Nodes of each graph."""


def example(model: Model, fanout: tuple[int, ...], seed: int) -> Example:
    """An example that `model` can be asked about; a function of the arguments."""
    random = np.random.default_rng(seed)
    of_graphs = isinstance(model, GraphNetwork)
    count = min(NODES, model.table_rows or NODES) if isinstance(model, LinkModel) else NODES
    offsets, sources = _graph(random, count)
    seeds = np.array([0, min(7, count - 1), 0, count - 1, *random.integers(count, size=6)])
    if of_graphs:
        seeds = np.arange(count)
    batch = sample_batch(
        offsets, sources, None, seeds, fanout, replace=False, seed=seed, epoch=0, batch=0
    )
    degrees = np.diff(offsets)
    sizes = (count // 3, count - count // 3) if of_graphs else ()
    rows = len(batch.n_id)
    if isinstance(model, GraphNetwork) and model.categories:
        x = np.stack([random.integers(most, size=rows) for most in model.categories], axis=1)
        if model.of_degrees:
            x = np.minimum(degrees[batch.n_id], model.categories[0] - 1)[:, None]
    else:
        x = random.normal(size=(rows, model.features)).astype(np.float32)
    return Example(batch, x, _degrees(offsets, sources, model)[batch.n_id], sizes)


def by_network(model: Model, asked: Example) -> NDArray[np.float32]:
    """The network's logits: of the seeds, of pairs of them, or of graphs; [rows, outputs]."""
    batch = asked.batch
    edge_index = torch.from_numpy(np.stack([batch.row, batch.col]))
    with torch.no_grad():
        if isinstance(model, GraphNetwork):
            places = np.repeat(np.arange(len(asked.sizes)), asked.sizes)
            graphs = GraphBatch(
                x=torch.from_numpy(asked.x),
                edge_index=edge_index,
                graph=torch.from_numpy(places),
                n_id=torch.arange(len(asked.sizes)),
                y=torch.zeros(len(asked.sizes)),
            )
            logits: NDArray[np.float32] = model(graphs).numpy()
            return logits
        sampled = SimpleNamespace(
            x=torch.from_numpy(asked.x),
            n_id=torch.from_numpy(batch.n_id),
            edge_index=edge_index,
            num_sampled_nodes=batch.num_sampled_nodes,
            num_sampled_edges=batch.num_sampled_edges,
            batch_size=batch.num_sampled_nodes[0],
        )
        degrees = torch.from_numpy(asked.degrees) if model.needs_degrees else None
        states = model(sampled, degrees)
        if isinstance(model, LinkModel):
            first, second = _pairs(len(states)).T
            states = model.head(states[first], states[second]).unsqueeze(1)
        found: NDArray[np.float32] = states.numpy()
        return found


def by_core(exported: Path, model: Model, asked: Example) -> NDArray[np.float32]:
    """The same by the exported model."""
    batch, core = asked.batch, _core.Model(str(exported))
    hops = isinstance(network_of(model), Network)
    nodes = [int(count) for count in batch.num_sampled_nodes][: None if hops else 1]
    edges = [int(count) for count in batch.num_sampled_edges] if hops else []
    rows, targets = sum(nodes), sum(nodes[:-1])
    row, col = (batch.row, batch.col) if hops else (batch.row[:0], batch.col[:0])
    states = core.forward(
        batch.n_id[:rows].astype(np.uint64),
        (nodes, edges),
        (row.astype(np.uint32), np.bincount(col, minlength=targets).astype(np.uint32)),
        np.ascontiguousarray(_given(model, asked.x)[:rows], dtype=np.float32),
        np.ascontiguousarray(asked.degrees[:rows]),
    )
    if isinstance(model, LinkModel):
        pairs = [(int(first), int(second)) for first, second in _pairs(nodes[0])]
        return core.score(states, pairs).reshape(-1, 1)
    if isinstance(model, GraphNetwork):
        return core.of_graphs(states, list(asked.sizes)).reshape(-1, model.outputs)
    return states.reshape(nodes[0], model.outputs)


def _given(model: Model, x: NDArray[Any]) -> NDArray[Any]:
    """The columns that a server reads from the data set."""
    looked_up = isinstance(model, LinkModel) and model.table_rows > 0
    if looked_up or (isinstance(model, GraphNetwork) and model.of_degrees):
        return x[:, :0]
    return x


def _pairs(seeds: int) -> NDArray[np.int64]:
    """All pairs of seeds; [pairs, 2]."""
    return np.stack(np.meshgrid(np.arange(seeds), np.arange(seeds)), axis=-1).reshape(-1, 2)


def difference(found: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """The largest difference, as a share of the largest logit where that is above 1."""
    return float(np.abs(found - expected).max() / max(1.0, float(np.abs(expected).max())))


def require_agreement(exported: Path, model: Model, fanout: tuple[int, ...]) -> None:
    """Errors: `InternalError` where the exported model has other logits than the network."""
    asked = example(model, fanout, seed=0)
    error = difference(by_core(exported, model, asked), by_network(model, asked))
    if not error <= TOLERANCE:
        raise InternalError(
            f"model `{exported}`: its logits differ by {error:.1e} from the network's, expected "
            f"{TOLERANCE:.0e} at most"
        )


def _graph(random: np.random.Generator, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets and sources: parallel arcs, self-loops, and a last node without arcs."""
    most = max(1, count - 1)
    source, target = random.integers(most, size=(2, 6 * NODES))
    source[:20] = target[:20] = random.integers(most, size=20)
    source[20:40], target[20:40] = 0, 0
    order = np.lexsort((source, target))
    offsets = np.zeros(count + 1, np.int64)
    offsets[1:] = np.cumsum(np.bincount(target, minlength=count))
    return offsets, source[order]


def _degrees(
    offsets: NDArray[np.int64], sources: NDArray[np.int64], model: Model
) -> NDArray[np.float32]:
    degrees, network = np.diff(offsets), network_of(model)
    if isinstance(network, Network) and not network.counts_loops:
        count = len(degrees)
        target = np.repeat(np.arange(count), degrees)
        degrees = degrees - np.bincount(target[sources == target], minlength=count)
    return degrees.astype(np.float32)
