"""Seconds of a GraphSAGE step by the way in which features reach the device.

All ways use the loader and the network of Outercore. `as today` is what `outercore train` does. The
others show what a device tier can reach: pinned copies, zero copy, rows in device memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import inputs
import torch
from bench import Bench
from gather import gather, register, unregister
from torch import Tensor

import outercore as oc
from outercore.training.config import ModelConfig
from outercore.training.models import build_model


def run(bench: Bench) -> None:
    """Measure each way with all data in memory."""
    device = bench.device
    graph = oc.open(inputs.planted(bench))
    x = torch.from_numpy(graph.array("x")).clone()
    if device == "cuda":
        register(x)
    there = x.to(device)
    words, words_there = x.view(torch.int32), there.view(torch.int32)

    def as_today(batch: Any) -> Any:
        return batch.to(device)

    def pinned(batch: Any) -> Any:
        return batch.to(device, non_blocking=True)

    def gathered(table: Tensor, programs: int) -> Callable[[Any], Any]:
        def by_kernel(batch: Any) -> Any:
            batch = batch.to(device)
            out = torch.empty(len(batch.n_id), x.size(1), device=device)
            gather(table, batch.n_id, out.view(torch.int32), programs)
            batch.x = out
            return batch

        return by_kernel

    step = _Step(bench, graph)
    ways: dict[str, tuple[dict[str, Any], Callable[[Any], Any] | None, bool]] = {
        "sampling alone": ({"features": None}, None, False),
        "sampling and rows in host memory": ({}, None, False),
        "copied, no network": ({}, as_today, False),
        "as today: pageable, blocking": ({}, as_today, True),
        "rows by zero copy": ({"features": None}, gathered(words, bench.pick(132, 2)), True),
        "rows in device memory": (
            {"features": None}, gathered(words_there, bench.pick(132 * 8, 2)), True
        ),
    }  # fmt: skip
    if device == "cuda":
        ways["x pinned, not blocking"] = ({"pin_memory": True}, pinned, True)
    seconds = {}
    for name, (options, move, compute) in ways.items():
        with closing(_loader(bench, graph, **options)) as loader:
            seconds[name] = _seconds(bench, loader, move, step if compute else None)
        bench.keep("seconds_a_step", seconds)
    with closing(_loader(bench, graph)) as loader:
        batch = next(iter(loader)).to(device)
    bench.keep("batch", _sizes(batch))
    bench.keep("network_alone_s", bench.seconds(lambda: step(batch)))
    bench.keep("network_alone_loss_unread_s", bench.seconds(lambda: step(batch, read=False)))
    if device == "cuda":
        unregister(x)


def _loader(bench: Bench, graph: oc.Graph, **options: Any) -> Any:
    return oc.NeighborLoader(
        graph,
        num_neighbors=[15, 10],
        input_nodes="train",
        batch_size=bench.pick(1024, 64),
        shuffle=True,
        edge_ids=False,
        memory=bench.pick("6GiB", "256MiB"),
        threads=bench.pick(None, 1),
        **options,
    )


class _Step:
    """One step as in `outercore train`: forward, reading the loss, backward, Adam."""

    def __init__(self, bench: Bench, graph: oc.Graph) -> None:
        torch.manual_seed(0)
        config = ModelConfig(kind="sage", hidden=bench.pick(256, 16))
        model = build_model(config, 2, graph.num_features, graph.num_classes)
        self._model = model.to(bench.device).train()
        self._adam = torch.optim.Adam(self._model.parameters(), lr=0.003)

    def __call__(self, batch: Any, read: bool = True) -> None:
        self._adam.zero_grad(set_to_none=True)
        logits = self._model(batch, None)
        loss = torch.nn.functional.cross_entropy(logits, batch.y[: batch.batch_size])
        if read:
            float(loss.detach())
        loss.backward()
        self._adam.step()


def _seconds(
    bench: Bench, loader: Any, move: Callable[[Any], Any] | None, step: _Step | None
) -> float:
    """Mean seconds of a step, without the first ones."""
    first, steps = bench.pick((15, 60), (1, 2))
    started = 0.0
    for number, batch in enumerate(_batches(loader, first + steps)):
        if number == first:
            bench.wait()
            started = time.perf_counter()
        moved = batch if move is None else move(batch)
        if step is not None:
            step(moved)
    bench.wait()
    return (time.perf_counter() - started) / steps


def _batches(loader: Any, count: int) -> Iterator[Any]:
    """`count` batches, from several epochs if needed."""
    epoch = 0
    while count > 0:
        loader.set_epoch(epoch)
        for batch in islice(loader, count):
            count -= 1
            yield batch
        epoch += 1


def _sizes(batch: Any) -> dict[str, int]:
    """Rows, edges and bytes of a batch."""
    tensors = {name: value for name, value in batch if torch.is_tensor(value)}
    sizes = {name: value.numel() * value.element_size() for name, value in tensors.items()}
    return {"nodes": len(batch.n_id), "edges": batch.edge_index.size(1), **sizes}
