"""Check that batches on the device have the bits of those on the CPU, for each budget."""

from __future__ import annotations

import hashlib
from contextlib import closing
from itertools import islice
from typing import Any

import inputs
import torch
from bench import Bench

import outercore as oc


def run(bench: Bench) -> None:
    """Compare loaders of nodes, typed nodes and links, with pageable and pinned memory."""
    batches = bench.pick(4, 3)
    plain: dict[str, Any] = {
        "num_neighbors": [15, 10],
        "input_nodes": "train",
        "batch_size": bench.pick(1024, 64),
        "shuffle": True,
        "seed": 5,
        "threads": bench.pick(None, 1),
    }
    typed = {**plain, "num_neighbors": [5, 4], "batch_size": 128}
    links = {"num_neighbors": [5, 4], "batch_size": 128, "seed": 5, "shuffle": True}
    links |= {"threads": bench.pick(None, 1)}
    cases: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "nodes": (oc.NeighborLoader, inputs.planted(bench), plain),
        "typed nodes": (oc.NeighborLoader, inputs.typed(bench), typed),
        "links": (oc.LinkNeighborLoader, inputs.tiny(bench), links),
    }
    for name, (loader, data, options) in cases.items():
        budgets = {"all in memory": bench.pick(4 << 30, 256 << 20)}
        if name == "nodes" and not bench.small:
            budgets["a quarter of the features"] = inputs.feature_bytes(bench) // 4
        expected: list[str] = []
        for budget, memory in budgets.items():
            for pinned in (False, True) if bench.device == "cuda" else (False,):
                here, there = [], []
                with _opened(loader, data, memory, pin_memory=pinned, **options) as opened:
                    for batch in islice(opened, batches):
                        here.append(_digest(batch))
                        there.append(_digest(batch.to(bench.device, non_blocking=pinned)))
                expected = expected or here
                what = f"{name}, {budget}" + ", pinned" * pinned
                bench.check(f"batches of {what}: on the CPU", here == expected)
                bench.check(f"batches of {what}: on the device", there == expected)


def _opened(loader: Any, data: Any, memory: int, **options: Any) -> Any:
    """A loader with that budget, or the least that works if it is too small."""
    opened = loader(oc.open(data), memory=memory, **options)
    try:
        opened.plan()
    except oc.BudgetError as error:
        opened.close()
        if error.needed is None:
            raise
        opened = loader(oc.open(data), memory=error.needed, **options)
    return closing(opened)


def _digest(batch: Any) -> str:
    """Digest of the names, shapes, types and bits of all tensors of a batch."""
    digest = hashlib.sha256()
    for store in batch.stores:
        for name, value in sorted(store.items()):
            if torch.is_tensor(value):
                bits = value.cpu().contiguous()
                digest.update(f"{store._key} {name} {bits.dtype} {tuple(bits.shape)}".encode())
                digest.update(bits.numpy().tobytes())
    return digest.hexdigest()
