"""Forecasts: counts are those of the epochs that follow."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

import outercore as oc
from fakes import planted
from outercore.errors import BudgetError, InvalidError, UnsupportedError
from outercore.runs import record as records

# With other programs on the cores, two threads wait for each other most of the time.
torch.set_num_threads(1)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    root = tmp_path_factory.mktemp("planted") / "graph"
    return oc.open(planted(root, nodes=20_000, degree=8, width=32))


def _loader(graph: oc.Graph, **options: Any) -> oc.NeighborLoader:
    chosen = {"batch_size": 64, "shuffle": True, "memory": "3MiB", "threads": 2, **options}
    return oc.NeighborLoader(graph, [4, 3], "train", edge_ids=False, **chosen)


@pytest.mark.parametrize(
    "options", [{}, {"topology": "paged", "memory": "4MiB"}, {"policy": "lru"}, {"memory": "64MiB"}]
)
def test_epochs_hit_and_read_what_was_forecast(graph: oc.Graph, options: dict[str, Any]) -> None:
    steps: list[int] = []
    loader, untouched = _loader(graph, **options), _loader(graph, **options)
    expected = loader.forecast(lambda batch: steps.append(batch.batch_size))
    assert set(steps) == {64}
    assert expected["traced_batches"] == 2 * expected["batches"] == 2 * len(loader)
    for name in ("first_epoch", "later_epochs"):
        one = expected[name]
        pairs = zip(loader, untouched, strict=True)
        assert all(torch.equal(batch.x, other.x) for batch, other in pairs)
        taken = loader.counters()
        reads = taken["counters"]["feature_reads"], taken["counters"]["topology_reads"]
        assert one["hit_ratio"] == pytest.approx(taken["hit_ratio"])
        assert one["rows_read"] == taken["counters"]["cache"]["misses"]
        # Paged topologies read about as much in every epoch.
        near = 0.1 if options.get("topology") == "paged" else 0.001
        assert one["bytes"] == pytest.approx(sum(part["bytes"] for part in reads), rel=near)
        assert one["seconds"] > 0
    with pytest.raises(InvalidError, match="first epoch has begun"):
        loader.forecast()


def test_every_loader_of_nodes_has_a_forecast(graph: oc.Graph) -> None:
    options = {"batch_size": 64, "memory": "3MiB", "threads": 1}
    sampler = oc.NeighborSampler(graph, [4, 3], "train", features="x", **options)
    expected = sampler.forecast()["first_epoch"]
    for _ in sampler:
        pass
    assert expected["hit_ratio"] == pytest.approx(sampler.counters()["hit_ratio"])
    links = oc.LinkNeighborLoader(graph, [4], edge_label_index=torch.tensor([[1], [2]]))
    with pytest.raises(UnsupportedError, match="a forecast of links"):
        links.forecast()


def test_training_says_what_it_expects(tmp_path: Path) -> None:
    data = planted(tmp_path / "graph", nodes=3000, degree=6, width=256)
    options = {"fanout": (4, 3), "hidden": 8, "epochs": 2, "batch_size": 64, "memory": "6MiB"}
    planned = oc.plan("train", data, **options)["forecast"]
    record = oc.train(data, out=tmp_path / "run", **options)
    again = oc.train(data, out=tmp_path / "again", **options)
    # Trying the network leaves it as it was.
    assert again["result"] == record["result"]
    for name in ("first_epoch", "later_epochs"):
        for what in ("hit_ratio", "bytes", "rows_read"):
            assert record["forecast"][name][what] == planned[name][what]
    first = record["epochs"][0]["counters"]
    assert planned["first_epoch"]["hit_ratio"] == pytest.approx(records.hit_ratio(first))
    assert planned["first_epoch"]["train_s"] > 0


def test_narrow_rows_of_a_type_need_no_memory_of_wide_ones(tmp_path: Path) -> None:
    """A batch has many nodes of a type with 2 features, and few of one with 4,000."""
    data = HeteroData()
    data["wide"].x = torch.zeros(20, 4000)
    data["narrow"].x = torch.zeros(20_000, 2)
    random = np.random.default_rng(0)
    ends = [random.integers(0, 20_000, 60_000), random.integers(0, 20_000, 60_000)]
    data["narrow", "to", "narrow"].edge_index = torch.from_numpy(np.stack(ends))
    data["wide", "to", "narrow"].edge_index = torch.tensor([[0, 1], [5, 6]])
    graph = oc.from_pyg(data, tmp_path / "typed")
    options = {"batch_size": 500, "edge_ids": False, "topology": "resident"}
    loader = partial(oc.NeighborLoader, graph, [5, 5], "narrow", **options)
    with pytest.raises(BudgetError) as refusal:
        loader(memory="2MiB").plan()
    needed = refusal.value.needed
    assert needed is not None
    plan = loader(memory=needed).plan()
    # 8 bytes a narrow row, and no more than the 20 wide rows of 16,000.
    assert plan["row_bytes_per_batch"] <= 8 * plan["nodes_per_batch"] + 20 * 16_000
    with pytest.raises(BudgetError):
        loader(memory=int(0.9 * needed)).plan()
