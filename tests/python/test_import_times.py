"""Columns of dates and times: never an end of an edge without a word, and one unit for all."""

from __future__ import annotations

import re
import warnings
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outercore as oc
from case_files import Case, cases, write_files
from outercore.data.time_arrays import is_calendar_name, is_time_name
from suggested import commands_in, without_result

REFUSED_ENDS = [
    case for case in cases("times") if "` holds times" in "".join(case.get("refused", []))
]


@pytest.mark.parametrize("case", REFUSED_ENDS, ids=[case["name"] for case in REFUSED_ENDS])
def test_every_reading_that_a_refusal_offers_is_taken(
    case: Case, tmp_path: Path, outcome: Any
) -> None:
    write_files(case, tmp_path)
    args = [argument.replace("{dir}", str(tmp_path)) for argument in case.get("args", [])]
    named = tmp_path / next(iter(case["files"]))
    code, _, told = outcome("import", named, *args, "--out", tmp_path / "out")
    assert code == 1
    assert commands_in(told)
    assert without_result(told, outcome) == []


def test_names_of_times_are_known_in_any_style() -> None:
    times = ["ts", "TIME", "Date", "created_at", "orderDate", "event-time", "year", "birthYear"]
    assert [name for name in times if not is_time_name(name)] == []
    others = ["runtime", "update", "at", "user", "timeid", "id", "sentiment", "rating", "a1", ""]
    assert [name for name in others if is_time_name(name)] == []
    assert is_calendar_name("month")
    assert not is_time_name("month")


@pytest.mark.parametrize("name", ["ts", "year", "seen"])
def test_a_frame_whose_first_column_is_a_time_is_refused(tmp_path: Path, name: str) -> None:
    times = pd.to_datetime(["2020-01-31", "2020-02-01"])
    edges = pd.DataFrame({name: times, "user": ["ann", "bob"], "item": ["tea", "oil"]})
    with pytest.raises(oc.InvalidError, match="holds times and would be taken") as refused:
        oc.from_pandas(edges, tmp_path / "graph")
    found = re.search(r"`ends=\('(\w+)', '(\w+)'\)`", str(refused.value))
    assert found is not None
    graph = oc.from_pandas(edges, tmp_path / "graph", ends=(found[1], found[2]))
    assert graph.entity_names() == ["ann", "bob", "oil", "tea"]


DAYS = "id,born\n0,1970-01-01\n1,1970-01-02\n2,1970-01-03\n"


def times_of(graph: oc.Graph) -> dict[str, str]:
    return graph.manifest["roles"].get("times", {})


def dated(place: Path, outcome: Any) -> Path:
    """Edges and nodes with times of three notations, from one text and one table."""
    (place / "e.csv").write_text(
        "a,b,at\n0,1,1970-01-02T01:00:00+01:00\n1,2,1970-01-03T00:00:00Z\n"
    )
    (place / "n.csv").write_text(DAYS)
    command = ["import", place / "e.csv", "--edge-time", "at"]
    told = outcome(*command, "--array", f"born={place / 'n.csv'}", "--out", place / "graph")
    assert told[0] == 0, told
    return place / "graph"


def test_the_manifest_says_which_arrays_are_times(tmp_path: Path, outcome: Any) -> None:
    graph = oc.open(dated(tmp_path, outcome))
    assert times_of(graph) == {
        "edges/edge/time": "timestamp[us, tz=UTC]",
        "nodes/node/born": "date[us]",
    }
    assert graph.array("nodes/node/born").tolist() == [0, 86_400_000_000, 172_800_000_000]
    assert graph.array("edges/edge/time").tolist() == [86_400_000_000, 172_800_000_000]


def test_whole_numbers_have_no_unit(tmp_path: Path, outcome: Any) -> None:
    (tmp_path / "e.csv").write_text("a,b,at\n0,1,7\n1,2,9\n")
    out = tmp_path / "graph"
    assert outcome("import", tmp_path / "e.csv", "--edge-time", "at", "--out", out)[0] == 0
    assert times_of(oc.open(out)) == {}


def test_added_times_have_the_unit_of_the_others_or_are_refused(
    tmp_path: Path, outcome: Any
) -> None:
    graph = dated(tmp_path, outcome)
    (tmp_path / "t.csv").write_text("id,seen\n0,1970-01-01\n1,1970-01-01\n2,1970-01-02\n")
    code, _, told = outcome("add", graph, "--array", f"time={tmp_path / 't.csv'}")
    assert code == 0, told
    found = oc.open(graph)
    assert found.array("nodes/node/time").tolist() == [0, 0, 86_400_000_000]
    assert times_of(found)["nodes/node/time"] == "date[us]"
    np.save(tmp_path / "n.npy", np.arange(3))
    code, _, told = outcome("add", graph, "--array", f"time={tmp_path / 'n.npy'}", "--overwrite")
    assert code == 1
    assert "of the same name holds other numbers" in told
    # Another array of this name, in a unit of its own, is no longer a time that is known.
    code, _, told = outcome("add", graph, "--array", f"born={tmp_path / 'n.npy'}", "--overwrite")
    assert code == 0, told
    assert "nodes/node/born" not in times_of(oc.open(graph))


def test_what_replaces_an_array_of_times_is_none(tmp_path: Path, outcome: Any) -> None:
    graph = dated(tmp_path, outcome)
    code, _, told = outcome("convert", graph, "--array", "born", "--to", "float32")
    assert code == 0, told
    assert set(times_of(oc.open(graph))) == {"edges/edge/time"}
    assert outcome("check", graph)[0] == 0


@pytest.mark.parametrize("name", ["time", "signup_date"])
def test_whole_times_of_nodes_written_as_floats_are_whole(
    tmp_path: Path, outcome: Any, name: str
) -> None:
    graph = dated(tmp_path, outcome)
    np.save(tmp_path / "t.npy", np.array([36.0, 35.0, 34.0]))
    key = name if name != "time" else "start_time"
    code, _, told = outcome("add", graph, "--array", f"{key}={tmp_path / 't.npy'}")
    assert code == 0, told
    assert oc.open(graph).arrays[f"nodes/node/{key}"]["dtype"] == "int64"
    np.save(tmp_path / "t.npy", np.array([36.5, 35.0, np.nan]))
    more = ["--array", f"other_{key}={tmp_path / 't.npy'}", "--fill", "nan"]
    code, _, told = outcome("add", graph, *more)
    assert code == 0, told
    assert oc.open(graph).arrays[f"nodes/node/other_{key}"]["dtype"] == "float64"


def test_samples_compare_days_of_nodes_with_nanoseconds_of_edges(
    tmp_path: Path, outcome: Any
) -> None:
    pytest.importorskip("torch")
    day = 86_400 * 10**9
    at = pa.array([day, 3 * day, 5 * day], pa.timestamp("ns"))
    pq.write_table(pa.table({"a": [1, 2, 3], "b": [0, 0, 0], "at": at}), tmp_path / "e.parquet")
    days = pa.array([2, 0, 0, 4], pa.date32())
    pq.write_table(pa.table({"id": [0, 1, 2, 3], "d": days}), tmp_path / "n.parquet")
    command = ["import", tmp_path / "e.parquet", "--edge-time", "at", "--out", tmp_path / "graph"]
    code, _, told = outcome(*command, "--array", f"time={tmp_path / 'n.parquet'}")
    assert code == 0, told
    graph = oc.open(tmp_path / "graph")
    loader = oc.NeighborLoader(graph, [-1], [0], batch_size=1, features=None, time_attr="time")
    with loader:
        (batch,) = list(loader)
    # On its second day the seed sees the edge of the first one only.
    assert batch.n_id.tolist() == [0, 1]


ISO = ["2020-01-31T00:00:00Z", "2020-01-31T01:00:00.5Z"]
MICROSECONDS = [1_580_428_800_000_000, 1_580_432_400_500_000]
IN_MEMORY = {
    "nanoseconds": (pd.to_datetime(ISO, format="ISO8601").tz_localize(None), "timestamp[us]"),
    "seconds": (np.array(["2020-01-31T00", "2020-01-31T01"], "datetime64[s]"), "timestamp[us]"),
    "zones": (
        pd.to_datetime(ISO, format="ISO8601").tz_convert("Europe/Berlin"),
        "timestamp[us, tz=UTC]",
    ),
    "texts": (ISO, "timestamp[us, tz=UTC]"),
    "days": (["2020-01-31", "2020-02-01"], "date[us]"),
    "dates of Python": ([date(2020, 1, 31), date(2020, 2, 1)], "date[us]"),
    "floats": ([36.0, 35.0], None),
    "whole numbers": ([36, 35], None),
}
_DAYS = [MICROSECONDS[0], MICROSECONDS[0] + 86_400_000_000]
EXPECTED = {
    "nanoseconds": [MICROSECONDS[0], MICROSECONDS[1]],
    "seconds": [MICROSECONDS[0], MICROSECONDS[0] + 3_600_000_000],
    "zones": MICROSECONDS,
    "texts": MICROSECONDS,
    "days": _DAYS,
    "dates of Python": _DAYS,
    "floats": [36, 35],
    "whole numbers": [36, 35],
}


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_times_in_frames_are_on_the_scale_of_files(tmp_path: Path, kind: str) -> None:
    column, stored = IN_MEMORY[kind]
    edges = pd.DataFrame({"source": [0, 1], "target": [1, 0], "time": column})
    nodes = pd.DataFrame({"id": [1, 0], "time": column})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = oc.from_pandas(edges, tmp_path / "graph", nodes=nodes)
    assert graph.array("edges/edge/time").tolist() == EXPECTED[kind]
    assert graph.array("nodes/node/time").tolist() == EXPECTED[kind][::-1]
    assert set(times_of(graph).values()) == ({stored} if stored else set())


def test_times_of_networkx_are_on_the_same_scale(tmp_path: Path) -> None:
    networkx = pytest.importorskip("networkx")
    graph = networkx.DiGraph()
    graph.add_node(0, time=datetime(2020, 1, 31, tzinfo=timezone.utc))
    graph.add_node(1, time=datetime(2020, 2, 1, tzinfo=timezone.utc))
    graph.add_edge(0, 1, time="2020-01-31T00:00:00Z")
    found = oc.from_networkx(graph, tmp_path / "graph")
    assert found.array("edges/edge/time").tolist() == _DAYS[:1]
    assert found.array("nodes/node/time").tolist() == _DAYS


def test_times_in_frames_that_are_not_read_are_named(tmp_path: Path) -> None:
    edges = pd.DataFrame(
        {
            "source": [0, 1],
            "target": [1, 0],
            "german": ["31.01.2020", "01.02.2020"],
            "seen": pd.to_datetime(["2020-01-31", None]),
        }
    )
    with pytest.warns(UserWarning, match="`german`.*31.01.2020.*no time.*`seen`.*row 1 has no"):
        graph = oc.from_pandas(edges, tmp_path / "graph")
    assert times_of(graph) == {}
    mixed = pd.DataFrame({"source": [0, 1], "target": [1, 0], "time": [1, 2]})
    nodes = pd.DataFrame({"id": [0, 1], "time": pd.to_datetime(["2020-01-31", "2020-02-01"])})
    with pytest.raises(oc.InvalidError, match="of the same name holds other numbers"):
        oc.from_pandas(mixed, tmp_path / "mixed", nodes=nodes)


def test_dates_called_otherwise_stay_texts_of_nodes(tmp_path: Path) -> None:
    edges = pd.DataFrame({"source": [0, 1], "target": [1, 0]})
    nodes = pd.DataFrame({"id": [0, 1], "note": ["2020-01-31", "2020-02-01"]})
    graph = oc.from_pandas(edges, tmp_path / "graph", nodes=nodes)
    assert graph.array("note").tolist() == ["2020-01-31", "2020-02-01"]
