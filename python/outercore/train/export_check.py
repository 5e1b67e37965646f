"""Whether an exported model says what the network says that it came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from numpy.typing import NDArray

from outercore import _core
from outercore.errors import InternalError
from outercore.reference import ReferenceBatch, sample_batch
from outercore.train.models import Network, Perceptron

NODES = 60
TOLERANCE = 1e-5
"""Largest difference, as a share of the largest logit where that is above 1: some are sums of far
larger terms."""


@dataclass(frozen=True)
class Example:
    """A sampled neighbourhood of a small random graph, with features.

    Its seeds come twice, have self-loops, and one of them has no arc.
    """

    batch: ReferenceBatch
    x: NDArray[np.float32]
    degrees: NDArray[np.float32]


def example(model: Network | Perceptron, fanout: tuple[int, ...], seed: int) -> Example:
    """An example that `model` can be asked about; a function of the arguments."""
    random = np.random.default_rng(seed)
    offsets, sources = _graph(random)
    seeds = np.array([0, 7, 0, NODES - 1, *random.integers(NODES, size=6)])
    batch = sample_batch(
        offsets, sources, None, seeds, fanout, replace=False, seed=seed, epoch=0, batch=0
    )
    x = random.normal(size=(len(batch.n_id), model.features)).astype(np.float32)
    return Example(batch, x, _degrees(offsets, sources, model)[batch.n_id])


def by_network(model: Network | Perceptron, asked: Example) -> NDArray[np.float32]:
    """The network's logits; shape [seeds, outputs]."""
    batch = asked.batch
    sampled = SimpleNamespace(
        x=torch.from_numpy(asked.x),
        n_id=torch.from_numpy(batch.n_id),
        edge_index=torch.from_numpy(np.stack([batch.row, batch.col])),
        num_sampled_nodes=batch.num_sampled_nodes,
        num_sampled_edges=batch.num_sampled_edges,
        batch_size=batch.num_sampled_nodes[0],
    )
    degrees = torch.from_numpy(asked.degrees) if model.needs_degrees else None
    with torch.no_grad():
        logits: NDArray[np.float32] = model(sampled, degrees).numpy()
    return logits


def by_core(exported: Path, model: Network | Perceptron, asked: Example) -> NDArray[np.float32]:
    """The logits of the exported model; shape [seeds, outputs]."""
    batch = asked.batch
    hops = isinstance(model, Network)
    nodes = [int(count) for count in batch.num_sampled_nodes][: None if hops else 1]
    edges = [int(count) for count in batch.num_sampled_edges] if hops else []
    rows, targets = sum(nodes), sum(nodes[:-1])
    row, col = (batch.row, batch.col) if hops else (batch.row[:0], batch.col[:0])
    logits = _core.Model(str(exported)).forward(
        batch.n_id[:rows].astype(np.uint64),
        (nodes, edges),
        (row.astype(np.uint32), np.bincount(col, minlength=targets).astype(np.uint32)),
        np.ascontiguousarray(asked.x[:rows]),
        np.ascontiguousarray(asked.degrees[:rows]),
    )
    return logits.reshape(nodes[0], model.outputs)


def difference(found: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """The largest difference, as a share of the largest logit where that is above 1."""
    return float(np.abs(found - expected).max() / max(1.0, float(np.abs(expected).max())))


def require_agreement(exported: Path, model: Network | Perceptron, fanout: tuple[int, ...]) -> None:
    """Errors: `InternalError` where the exported model has other logits than the network."""
    asked = example(model, fanout, seed=0)
    error = difference(by_core(exported, model, asked), by_network(model, asked))
    if not error <= TOLERANCE:
        raise InternalError(
            f"model `{exported}`: its logits differ by {error:.1e} from the network's, expected "
            f"{TOLERANCE:.0e} at most"
        )


def _graph(random: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets and sources: parallel arcs, self-loops, and a last node without arcs."""
    source, target = random.integers(NODES - 1, size=(2, 6 * NODES))
    source[:20] = target[:20] = random.integers(NODES - 1, size=20)
    source[20:40], target[20:40] = 0, 0
    order = np.lexsort((source, target))
    offsets = np.zeros(NODES + 1, np.int64)
    offsets[1:] = np.cumsum(np.bincount(target, minlength=NODES))
    return offsets, source[order]


def _degrees(
    offsets: NDArray[np.int64], sources: NDArray[np.int64], model: Network | Perceptron
) -> NDArray[np.float32]:
    degrees = np.diff(offsets)
    if isinstance(model, Network) and not model.counts_loops:
        target = np.repeat(np.arange(NODES), degrees)
        degrees = degrees - np.bincount(target[sources == target], minlength=NODES)
    return degrees.astype(np.float32)
