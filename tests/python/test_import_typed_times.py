"""Times of typed graphs: one scale, whatever units the tables have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outercore as oc
from outercore.sources.typed.graph import TypedInputs, import_typed

_SECONDS = [0, 86_400, 172_800]


def _import(tmp_path: Path, nodes: dict[str, Any], edges: dict[str, Any]) -> oc.Graph:
    pq.write_table(pa.table(nodes), tmp_path / "papers.parquet")
    rows = {"source": [0, 1, 2], "target": [1, 2, 0], **edges}
    pq.write_table(pa.table(rows), tmp_path / "cites.parquet")
    inputs = TypedInputs(
        (f"paper={tmp_path / 'papers.parquet'}",),
        (f"paper,cites,paper={tmp_path / 'cites.parquet'}:source,target",),
    )
    import_typed(inputs, tmp_path / "graph")
    return oc.open(tmp_path / "graph")


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps_of_any_unit_become_microseconds(
    tmp_path: Path, unit: str, zone: str | None
) -> None:
    scale = {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    times = pa.array([scale * second for second in _SECONDS], pa.timestamp(unit, zone))
    graph = _import(tmp_path, {"time": times}, {"time": times})
    expected = [10**6 * second for second in _SECONDS]
    assert graph.array("nodes/paper/time").tolist() == expected
    assert graph.array("edges/paper__cites__paper/time").tolist() == expected
    # A time is no feature.
    assert graph.features_of("paper") is None


def test_dates_and_timestamps_are_on_one_scale(tmp_path: Path) -> None:
    days = pa.array([0, 1, 2], pa.date32())
    stamps = pa.array([1000 * second for second in _SECONDS], pa.timestamp("ms"))
    graph = _import(tmp_path, {"day": days}, {"time": stamps})
    assert (
        graph.array("nodes/paper/day").tolist()
        == graph.array("edges/paper__cites__paper/time").tolist()
    )


def test_times_with_and_without_a_zone_are_refused_together(tmp_path: Path) -> None:
    naive = pa.array(_SECONDS, pa.timestamp("us"))
    aware = pa.array(_SECONDS, pa.timestamp("us", "UTC"))
    with pytest.raises(oc.InvalidError, match=r"column `seen` has a time zone.*`time` has none"):
        _import(tmp_path, {"time": naive}, {"seen": aware})
    assert not (tmp_path / "graph").exists()


def test_a_time_between_two_microseconds_is_refused_with_its_row(tmp_path: Path) -> None:
    times = pa.array([0, 1000, 1500], pa.timestamp("ns"))
    with pytest.raises(oc.InvalidError, match=r"column `time`: row 2: time 1500 ns is no whole"):
        _import(tmp_path, {"time": times}, {})


def test_a_time_beyond_the_scale_is_refused_with_its_row(tmp_path: Path) -> None:
    times = pa.array([0, 2**62, 0], pa.timestamp("ms"))
    with pytest.raises(oc.InvalidError, match=r"column `time`: row 1: time 4611686018427387904 ms"):
        _import(tmp_path, {"time": times}, {})


def test_a_missing_time_is_refused_with_its_row(tmp_path: Path) -> None:
    times = pa.array([0, None, 2], pa.timestamp("us"))
    with pytest.raises(oc.InvalidError, match=r"column `time`: row 1 has no value"):
        _import(tmp_path, {"time": times}, {})


def test_dates_beside_whole_numbers_of_one_name_are_refused(tmp_path: Path) -> None:
    days = pa.array([0, 1, 2], pa.date32())
    with pytest.raises(oc.InvalidError, match=r"cites.*`time` holds whole.*papers.*holds dates"):
        _import(tmp_path, {"time": days}, {"time": [1, 2, 3]})
    assert not (tmp_path / "graph").exists()
    # Another name is another array.
    _import(tmp_path, {"time": days}, {"hour": [1, 2, 3]})
