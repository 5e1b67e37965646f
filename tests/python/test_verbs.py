"""`oc.train`, `oc.embed` and `oc.resume`: the verbs as functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import outercore as oc
from far_server import FarServer
from outercore import _core
from outercore.errors import InvalidError, NotFoundError
from outercore.training import OptimiserConfig, TrainConfig


@pytest.fixture
def data_set(tmp_path: Path) -> Path:
    described = {"nodes": 200, "degree": 6, "features": 8, "classes": 3, "seed": 1}
    _core.generate_planted(tmp_path / "graph", described, lambda *_: None)
    return tmp_path / "graph"


def test_a_run_of_either_job_is_resumed_by_one_function(data_set: Path, tmp_path: Path) -> None:
    trained = oc.train(
        data_set, TrainConfig(optimiser=OptimiserConfig(epochs=1)), out=tmp_path / "trained"
    )
    assert oc.resume(tmp_path / "trained") == trained
    options = {"dim": 8, "epochs": 1, "negatives": 10, "threads": 1}
    oc.embed(data_set, out=tmp_path / "embedded", **options)
    assert len(oc.resume(tmp_path / "embedded", epochs=2).record["epochs"]) == 2


def test_an_opened_graph_stands_for_its_directory(data_set: Path, tmp_path: Path) -> None:
    graph, options = oc.open(data_set), {"fanout": (3, 2), "hidden": 8}
    oc.train(graph, out=tmp_path / "run", epochs=1, **options)
    assert oc.evaluate(tmp_path / "run", graph)["nodes"] > 0
    assert oc.predict(graph, tmp_path / "run", tmp_path / "all.csv")["nodes"] == 200
    assert oc.plan("train", graph, **options)["memory"] > 0
    assert oc.plan("embed", graph, dim=8)["entities"] == 200
    oc.embed(graph, out=tmp_path / "embedded", dim=8, epochs=1, negatives=10, threads=1)


def test_a_job_without_a_plan_is_refused_with_the_one_that_is_like_it(data_set: Path) -> None:
    with pytest.raises(InvalidError, match=r"found `trian`\nhint: did you mean `train`\?"):
        oc.plan("trian", data_set)
    with pytest.raises(InvalidError, match=r"did you mean `pagerank`\?"):
        oc.plan("pagerang", data_set)


def test_a_run_opened_as_a_data_set_is_refused_with_the_command_that_shows_it(
    data_set: Path, tmp_path: Path
) -> None:
    oc.embed(data_set, out=tmp_path / "run", dim=4, epochs=1, negatives=10, threads=1)
    with pytest.raises(NotFoundError, match="run of `outercore embed`\nhint: `outercore report "):
        oc.open(tmp_path / "run")


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


def test_a_plan_of_a_training_is_that_of_the_run(data_set: Path, tmp_path: Path) -> None:
    graph = oc.open(data_set)
    wide = np.arange(200 * 24, dtype=np.float32).reshape(200, 24)
    graph.add_node_array("wide", wide)
    graph.add_node_array("other", np.arange(200) % 7)
    for number, options in enumerate(
        (
            {},
            {"features": "wide", "labels": "other", "memory": "8MiB", "topology": "paged"},
            {"model": "gcn", "fanout": (4, 3), "batch_size": 16, "policy": "lru"},
            {"model": "mlp", "hotness": "in_degree", "validation_share": 0.0},
        )
    ):
        chosen = {"epochs": 1, "hidden": 8, "threads": 1, **options}
        planned = oc.plan("train", data_set, **chosen)
        record = oc.train(data_set, out=tmp_path / f"run-{number}", **chosen)
        assert planned["training"] == record["plan"]
        assert planned["memory"] == (8 << 20 if number == 1 else 2 << 30)


def test_a_plan_of_a_training_counts_far_memory(data_set: Path, tmp_path: Path) -> None:
    with FarServer(tmp_path / "far") as server:
        chosen = {"epochs": 1, "hidden": 8, "far": server.options()}
        planned = oc.plan("train", data_set, **chosen)
        assert planned["training"] != oc.plan("train", data_set, epochs=1, hidden=8)["training"]
        record = oc.train(data_set, out=tmp_path / "run", **chosen)
    assert planned["training"] == record["plan"]


def test_a_plan_of_an_embedding_or_an_algorithm(data_set: Path) -> None:
    planned = oc.plan("embed", data_set, dim=8, memory="64MiB", triples_per_second=1e5)
    assert planned["all_in_memory"]
    oc.grid(data_set)
    assert oc.plan("wcc", data_set, memory="64MiB")["budget"] == 64 << 20
    with pytest.raises(InvalidError, match="pagerunk"):
        oc.plan("pagerunk", data_set)
