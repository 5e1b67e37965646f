"""Results with the ids of their owner: as frames, and in every format that a verb writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import outercore as oc
from outercore.errors import InvalidError, UnsupportedError


@pytest.fixture
def follows(tmp_path: Path) -> oc.Graph:
    edges = pd.DataFrame({"source": ["ann", "bob", "di"], "target": ["bob", "cy", "ann"]})
    return oc.from_pandas(edges, tmp_path / "follows")


def test_a_run_is_a_frame_with_the_columns_of_its_file(follows: oc.Graph, outcome: Any) -> None:
    done = oc.run("pagerank", follows)
    frame = done.to_pandas()
    assert frame["id"].tolist() == ["cy", "di", "ann", "bob"]
    assert outcome("run", "pagerank", follows.root, "--out", "rank.parquet")[0] == 0
    pd.testing.assert_frame_equal(frame, pd.read_parquet("rank.parquet"))


def test_values_that_are_nodes_have_their_names(follows: oc.Graph) -> None:
    frame = oc.run(
        "bfs", follows, source=follows.entity_id("di"), result="predecessors"
    ).to_pandas()
    found = dict(zip(frame["id"], frame["value"], strict=True))
    assert (found["ann"], found["bob"], found["cy"]) == ("di", "ann", "bob")
    frame = oc.run("wcc", follows).to_pandas()
    assert set(frame["value"]) == {"cy"}


def test_several_results_stand_side_by_side(follows: oc.Graph) -> None:
    degrees = oc.degrees(follows)
    frame = follows.to_pandas(degree=degrees, place=np.arange(8).reshape(4, 2))
    assert frame.columns.tolist() == ["id", "degree", "place_0", "place_1"]
    assert frame["degree"].tolist() == degrees.tolist()
    with pytest.raises(InvalidError, match=r"column `short`: shape \(2,\), expected 4 rows"):
        follows.to_pandas(short=[1, 2])


def test_nodes_of_several_types_have_their_type(outcome: Any) -> None:
    Path("writes.csv").write_text("author,paper\n0,1\n1,0\n1,2\n")
    nodes = ("--nodes", "author=2", "--nodes", "paper=3")
    edges = ("--edges", "author,writes,paper=writes.csv")
    assert outcome("import", *nodes, *edges, "--out", "typed")[0] == 0
    frame = oc.run("degrees", "typed").to_pandas()
    assert frame["type"].tolist() == ["author"] * 2 + ["paper"] * 3
    assert frame["id"].tolist() == [0, 1, 0, 1, 2]


def test_without_pandas_the_message_says_what_to_install(
    follows: oc.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outercore.data.outputs.find_spec", lambda _: None)
    with pytest.raises(UnsupportedError, match="pip install pandas"):
        follows.to_pandas()


def test_an_embedding_is_exported_as_csv_with_names(follows: oc.Graph, outcome: Any) -> None:
    run = oc.embed(follows.root, dim=4, epochs=1, out="run", model="dot")
    code, _, told = outcome("embedding", "export", "run", "--out", "vectors.csv")
    assert code == 0, told
    frame = pd.read_csv("vectors.csv").set_index("id")
    assert frame.index.tolist() == follows.entity_names()
    assert (frame.to_numpy(np.float32) == run.entities).all()
    same = follows.to_pandas(embedding=run.entities).set_index("id")
    assert (same.to_numpy() == frame.to_numpy(np.float32)).all()
