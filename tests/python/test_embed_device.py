"""Runs on another device than the CPU: the bits of PyTorch's way on the CPU, whatever is moved."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import outercore as oc
from embedded import facts, random_triples
from other_device import DEVICE, OtherDevice
from outercore.embedding.config import RunConfig
from outercore.embedding.gradients.trainer import DivergedError, Trainer
from outercore.embedding.run import choose_device
from outercore.embedding.tables.partitions import SlotCopies
from outercore.embedding.tables.placement import Placement
from outercore.errors import BudgetError, InterruptError, InvalidError
from outercore.runs.progress import Observer

BUDGETS: dict[str, dict[str, Any]] = {
    "in memory": {},
    "in place": {"partitions": 6, "slots": 3, "swap": "in-place"},
    "in turn, in groups": {"partitions": 6, "slots": 3, "swap": "in-turn", "group": 2, "sweeps": 2},
    "with a spare slot": {"partitions": 6, "slots": 4, "swap": "spare-slot"},
}
RUNS: dict[str, dict[str, Any]] = {
    "dot": {"model": {"kind": "dot"}},
    "distmult, weighed by degree": {
        "model": {"kind": "distmult"},
        "negatives": {"degree_share": 0.5, "correction": "frequency"},
    },
    "complex, reciprocal, N3, other answers left out": {
        "model": {"kind": "complex", "reciprocal": True},
        "negatives": {"filter": "known"},
        "regulariser": {"kind": "n3", "weight": 0.01},
    },
    "simple, Adam": {"model": {"kind": "simple"}, "optimiser": {"relations": "adam"}},
    "transe": {"model": {"kind": "transe", "norm": 2}, "optimiser": {"kind": "row-adagrad"}},
    "transe by absolute values": {"model": {"kind": "transe", "norm": 1}},
    "rotate": {"model": {"kind": "rotate"}, "loss": {"kind": "self-adversarial", "margin": 3.0}},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("facts") / "set"
    rows = random_triples(5)
    facts(root, rows[40:], rows[:40])
    return root


@pytest.fixture(autouse=True)
def by_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is the core's on the CPU either, so that the bits are the same."""
    monkeypatch.setattr("outercore.embedding.gradients.trainer.fits_core", lambda *tensors: False)
    monkeypatch.setattr("outercore.embedding.gradients.models.fits_core", lambda *tensors: False)


@contextmanager
def elsewhere() -> Iterator[None]:
    """Runs are on the other device meanwhile."""
    with pytest.MonkeyPatch.context() as patched, OtherDevice():
        patched.setattr("outercore.embedding.run.choose_device", lambda name, placement: DEVICE)
        yield


def config(**groups: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "model": {"dim": 8, "init_scale": 0.1},
        "negatives": {"count": 12},
        "optimiser": {"batch_size": 32, "chunk_size": 16, "epochs": 2, "learning_rate": 0.2},
        "budget": {"threads": 1, "memory": "256MiB"},
    }
    return {name: {**values.get(name, {}), **groups.get(name, {})} for name in {*values, *groups}}


def assert_same_bits(run: Path, other: Path) -> None:
    for name in ("entities", "relations"):
        found, expected = (np.load(one / f"{name}.npy") for one in (run, other))
        np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


def chosen_runs() -> list[tuple[str, str]]:
    """All in memory; some in partitions, where other answers have to be in one pool."""
    known, absolute = "complex, reciprocal, N3, other answers left out", "transe by absolute values"
    in_partitions = [(known, "in place"), (known, "with a spare slot")]
    in_partitions += [("distmult, weighed by degree", "in turn, in groups"), ("rotate", "in place")]
    in_partitions += [("simple, Adam", "with a spare slot"), (absolute, "in turn, in groups")]
    return [(name, "in memory") for name in RUNS] + in_partitions


@pytest.mark.parametrize(("name", "budget"), chosen_runs())
def test_a_run_has_the_bits_of_one_on_the_cpu(
    name: str, budget: str, data: Path, tmp_path: Path
) -> None:
    chosen = config(**RUNS[name], budget=BUDGETS[budget])
    on_cpu = oc.embed(data, chosen, out=tmp_path / "cpu")
    with elsewhere():
        there = oc.embed(data, chosen, out=tmp_path / "other")
    assert_same_bits(tmp_path / "other", tmp_path / "cpu")
    assert there.record["result"] == on_cpu.record["result"]


class Interrupt(Observer):
    """Asks to stop after so many batches."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def batch_done(self, loss: float, count: int, counters: dict[str, Any]) -> None:
        self.batches -= 1
        if self.batches == 0:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("batches", [3, 10])
@pytest.mark.parametrize("budget", BUDGETS)
def test_an_interrupted_run_goes_on_wherever_it_is_resumed(
    budget: str, batches: int, data: Path, tmp_path: Path
) -> None:
    # The best tables are brought back in the end, and each epoch is validated.
    chosen = config(
        budget=BUDGETS[budget],
        optimiser={"validate_every": 1, "patience": 1, "learning_rate": 0.9},
        run={"checkpoint_seconds": 0},
    )
    oc.embed(data, chosen, out=tmp_path / "cpu")
    with elsewhere():
        oc.embed(data, chosen, out=tmp_path / "other")
        for run in ("back", "there"):
            with pytest.raises(InterruptError):
                oc.embed(data, chosen, out=tmp_path / run, observer=Interrupt(batches))
        oc.resume(tmp_path / "there")
    oc.resume(tmp_path / "back")
    for run in ("other", "there", "back"):
        assert_same_bits(tmp_path / run, tmp_path / "cpu")


@pytest.mark.parametrize("budget", BUDGETS)
def test_checkpoints_after_every_state_change_nothing(
    budget: str, data: Path, tmp_path: Path
) -> None:
    chosen = config(budget=BUDGETS[budget], optimiser={"validate_every": 1})
    oc.embed(data, chosen, out=tmp_path / "cpu")
    chosen["run"] = {"checkpoint_seconds": 1e-9}
    with elsewhere():
        oc.embed(data, chosen, out=tmp_path / "other")
    assert_same_bits(tmp_path / "other", tmp_path / "cpu")


@pytest.mark.parametrize("pool", [4, 5])
def test_a_loss_that_is_not_finite_leaves_the_best_tables_from_there(
    pool: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Trainer._step

    def diverges(self: Trainer, context: Any, places: Any, at: Any) -> float:
        if at >= (1, pool, 0):
            raise DivergedError("expected a finite loss, found inf\nhint: less")
        return step(self, context, places, at)

    monkeypatch.setattr(Trainer, "_step", diverges)
    chosen = config(budget=BUDGETS["in place"], optimiser={"validate_every": 1})
    with pytest.raises(DivergedError, match="the best tables, of epoch 1, are in"):
        oc.embed(data, chosen, out=tmp_path / "cpu")
    with elsewhere(), pytest.raises(DivergedError, match="the best tables, of epoch 1, are in"):
        oc.embed(data, chosen, out=tmp_path / "other")
    assert_same_bits(tmp_path / "other", tmp_path / "cpu")


def test_slots_are_copied_when_partitions_come_and_leave_and_no_others() -> None:
    rows, state = torch.zeros(6, 2), torch.zeros(6, 1)
    copies = SlotCopies(rows, state, 2, torch.device("cpu"))
    rows[0:2], rows[2:4], state[2] = 1.0, 2.0, 5.0
    copies.bring([(7, 0, 2), (8, 1, 1)])
    assert copies.embeddings[:3].tolist() == [[1.0, 1.0], [1.0, 1.0], [2.0, 2.0]]
    assert copies.state[2].tolist() == [5.0]
    copies.embeddings[0:4] += 10.0
    copies.send([8])
    # The last row of slot 1 is no node's.
    assert rows[:, 0].tolist() == [1.0, 1.0, 12.0, 2.0, 0.0, 0.0]
    # Partition 9 comes into its slot, 7 stays: its copy is the newer one.
    rows[2:4] = 3.0
    copies.bring([(9, 1, 2), (7, 0, 2)])
    assert copies.embeddings[:4, 0].tolist() == [11.0, 11.0, 3.0, 3.0]
    copies.send()
    assert rows[:, 0].tolist() == [11.0, 11.0, 3.0, 3.0, 0.0, 0.0]
    copies.embeddings[0:4] += 1.0
    copies.send([7, 9])
    assert rows[:, 0].tolist() == [12.0, 12.0, 4.0, 4.0, 0.0, 0.0]
    # Slots may have others when a step is ended: its copies are not written any more.
    copies.end_step()
    rows[0:4] = 0.0
    copies.send([7, 9])
    assert rows[:, 0].tolist() == [0.0] * 6
    # What was not there in between is not known to be the same.
    copies.bring([(9, 1, 2)])
    rows[0:2] = 6.0
    copies.bring([(7, 0, 2), (9, 1, 2)])
    assert copies.embeddings[:4, 0].tolist() == [6.0, 6.0, 4.0, 4.0]
    rows[0:2] = 0.0
    copies.forget()
    copies.bring([(7, 0, 2)])
    assert copies.embeddings[0].tolist() == [0.0, 0.0]


def placement(**parts: int) -> Placement:
    return Placement(memory=1 << 30, partitions=4, slots=2, parts=parts)


def test_a_gpu_has_room_for_tables_batches_and_questions() -> None:
    parts: dict[str, int] = {"slots": 90, "relations": 10, "the process": 7}
    parts |= {"a batch": 20, "score function": 5, "known negatives": 2}
    assert placement(**parts).on_device == 127
    # In the memory of a pool, which a GPU has not, questions are ranked.
    assert placement(**parts, **{"evaluation": 20, "triples in training": 8}).on_device == 155


def test_the_gpu_is_taken_where_it_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = placement(slots=90, relations=10), placement(slots=90, relations=11)
    auto, cpu, cuda = (RunConfig(device=name) for name in ("auto", "cpu", "cuda"))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert choose_device(auto, small) == choose_device(cpu, small) == torch.device("cpu")
    with pytest.raises(InvalidError, match="PyTorch finds none"):
        choose_device(cuda, small)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (100, 1000))
    assert choose_device(auto, small) == choose_device(cuda, small) == torch.device("cuda")
    assert choose_device(auto, large) == choose_device(cpu, small) == torch.device("cpu")
    with pytest.raises(BudgetError, match=r"expected 101 bytes .*found 100 free"):
        choose_device(cuda, large)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("budget", BUDGETS)
def test_a_gpu_trains_what_the_cpu_trains(budget: str, data: Path, tmp_path: Path) -> None:
    loss = {}
    for device in ("cpu", "cuda"):
        chosen = config(budget=BUDGETS[budget], run={"device": device})
        trained = oc.embed(data, chosen, out=tmp_path / device)
        loss[device] = trained.record["epochs"][-1]["loss"]
    assert loss["cuda"] == pytest.approx(loss["cpu"], rel=1e-2)
