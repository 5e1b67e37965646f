"""Networks of the user's own: trained, resumed and scored as the built-in ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from typer.testing import CliRunner  # noqa: E402

import outercore as oc  # noqa: E402
from outercore import _core  # noqa: E402
from outercore.cli import app  # noqa: E402
from outercore.errors import (  # noqa: E402
    InterruptError,
    InvalidError,
    NotFoundError,
    UnsupportedError,
)
from outercore.runs.progress import Observer  # noqa: E402
from outercore.training.model_files import load_model  # noqa: E402

OPTIONS: dict[str, Any] = {
    "fanout": (4, 3),
    "hidden": 8,
    "memory": "16MiB",
    "dropout": 0.2,
    "learning_rate": 0.03,
}
SOURCE = """
import torch
from torch_geometric.nn import SAGEConv


class Deep(torch.nn.Module):
    def __init__(self, in_channels, hidden_channels, out_channels, num_layers, extra=1):
        super().__init__()
        widths = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        self.convs = torch.nn.ModuleList(
            SAGEConv(*pair, aggr="max") for pair in zip(widths, widths[1:])
        )

    def forward(self, x, edge_index):
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).relu()
        return self.convs[-1](x, edge_index)


class Wide(Deep):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index)[:, :1]


def unknown(in_channels, depth):
    return Deep(in_channels, 4, 4, 2)


NUMBER = 3
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("own") / "graph"
    described = {"nodes": 500, "degree": 8, "features": 12, "classes": 4, "seed": 1}
    _core.generate_planted(root, described, lambda *_: None)
    return root


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("code") / "mine.py"
    path.write_text(SOURCE)
    return f"{path}:Deep"


def weights(run: Path, network: Any) -> dict[str, Any]:
    found: dict[str, Any] = load_model(run / "model", network).model.state_dict()
    return found


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_class_in_a_file_is_trained_scored_and_predicts(
    planted: Path, code: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    record = oc.train(planted, out=run, model=code, epochs=6, **OPTIONS)
    assert record["status"] == "finished"
    assert record["config"]["model"]["kind"] == code
    assert record["result"]["scores"]["test"] > 0.5
    scores = record["result"]["scores"]
    for split in ("valid", "test"):
        found = oc.evaluate(run, split=split, network=code)
        assert (found["neighbours"], found["score"]) == ("sampled", scores[split])
    best = record["epochs"][record["result"]["best_epoch"]]
    assert best["score"] == scores["valid"]
    predicted = oc.predict(planted, run, tmp_path / "scores.parquet", network=code)
    assert (predicted["nodes"], predicted["neighbours"]) == (500, "sampled")


def test_a_stopped_run_goes_on_to_the_same_bits(planted: Path, code: str, tmp_path: Path) -> None:
    class Stopping(Observer):
        batches = 0

        def batch_done(self, *arguments: Any) -> None:
            self.batches += 1
            if self.batches == 3:
                raise InterruptError("stopped")

    options = {**OPTIONS, "model": code, "epochs": 3, "batch_size": 64}
    oc.train(planted, out=tmp_path / "whole", **options)
    with pytest.raises(InterruptError):
        oc.train(planted, out=tmp_path / "stopped", observer=Stopping(), **options)
    with pytest.raises(
        InvalidError, match=r"was made with the network .*mine.py:Deep`\nhint: give"
    ):
        oc.resume(tmp_path / "stopped")
    oc.resume(tmp_path / "stopped", network=code)
    assert same(weights(tmp_path / "whole", code), weights(tmp_path / "stopped", code))


@pytest.mark.parametrize("jumping", [None, "cat"])
def test_graph_sage_of_pyg_is_scored_exactly(
    planted: Path, tmp_path: Path, jumping: str | None
) -> None:
    from torch_geometric.nn import GraphSAGE

    module = GraphSAGE(12, 8, 2, 4, dropout=0.2, norm="batch_norm", jk=jumping)
    graph = oc.open(planted)
    record = oc.train(graph, out=tmp_path / "run", model=module, epochs=2, **OPTIONS)
    fresh = GraphSAGE(12, 8, 2, 4, dropout=0.2, norm="batch_norm", jk=jumping)
    found = oc.evaluate(tmp_path / "run", network=fresh)
    assert found["neighbours"] == "all"
    assert found["score"] == record["result"]["scores"]["test"]
    # The module itself has the best weights, and PyG computes the same from them.
    offsets = graph.array("edges/edge/offsets").astype(np.int64)
    sources = torch.from_numpy(graph.array("edges/edge/sources").astype(np.int64))
    targets = torch.from_numpy(np.repeat(np.arange(500), np.diff(offsets)))
    with torch.no_grad():
        logits = module.eval()(torch.from_numpy(graph.array("x")), torch.stack([sources, targets]))
    test = graph.split("test")
    right = (logits.argmax(dim=1).numpy() == graph.array("y"))[test].mean()
    assert right == pytest.approx(found["score"])


def test_models_of_pyg_that_trim_get_what_they_need(planted: Path, tmp_path: Path) -> None:
    from torch_geometric.nn import GCN

    record = oc.train(planted, out=tmp_path / "run", model=GCN, epochs=5, **OPTIONS)
    assert record["result"]["scores"]["test"] > 0.3


def test_a_finished_run_goes_on_with_more_epochs(planted: Path, code: str, tmp_path: Path) -> None:
    for name, given in (("built-in", "sage"), ("own", code)):
        options = {**OPTIONS, "model": given, "patience": 0}
        network = None if given == "sage" else code
        oc.train(planted, out=tmp_path / name / "whole", epochs=4, **options)
        oc.train(planted, out=tmp_path / name / "more", epochs=2, **options)
        record = oc.resume(tmp_path / name / "more", network=network, epochs=4)
        assert len(record["epochs"]) == 4
        assert record["config"]["optimiser"]["epochs"] == 4
        runs = [weights(tmp_path / name / run, network) for run in ("whole", "more")]
        assert same(*runs)
        with pytest.raises(InvalidError, match=r"4 are done, expected more.*\nhint: `epochs=5`"):
            oc.resume(tmp_path / name / "more", network=network, epochs=3)
        with pytest.raises(InvalidError, match="only `epochs` and `patience` may change"):
            oc.resume(tmp_path / name / "more", network=network, hidden=3)


def test_code_that_makes_no_network_is_told(planted: Path, code: str, tmp_path: Path) -> None:
    where = code.removesuffix(":Deep")
    for given, error, message in (
        (
            f"{where}:Wide",
            InvalidError,
            r"expected outputs \[3, 4\] for 3 nodes, found Tensor \[3, 1",
        ),
        (f"{where}:unknown", InvalidError, "no value is known for `depth`"),
        (f"{where}:NUMBER", InvalidError, "found int"),
        (f"{where}:Nothing", NotFoundError, "has no `Nothing`"),
        (str(tmp_path / "none.py:Deep"), NotFoundError, "no file"),
        ("custom", InvalidError, "model.kind: expected one of sage, .*; found 'custom'"),
    ):
        with pytest.raises(error, match=message):
            oc.train(planted, out=tmp_path / "run", model=given, **OPTIONS)
        assert not (tmp_path / "run").exists()
    with pytest.raises(UnsupportedError, match="learns labels of nodes"):
        oc.train(planted, out=tmp_path / "run", model=code, task="link", fanout=(4, 3))


def test_another_text_of_the_network_is_refused(planted: Path, code: str, tmp_path: Path) -> None:
    file = Path(shutil.copy(code.removesuffix(":Deep"), tmp_path / "mine.py"))
    run = tmp_path / "run"
    oc.train(planted, out=run, model=f"{file}:Deep", epochs=1, **OPTIONS)
    file.write_text(SOURCE.replace('aggr="max"', 'aggr="sum"'))
    with pytest.raises(InvalidError, match="has another text"):
        oc.evaluate(run, network=f"{file}:Deep")
    with pytest.raises(InvalidError, match=r"made with the network .*\nhint: give it by `network"):
        oc.evaluate(run)


def test_the_command_trains_resumes_and_evaluates(planted: Path, code: str, tmp_path: Path) -> None:
    def outercore(*words: Any) -> Any:
        return CliRunner().invoke(app, [str(word) for word in words])

    run = tmp_path / "run"
    options = ["--fanout", "4,3", "--hidden", "8", "--epochs", "1", "--memory", "16MiB"]
    done = outercore("train", planted, "--model", code, "--out", run, *options)
    assert done.exit_code == 0, done.output
    assert "sampled neighbours" in done.stdout
    done = outercore("train", "--resume", run, "--model", code, "--epochs", "2")
    assert done.exit_code == 0, done.output
    done = outercore("evaluate", run, "--network", code, "--json")
    assert done.exit_code == 0, done.output
    refused = outercore("export-model", run)
    assert refused.exit_code != 0
    assert "not your own network" in str(refused.exception)


def test_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    from outercore.runs.custom_code import digest_of, from_place

    found = []
    for place, aggregation in (("a", "max"), ("b", "sum")):
        (tmp_path / place).mkdir()
        file = tmp_path / place / "mine.py"
        file.write_text(SOURCE.replace('aggr="max"', f'aggr="{aggregation}"'))
        found.append(from_place("model", f"{file}:Deep", "mine.py:Deep"))
        if place == "a":
            before = digest_of(found[0])
    assert digest_of(found[0]) == before != digest_of(found[1])


def test_a_partial_function_decides_what_it_binds() -> None:
    from functools import partial

    from torch_geometric.nn import GCN

    from outercore.training.config import ModelConfig
    from outercore.training.custom_network import build_custom, network_code

    code = network_code(partial(GCN, hidden_channels=5))
    network: Any = build_custom(code, ModelConfig(hidden=8), 2, 12, 4)
    assert network.module.hidden_channels == 5
    assert code.place.endswith(":GCN")


def test_the_command_line_plans_for_a_network_of_its_own(
    code: str, planted: Path, outcome: Any
) -> None:
    small = ("--fanout", "3,3", "--memory", "64MiB")
    code_of, printed, told = outcome("plan", planted, "--model", code, *small)
    assert code_of == 0, told
    assert "epoch" in printed
    for command in (("plan", planted), ("train", planted, "--out", "run")):
        status, _, told = outcome(*command, "--model", "torch_geometric.nn:GraphSAGE")
        assert status == 1
        assert "expected `FILE.py:NAME`, found `torch_geometric.nn:GraphSAGE`" in told
    assert not Path("run").exists()
