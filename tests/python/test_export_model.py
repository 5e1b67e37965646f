"""What `outercore export-model` writes, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file  # noqa: E402

from fakes import FakeGraph, FakeLoader, planted  # noqa: E402
from outercore.errors import (  # noqa: E402
    CorruptError,
    InternalError,
    InvalidError,
    NoSpaceError,
    NotFoundError,
    UnsupportedError,
)
from outercore.files.atomic import Storage  # noqa: E402
from outercore.serving.server import Server, require_known_options  # noqa: E402
from outercore.training.config import (  # noqa: E402
    BudgetConfig,
    ModelConfig,
    OptimiserConfig,
    SamplingConfig,
    TrainConfig,
)
from outercore.training.export import export_model  # noqa: E402
from outercore.training.exported import (  # noqa: E402
    EXPRESSED,
    OF_TRAINING,
    require_expressed,
    rule_of,
)
from outercore.training.model_files import load_model, save_model  # noqa: E402
from outercore.training.models import build_model  # noqa: E402
from outercore.training.run import train  # noqa: E402
from outercore.training.tasks import Task  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a regression."""
    root = tmp_path_factory.mktemp("data")
    data = planted(root / "planted", task="values")
    config = TrainConfig(
        model=ModelConfig(hidden=8, norm="batch", residual=True),
        sampling=SamplingConfig(fanout=(4, -1), batch_size=32, replace=True),
        optimiser=OptimiserConfig(epochs=1),
        budget=BudgetConfig(memory="64MiB"),
    )
    train(data, config, out=root / "run", open_graph=FakeGraph, open_loader=FakeLoader)
    return root / "run"


def saved(directory: Path, **model: Any) -> Path:
    """A model as a run keeps it, of fresh weights."""
    torch.manual_seed(1)
    config = TrainConfig(model=ModelConfig(hidden=8, heads=2, **model))
    network = build_model(config.model, 2, 5, 3)
    task = Task("classes", 3, "accuracy")
    save_model(directory / "model", network, network.state_dict(), task, config, {})
    return directory


def test_a_run_is_exported_with_its_network_its_unit_and_what_it_reads(run: Path) -> None:
    out = export_model(run)
    assert out == run / "serving"
    assert sorted(file.name for file in out.iterdir()) == ["model.json", "model.safetensors"]
    described = json.loads((out / "model.json").read_text())
    task = load_model(run / "model").task
    assert described == {
        "format": "outercore-inference",
        "version": 1,
        "network": {
            "kind": "sage",
            "layers": 2,
            "features": 8,
            "hidden": 8,
            "outputs": 1,
            "heads": 1,
            "norm": "batch",
            "jumping": "none",
            "residual": True,
        },
        "task": {
            "kind": "values",
            "names": [],
            "means": list(task.means),
            "deviations": list(task.deviations),
        },
        "input": {"features": "x", "fanout": [4, -1], "replace": True},
        "weights": described["weights"],
    }
    assert task.means
    tensors = load_file(out / "model.safetensors")
    assert sorted(tensors) == [
        *(f"layers.0.{name}" for name in ("neighbours.bias", "neighbours.weight")),
        *(f"layers.0.norm.{name}" for name in ("bias", "mean", "variance", "weight")),
        *(f"layers.0.{name}" for name in ("own.weight", "skip.bias", "skip.weight")),
        *(f"layers.1.{name}" for name in ("neighbours.bias", "neighbours.weight", "own.weight")),
        *(f"layers.1.{name}" for name in ("skip.bias", "skip.weight")),
    ]
    assert all(tensor.dtype == torch.float32 for tensor in tensors.values())


def test_an_export_is_a_function_of_the_run(run: Path, tmp_path: Path) -> None:
    first, second = (export_model(run / "model", tmp_path / name) for name in ("a", "b"))
    for name in ("model.json", "model.safetensors"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


@pytest.mark.parametrize("jumping", ["none", "cat", "max"])
@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize("kind", ["sage", "gcn", "gin", "gat", "mlp"])
def test_every_weight_of_every_network_has_a_name(
    kind: str, norm: str, jumping: str, tmp_path: Path
) -> None:
    out = export_model(saved(tmp_path, kind=kind, norm=norm, jumping=jumping, residual=True))
    network = json.loads((out / "model.json").read_text())["network"]
    assert network["heads"] == (2 if kind == "gat" else 1)
    assert network["jumping"] == ("none" if kind == "mlp" else jumping)


def test_a_weight_without_a_name_is_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = saved(tmp_path, residual=True)
    monkeypatch.setattr("outercore.training.export._layer", lambda model, index: {})
    with pytest.raises(InternalError, match="weights of the network, found 0"):
        export_model(run)


def test_networks_that_a_server_does_not_have_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = saved(tmp_path, jumping="max")
    monkeypatch.setattr("outercore.training.export._JUMPING", ("none", "cat"))
    with pytest.raises(UnsupportedError, match=r"model\.jumping `max`.*can have none, cat") as told:
        export_model(run)
    assert "model.jumping=" in str(told.value)
    assert not (run / "serving").exists()


PATHS = {f"{group}.{name}" for group, values in TrainConfig().to_dict().items() for name in values}
"""Every option of a training."""
REFUSED = {"sampling.time", "sampling.precision", "link.relation"}
"""Those that no list of `served_options` has: they are exported at their defaults alone."""


def test_every_option_is_expressed_of_training_alone_or_refused() -> None:
    """A new option is in none of the lists: somebody has to decide what a server makes of it."""
    assert not EXPRESSED & OF_TRAINING
    assert PATHS - EXPRESSED - OF_TRAINING == REFUSED
    assert EXPRESSED | OF_TRAINING <= PATHS


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("sampling.time", "time"),
        ("sampling.precision", "int8"),
        ("link.relation", "user,sends,user"),
        ("sampling.unheard_of", True),
    ],
)
def test_options_that_a_server_does_not_know_are_refused_by_name(path: str, value: Any) -> None:
    rule = {**rule_of(TrainConfig()), path: value}
    with pytest.raises(UnsupportedError, match=rf"trained with {path} = {value}.*\nhint: "):
        require_expressed(rule, "runs/first")


def timed(directory: Path) -> Path:
    """A run of a training by times."""
    run = saved(directory)
    found = load_model(run / "model")
    config = replace(found.config, sampling=replace(found.config.sampling, time="year"))
    weights = found.model.state_dict()
    save_model(run / "model", found.model, weights, found.task, config, {})
    return run


def test_a_model_of_times_is_neither_exported_nor_served(tmp_path: Path) -> None:
    run = timed(tmp_path / "run")
    for use in (export_model, lambda run: Server(tmp_path / "none", run)):
        with pytest.raises(UnsupportedError, match=r"sampling\.time = year"):
            use(run)
    assert not (run / "serving").exists()


def without_options(exported: Path) -> None:
    """Removes the options of the training from an export."""
    path = exported / "model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"].pop("rule", None)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


def test_an_export_that_does_not_say_its_options_is_refused(tmp_path: Path) -> None:
    run = saved(tmp_path / "plain")
    require_known_options(export_model(run))
    without_options(run / "serving")
    for given in (run, run / "serving"):
        with pytest.raises(CorruptError, match=r"options .* are missing\nhint: export"):
            Server(tmp_path / "none", given)


def test_weights_of_a_diverged_training_are_refused(tmp_path: Path) -> None:
    run = saved(tmp_path)
    model = load_model(run / "model")
    weights = model.model.state_dict()
    weights["gnn.convs.1.lin_l.bias"][0] = float("inf")
    save_model(run / "model", model.model, weights, model.task, model.config, {})
    with pytest.raises(InvalidError, match=r"`layers\.1\.neighbours\.bias`: expected finite"):
        export_model(run)


def test_nothing_is_replaced_but_an_export_and_only_on_request(tmp_path: Path) -> None:
    run = saved(tmp_path)
    with pytest.raises(InvalidError, match="found something else"):
        export_model(run, run / "model", overwrite=True)
    load_model(run / "model")
    out = export_model(run)
    with pytest.raises(InvalidError, match="exists already"):
        export_model(run)
    assert export_model(run, overwrite=True) == out
    (out / "notes.txt").write_text("mine")
    with pytest.raises(InvalidError, match="found something else"):
        export_model(run, overwrite=True)


def test_what_is_no_trained_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such directory"):
        export_model(tmp_path / "none")
    out = export_model(saved(tmp_path))
    with pytest.raises(InvalidError, match="this is an exported model"):
        export_model(out, tmp_path / "again")


class FullDevice(Storage):
    """Fails at a given operation."""

    def __init__(self, fails_at: int) -> None:
        self.left = fails_at

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(28, "No space left on device")

    def write(self, path: Path, data: bytes) -> None:
        if self.left < 1:
            path.write_bytes(data[: len(data) // 2])
        self._count()
        super().write(path, data)

    def rename(self, old: Path, new: Path) -> None:
        self._count()
        super().rename(old, new)


@pytest.mark.parametrize("fails_at", range(4))
def test_a_failed_export_leaves_no_manifest_and_can_be_run_again(
    fails_at: int, tmp_path: Path
) -> None:
    run = saved(tmp_path)
    with pytest.raises(NoSpaceError, match="serving"):
        export_model(run, storage=FullDevice(fails_at))
    assert {file.name for file in (run / "serving").iterdir()} <= {"model.safetensors"}
    export_model(run)


def test_weights_and_manifest_hold_the_digest_of_each_other(tmp_path: Path) -> None:
    out = export_model(saved(tmp_path))
    manifest = (out / "model.json").read_bytes()
    weights = (out / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", weights[:8])
    header = json.loads(weights[8 : 8 + length])
    assert header["__metadata__"]["manifest"] == f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    found = f"sha256:{hashlib.sha256(weights[8 + length :]).hexdigest()}"
    assert found == json.loads(manifest)["weights"]


def test_the_command_prints_the_directory(run: Path, outcome: Any, tmp_path: Path) -> None:
    code, out, _ = outcome("export-model", run, "--out", tmp_path / "model")
    assert (code, out) == (0, f"{tmp_path / 'model'}\n")
    code, _, err = outcome("export-model", run, "--out", tmp_path / "model")
    assert code == 1
    assert "--overwrite" in err
    code, out, _ = outcome(
        "export-model", run, "--out", tmp_path / "model", "--overwrite", "--json"
    )
    assert (code, json.loads(out)) == (0, {"model": str(tmp_path / "model")})
