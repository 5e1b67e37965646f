"""Keys that join files: one key in every form, and joins that lose most rows are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outercore as oc
from outercore.cli import run
from suggested import without_result

NUMBERS = st.lists(st.integers(0, 10**9), min_size=1, max_size=12, unique=True)
FORMS = ("integers", "floats", "texts", "parquet of integers", "parquet of floats")


def written(path: Path, name: str, keys: list[int], form: str) -> str:
    """A file with a column of keys in one of the forms, and another column."""
    others = list(range(len(keys)))
    if form.startswith("parquet"):
        kind = pa.float64() if form.endswith("floats") else pa.int64()
        path = path.with_suffix(".parquet")
        pq.write_table(pa.table({name: pa.array(keys, kind), "other": others}), path)
        return str(path)
    shown = {"integers": "{}", "floats": "{}.0", "texts": '"{}"'}[form]
    lines = [f"{shown.format(key)},{other}" for key, other in zip(keys, others, strict=True)]
    path = path.with_suffix(".csv")
    path.write_text("\n".join([f"{name},other", *lines, ""]))
    return str(path)


@given(
    keys=NUMBERS,
    seed=st.integers(0, 2**32 - 1),
    forms=st.tuples(st.sampled_from(FORMS), st.sampled_from(FORMS)),
)
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_key_is_the_same_in_every_form(
    keys: list[int], seed: int, forms: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("keys")
    places = np.random.default_rng(seed).integers(0, len(keys), 2 * len(keys)).tolist()
    nodes = written(home / "nodes", "id", keys, forms[0])
    edges = written(home / "edges", "user", [keys[place] for place in places], forms[1])
    command = ["import", "--nodes", f"user={nodes}:id", "--nodes", f"other={2 * len(keys)}"]
    command += ["--edges", f"user,likes,other={edges}"]
    assert run([*command, "--out", str(home / "graph")]) == 0, (keys, places, forms)
    graph = oc.open(home / "graph")
    _, graph_store = graph.pyg()
    sources = graph_store.coo()[0][("user", "likes", "other")].tolist()
    assert sorted(sources) == sorted(places)
    names = graph.keys_of("user")
    assert names is None or names.names() == [str(key) for key in keys]


@pytest.mark.parametrize("dangling", ["refuse", "drop"])
def test_a_join_that_loses_most_rows_is_refused(
    dangling: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "users.csv").write_text("id,age\nA1,10\nA2,20\n")
    (tmp_path / "rates.csv").write_text("user,item\nB1,7\nB2,8\nA1,9\n")
    command: list[Any] = ["import", "--nodes", f"user={tmp_path}/users.csv:id"]
    command += ["--nodes", "item=10"]
    command += ["--edges", f"user,rates,item={tmp_path}/rates.csv", "--dangling", dangling]
    assert run([*map(str, command), "--out", str(tmp_path / "graph")]) != 0
    said = capsys.readouterr().err
    if dangling == "refuse":
        assert "no node of type `user` has the key `B1`, and 1 more rows have such keys" in said
        assert "keys of `user` look like `A1`" in said
    else:
        assert "2 of 3 rows have keys that no node has, more than half" in said
    assert "--dangling drop" not in said.partition("hint:")[2]
    assert not (tmp_path / "graph" / "graph.json").exists()


def test_a_fraction_is_no_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"id": [1.0, 2.5], "age": [1, 2]}), tmp_path / "users.parquet")
    (tmp_path / "rates.csv").write_text("user,item\n1,7\n")
    command = ["import", "--nodes", f"user={tmp_path}/users.parquet:id", "--nodes", "item=10"]
    command += ["--edges", f"user,rates,item={tmp_path}/rates.csv"]
    assert run([*command, "--out", str(tmp_path / "graph")]) != 0
    assert "column `id`: row 1: 2.5 is no key" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "chosen"),
    [("n,user,item\n5,A1,B1\n6,A2,B1\n", "user,item"), ("5,B1,A1\n6,B1,A2\n", "column 3,column 2")],
)
def test_columns_that_hold_keys_are_offered_in_place_of_others(
    text: str, chosen: str, tmp_path: Path, outcome: Any
) -> None:
    (tmp_path / "users.csv").write_text("id\nA1\nA2\n")
    (tmp_path / "items.csv").write_text("id\nB1\nB2\n")
    (tmp_path / "rates.csv").write_text(text)
    nodes = [f"--nodes={name}={tmp_path}/{name}s.csv" for name in ("user", "item")]
    edges = f"--edges=user,rates,item={tmp_path}/rates.csv"
    code, _, told = outcome("import", *nodes, edges, "--out", "graph")
    assert code == 1
    assert f"hold keys of nodes, so choose them: `outercore import {' '.join(nodes)} " in told
    assert f"rates.csv:{chosen}" in told
    assert not without_result(told, outcome)
