"""Every pair, and all, of {typed, edge features, temporal, weighted, disjoint, link} against one
slow sampler."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import outercore as oc
from outercore.importing.build.graph import import_graph
from outercore.importing.edge_arrays import EdgeChoice
from outercore.importing.inputs import Inputs, TypedInputs
from outercore.importing.plain_graph import open_inputs
from outercore.importing.typed_graph import open_typed
from slow_sampler import Rules, SlowBatch, SlowGraph, sample

FEATURES = ("typed", "edge features", "temporal", "weighted", "disjoint", "link")
SUBSETS = [
    frozenset(chosen)
    for size in range(len(FEATURES) + 1)
    for chosen in itertools.combinations(FEATURES, size)
]
FAN_OUTS = [3, 2]
LINKS = ("author", "writes", "paper")
PLAIN = ("node", "edge", "node")
WAYS = (
    {"memory": "64MiB", "threads": 1},
    {"memory": "6MiB", "threads": 3, "topology": "paged", "backend": "threads"},
    {"memory": "16MiB", "threads": 2, "topology": "paged", "constant_share": 0.0},
)
"""Budgets, back ends and threads that must not matter."""


def _edges(random: np.random.Generator, sources: int, targets: int, count: int) -> pa.Table:
    weights = random.integers(0, 4, count) / 2
    return pa.table(
        {
            "source": random.integers(0, sources, count),
            "target": random.integers(0, targets, count),
            "weight": weights,
            "time": random.integers(0, 20, count),
        }
    )


def _values(table: pa.Table, name: str) -> list:
    return table[name].to_pylist()


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> tuple[oc.Graph, SlowGraph]:
    root, random = tmp_path_factory.mktemp("typed"), np.random.default_rng(1)
    counts = {"author": 60, "paper": 90, "venue": 4}
    times = {name: random.integers(0, 20, count) for name, count in counts.items()}
    given = []
    for name, count in counts.items():
        columns: dict[str, Any] = {}
        if name == "venue":
            # Neither these nodes nor their edges have times.
            del times["venue"]
            columns["since"] = random.integers(1900, 2000, count)
        else:
            columns["time"] = pa.array(times[name], pa.timestamp("us"))
            columns["f"] = random.random(count, dtype=np.float32)
        pq.write_table(pa.table(columns), root / f"{name}.parquet")
        given.append(f"{name}={root / name}.parquet")
    edge_types = {
        LINKS: _edges(random, 60, 90, 300),
        ("author", "reviews", "paper"): _edges(random, 60, 90, 100),
        ("paper", "cites", "paper"): _edges(random, 90, 90, 400),
        ("paper", "in", "venue"): _edges(random, 90, 4, 90),
        ("venue", "invites", "author"): _edges(random, 4, 60, 80),
    }
    files = []
    for edge_type, table in edge_types.items():
        if edge_type[1] == "in":
            # An edge type without weights.
            table = table.drop(["weight"])
        stamps = table["time"].cast(pa.timestamp("us"))
        table = table.drop(["time"])
        if edge_type[1] != "invites":
            table = table.append_column("time", stamps)
        path = root / f"{edge_type[1]}.parquet"
        pq.write_table(table, path)
        files.append(f"{','.join(edge_type)}={path}:source,target")
    import_graph(open_typed(TypedInputs(tuple(given), tuple(files))), root / "graph")
    slow = SlowGraph.of(
        counts,
        {
            edge_type: np.stack([table["source"].to_numpy(), table["target"].to_numpy()], axis=1)
            for edge_type, table in edge_types.items()
        },
        weights={
            edge_type: _values(table, "weight")
            for edge_type, table in edge_types.items()
            if edge_type[1] != "in"
        },
        edge_times={
            edge_type: _values(table, "time")
            for edge_type, table in edge_types.items()
            if edge_type[1] != "invites"
        },
        node_times={name: of.tolist() for name, of in times.items()},
    )
    return oc.open(root / "graph"), slow


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[oc.Graph, SlowGraph]:
    root, random = tmp_path_factory.mktemp("plain"), np.random.default_rng(2)
    table = _edges(random, 120, 120, 600)
    pq.write_table(table, root / "edges.parquet")
    times = random.integers(0, 20, 120)
    np.save(root / "time.npy", times)
    inputs = Inputs(
        edges=(f"{root / 'edges.parquet'}:source,target",),
        arrays=(f"time={root / 'time.npy'}",),
        edge_values=EdgeChoice(weight="weight", time="time"),
    )
    import_graph(open_inputs(inputs), root / "graph")
    rows = np.stack([table["source"].to_numpy(), table["target"].to_numpy()], axis=1)
    slow = SlowGraph.of(
        {"node": 120},
        {PLAIN: rows},
        weights={PLAIN: _values(table, "weight")},
        edge_times={PLAIN: _values(table, "time")},
        node_times={"node": times.tolist()},
    )
    return oc.open(root / "graph"), slow


def _loader(graph: oc.Graph, chosen: frozenset[str], **way):
    options = {
        "batch_size": 8,
        "seed": 5,
        "disjoint": "disjoint" in chosen,
        "weight_attr": "edge_weight" if "weighted" in chosen else None,
        "time_attr": "time" if "temporal" in chosen else None,
        "arrays": None if "edge features" in chosen else [],
        **way,
    }
    random = np.random.default_rng(9)
    is_typed = "typed" in chosen
    times = random.integers(5, 20, 30) if "temporal" in chosen else None
    if "link" in chosen:
        most = (60, 90) if is_typed else (120, 120)
        links = np.stack([random.integers(0, end, 30) for end in most])
        given = (LINKS, links) if is_typed else links
        return oc.LinkNeighborLoader(
            graph, FAN_OUTS, given, edge_label_time=times, neg_sampling="binary", **options
        )
    nodes = random.integers(0, 90, 30)
    return oc.NeighborLoader(
        graph, FAN_OUTS, ("paper", nodes) if is_typed else nodes, input_time=times, **options
    )


def _seeds(batch, chosen: frozenset[str], number: int) -> tuple[list, list[int] | None]:
    """The seeds that a batch was asked for, and their times."""
    random = np.random.default_rng(9)
    is_typed, is_forest = "typed" in chosen, bool({"temporal", "disjoint"} & chosen)
    times = random.integers(5, 20, 30) if "temporal" in chosen else None
    part = slice(8 * number, min(8 * number + 8, 30))
    if "link" not in chosen:
        nodes = random.integers(0, 90, 30)[part]
        name = "paper" if is_typed else "node"
        return [(name, int(node)) for node in nodes], None if times is None else times[
            part
        ].tolist()
    ends = ("author", "paper") if is_typed else ("node", "node")
    index = (batch[LINKS] if is_typed else batch).edge_label_index
    stores = [batch[name] if is_typed else batch for name in ends]
    named = [
        [(name, int(node)) for node in store.n_id[places].tolist()]
        for name, store, places in zip(ends, stores, index, strict=True)
    ]
    if not is_forest:
        return list(dict.fromkeys([*named[0], *named[1]])), None
    if times is None:
        return [*named[0], *named[1]], None
    own = times[part].tolist()
    return [*named[0], *named[1]], [*own, *own, *own, *own]


def _found(batch, graph: oc.Graph, chosen: frozenset[str]) -> SlowBatch:
    """A batch as the slow sampler writes it."""
    is_forest = bool({"temporal", "disjoint"} & chosen)
    if isinstance(batch, Data):
        stores, edges = {"node": batch}, {PLAIN: batch}
    else:
        assert isinstance(batch, HeteroData)
        stores = {name: batch[name] for name in graph.node_types}
        edges = {edge_type: batch[edge_type] for edge_type in graph.edge_types}
    return SlowBatch(
        {name: store.n_id.tolist() for name, store in stores.items()},
        {
            name: store.batch.tolist() if is_forest else [0] * len(store.n_id)
            for name, store in stores.items()
        },
        {
            key: [tuple(pair) for pair in store.edge_index.T.tolist()]
            for key, store in edges.items()
        },
        {key: store.e_id.tolist() for key, store in edges.items()},
    )


@pytest.mark.parametrize("chosen", SUBSETS, ids=lambda chosen: "+".join(sorted(chosen)) or "none")
def test_a_batch_is_that_of_the_slow_sampler_however_it_is_made(
    chosen: frozenset[str],
    typed: tuple[oc.Graph, SlowGraph],
    plain: tuple[oc.Graph, SlowGraph],
) -> None:
    graph, slow = typed if "typed" in chosen else plain
    rules = Rules(
        disjoint="disjoint" in chosen, weighted="weighted" in chosen, timed="temporal" in chosen
    )
    expected: list[SlowBatch] | None = None
    for way in WAYS:
        with _loader(graph, chosen, **way) as loader:
            batches = list(loader)
        assert len(batches) == 4
        if expected is None:
            expected = []
            for number, batch in enumerate(batches):
                seeds, times = _seeds(batch, chosen, number)
                made = sample(
                    slow, seeds, FAN_OUTS, rules, seed=5, epoch=0, batch=number, times=times
                )
                if "link" in chosen and (rules.disjoint or rules.timed):
                    links = len(seeds) // 4
                    made.trees = {
                        name: [tree % links for tree in of] for name, of in made.trees.items()
                    }
                expected.append(made)
        for batch, made in zip(batches, expected, strict=True):
            assert _found(batch, graph, chosen) == made, way
            if "edge features" in chosen:
                _assert_edge_features(batch, graph)


def _assert_edge_features(batch, graph: oc.Graph) -> None:
    """Weights and times of a batch's edges are those of their rows."""
    stores = {PLAIN: batch} if isinstance(batch, Data) else dict(batch.edge_items())
    compared = 0
    for edge_type, store in stores.items():
        key = "edge" if edge_type == PLAIN else "__".join(edge_type)
        for name in ("weight", "time"):
            array = f"edges/{key}/{name}"
            if array in graph.arrays:
                rows = torch.from_numpy(graph.array(array))[store.e_id]
                assert torch.equal(store[f"edge_{name}"], rows)
                compared += len(rows)
    assert compared


@pytest.mark.parametrize("equal", ["seen", "hidden"])
@pytest.mark.parametrize("last", [False, True])
def test_last_and_equal_times_are_those_of_the_slow_sampler(
    typed: tuple[oc.Graph, SlowGraph], *, last: bool, equal: str
) -> None:
    graph, slow = typed
    nodes, times = np.arange(20), np.arange(20) % 15
    loader = oc.NeighborLoader(
        graph,
        FAN_OUTS,
        ("paper", nodes),
        batch_size=20,
        time_attr="time",
        input_time=times,
        temporal_strategy="last" if last else "uniform",
        equal_times=equal,
        arrays=[],
    )
    rules = Rules(timed=True, last=last, equal=equal == "seen")
    seeds = [("paper", int(node)) for node in nodes]
    made = sample(slow, seeds, FAN_OUTS, rules, seed=0, epoch=0, batch=0, times=times.tolist())
    assert _found(next(iter(loader)), graph, frozenset({"temporal"})) == made


def test_weights_with_replacement_are_those_of_the_slow_sampler(
    plain: tuple[oc.Graph, SlowGraph],
) -> None:
    graph, slow = plain
    loader = oc.NeighborLoader(
        graph, FAN_OUTS, np.arange(40), batch_size=40, weight_attr="weight", replace=True
    )
    seeds = [("node", node) for node in range(40)]
    rules = Rules(weighted=True, replace=True)
    made = sample(slow, seeds, FAN_OUTS, rules, seed=0, epoch=0, batch=0)
    assert _found(next(iter(loader)), graph, frozenset()) == made


def test_a_weight_below_zero_is_refused_with_its_row(tmp_path: Path) -> None:
    table = pa.table({"source": [0, 1], "target": [1, 0], "weight": [1.0, -2.0]})
    pq.write_table(table, tmp_path / "edges.parquet")
    inputs = Inputs(
        edges=(str(tmp_path / "edges.parquet"),), edge_values=EdgeChoice(weight="weight")
    )
    import_graph(open_inputs(inputs), tmp_path / "graph")
    loader = oc.NeighborLoader(tmp_path / "graph", [1], batch_size=2, weight_attr="weight")
    with pytest.raises(oc.InvalidError, match="weight -2 of the edge in row 1"):
        next(iter(loader))
