"""Random networks of every kind on sampled batches, and what the core's inference says of them."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from outercore.reference import ReferenceBatch, sample_batch
from outercore.train.config import ModelConfig, SamplingConfig, TrainConfig
from outercore.train.export import export_model
from outercore.train.models import Network, build_model
from outercore.train.saved import save_model
from outercore.train.tasks import Task

BINARY = "OUTERCORE_FORWARD"
"""Names the built example `forward` of the crate `outercore-infer`."""

FEATURES, OUTPUTS, NODES = 11, 5, 60


@dataclass(frozen=True)
class Case:
    """A network, a batch and the network's logits."""

    name: str
    model: Any
    config: TrainConfig
    batch: ReferenceBatch
    x: torch.Tensor
    degrees: torch.Tensor
    expected: NDArray[np.float32]


def cases() -> Iterator[Case]:
    """Every kind with every norm, jumping, with residual maps and without, 1 to 3 layers deep."""
    kinds = ("sage", "gcn", "gin", "gat", "mlp")
    variants = itertools.product(
        kinds, ("none", "batch", "layer"), ("none", "cat", "max"), (False, True)
    )
    for number, (kind, norm, jumping, residual) in enumerate(variants):
        heads, fanout = (1, 3, 4)[number % 3], ((4,), (3, -1), (3, 2, 4))[number // 3 % 3]
        model = ModelConfig(
            kind=kind,
            hidden=6 * heads,
            heads=heads,
            norm=norm,
            jumping=jumping,
            residual=residual,
        )
        config = TrainConfig(model=model, sampling=SamplingConfig(fanout=fanout))
        yield _case(number, config)


def write(case: Case, directory: Path) -> None:
    """Writes the exported model, and the batch beside it."""
    task = Task("classes", OUTPUTS, "accuracy")
    weights = case.model.state_dict()
    save_model(directory / "trained", case.model, weights, task, case.config, {})
    export_model(directory / "trained", directory / "model")
    batch = case.batch
    arrays = {
        "nodes": batch.n_id,
        "nodes_per_hop": np.array(batch.num_sampled_nodes, np.int64),
        "edges_per_hop": np.array(batch.num_sampled_edges, np.int64),
        "sources": batch.row,
        "picked": np.bincount(batch.col, minlength=sum(batch.num_sampled_nodes[:-1])),
    }
    if not isinstance(case.model, Network):
        seeds = batch.num_sampled_nodes[:1]
        none = np.zeros(0, np.int64)
        arrays = {**dict.fromkeys(arrays, none), "nodes": batch.n_id[: seeds[0]]}
        arrays["nodes_per_hop"] = np.array(seeds, np.int64)
    rows = len(arrays["nodes"])
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    floats = {"x": case.x[:rows].contiguous(), "degrees": case.degrees[:rows].contiguous()}
    save_file({**tensors, **floats}, directory / "case.safetensors")


def answers(directories: Sequence[Path]) -> list[NDArray[np.float32]]:
    """The core's logits for cases that were written. With a binding, this is its only caller."""
    subprocess.run([os.environ[BINARY], *map(str, directories)], check=True)
    return [
        np.fromfile(directory / "logits.bin", np.float32).reshape(-1, OUTPUTS)
        for directory in directories
    ]


def _case(number: int, config: TrainConfig) -> Case:
    random = np.random.default_rng(number)
    offsets, sources = _graph(random)
    # Seeds that come twice, with self-loops, and without any arc among them.
    seeds = np.array([0, 7, 0, NODES - 1, *random.integers(NODES, size=6)])
    batch = sample_batch(
        offsets,
        sources,
        None,
        seeds,
        config.sampling.fanout,
        replace=False,
        seed=number,
        epoch=0,
        batch=0,
    )
    torch.manual_seed(number)
    model = build_model(config.model, config.layers, FEATURES, OUTPUTS)
    for tensor in model.state_dict().values():
        # Fresh biases and eps are 0, which hides what becomes of them.
        if tensor.is_floating_point():
            tensor.add_(torch.randn_like(tensor).mul_(0.3))
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_var.uniform_(0.5, 2.0)
    model.eval()
    x = torch.from_numpy(random.normal(size=(len(batch.n_id), FEATURES)).astype(np.float32))
    degrees = torch.from_numpy(_degrees(offsets, sources, model)[batch.n_id])
    sampled = SimpleNamespace(
        x=x,
        n_id=torch.from_numpy(batch.n_id),
        edge_index=torch.from_numpy(np.stack([batch.row, batch.col])),
        num_sampled_nodes=batch.num_sampled_nodes,
        num_sampled_edges=batch.num_sampled_edges,
        batch_size=len(seeds),
    )
    with torch.no_grad():
        expected = model(sampled, degrees if model.needs_degrees else None).numpy()
    shape = config.model
    name = f"{shape.kind} {shape.norm} {shape.jumping} {shape.residual} {shape.heads}"
    return Case(f"{name} {config.layers}", model, config, batch, x, degrees, expected)


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
    offsets: NDArray[np.int64], sources: NDArray[np.int64], model: Any
) -> NDArray[np.float32]:
    degrees = np.diff(offsets)
    if isinstance(model, Network) and not model.counts_loops:
        target = np.repeat(np.arange(NODES), degrees)
        degrees = degrees - np.bincount(target[sources == target], minlength=NODES)
    return degrees.astype(np.float32)
