"""Columns of dates and times: never an end of an edge without a word, and one unit for all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import outercore as oc
from case_files import Case, cases, write_files
from outercore.time_arrays import is_calendar_name, is_time_name

_CHOSEN = re.compile(r"`(\S[^`\n]*:[^`\n]*,[^`\n]*)`")
REFUSED_ENDS = [
    case for case in cases("times") if "holds times" in "".join(case.get("refused", []))
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
    # The columns of a file without a header have to be named first.
    offered = [way for way in _CHOSEN.findall(told) if "SOURCE" not in way]
    assert offered or "--no-header" in args
    for place, way in enumerate(offered):
        code, _, told = outcome("import", way, *args, "--out", tmp_path / f"out{place}")
        if code and "`--ids dictionary`" in told:
            # Words need one more option, which the message names.
            more = [*args, "--ids", "dictionary", "--out", tmp_path / f"out{place}"]
            code, _, told = outcome("import", way, *more)
        assert code == 0, told


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
