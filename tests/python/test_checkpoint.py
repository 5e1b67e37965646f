"""Checkpoints survive a crash at every write, a full device, and `kill -9`."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from outercore.errors import CorruptError, NoSpaceError, VersionError  # noqa: E402
from outercore.files.atomic import Storage  # noqa: E402
from outercore.files.checked_json import checked_json_bytes, parse_checked_json  # noqa: E402
from outercore.training.checkpoint import (  # noqa: E402
    Checkpoints,
    Position,
    Snapshot,
    pack,
    unpack,
)
from outercore.training.config import ModelConfig, SamplingConfig, TrainConfig  # noqa: E402
from outercore.training.model_files import load_model, save_model  # noqa: E402
from outercore.training.models import build_model  # noqa: E402
from outercore.training.tasks import Task  # noqa: E402

torch.set_num_threads(1)


class CrashError(Exception):
    """The power went."""


class FaultyStorage(Storage):
    """Fails at the n-th operation; a write that fails leaves half of its bytes."""

    def __init__(self, failing: int | None = None, error: Exception | None = None) -> None:
        self.count = 0
        self._failing = failing
        self._error = error or CrashError()

    def _step(self) -> None:
        self.count += 1
        if self.count - 1 == self._failing:
            raise self._error

    def write(self, path: Path, data: bytes) -> None:
        try:
            self._step()
        except Exception:
            path.write_bytes(data[: len(data) // 2])
            raise
        super().write(path, data)

    def rename(self, old: Path, new: Path) -> None:
        self._step()
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        # Once the power is gone nothing cleans up.
        if not isinstance(self._error, CrashError):
            super().remove(path)

    def sync_directory(self, path: Path) -> None:
        self._step()
        super().sync_directory(path)

    def make_directory(self, path: Path) -> None:
        self._step()
        super().make_directory(path)

    def remove_tree(self, path: Path) -> None:
        self._step()
        super().remove_tree(path)


def snapshot(number: int) -> Snapshot:
    return Snapshot(
        Position(epoch=number, batch=3, loss_sum=0.1 * number, epochs=[{"loss": 0.3}]),
        {"model/weight": torch.full((4, 3), float(number))},
    )


def directory(tmp_path: Path, name: str = "checkpoints") -> Path:
    path = tmp_path / name
    path.mkdir()
    return path


def operations_of_a_save(tmp_path: Path) -> int:
    path = directory(tmp_path, "counted")
    Checkpoints(path).save(snapshot(1))
    storage = FaultyStorage()
    Checkpoints(path, storage).save(snapshot(2))
    return storage.count


def test_every_crash_point_leaves_the_old_checkpoint_or_the_new_one(tmp_path: Path) -> None:
    seen = set()
    for failing in range(operations_of_a_save(tmp_path)):
        path = directory(tmp_path, f"crash-{failing}")
        Checkpoints(path).save(snapshot(1))
        with pytest.raises(CrashError):
            Checkpoints(path, FaultyStorage(failing)).save(snapshot(2))
        loaded = Checkpoints(path).load()
        assert loaded is not None
        assert loaded.position in (snapshot(1).position, snapshot(2).position), failing
        value = float(loaded.tensors["model/weight"][0, 0])
        assert value == loaded.position.epoch, failing
        seen.add(loaded.position.epoch)
        # Life goes on: the next checkpoint works and is the latest.
        Checkpoints(path).save(snapshot(3))
        again = Checkpoints(path).load()
        assert again is not None
        assert again.position == snapshot(3).position
    assert seen == {1, 2}


def test_what_a_crash_left_of_a_save_is_gone_once_the_run_has_gone_on(tmp_path: Path) -> None:
    """Also where it went on only to see that it had ended: then nothing is saved any more."""
    # The third removes the first.
    for failing in range(operations_of_a_save(tmp_path) + 2):
        path = directory(tmp_path, f"crash-{failing}")
        for number in (1, 2):
            Checkpoints(path).save(snapshot(number))
        with contextlib.suppress(CrashError):
            Checkpoints(path, FaultyStorage(failing)).save(snapshot(3))
        resumed = Checkpoints(path)
        found = resumed.load()
        assert found is not None
        if found.position.epoch == 2:
            resumed.save(snapshot(3))
        names = sorted(one.name for one in path.iterdir())
        assert names == ["000002", "000003", "latest"], failing


def test_a_full_device_is_named_and_the_last_checkpoint_stays(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    for failing in range(operations_of_a_save(tmp_path) - 1):
        path = directory(tmp_path, f"full-{failing}")
        Checkpoints(path).save(snapshot(1))
        with pytest.raises(NoSpaceError, match="no space left on the device"):
            Checkpoints(path, FaultyStorage(failing, full)).save(snapshot(2))
        assert Checkpoints(path).load() is not None


def test_there_is_no_checkpoint_before_the_first(tmp_path: Path) -> None:
    assert Checkpoints(directory(tmp_path)).load() is None


def test_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    path = directory(tmp_path)
    for number in range(5):
        Checkpoints(path).save(snapshot(number))
    assert sorted(item.name for item in path.iterdir()) == ["000004", "000005", "latest"]


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json"])
def test_a_truncated_checkpoint_is_refused_by_name(name: str, tmp_path: Path) -> None:
    path = directory(tmp_path)
    saved = Checkpoints(path).save(snapshot(1))
    whole = (saved / name).read_bytes()
    (saved / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptError, match="000001"):
        Checkpoints(path).load()


def test_a_pointer_to_nothing_is_refused(tmp_path: Path) -> None:
    path = directory(tmp_path)
    (path / "latest").write_text("../../etc\n")
    with pytest.raises(CorruptError, match="expected the number of a checkpoint"):
        Checkpoints(path).load()


def test_a_newer_checkpoint_is_refused(tmp_path: Path) -> None:
    path = directory(tmp_path)
    state = Checkpoints(path).save(snapshot(1)) / "state.json"
    values = parse_checked_json(state.read_bytes(), "state")
    state.write_bytes(checked_json_bytes({**values, "version": 3}))
    with pytest.raises(VersionError, match="expected version 2, found 3"):
        Checkpoints(path).load()


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json"])
def test_every_flipped_byte_of_a_checkpoint_is_found(name: str, tmp_path: Path) -> None:
    path = directory(tmp_path)
    file = Checkpoints(path).save(snapshot(1)) / name
    whole = file.read_bytes()
    for place in range(len(whole)):
        # One bit, and all of them: a digit of JSON becomes another digit, or none.
        for mask in (1, 255):
            damaged = bytearray(whole)
            damaged[place] ^= mask
            file.write_bytes(damaged)
            try:
                loaded = Checkpoints(path).load()
            except CorruptError as error:
                assert name in str(error) or "000001" in str(error)  # noqa: PT017
                continue
            # A byte between two values of JSON means nothing.
            assert loaded is not None, place
            assert whole[place : place + 1].isspace(), place
            assert loaded.position == snapshot(1).position, place


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "../latest"])
def test_a_damaged_checkpoint_is_skipped_aloud_for_the_one_before(
    name: str, tmp_path: Path
) -> None:
    path = directory(tmp_path)
    Checkpoints(path).save(snapshot(1))
    file = Checkpoints(path).save(snapshot(2)) / name
    whole = file.read_bytes()
    file.write_bytes(bytes([whole[0] ^ 255]) + whole[1:])
    notes: list[str] = []
    checkpoints = Checkpoints(path)
    loaded = checkpoints.load(notes.append)
    assert loaded is not None
    # With a damaged pointer, the newest whole one will do.
    assert loaded.position.epoch == (2 if name == "../latest" else 1)
    assert len(notes) == 1
    assert f"training resumes from checkpoint 00000{loaded.position.epoch}" in notes[0]
    # The next one replaces the damaged one.
    checkpoints.save(snapshot(3))
    again = Checkpoints(path).load(notes.append)
    assert again is not None
    assert (again.position, len(notes)) == (snapshot(3).position, 1)


def saved_model(path: Path) -> dict[str, Any]:
    model = build_model(ModelConfig(hidden=4), 1, 3, 2)
    weights = {name: torch.rand(value.shape) for name, value in model.state_dict().items()}
    task = Task("classes", 2, "accuracy")
    config = TrainConfig(model=ModelConfig(hidden=4), sampling=SamplingConfig(fanout=(2,)))
    save_model(path, model, weights, task, config, {"valid": 0.5})
    return weights


@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_flipped_byte_of_a_saved_model_is_found_wherever_it_is(name: str, tmp_path: Path) -> None:
    weights = saved_model(tmp_path)
    file = tmp_path / name
    whole = file.read_bytes()
    for place in [*range(16), *range(16, len(whole), 11)]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 if place % 2 else 255
        file.write_bytes(damaged)
        try:
            found = load_model(tmp_path).model.state_dict()
        except CorruptError as error:
            assert "restore it from a copy" in str(error)  # noqa: PT017
            continue
        assert whole[place : place + 1].isspace(), place
        assert all(torch.equal(found[key], weights[key]) for key in weights), place


def test_a_pickle_in_place_of_tensors_is_never_run(tmp_path: Path) -> None:
    path = directory(tmp_path)
    saved = Checkpoints(path).save(snapshot(1))

    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "exploded"),)

    torch.save(Bomb(), saved / "tensors.safetensors")
    with pytest.raises(CorruptError):
        Checkpoints(path).load()
    assert not (tmp_path / "exploded").exists()


def test_packing_and_unpacking_keeps_model_moments_and_best_bit_for_bit() -> None:
    def build() -> tuple[torch.nn.Module, torch.optim.Adam]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4))
        return model, torch.optim.Adam(model.parameters(), lr=0.1)

    def step(model: torch.nn.Module, adam: torch.optim.Adam, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        adam.zero_grad()
        model(torch.randn(8, 5, generator=generator)).square().sum().backward()
        adam.step()

    model, adam = build()
    step(model, adam, 1)
    packed = pack(model, adam, {"0.weight": torch.ones(2)})
    other, other_adam = build()
    best = unpack(packed, other, other_adam)
    assert torch.equal(best["0.weight"], torch.ones(2))
    step(model, adam, 2)
    step(other, other_adam, 2)
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
