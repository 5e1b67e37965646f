"""The programs in `examples` run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from test_examples import ROOT, planted, run

__all__ = ["planted"]


def test_the_minibatch_example_learns_the_planted_communities(planted: Path) -> None:
    printed = run(sys.executable, ROOT / "examples" / "minibatch.py", planted, "--memory", "32MiB")
    accuracy = re.search(r"accuracy ([0-9.]+)", printed)
    assert accuracy is not None, printed
    assert float(accuracy[1]) > 0.5, printed


def test_lightning_fits_tests_and_predicts(planted: Path, tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="the example needs it")
    example = ROOT / "examples" / "lightning_fit.py"
    printed = run(sys.executable, example, planted, "--memory", "32MiB", "--out", tmp_path / "run")
    found = re.search(r"accuracy ([0-9.]+), (\d+) predictions", printed)
    assert found is not None, printed
    assert float(found[1]) > 0.5, printed
    assert found[2] == "2000"


def test_the_stores_example_loads_batches_through_pyg(planted: Path) -> None:
    printed = run(sys.executable, ROOT / "examples" / "pyg_stores.py", planted)
    assert "64 seeds" in printed
    assert "16)" in printed


def test_two_processes_take_the_steps_of_one(planted: Path) -> None:
    """Two batches a step in one process, or a batch each in two: the same losses."""
    example = ROOT / "examples" / "torchrun.py"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    both = run(*launch, "--nproc-per-node", "2", example, planted, "--epochs", "2")
    alone = run(sys.executable, example, planted, "--steps-of", "2", "--epochs", "2")
    pattern = r"epoch \d+: (\d+) steps, loss ([0-9.]+)"
    found = [re.findall(pattern, printed) for printed in (both, alone)]
    assert [steps for steps, _ in found[0]] == [steps for steps, _ in found[1]]
    assert len(found[0]) == 2
    losses = [[float(loss) for _, loss in epochs] for epochs in found]
    assert losses[0] == pytest.approx(losses[1], abs=2e-4)


def test_workers_of_ray_train_share_an_epoch_and_write_their_parts(
    planted: Path, tmp_path: Path
) -> None:
    example = ROOT / "examples" / "ray_train.py"
    printed = run(sys.executable, example, planted, "--out", tmp_path / "run")
    found = re.search(r"loss ([0-9.]+), accuracy on the test nodes ([0-9.]+)", printed)
    assert found is not None, printed
    assert float(found[2]) > 0.5, printed
    folder = tmp_path / "run" / "predictions"
    assert sorted(part.name for part in folder.iterdir()) == ["part=0", "part=1"]
    table = pq.read_table(folder)
    assert sorted(table["id"].to_pylist()) == list(range(2000))
    assert set(table["part"].to_pylist()) == {0, 1}


@pytest.mark.parametrize(
    "name", ["neighbor_sampling", "hetero", "hgt", "link_prediction", "remote"]
)
def test_a_program_of_pyg_learns_with_the_loader_of_outercore(name: str) -> None:
    printed = run(sys.executable, ROOT / "examples" / "pyg" / f"{name}.py")
    accuracies = re.findall(r"accuracy ([0-9.]+)", printed)
    assert accuracies, printed
    assert min(map(float, accuracies)) > 0.7, printed
