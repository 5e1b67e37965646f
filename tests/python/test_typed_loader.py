"""Batches of graphs with several types are those of the definition, whatever makes them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import outercore as oc  # noqa: E402
from typed_tables import (  # noqa: E402
    COUNTS,
    EDGES,
    Bibliography,
    assert_equal,
    bibliography,
    opened,
)

FANOUTS = [4, 3]
SMALL = "7600KiB"
"""Holds no more than half of the feature rows."""
BACKENDS = ["uring", "threads", "mmap"]
TYPES: dict[str, dict[str, tuple[int, str]]] = {
    "wide": {"author": (8, "float32"), "paper": (300, "float32")},
    "narrow": {"paper": (33, "float16"), "topic": (5, "int8"), "author": (1, "float64")},
    "other": {"author": (130, "float16"), "venue": (3, "uint8")},
    "none": {},
}
"""Width and type of the features of each node type that has some."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Bibliography:
    return bibliography(tmp_path_factory.mktemp("typed") / "wide", TYPES["wide"])


def loader(
    data: Bibliography, fan_outs: Any = FANOUTS, nodes: Any = "train", **options: Any
) -> Any:
    defaults = {"batch_size": 32, "shuffle": True, "seed": 3, "memory": "64MiB", "threads": 2}
    return oc.NeighborLoader(opened(data), fan_outs, nodes, **{**defaults, **options})


def require(backend: str) -> None:
    if dict(oc._core.available_backends()).get(backend):
        pytest.skip(f"this kernel offers no {backend}")


def assert_epoch(
    data: Bibliography,
    batches: Any,
    seeds: np.ndarray,
    *,
    fan_outs: Any = FANOUTS,
    node_type: str = "paper",
    epoch: int = 0,
    shuffle: bool = True,
    replace: bool = False,
    batch_size: int = 32,
) -> None:
    """Whether the next epoch of a loader is the one of the definition."""
    expected = data.batches(
        node_type,
        seeds,
        fan_outs,
        batch_size=batch_size,
        seed=3,
        epoch=epoch,
        shuffle=shuffle,
        replace=replace,
    )
    for batch, one in zip(batches, expected, strict=True):
        assert_equal(batch, one, data, node_type)


def test_the_import_stores_what_the_tables_say(data: Bibliography) -> None:
    graph = opened(data)
    assert graph.node_types == COUNTS
    assert graph.edge_types == sorted(EDGES, key="__".join)
    assert graph.labelled_type == "paper"
    first_column = first_row = 0
    first = dict(zip(COUNTS, np.cumsum([0, *COUNTS.values()]), strict=False))
    offsets, sources, ids = (
        graph.array(f"edges/edge/{name}").astype(np.int64) for name in ("offsets", "sources", "ids")
    )
    for one in graph.edge_types:
        own_offsets, own_sources, own_ids = data.edges[one]
        bounds = offsets[first_column : first_column + COUNTS[one[2]] + 1]
        part = slice(bounds[0], bounds[-1])
        assert (bounds - bounds[0] == own_offsets).all()
        assert (sources[part] - first[one[0]] == own_sources).all()
        assert (ids[part] - first_row == own_ids).all()
        first_column += COUNTS[one[2]]
        first_row += EDGES[one]
    np.testing.assert_array_equal(graph.array("edges/paper__cites__paper/weight"), data.weights)


@pytest.mark.parametrize("replace", [False, True])
def test_typed_batches_are_those_of_the_reference(data: Bibliography, replace: bool) -> None:
    with loader(data, replace=replace) as batches:
        for epoch in range(3):
            assert_epoch(data, batches, data.splits["train"], epoch=epoch, replace=replace)


@pytest.mark.parametrize(
    ("memory", "backend", "threads", "topology"),
    [
        *itertools.product([SMALL, "10MiB", "64MiB"], BACKENDS, [1, 3], ["auto"]),
        *itertools.product([SMALL], ["threads"], [1, 3], ["paged"]),
        *itertools.product(["16MiB"], BACKENDS, [3], ["resident", "paged"]),
    ],
)
def test_no_setting_changes_a_typed_batch(
    data: Bibliography, memory: str, backend: str, threads: int, topology: str
) -> None:
    require(backend)
    settings = {"memory": memory, "backend": backend, "threads": threads, "topology": topology}
    with loader(data, **settings) as batches:
        for epoch in range(2):
            assert_epoch(data, batches, data.splits["train"], epoch=epoch)


@pytest.mark.parametrize("policy", ["window", "lru"])
@pytest.mark.parametrize("hotness", ["presample", "visits", "in_degree", "none"])
def test_no_cache_changes_a_typed_batch(data: Bibliography, policy: str, hotness: str) -> None:
    with loader(data, memory=SMALL, policy=policy, hotness=hotness) as batches:
        for epoch in range(2):
            assert_epoch(data, batches, data.splits["train"], epoch=epoch)


@pytest.mark.parametrize("kind", ["narrow", "other", "none"])
@pytest.mark.parametrize("memory", ["5MiB", "64MiB"])
def test_features_may_have_any_width_and_type_or_be_missing(
    kind: str, memory: str, tmp_path: Path
) -> None:
    data = bibliography(tmp_path / kind, TYPES[kind])
    with loader(data, memory=memory) as batches:
        assert_epoch(data, batches, data.splits["train"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_fan_outs_may_differ_between_edge_types(data: Bibliography, backend: str) -> None:
    require(backend)
    fan_outs = {one: [3, 2, 1] for one in EDGES}
    fan_outs["paper", "cites", "paper"] = [-1, 0, 2]
    fan_outs["author", "reviews", "paper"] = [0, 0, 0]
    with loader(data, fan_outs, backend=backend) as batches:
        assert_epoch(data, batches, data.splits["train"], fan_outs=fan_outs)


@pytest.mark.parametrize("fan_outs", [[], [-1], [-1, -1], [2, -1, 1]])
def test_there_may_be_no_hop_and_a_hop_may_take_all_neighbours(
    data: Bibliography, fan_outs: list[int]
) -> None:
    with loader(data, fan_outs) as batches:
        assert_epoch(data, batches, data.splits["train"], fan_outs=fan_outs)


@pytest.mark.parametrize("node_type", list(COUNTS))
def test_seeds_may_be_of_any_type(data: Bibliography, node_type: str) -> None:
    everything = np.arange(COUNTS[node_type])
    some = np.array([7, 3, 7, 8])
    mask = everything % 3 == 0
    for nodes, seeds in [
        ((node_type, None), everything),
        (node_type, everything),
        ((node_type, some), some),
        ((node_type, torch.from_numpy(some)), some),
    ]:
        with loader(data, nodes=nodes, shuffle=False) as batches:
            assert_epoch(data, batches, seeds, node_type=node_type, shuffle=False)
    with loader(data, nodes=(node_type, mask), shuffle=False) as batches:
        expected = data.batches(
            node_type,
            np.flatnonzero(mask),
            FANOUTS,
            batch_size=32,
            seed=3,
            epoch=0,
            shuffle=False,
        )
        # Places in a mask are the nodes themselves.
        for batch, (sampled, places) in zip(batches, expected, strict=True):
            own = np.flatnonzero(mask)[places]
            assert_equal(batch, (sampled, own), data, node_type)


def test_a_batch_has_the_arrays_that_were_asked_for_alone(
    data: Bibliography,
) -> None:
    everything = next(iter(loader(data)))
    bare = next(
        iter(
            loader(
                data,
                features={"author": "x"},
                labels=None,
                edge_ids=False,
                arrays=["nodes/venue/founded"],
            )
        )
    )
    assert "x" not in bare["paper"]
    assert torch.equal(bare["author"].x, everything["author"].x)
    assert "y" not in bare["paper"]
    cites = bare["paper", "cites", "paper"]
    assert "e_id" not in cites
    assert "edge_weight" not in cites
    n_id = bare["venue"].n_id
    stored = opened(data).array("nodes/venue/founded")
    assert bare["venue"].founded.tolist() == stored[n_id].tolist()
    with loader(data, features=None, arrays=[]) as batches:
        batch = next(iter(batches))
        assert not any("x" in batch[name] for name in COUNTS)
        assert "founded" not in batch["venue"]


def test_features_of_a_type_may_come_from_a_file(data: Bibliography, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(COUNTS["topic"], 6)).astype(np.float32)
    np.save(tmp_path / "topics.npy", rows)
    features = {"topic": tmp_path / "topics.npy", "paper": "x"}
    with loader(data, features=features, memory=SMALL) as batches:
        for batch in batches:
            assert batch["topic"].x.numpy().tolist() == rows[batch["topic"].n_id].tolist()
            x = data.features["paper"][batch["paper"].n_id]
            np.testing.assert_array_equal(batch["paper"].x.numpy(), x)


def test_an_epoch_can_be_entered_in_the_middle(data: Bibliography) -> None:
    with loader(data) as batches:
        whole = list(batches)
        batches.set_epoch(0)
        batches.seek(2)
        rest = list(batches)
    assert len(rest) == len(whole) - 2
    for one, other in zip(whole[2:], rest, strict=True):
        assert torch.equal(one["paper"].n_id, other["paper"].n_id)
        assert torch.equal(one["author"].x, other["author"].x)


def test_ranks_share_the_seeds_of_a_typed_graph(data: Bibliography) -> None:
    seen = []
    for rank in range(2):
        with loader(data, rank=rank, world_size=2) as batches:
            seen += [
                node for one in batches for node in one["paper"].n_id[: one["paper"].batch_size]
            ]
    assert sorted(map(int, seen)) == sorted(data.splits["train"].tolist())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"nodes": "nobody"}, "nobody"),
        ({"nodes": ("nobody", None)}, "node type `nobody` is not in"),
        ({"nodes": None}, "expected a split, a node type"),
        ({"nodes": np.arange(3)}, "expected a split, a node type"),
        ({"nodes": ("venue", [9])}, "9"),
        ({"fan_outs": {("paper", "cites", "paper"): [1]}}, "no fan-outs for edge type"),
        ({"fan_outs": {**{one: [1] for one in EDGES}, ("a", "b", "c"): [1]}}, "not in the graph"),
        ({"fan_outs": {**{one: [1] for one in EDGES}, ("paper", "in", "venue"): [1, 1]}}, "hops"),
        ({"features": "other"}, "of which node type"),
        ({"features": {"nobody": "x"}}, "node type `nobody`"),
        ({"features": {"topic": "x"}}, "nodes/topic/x"),
        ({"arrays": ["nodes/topic/x"]}, "nodes/topic/x"),
    ],
)
def test_what_a_typed_graph_lacks_is_named(
    data: Bibliography, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises((oc.InvalidError, oc.NotFoundError), match=said):
        loader(data, **arguments)


def test_a_budget_that_is_too_small_is_refused_with_one_that_works(data: Bibliography) -> None:
    with pytest.raises(oc.BudgetError) as refused:
        loader(data, memory="256KiB").plan()
    with loader(data, memory=refused.value.needed) as batches:
        assert_epoch(data, batches, data.splits["train"])
