"""Check on the real data sets that batches depend only on the random seed.

    python benchmarks/exactness.py [NAME...] [--batches N] [--work DIR]

Loads and trains an epoch for every budget (5 %, 25 % and all of the data), back end (uring,
threads, mmap) and number of threads (1, 2, 4). Every tensor of every batch, and the loss after the
epoch, must be bit-identical. The batches must also equal the batches of
`tests/python/reference.py`, the definition of the sampler in plain Python, with rows that NumPy
reads from the array. On large graphs, only the first `--batches` batches are compared. The
reference takes seconds per batch and checks the first few of them.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch_geometric.nn.models import GraphSAGE

import outercore as oc

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))
import adapters
from accuracy import RECIPES, data_set
from limits import parse_bytes
from measure import REPOSITORY, say

import reference

SHARES = (0.05, 0.25, 1.0)
BACKENDS = ("uring", "threads", "mmap")
THREADS = (1, 2, 4)
SEED = 7
EPOCH = 1
REFERENCE_EDGES = 200_000
"""Number of edges after which the reference stops sampling batches."""


@dataclass(frozen=True)
class Shape:
    """Batch size and fan-outs for a data set."""

    batch_size: int
    fanout: tuple[int, ...]


LARGE = Shape(512, (15, 10))
SMALL = Shape(16, (4, 3))
"""Shape for small graphs, of which a batch of the large shape would be a quarter."""
SMALL_NODES = 5_000
WIDE_FEATURES = 1_000


@dataclass(frozen=True)
class Setting:
    """A setting that must not change the batches."""

    share: float
    backend: str
    threads: int

    def __str__(self) -> str:
        return f"{self.share:.0%} {self.backend} {self.threads} threads"


@dataclass(frozen=True)
class Outcome:
    """Results that must be equal: a digest of each batch, and the mean loss after the epoch."""

    digests: list[str]
    loss: str


def digest(batch: oc.NeighborLoader) -> str:
    """A hash of all tensors and counts of a batch."""
    mark = hashlib.sha256()
    for name in ("x", "y", "edge_index", "n_id", "e_id", "input_id"):
        tensor = getattr(batch, name)
        mark.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        mark.update(np.ascontiguousarray(tensor.numpy()).tobytes())
    counts = (batch.batch_size, list(batch.num_sampled_nodes), list(batch.num_sampled_edges))
    mark.update(repr(counts).encode())
    return mark.hexdigest()


def data_bytes(graph: oc.Graph) -> int:
    """Bytes of features and topology."""
    return sum(
        int(np.prod(entry["shape"])) * np.dtype(entry["dtype"]).itemsize
        for key, entry in graph.manifest["arrays"].items()
        if key.startswith("edges/") or key == graph.manifest["roles"]["features"]
    )


def shape_of(graph: oc.Graph) -> Shape:
    """The shape of batches for the size of a graph."""
    small = graph.num_nodes < SMALL_NODES or graph.num_features > WIDE_FEATURES
    return SMALL if small else LARGE


def open_loader(graph: oc.Graph, setting: Setting, budget: int) -> oc.NeighborLoader:
    """The loader of a setting under a budget."""
    shape = shape_of(graph)
    return oc.NeighborLoader(
        graph,
        shape.fanout,
        "train",
        batch_size=shape.batch_size,
        shuffle=True,
        seed=SEED,
        memory=budget,
        backend=setting.backend,
        threads=setting.threads,
    )


def within_budget(graph: oc.Graph, setting: Setting, batches: int) -> tuple[Outcome, int]:
    """An epoch under the budget of a setting; returns the outcome and the budget.

    If the share of a tiny graph is too small for a batch, the budget is the least that works.
    """
    budget = int(data_bytes(graph) * setting.share)
    if setting.share == 1.0:
        budget = 2 * budget + (256 << 20)
    while True:
        try:
            return epoch_of(graph, setting, batches, budget), budget
        except oc.BudgetError as error:
            # The error of the plan has the least budget. The error of an epoch with a larger batch
            # than in the trial does not.
            least = re.search(r"least that works is ([0-9.]+ ?[A-Za-z]+)", str(error))
            wanted = int(parse_bytes(least[1]) * 1.02) if least else 0
            budget = max(wanted, int(budget * 1.25))
            if budget > 4 * data_bytes(graph) + (1 << 30):
                raise


def epoch_of(graph: oc.Graph, setting: Setting, batches: int, budget: int) -> Outcome:
    """Load and train an epoch."""
    torch.manual_seed(SEED)
    layers = len(shape_of(graph).fanout)
    model = GraphSAGE(graph.num_features, 32, layers, graph.num_classes)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    digests, losses = [], []
    with open_loader(graph, setting, budget) as loader:
        loader.set_epoch(EPOCH)
        for batch in itertools.islice(loader, batches):
            digests.append(digest(batch))
            adam.zero_grad(set_to_none=True)
            out = model(
                batch.x,
                batch.edge_index,
                num_sampled_nodes_per_hop=batch.num_sampled_nodes,
                num_sampled_edges_per_hop=batch.num_sampled_edges,
            )
            count = batch.batch_size
            loss = torch.nn.functional.cross_entropy(out[:count], batch.y[:count])
            loss.backward()
            adam.step()
            losses.append(float(loss.detach()))
    return Outcome(digests, float(np.mean(losses)).hex())


def expected(graph: oc.Graph, x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, int]]:
    """Digest and number of edges of each batch, by the reference and NumPy."""
    from torch_geometric.data import Data

    keys = [f"edges/edge/{name}" for name in ("offsets", "sources", "ids")]
    stored = graph.manifest["arrays"]
    offsets, sources, ids = (graph.array(key) if key in stored else None for key in keys)
    seeds, shape = graph.split("train"), shape_of(graph)
    everyone = np.arange(len(seeds))
    for batch in range(-(-len(seeds) // shape.batch_size)):
        places = reference.batch_seeds(
            everyone, batch, shape.batch_size, shuffle=True, seed=SEED, epoch=EPOCH
        )
        sampled = reference.sample_batch(
            offsets, sources, ids, seeds[places], shape.fanout,
            replace=False, seed=SEED, epoch=EPOCH, batch=batch,
        )  # fmt: skip
        data = Data(
            x=torch.from_numpy(x[sampled.n_id]),
            y=torch.from_numpy(y[sampled.n_id]),
            edge_index=torch.from_numpy(np.stack([sampled.row, sampled.col])),
            n_id=torch.from_numpy(sampled.n_id),
            e_id=torch.from_numpy(sampled.e_id),
            input_id=torch.from_numpy(np.asarray(places, np.int64)),
            batch_size=len(places),
            num_sampled_nodes=sampled.num_sampled_nodes,
            num_sampled_edges=sampled.num_sampled_edges,
        )
        yield digest(data), len(sampled.row)


def check(name: str, batches: int, work: Path, root: str | None) -> dict[str, object]:
    """Compares all settings of a data set with each other and with the reference."""
    graph = oc.open(data_set(name, 0, work, root))
    settings = [Setting(*values) for values in itertools.product(SHARES, BACKENDS, THREADS)]
    first: Outcome | None = None
    differing, budgets = [], {}
    for setting in settings:
        started = time.perf_counter()
        outcome, budget = within_budget(graph, setting, batches)
        budgets[f"{setting.share:.0%}"] = budget
        first = first or outcome
        same = outcome == first
        if not same:
            differing.append(str(setting))
        seconds = time.perf_counter() - started
        say(f"{name} {setting}: {'equal' if same else 'DIFFERENT'} ({seconds:.1f} s)")
    assert first is not None

    compared, edges = 0, 0
    x, y = graph.array("x").astype(np.float32, copy=False), graph.array("y")
    for delivered, (wanted, sampled) in zip(first.digests, expected(graph, x, y), strict=False):
        if delivered != wanted:
            differing.append(f"batch {compared} differs from the reference")
        compared, edges = compared + 1, edges + sampled
        if edges >= REFERENCE_EDGES:
            break
    return {
        "name": name,
        "settings": len(settings),
        "batches": len(first.digests),
        "reference_batches": compared,
        "reference_edges": edges,
        "loss": float.fromhex(first.loss),
        "budgets": budgets,
        "differing": differing,
    }


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns 1 if anything differs."""
    cache = Path(os.environ.get("OUTERCORE_BENCH_DIR", REPOSITORY / ".cache" / "bench"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *RECIPES], metavar="NAME")
    parser.add_argument("--batches", type=int, default=32, help="of an epoch, at most")
    parser.add_argument("--work", type=Path, default=cache)
    parser.add_argument("--data", help="the data library")
    options = parser.parse_args(arguments)
    # A sum of floats in PyTorch depends on the number of threads; batches do not.
    torch.set_num_threads(1)
    bad = False
    for name in options.names or RECIPES:
        try:
            outcome = check(name, options.batches, options.work, options.data)
        except adapters.MissingDataError as missing:
            say(f"skipped {name}: {missing}")
            continue
        bad |= bool(outcome["differing"])
        print(json.dumps(outcome), flush=True)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
