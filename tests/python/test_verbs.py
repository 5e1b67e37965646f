"""`oc.train`, `oc.embed` and `oc.resume`: the verbs as functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import outercore as oc
from outercore import _native
from outercore.errors import InvalidError, NotFoundError
from outercore.training import OptimiserConfig, TrainConfig


@pytest.fixture
def data_set(tmp_path: Path) -> Path:
    described = {"nodes": 200, "degree": 6, "features": 8, "classes": 3, "seed": 1}
    _native.generate("planted", tmp_path / "graph", described, lambda *_: None)
    return tmp_path / "graph"


def test_a_run_of_either_job_is_resumed_by_one_function(data_set: Path, tmp_path: Path) -> None:
    trained = oc.train(
        data_set, TrainConfig(optimiser=OptimiserConfig(epochs=1)), out=tmp_path / "trained"
    )
    assert oc.resume(tmp_path / "trained") == trained
    options = {"dim": 8, "epochs": 1, "negatives": 10, "threads": 1}
    oc.embed(data_set, out=tmp_path / "embedded", **options)
    assert len(oc.resume(tmp_path / "embedded", epochs=2).record["epochs"]) == 2


def test_what_is_no_run_is_refused(data_set: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="this is a data set"):
        oc.resume(data_set)
    with pytest.raises(NotFoundError, match="no such directory"):
        oc.resume(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match=r"no `config\.json` there"):
        oc.resume(tmp_path / "empty")


def test_the_package_names_its_verbs_without_pytorch() -> None:
    code = (
        "import sys, outercore as oc\n"
        "assert {'train', 'embed', 'evaluate', 'resume'} <= set(oc.__all__)\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
