"""Generated data sets of all parts. No network is needed."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from bench import Bench

import outercore as oc
from outercore import _core

FEATURES = 128
CLASSES = 16


def planted(bench: Bench) -> Path:
    """Communities in 2 M nodes of 512 bytes, for epochs."""
    return _made(bench, "planted", _planted)


def tiny(bench: Bench) -> Path:
    """Communities in few nodes, for every kind of network."""
    return _made(bench, "tiny", _tiny)


def typed(bench: Bench) -> Path:
    """Two types of nodes and three of edges."""
    return _made(bench, "typed", _typed)


def facts(bench: Bench) -> Path:
    """Triples: the number of FB15k-237, with fewer entities."""
    return _made(bench, "facts", _facts)


def feature_bytes(bench: Bench) -> int:
    """Bytes of the features of `planted`."""
    return _nodes(bench) * FEATURES * 4


def _made(bench: Bench, name: str, make: Callable[[Bench, Path], None]) -> Path:
    path = bench.work / name
    # `graph.json` is written last. Without it, a stopped part has left an incomplete data set.
    if not (path / "graph.json").exists():
        shutil.rmtree(path, ignore_errors=True)
        started = time.perf_counter()
        make(bench, path)
        bench.keep(f"making {name}, s", time.perf_counter() - started)
    return path


def _nodes(bench: Bench) -> int:
    return bench.pick(2_000_000, 4_000)


def _planted(bench: Bench, out: Path) -> None:
    _generate(
        out,
        nodes=_nodes(bench),
        degree=14,
        features=FEATURES,
        splits=[0.1, 0.01, 0.01] if not bench.small else [0.5, 0.2, 0.2],
    )


def _tiny(bench: Bench, out: Path) -> None:
    _generate(out, nodes=bench.pick(20_000, 600), degree=8, features=20, splits=[0.5, 0.25, 0.25])


def _generate(out: Path, **options: object) -> None:
    described = {"classes": CLASSES, "seed": 1, "memory": 4 << 30, **options}
    _core.generate_planted(out, described, lambda *_: None)


def _typed(bench: Bench, out: Path) -> None:
    from torch_geometric.data import HeteroData

    papers, authors = bench.pick((8_000, 4_000), (200, 100))
    random = torch.Generator().manual_seed(2)
    data = HeteroData()
    classes = torch.randint(0, 4, (papers,), generator=random)
    data["paper"].x = torch.nn.functional.one_hot(classes, 12).float()
    data["paper"].x += torch.randn(papers, 12, generator=random)
    data["paper"].y = classes
    data["author"].x = torch.randn(authors, 6, generator=random)
    for edge_type, sources, targets in (
        (("paper", "cites", "paper"), papers, papers),
        (("author", "writes", "paper"), authors, papers),
        (("paper", "written_by", "author"), papers, authors),
    ):
        count = 6 * targets
        ends = [torch.randint(0, most, (count,), generator=random) for most in (sources, targets)]
        data[edge_type].edge_index = torch.stack(ends)
    order = torch.randperm(papers, generator=random)
    parts = (order[: papers // 2], order[papers // 2 : -papers // 4], order[-papers // 4 :])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = ("train", "valid", "test")
        oc.from_pyg(data, out, splits=dict(zip(names, parts, strict=True)))


def _facts(bench: Bench, out: Path) -> None:
    """Each relation maps a group of ten entities to another group, which a model can learn."""
    entities, relations, count = bench.pick((3_000, 20, 300_000), (300, 4, 3_000))
    random = np.random.default_rng(3)
    groups = entities // 10
    heads = random.integers(0, entities, count)
    kinds = random.integers(0, relations, count)
    steps = random.integers(1, groups, relations)
    tails = (heads // 10 + steps[kinds]) % groups * 10 + random.integers(0, 10, count)
    # Every entity and relation is in the training part.
    heads[:entities] = np.arange(entities)
    kinds[:relations] = np.arange(relations)
    held = count // 50
    parts = {"train": slice(0, count - 2 * held), "valid": slice(count - 2 * held, count - held)}
    parts["test"] = slice(count - held, count)
    files = {}
    for part, rows in parts.items():
        files[part] = bench.work / f"facts.{part}.tsv"
        columns = zip(heads[rows], kinds[rows], tails[rows], strict=True)
        files[part].write_text("".join(f"e{h}\tr{r}\te{t}\n" for h, r, t in columns))
    oc.import_triples(
        files["train"],
        out,
        valid=files["valid"],
        test=files["test"],
        options=oc.TripleOptions(unknown="drop"),
    )
