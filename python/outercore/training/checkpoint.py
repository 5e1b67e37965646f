"""Checkpoints: the state of a training. A resumed run is bit-identical to an uninterrupted run.

A checkpoint is a directory `checkpoints/<number>` with `tensors.safetensors` and `state.json`.
The file `checkpoints/latest` holds the number of the last complete checkpoint. It is replaced only
after the directory is on the device, so a crash costs at most the batches since the last
checkpoint. Both files are read only if their checksums fit. If a checkpoint is damaged, the
previous checkpoint is read. Reading unpickles nothing.

A checkpoint does not have PyTorch's random state: each batch seeds the generator with a function
of (seed, epoch, batch). So a resumed run drops out the same units as an uninterrupted run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from outercore.errors import CorruptError, VersionError
from outercore.files.atomic import Storage, device_errors, replace_file
from outercore.files.checked_json import checked_json_bytes, checksum_of, parse_checked_json
from outercore.training.config import RESUME

VERSION = 2
_POINTER = "latest"
_TENSORS = "tensors.safetensors"
_STATE = "state.json"


@dataclass
class Position:
    """The progress of a training and its measurements so far, as JSON values."""

    epoch: int = 0
    """The epoch that `batch` belongs to, counted from 0."""
    batch: int = 0
    """Number of trained batches of this epoch; all of them until the validation has ended."""
    loss_sum: float = 0.0
    """Sum of the losses of the trained seeds of this epoch."""
    seeds: int = 0
    """Number of trained seeds of this epoch."""
    seconds: float = 0.0
    """Seconds of training in this epoch."""
    best_score: float | None = None
    best_epoch: int | None = None
    epochs: list[dict[str, Any]] = field(default_factory=list)
    """One entry for each finished epoch, as in the run record."""
    counters: dict[str, Any] = field(default_factory=dict)
    """Counters of the training loader in this epoch, from before an interruption."""
    timeline: list[dict[str, Any]] = field(default_factory=list)
    finished: bool = False
    """Whether training has ended: after its last epoch, or because the score did not improve."""

    def stale_epochs(self) -> int:
        """The number of finished epochs since the best epoch."""
        return self.epoch if self.best_epoch is None else self.epoch - 1 - self.best_epoch


@dataclass
class Snapshot:
    """A checkpoint in memory.

    Shapes: `tensors` maps `model/<name>`, `best/<name>` and `adam/<field>/<name>` to tensors.
    """

    position: Position
    tensors: dict[str, Tensor]


class Checkpoints:
    """The checkpoints of one run. Only the last two stay on disk."""

    def __init__(self, directory: Path, storage: Storage | None = None) -> None:
        self._directory = directory
        self._storage = storage or Storage()
        self._loaded: int | None = None

    def save(self, snapshot: Snapshot) -> Path:
        """Writes a checkpoint and makes it the latest.

        Errors: `NoSpaceError` and `DeviceError`; then the previous checkpoint stays the latest.
        """
        # A new checkpoint takes the number of a damaged one that was skipped.
        number = (self._loaded or self._latest() or 0) + 1
        directory = self._directory / f"{number:06d}"
        data = save({name: value.contiguous() for name, value in snapshot.tensors.items()})
        state = {
            "version": VERSION,
            "position": asdict(snapshot.position),
            _TENSORS: checksum_of(data),
        }
        with device_errors(f"checkpoint `{directory}`", RESUME):
            # A crash may have left a directory with this number. No pointer ever named it.
            self._storage.remove_tree(directory)
            self._storage.make_directory(directory)
            self._storage.write(directory / _TENSORS, data)
            self._storage.write(directory / _STATE, checked_json_bytes(state))
            self._storage.sync_directory(directory)
            self._storage.sync_directory(self._directory)
            replace_file(self._storage, self._directory / _POINTER, f"{number:06d}\n".encode())
            self._loaded = number
            self._remove_before(number - 1)
        return directory

    def load(self, note: Callable[[str], None] = lambda _: None) -> Snapshot | None:
        """Reads the latest intact checkpoint; `None` before the first checkpoint.

        `note` is called with the reason for each damaged checkpoint that is skipped. Training from
        an earlier checkpoint gives a bit-identical result.

        Errors: `CorruptError` if no checkpoint on disk is intact; `VersionError`. Both name the
        file.
        """
        damages = []
        try:
            latest = self._latest()
            if latest is None:
                return None
        except CorruptError as error:
            latest = None
            damages.append(str(error))
        for number in self._candidates(latest):
            try:
                snapshot = self._read(self._directory / f"{number:06d}")
            except CorruptError as error:
                damages.append(str(error))
                continue
            for damage in damages:
                note(f"warning: {damage}; training resumes from checkpoint {number:06d}")
            self._loaded = number
            if not damages:
                # A crash after the pointer changed may have left older checkpoints.
                self._remove_before(number - 1)
            return snapshot
        raise CorruptError(
            f"{damages[0]}\nhint: no other checkpoint in `{self._directory}` is intact; restore "
            "the run from a copy, or train again with another `--out`"
        )

    def _read(self, directory: Path) -> Snapshot:
        what = f"checkpoint `{directory}`"
        try:
            state = parse_checked_json((directory / _STATE).read_bytes(), f"{what}: `{_STATE}`")
            version = state.get("version")
            if version != VERSION:
                raise VersionError(
                    f"{what}: expected version {VERSION}, found {version}\n"
                    "hint: resume it with the Outercore that wrote it"
                )
            data = (directory / _TENSORS).read_bytes()
            if (found := checksum_of(data)) != state.get(_TENSORS):
                raise CorruptError(
                    f"{what}: `{_TENSORS}`: found checksum {found}, expected {state.get(_TENSORS)}"
                )
            tensors = load(data)
        except (OSError, ValueError, SafetensorError) as error:
            if isinstance(error, (CorruptError, VersionError)):
                raise
            raise CorruptError(f"{what}: {error}") from error
        known = {item.name for item in fields(Position)}
        values = {name: value for name, value in state["position"].items() if name in known}
        return Snapshot(Position(**values), tensors)

    def _latest(self) -> int | None:
        pointer = self._directory / _POINTER
        if not pointer.exists():
            return None
        text = pointer.read_bytes().decode("latin1").strip()
        if not (text.isascii() and text.isdecimal()):
            raise CorruptError(f"`{pointer}`: expected the number of a checkpoint, found {text!r}")
        return int(text)

    def _candidates(self, latest: int | None) -> list[int]:
        """The numbers of all checkpoints: `latest` first, then the others from the newest on.

        A checkpoint that a crash prevented from becoming the latest is also usable: its checksums
        show whether it is complete.
        """
        found = {int(one.name) for one in self._directory.iterdir() if one.name.isdecimal()}
        others = sorted(found - {latest}, reverse=True)
        return others if latest is None else [latest, *others]

    def _remove_before(self, oldest: int) -> None:
        for directory in self._directory.iterdir():
            if directory.name.isdecimal() and int(directory.name) < oldest:
                self._storage.remove_tree(directory)


def pack(
    model: torch.nn.Module, adam: torch.optim.Adam, best: dict[str, Tensor]
) -> dict[str, Tensor]:
    """The tensors of a `Snapshot`, copied to the CPU."""
    tensors = {f"model/{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"best/{name}": value for name, value in best.items()}
    for name, parameter in model.named_parameters():
        for key, value in adam.state.get(parameter, {}).items():
            tensors[f"adam/{key}/{name}"] = value
    return {name: value.detach().cpu().clone() for name, value in tensors.items()}


def unpack(
    tensors: dict[str, Tensor], model: torch.nn.Module, adam: torch.optim.Adam
) -> dict[str, Tensor]:
    """Restores model and optimiser from the tensors of a `Snapshot`; returns the best model's.

    Errors: `CorruptError` if the tensors do not fit the model.
    """
    try:
        model.load_state_dict(_under(tensors, "model/"))
    except RuntimeError as error:
        raise CorruptError(f"checkpoint does not fit the configured model: {error}") from error
    for name, parameter in model.named_parameters():
        state = {}
        for key in ("step", "exp_avg", "exp_avg_sq"):
            value = tensors.get(f"adam/{key}/{name}")
            if value is not None:
                # Adam counts its steps on the CPU, also when it trains on a GPU.
                state[key] = value.clone() if key == "step" else value.to(parameter.device)
        if state:
            adam.state[parameter] = state
    return _under(tensors, "best/")


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
