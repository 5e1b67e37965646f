"""Trainings whose device fails at any operation, and run directories with any byte flipped: what is
resumed ends with the weights of a training that was not disturbed, or is refused."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fakes import FakeGraph, FakeLoader, planted  # noqa: E402
from outercore.errors import InterruptError, NoSpaceError, OutercoreError  # noqa: E402
from outercore.files import atomic  # noqa: E402
from outercore.runs.progress import Observer  # noqa: E402
from outercore.runs.stop import StopRequest  # noqa: E402
from outercore.training.config import (  # noqa: E402
    BudgetConfig,
    ModelConfig,
    OptimiserConfig,
    RunConfig,
    SamplingConfig,
    TrainConfig,
)
from outercore.training.loop import Trainer  # noqa: E402
from outercore.training.model_files import load_model  # noqa: E402
from outercore.training.run import resume, train  # noqa: E402
from outercore.training.run_directory import TrainDirectory  # noqa: E402
from outercore.training.trained_model import evaluate  # noqa: E402
from test_checkpoint import CrashError, FaultyStorage  # noqa: E402
from test_outputs import limited, no_space  # noqa: E402

torch.set_num_threads(1)
FAKES: dict[str, Any] = {"open_graph": FakeGraph, "open_loader": FakeLoader}
CONFIG = TrainConfig(
    model=ModelConfig(kind="mlp", hidden=2, dropout=0.3),
    sampling=SamplingConfig(fanout=(2,), batch_size=12),
    optimiser=OptimiserConfig(learning_rate=0.05, epochs=2, patience=0),
    budget=BudgetConfig(memory="64MiB"),
    run=RunConfig(checkpoint_seconds=1e-9),
)


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted(tmp_path_factory.mktemp("data") / "planted", nodes=48, width=3)


@pytest.fixture(scope="module")
def expected(data_set: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    run = tmp_path_factory.mktemp("whole") / "run"
    train(data_set, CONFIG, out=run, **FAKES)
    return weights(run)


def weights(run: Path) -> dict[str, Any]:
    return load_model(run / "model").model.state_dict()


def same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return all(torch.equal(found[name], expected[name]) for name in expected)


def begin(data_set: Path, run: Path, storage: FaultyStorage) -> None:
    """Trains with a failing device, from the making of the directory on."""
    graph: Any = FakeGraph(data_set)
    directory = TrainDirectory.create(run, graph, CONFIG, storage)
    with directory.training(new=True):
        Trainer(graph, CONFIG, directory, open_loader=FakeLoader, storage=storage).fit()


def again(data_set: Path, run: Path) -> None:
    """What a user does next, as the messages say."""
    if (run / "config.json").exists():
        resume(run, **FAKES)
    else:
        train(data_set, CONFIG, out=run, **FAKES)


def operations(data_set: Path, run: Path) -> int:
    storage = FaultyStorage()
    begin(data_set, run, storage)
    return storage.count


def disturbed(data_set: Path, root: Path, expected: dict[str, Any], fault: str, step: int) -> None:
    count = operations(data_set, root / "counted")
    assert count > 60
    # A power cut may leave a directory that was made, and nothing in it.
    for failing in range(0, count, step):
        run = root / str(failing)
        error: Exception = CrashError() if fault == "crash" else OSError(errno.ENOSPC, "full")
        try:
            begin(data_set, run, FaultyStorage(failing, error))
        except (CrashError, NoSpaceError) as problem:
            told = str(problem)
            assert fault == "crash" or "hint: free some space, then" in told, failing
            if "--resume" in told:
                assert f"--resume {run}`" in told
                assert (run / "config.json").exists()
        else:
            # The last ones only clean up.
            assert failing > count - 5 or fault == "full", failing
        if fault == "full":
            assert not list(run.rglob(".*.tmp")), failing
        again(data_set, run)
        assert same(weights(run), expected), failing
        shutil.rmtree(run)


@pytest.mark.parametrize("fault", ["crash", "full"])
def test_a_training_survives_a_fault_at_some_operations(
    data_set: Path, tmp_path: Path, expected: dict[str, Any], fault: str
) -> None:
    disturbed(data_set, tmp_path, expected, fault, 17)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["crash", "full"])
def test_a_training_survives_a_fault_at_every_operation(
    data_set: Path, tmp_path: Path, expected: dict[str, Any], fault: str
) -> None:
    disturbed(data_set, tmp_path, expected, fault, 1)


@pytest.mark.parametrize("ending", ["npy", "parquet", "csv"])
def test_evaluate_on_a_full_device_keeps_the_old_predictions(
    data_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    train(data_set, CONFIG, out=tmp_path / "run", **FAKES)
    out = tmp_path / f"classes.{ending}"
    evaluate(tmp_path / "run", predictions=out, **FAKES)
    old = out.read_bytes()
    options: dict[str, Any] = {**FAKES, "predictions": out, "overwrite": True, "split": "valid"}
    for room in range(0, len(old) // 2, max(1, len(old) // 8)):
        monkeypatch.setattr(atomic, "_opened", limited(room, no_space))
        with pytest.raises(NoSpaceError, match="then run the same command again"):
            evaluate(tmp_path / "run", **options)
        assert out.read_bytes() == old, room
        assert sorted(one.name for one in tmp_path.iterdir()) == [out.name, "run"], room
    monkeypatch.undo()
    evaluate(tmp_path / "run", **options)
    assert out.read_bytes() != old


def flipped(data_set: Path, root: Path, expected: dict[str, Any], every: int, seed: int) -> None:
    """Flips bytes of all files of a stopped run, one at a time."""
    graph: Any = FakeGraph(data_set)
    stop = StopRequest()

    class Stop(Observer):
        left = 3

        def batch_done(self, *_: Any) -> None:
            self.left -= 1
            if not self.left:
                stop.request()

    directory = TrainDirectory.create(root / "run", graph, CONFIG)
    trainer = Trainer(graph, CONFIG, directory, observer=Stop(), stop=stop, open_loader=FakeLoader)
    with pytest.raises(InterruptError):
        trainer.fit()
    random = np.random.default_rng(seed)
    outcomes = []
    for file in sorted(path for path in (root / "run").rglob("*") if path.is_file()):
        whole = file.read_bytes()
        for place in range(int(random.integers(every)), len(whole), every):
            copy = root / "copy"
            shutil.copytree(root / "run", copy)
            damaged = bytearray(whole)
            damaged[place] ^= 1 << int(random.integers(8))
            (copy / file.relative_to(root / "run")).write_bytes(damaged)
            where = (seed, file.name, place)
            try:
                resume(copy, **FAKES)
            except OutercoreError as error:
                assert "hint: " in str(error), where  # noqa: PT017
                outcomes.append("refused")
            else:
                assert same(weights(copy), expected), where
                outcomes.append("resumed")
            shutil.rmtree(copy)
    # A damaged checkpoint is skipped for the other one, a damaged configuration is refused.
    assert set(outcomes) == {"refused", "resumed"}


def test_a_flipped_byte_of_a_run_directory_is_found_or_harmless(
    data_set: Path, tmp_path: Path, expected: dict[str, Any]
) -> None:
    flipped(data_set, tmp_path, expected, every=900, seed=3)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_flipped_bytes_of_a_run_directory_are_found_or_harmless(
    data_set: Path, tmp_path: Path, expected: dict[str, Any]
) -> None:
    flipped(data_set, tmp_path, expected, every=60, seed=4)
