"""Times of typed graphs: one scale, whatever units the tables have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outercore as oc
from outercore.importing.build.graph import import_graph
from outercore.importing.inputs import TypedInputs
from outercore.importing.typed_graph import open_typed

_SECONDS = [0, 86_400, 172_800]


def _import(tmp_path: Path, nodes: dict[str, Any], edges: dict[str, Any]) -> oc.Graph:
    pq.write_table(pa.table(nodes), tmp_path / "papers.parquet")
    rows = {"source": [0, 1, 2], "target": [1, 2, 0], **edges}
    pq.write_table(pa.table(rows), tmp_path / "cites.parquet")
    inputs = TypedInputs(
        (f"paper={tmp_path / 'papers.parquet'}",),
        (f"paper,cites,paper={tmp_path / 'cites.parquet'}:source,target",),
    )
    import_graph(open_typed(inputs), tmp_path / "graph")
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
    with pytest.raises(
        oc.InvalidError, match=r"`seen` of .*__cites__.* with a time zone.*`time` of"
    ):
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
    with pytest.raises(
        oc.InvalidError, match=r"`time` of paper holds times.*cites.* of the same name holds other"
    ):
        _import(tmp_path, {"time": days}, {"time": [1, 2, 3]})
    assert not (tmp_path / "graph").exists()
    # Another name is another array.
    _import(tmp_path, {"time": days}, {"hour": [1, 2, 3]})


def _shop(place: Path, time: str) -> str:
    place.mkdir()
    (place / "orders.csv").write_text("id,user,day\n0,0,2020-01-31\n1,1,2020-02-01\n")
    (place / "users.csv").write_text("id,joined,age\n0,2020-01-31,3\n1,2020-02-01,4\n")
    (place / "tables.yaml").write_text(
        "tables:\n  users: {primary_key: id}\n"
        f"  orders: {{primary_key: id, foreign_keys: {{user: users}}{time}}}\n"
    )
    return str(place)


def test_dates_that_a_description_does_not_name_are_named(tmp_path: Path, outcome: Any) -> None:
    code, _, told = outcome("import", _shop(tmp_path / "a", ""), "--out", tmp_path / "one")
    assert code == 0, told
    assert "dates that are not taken as times: `day` of `orders`, `joined` of `users`" in told
    assert "`time: COLUMN` in `tables.yaml`" in told
    timed = _shop(tmp_path / "b", ", time: day")
    code, _, told = outcome("import", timed, "--out", tmp_path / "two")
    assert code == 0, told
    assert "dates that are not taken as times: `joined` of `users` (" in told


def test_dates_in_texts_of_typed_tables_are_arrays(tmp_path: Path, outcome: Any) -> None:
    shop = _shop(tmp_path / "shop", "")
    (tmp_path / "buys.csv").write_text("user,order,at\n0,0,2020-01-31\n1,1,2020-02-01\n")
    given = ["--nodes", f"user={shop}/users.csv:id", "--nodes", f"order={shop}/orders.csv:id"]
    more = ["--edges", f"user,buys,order={tmp_path / 'buys.csv'}", "--out", tmp_path / "graph"]
    code, _, told = outcome("import", *given, *more)
    assert code == 0, told
    assert "not taken as times" not in told
    times = oc.open(tmp_path / "graph").manifest["roles"]["times"]
    assert set(times) == {
        "nodes/user/joined",
        "nodes/order/day",
        "edges/user__buys__order/at",
    }


def test_typed_imports_record_which_arrays_are_times(tmp_path: Path) -> None:
    stamps = pa.array([1000 * second for second in _SECONDS], pa.timestamp("ms", "UTC"))
    days = pa.array([0, 1, 2], pa.date32())
    graph = _import(tmp_path, {"seen": stamps, "born": days}, {"time": stamps, "hour": [1, 2, 3]})
    assert graph.manifest["roles"]["times"] == {
        "nodes/paper/seen": "timestamp[us, tz=UTC]",
        "nodes/paper/born": "date[us]",
        "edges/paper__cites__paper/time": "timestamp[us, tz=UTC]",
    }
