"""Trained models on disk: safetensors for the weights, JSON for what they mean."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from outercore.errors import CorruptError, NotFoundError, VersionError
from outercore.storage import Storage, device_errors, replace_file
from outercore.train.config import ModelConfig, TrainConfig
from outercore.train.models import Network, Perceptron, build_model
from outercore.train.tasks import Task

_FORMAT = "outercore-model"
_VERSION = 1


@dataclass(frozen=True)
class SavedModel:
    """A model ready to predict, with the configuration it was trained under."""

    model: Network | Perceptron
    task: Task
    config: TrainConfig


def save_model(
    directory: Path,
    model: Network | Perceptron,
    weights: dict[str, Tensor],
    task: Task,
    config: TrainConfig,
    scores: dict[str, Any],
    storage: Storage | None = None,
) -> None:
    """Writes `model.json` and `model.safetensors`.

    The scores go into the header of the weights: they always describe the weights beside them.
    """
    storage = storage or Storage()
    described = {
        "format": _FORMAT,
        "version": _VERSION,
        "layers": model.layers,
        "features": model.features,
        "outputs": model.outputs,
        "task": dataclasses.asdict(task),
        "config": config.to_dict(),
    }
    tensors = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
    with device_errors(f"model `{directory}`"):
        storage.make_directory(directory)
        text = json.dumps(described, indent=1) + "\n"
        replace_file(storage, directory / "model.json", text.encode())
        data = save(tensors, metadata={"scores": json.dumps(scores)})
        replace_file(storage, directory / "model.safetensors", data)


def load_model(directory: Path) -> SavedModel:
    """Inverse of `save_model`.

    Errors: `NotFoundError`, `CorruptError` and `VersionError` name the file.
    """
    path = directory / "model.json"
    if not path.exists():
        raise NotFoundError(
            f"model `{directory}`: no `model.json` there\n"
            "hint: give a run directory of `outercore train`, or its `model`"
        )
    try:
        described = json.loads(path.read_text())
        weights = load((directory / "model.safetensors").read_bytes())
    except (OSError, ValueError, SafetensorError) as error:
        raise CorruptError(f"model `{directory}`: {error}") from error
    if described.get("format") != _FORMAT or described.get("version") != _VERSION:
        raise VersionError(
            f"model `{path}`: expected {_FORMAT} version {_VERSION}, found "
            f"{described.get('format')} version {described.get('version')}"
        )
    config = TrainConfig.from_dict(described["config"])
    model = _build(config.model, described)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CorruptError(
            f"model `{directory}`: weights do not fit `model.json`: {error}"
        ) from None
    return SavedModel(model.eval(), Task(**described["task"]), config)


def _build(config: ModelConfig, described: dict[str, Any]) -> Network | Perceptron:
    return build_model(config, described["layers"], described["features"], described["outputs"])
