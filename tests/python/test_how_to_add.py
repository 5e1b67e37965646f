"""Hints about missing arrays propose a command that the data set at hand takes, or none."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import outercore as oc
from outercore.data.how_to_add import how_to_add
from outercore.training.tasks import nodes_of

Run = Callable[..., tuple[int, str, str]]
FROZEN = Path(__file__).parents[1] / "data"
NODES, EDGES = 4, 3


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with files of nodes and edges."""
    monkeypatch.chdir(tmp_path)
    Path("e.csv").write_text("u,v\n1,0\n1,2\n3,2\n")
    Path("users.csv").write_text("id,age\n0,30\n1,40\n2,50\n3,60\n")
    np.save("nodes.npy", np.arange(NODES))
    np.save("edges.npy", np.arange(EDGES))
    np.save("x.npy", np.ones((NODES, 2), np.float32))
    np.save("split.npy", np.array([1, 2]))
    np.save("graphs.npy", np.array([0, 0, 1, 1]))
    return tmp_path


TYPED = ["--edges", "user,knows,user=e.csv", "--nodes", "user=users.csv:id"]
KINDS = {
    "one type": ["e.csv", "--labels", "nodes.npy"],
    "several types": [*TYPED, "--label", "user=nodes.npy", "--split", "test=split.npy"],
    "several types without labels": TYPED,
}
FILES = {"--split": "split.npy", "--features": "x.npy", "--edge-array": "edges.npy"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", ["--split", "--array", "--edge-array", "--features"])
def test_the_command_of_a_hint_adds_the_array(
    kind: str, option: str, home: Path, outcome: Run
) -> None:
    code, _, err = outcome("import", *KINDS[kind], "--out", "graph")
    assert code == 0, err
    value = "FILE" if option == "--features" else "valid=FILE"
    said = how_to_add(Path("graph"), option, value)
    (command,) = re.findall("`(outercore add [^`]+)`", said)
    command = command.replace("--labels user=FILE", "--labels user=nodes.npy")
    words = shlex.split(command.replace("=FILE", f"={FILES.get(option, 'nodes.npy')}"))[1:]
    words = [FILES[option] if word == "FILE" else word for word in words]
    code, _, err = outcome(*words, "--overwrite")
    assert code == 0, (command, err)


def test_splits_of_whole_graphs_and_data_sets_with_updates_are_not_proposed_to_add(
    home: Path, outcome: Run
) -> None:
    options = ["--graph-ids", "graphs.npy", "--labels", "graphs.npy"]
    code, _, err = outcome("import", "e.csv", *options, "--out", "many")
    assert code in (0, 1), err
    if code:
        Path("e.csv").write_text("u,v\n1,0\n3,2\n3,2\n")
        np.save("y.npy", np.array([0, 1]))
        options = ["--graph-ids", "graphs.npy", "--labels", "y.npy"]
        code, _, err = outcome("import", "e.csv", *options, "--out", "many")
    assert code == 0, err
    again = "import the data set again with `--split valid=FILE`"
    assert how_to_add(Path("many"), "--split", "valid=FILE") == again
    code, _, err = outcome("train", "many", "--task", "graph")
    assert code == 1
    assert "import the data set again with `--split train=FILE`" in err
    assert "outercore add" not in err
    shutil.copytree(FROZEN / "format-2", "live")
    assert how_to_add(Path("live"), "--split", "valid=FILE") == again


def test_a_missing_split_is_added_by_the_hint_of_its_refusal(home: Path, outcome: Run) -> None:
    assert outcome("import", "e.csv", "--labels", "nodes.npy", "--out", "graph")[0] == 0
    with pytest.raises(oc.errors.NotFoundError, match="outercore add graph --split train=FILE"):
        nodes_of(oc.open("graph"), "train")
