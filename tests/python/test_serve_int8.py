"""`outercore serve --precision int8`: near float32, compared at the start, refused if it is not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import outercore as oc
from outercore import _core
from outercore.errors import InvalidError, NotFoundError
from outercore.serving.server import Server
from outercore.training import ModelConfig, OptimiserConfig, SamplingConfig, TrainConfig, train
from outercore.training.config import GraphConfig, LinkConfig, RunConfig
from outercore.training.export import export_model
from outercore.training.model_files import save_model
from outercore.training.models import build_model
from outercore.training.tasks import Task
from test_live import outercore
from test_serve import CONFIG, ask, infer, outputs
from test_serve_heads import learn, molecules
from test_serve_metrics import scrape

INT8 = replace(CONFIG, precision="int8", most_loss=2)
KINDS = ["sage", "gcn", "gin", "gat", "mlp"]


def int8_layout(root: Path) -> None:
    outercore("layout", root, "--precision", "int8", "--order", "none")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    root = tmp_path_factory.mktemp("int8") / "graph"
    described = {"nodes": 500, "degree": 8, "features": 12, "classes": 4, "seed": 1}
    _core.generate_planted(root, described, lambda *_: None)
    int8_layout(root)
    return oc.open(root)


@pytest.fixture(scope="module")
def run_of(graph: oc.Graph, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A trained run of a kind of network, made when it is first asked for."""
    home = tmp_path_factory.mktemp("runs")

    def trained(kind: str) -> Path:
        if not (home / kind).exists():
            config = TrainConfig(
                model=ModelConfig(kind=kind, hidden=16),  # type: ignore[arg-type]
                sampling=SamplingConfig(fanout=(4, 3), batch_size=32),
                optimiser=OptimiserConfig(epochs=5, learning_rate=0.01),
            )
            train(graph.root, config, out=home / kind)
        return home / kind

    return trained


@pytest.mark.parametrize("kind", KINDS)
def test_int8_answers_like_float32_under_a_version_of_its_own(
    kind: str, graph: oc.Graph, run_of: Callable[[str], Path]
) -> None:
    nodes, run = list(range(200)), run_of(kind)
    with Server(graph.root, run, CONFIG) as server:
        exact = infer(server, nodes, seed=3)
        assert server.loss is None
        described = ask(server, f"/v2/models/{kind}")[1]
        assert described["parameters"].pop("inline")
        assert described["parameters"].pop("age_ms") >= described["parameters"].pop("lsn") == 0
        assert described["parameters"] == {"precision": "float32", "loss": None}
    with Server(graph.root, run, INT8) as server:
        rough, _, again = (infer(server, nodes, seed=seed) for seed in (3, 4, 3))
        loss = server.loss
        described = ask(server, f"/v2/models/{kind}")[1]
        metrics = scrape(server)
    assert loss is not None
    assert loss.measure == "accuracy"
    version = exact["model_version"]
    assert rough["model_version"] == f"{version}-int8"
    assert described["versions"] == [f"{version}-int8"]
    told = {"measure": loss.measure, "points": loss.points, "sample": loss.sample}
    assert described["parameters"].pop("inline")
    assert described["parameters"].pop("age_ms") >= described["parameters"].pop("lsn") == 0
    assert described["parameters"] == {"precision": "int8", "loss": told}
    labels = f"model={kind},precision=int8,version={version}-int8"
    assert metrics[f"outercore_model_info{{{labels}}}"] == 1
    assert metrics["outercore_precision_loss_points{measure=accuracy}"] == loss.points
    one, other = outputs(exact)["probability"], outputs(rough)["probability"]
    assert not np.array_equal(one, other)
    np.testing.assert_allclose(other, one, atol=0.05)
    np.testing.assert_array_equal(outputs(again)["probability"], other)


def test_int8_needs_a_layout_of_the_features(run_of: Callable[[str], Path], tmp_path: Path) -> None:
    described = {"nodes": 100, "degree": 8, "features": 12, "classes": 4, "seed": 1}
    _core.generate_planted(tmp_path / "graph", described, lambda *_: None)
    with pytest.raises(NotFoundError, match="outercore layout"):
        Server(tmp_path / "graph", run_of("sage"), INT8)


def test_a_model_that_int8_spoils_is_refused_with_what_it_loses(tmp_path: Path) -> None:
    """The two classes differ by a weight that is a ten-thousandth of another one of its row."""
    x = np.ones((400, 2), np.float32)
    x[::2, 1] = -1
    files = {"edges": np.zeros((1, 2), np.int64), "x": x, "y": (x[:, 1] < 0).astype(np.int64)}
    for name, array in files.items():
        np.save(tmp_path / f"{name}.npy", array)
    command = ["import", tmp_path / "edges.npy", "--features", tmp_path / "x.npy"]
    root = tmp_path / "graph"
    outercore(*command, "--labels", tmp_path / "y.npy", "--out", root)
    int8_layout(root)
    shape = ModelConfig(kind="mlp", hidden=2)
    model = build_model(shape, 1, 2, 2)
    weight, bias = model.state_dict().values()
    weight.copy_(torch.tensor([[100.0, 0.01], [100.0, -0.01]]))
    bias.zero_()
    config = TrainConfig(model=shape, sampling=SamplingConfig(fanout=(1,)))
    task = Task("classes", 2, "accuracy")
    save_model(tmp_path / "run" / "model", model, model.state_dict(), task, config, {})
    export_model(tmp_path / "run" / "model", tmp_path / "run" / "serving")
    with Server(root, tmp_path / "run", CONFIG) as server:
        found = outputs(infer(server, [0, 1, 2, 3]))["prediction"]
        np.testing.assert_array_equal(found, [1, 0, 1, 0])
    text = "expected a loss of 0.5 at most, found 50.00 points of accuracy (sample of 400)"
    with pytest.raises(InvalidError, match=re.escape(text)):
        Server(root, tmp_path / "run", replace(CONFIG, precision="int8"))
    with Server(root, tmp_path / "run", replace(INT8, most_loss=50)) as server:
        assert server.loss is not None
        assert server.loss.points == 50


@pytest.mark.parametrize("head", ["dot", "diagonal", "mlp"])
def test_scores_of_edges_are_compared_by_the_area_under_the_curve(
    head: str, graph: oc.Graph, tmp_path: Path
) -> None:
    run = learn(graph, tmp_path / "run", "link", link=LinkConfig(head=head))  # type: ignore[arg-type]
    with Server(graph.root, run, INT8) as server:
        assert server.loss is not None
        assert server.loss.measure == "roc_auc"
        assert 500 < server.loss.sample <= 1000


@pytest.mark.parametrize("features", ["categories", "floats", "none"])
def test_predictions_of_graphs_are_compared_by_their_labels(features: str, tmp_path: Path) -> None:
    graph = molecules(tmp_path / "graph", features)
    if features != "none":
        int8_layout(graph.root)
    model, layers = ModelConfig(hidden=8, kind="gin"), GraphConfig(layers=3)
    run = learn(graph, tmp_path / "run", "graph", model=model, graph=layers)
    with Server(graph.root, run, replace(INT8, most_nodes=64, most_loss=100)) as server:
        assert server.loss is not None
        assert (server.loss.measure, server.loss.sample) == ("accuracy", 40)


def test_numbers_are_compared_by_their_error(graph: oc.Graph, tmp_path: Path) -> None:
    target = np.random.default_rng(1).standard_normal(graph.num_nodes)
    graph.add_node_array("target", target + graph.array("y"))
    config = TrainConfig(
        model=ModelConfig(hidden=16),
        sampling=SamplingConfig(fanout=(4, 3), labels="target"),
        optimiser=OptimiserConfig(epochs=1),
        run=RunConfig(metric="rmse"),
    )
    train(graph.root, config, out=tmp_path / "run")
    with Server(graph.root, tmp_path / "run", INT8) as server:
        assert server.loss is not None
        # The labels of the data set are classes: it is not known which numbers are right.
        assert server.loss.measure == "difference"
        assert 0 < server.loss.points < 2


def test_the_command_says_what_is_lost_and_refuses_other_names(
    graph: oc.Graph, run_of: Callable[[str], Path]
) -> None:
    command = [sys.executable, "-m", "outercore", "serve", str(graph.root), "--port", "0"]
    command += ["--model", str(run_of("sage")), "--memory", "64MiB", "--most-loss", "2"]
    command += ["--precision"]
    for more, pattern in (
        ([], r"int8 loses -?\d+\.\d\d points of accuracy \(sample of"),
        (["--json"], ""),
    ):
        with subprocess.Popen(
            [*command, "int8", *more], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            process.terminate()
            assert process.wait(timeout=60) == 0
        assert re.search(pattern, line), line
    told: dict[str, Any] = json.loads(line)
    assert (told["precision"], told["loss"]["measure"]) == ("int8", "accuracy")
    done = subprocess.run([*command, "int4"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "precision: expected `float32` or `int8`, found `int4`" in done.stderr
