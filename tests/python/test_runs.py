"""Runs of every job: what else is done to the data set meanwhile does not matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import outercore as oc
from outercore import _core
from outercore.errors import InterruptError, InvalidError
from outercore.runs.directory import Identity
from outercore.runs.progress import Observer
from outercore.runs.progress import Observer as EmbedObserver
from outercore.training.model_files import load_model

TRAIN = {"fanout": (4, 3), "hidden": 8, "batch_size": 16, "epochs": 3, "threads": 1}
EMBED = {"dim": 8, "epochs": 4, "negatives": 10, "batch_size": 64, "threads": 1, "held_out": 0.0}


@pytest.fixture
def data_set(tmp_path: Path) -> Path:
    described = {"nodes": 200, "degree": 6, "features": 8, "classes": 3, "seed": 1}
    _core.generate_planted(tmp_path / "graph", described, lambda *_: None)
    return tmp_path / "graph"


class StopTraining(Observer):
    def epoch_done(self, report: Any) -> None:
        raise KeyboardInterrupt


class StopEmbedding(EmbedObserver):
    def epoch_done(self, report: Any) -> None:
        raise InterruptError("enough")


def weights(run: Path) -> dict[str, np.ndarray]:
    state = load_model(run / "model").model.state_dict()
    return {name: value.numpy() for name, value in state.items()}


def test_a_training_is_resumed_to_the_same_bits_after_other_arrays_were_saved(
    data_set: Path, tmp_path: Path, outcome: Any
) -> None:
    oc.train(data_set, out=tmp_path / "whole", **TRAIN)
    with pytest.raises((KeyboardInterrupt, InterruptError)):
        oc.train(data_set, out=tmp_path / "run", observer=StopTraining(), **TRAIN)
    code, _, err = outcome("run", "pagerank", data_set, "--save", "rank", "--record", "none")
    assert code == 0, err
    oc.embed(data_set, out=tmp_path / "rows", **EMBED)
    code, _, err = outcome("embedding", "features", tmp_path / "rows", "--name", "rows")
    assert code == 0, err
    oc.resume(tmp_path / "run")
    found, expected = weights(tmp_path / "run"), weights(tmp_path / "whole")
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_an_embedding_is_resumed_to_the_same_bits_after_other_arrays_were_saved(
    data_set: Path, tmp_path: Path, outcome: Any
) -> None:
    whole = oc.embed(data_set, out=tmp_path / "whole", **EMBED)
    with pytest.raises(InterruptError):
        oc.embed(data_set, out=tmp_path / "run", observer=StopEmbedding(), **EMBED)
    code, _, err = outcome("embedding", "features", tmp_path / "whole", "--name", "rows")
    assert code == 0, err
    oc.pagerank(data_set, save="rank")
    assert np.array_equal(oc.resume(tmp_path / "run").entities, whole.entities)


def test_a_changed_array_is_named(data_set: Path, tmp_path: Path) -> None:
    with pytest.raises((KeyboardInterrupt, InterruptError)):
        oc.train(data_set, out=tmp_path / "run", observer=StopTraining(), **TRAIN)
    with pytest.raises(InterruptError):
        oc.embed(data_set, out=tmp_path / "rows", observer=StopEmbedding(), **EMBED)
    described = {"nodes": 200, "degree": 6, "features": 8, "classes": 3, "seed": 2}
    other = tmp_path / "other"
    _core.generate_planted(other, described, lambda *_: None)
    data_set.rename(tmp_path / "old")
    other.rename(data_set)
    for run, array in (("run", "nodes/node/x"), ("rows", "edges/edge/sources")):
        with pytest.raises(InvalidError, match=f"array `{array}` was changed"):
            oc.resume(tmp_path / run)


def test_an_identity_names_what_was_added_removed_and_changed() -> None:
    def arrays(**checksums: str) -> dict[str, Any]:
        return {
            name: {"dtype": "int64", "shape": [3], "checksum": checksum}
            for name, checksum in checksums.items()
        }

    def identity(nodes: int, **checksums: str) -> Identity:
        return Identity.of(arrays(**checksums), lambda name: name != "other", nodes=nodes)

    before = identity(3, a="1", b="2", other="3")
    assert before.changes(before.to_dict()) == []
    assert identity(3, a="1", b="2", other="4").digest == before.digest
    now = identity(4, a="9", c="2")
    assert now.changes(before.to_dict()) == [
        "array `a` was changed",
        "array `b` was removed",
        "array `c` was added",
        "`nodes` was 3 and is 4",
    ]
    assert now.digest != before.digest
