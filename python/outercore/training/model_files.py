"""Trained models on disk: weights as safetensors, and a description in JSON.

Both files have a checksum; the checksum of the weights is in their header.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from outercore.base.shell import quoted
from outercore.data.directories import is_data_set, made_by
from outercore.errors import CorruptError, InvalidError, NotFoundError, VersionError
from outercore.files.atomic import Storage, device_errors, replace_file
from outercore.files.checked_json import (
    CHECKSUM,
    checked_json_bytes,
    checksum_of,
    parse_checked_json,
    parse_json,
)
from outercore.runs.custom_code import CustomCode
from outercore.training.config import TrainConfig
from outercore.training.custom_network import (
    NetworkSource,
    build_custom,
    same_network_code,
)
from outercore.training.links.network import LinkModel, TemporalLinkModel, TimedSchema
from outercore.training.models import GraphNetwork, Model, build_model
from outercore.training.tasks import Task
from outercore.training.typed_network import TypedNetwork, TypedSchema

_FORMAT = "outercore-model"
_VERSION = 2
EXPORTED = "outercore-inference"
"""Value of `format` in the manifest of an exported model."""


@dataclass(frozen=True)
class SavedModel:
    """A model that is ready to predict, with the configuration of its training."""

    model: Model
    task: Task
    config: TrainConfig


def save_model(
    directory: Path,
    model: Model,
    weights: dict[str, Tensor],
    task: Task,
    config: TrainConfig,
    scores: dict[str, Any],
    storage: Storage | None = None,
    code: CustomCode | None = None,
) -> None:
    """Writes `model.json` and `model.safetensors`; for a custom network also the place of `code`.

    The scores are in the header of the weights, so they always belong to these weights.
    """
    storage = storage or Storage()
    described = {
        "format": _FORMAT,
        "version": _VERSION,
        "layers": model.layers,
        "features": model.features,
        "outputs": model.outputs,
        **({"table_rows": model.table_rows} if isinstance(model, LinkModel) else {}),
        "task": dataclasses.asdict(task),
        "config": config.to_dict(),
    }
    if code is not None:
        described["network"] = {"place": code.place, "digest": code.digest}
    if isinstance(model, GraphNetwork):
        described["categories"] = list(model.categories)
        described["of_degrees"] = model.of_degrees
    if isinstance(model, TypedNetwork | TemporalLinkModel):
        described["schema"] = model.schema.to_dict()
    tensors = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
    with device_errors(f"model `{directory}`"):
        storage.make_directory(directory)
        replace_file(storage, directory / "model.json", checked_json_bytes(described))
        replace_file(storage, directory / "model.safetensors", _to_bytes(tensors, scores))


def model_directory(place: str | Path) -> Path:
    """The directory of the model in a run. `place` is the run, or the directory itself.

    Errors: `NotFoundError`, or `InvalidError` for a run of `outercore embed` or a data set.
    """
    if not isinstance(place, (str, os.PathLike)):
        raise InvalidError(
            f"model: expected the directory of a run, found {type(place).__name__}\n"
            "hint: give the run that `oc.train` has written, and a network of your own as "
            "`network=...`"
        )
    path = Path(place)
    for directory in (path / "model", path):
        if (directory / "model.json").exists():
            return directory
    give = "give a run directory of `outercore train`, or its `model`"
    if not path.exists():
        raise NotFoundError(f"model `{path}`: no such directory\nhint: {give}")
    verb = made_by(path)
    if verb == "embed":
        raise InvalidError(
            f"model `{path}`: this is a run of `outercore embed`\n"
            f"hint: score it by `outercore embedding evaluate {quoted(path)}`"
        )
    if verb == "train":
        raise NotFoundError(
            f"model `{path}`: the run has no model yet, because no epoch was scored\n"
            f"hint: go on with it by `outercore train --resume {quoted(path)}`"
        )
    if is_data_set(path):
        raise InvalidError(
            f"model `{path}`: this is a data set\n"
            f"hint: {give}; `outercore train {quoted(path)}` trains a model"
        )
    raise NotFoundError(f"model `{path}`: no `model.json` there\nhint: {give}")


def load_model(directory: Path, network: NetworkSource | None = None) -> SavedModel:
    """Reads a model that `save_model` wrote. `network` is the code of a custom network.

    Errors: `NotFoundError`, `CorruptError` and `VersionError` name the file; `InvalidError` for an
    exported model, and if the code is missing, has changed, or is not needed.
    """
    path = directory / "model.json"
    if not path.exists():
        raise NotFoundError(
            f"model `{directory}`: no `model.json` there\n"
            "hint: give a run directory of `outercore train`, or its `model`"
        )
    if is_exported(directory):
        raise InvalidError(
            f"model `{directory}`: this is an exported model, expected the one that was trained\n"
            "hint: give a run directory of `outercore train`, or its `model`"
        )
    try:
        described = parse_checked_json(path.read_bytes(), f"model `{directory}`: `model.json`")
        if described.get("format") != _FORMAT or described.get("version") != _VERSION:
            raise VersionError(
                f"model `{path}`: expected {_FORMAT} version {_VERSION}, found "
                f"{described.get('format')} version {described.get('version')}"
            )
        weights = _from_bytes((directory / "model.safetensors").read_bytes())
    except (OSError, ValueError, SafetensorError, CorruptError) as error:
        what = "" if isinstance(error, CorruptError) else f"model `{directory}`: "
        raise CorruptError(f"{what}{error}\nhint: {_way_out(directory)}") from error
    config = TrainConfig.from_dict(described["config"])
    stored = described.get("network", {})
    made_with = (stored.get("place"), stored.get("digest", ""))
    code = same_network_code(f"model `{directory}`", made_with, network)
    model = _build(config, described, code)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CorruptError(
            f"model `{directory}`: weights do not fit `model.json`: {error}"
        ) from None
    return SavedModel(model.eval(), _task(described["task"]), config)


def is_custom(directory: Path) -> bool:
    """Whether the model has a custom network."""
    described = _unchecked(directory)
    return described.get("format") == _FORMAT and "network" in described


def is_exported(directory: Path) -> bool:
    """Whether the model in `directory` was written by `outercore export-model`."""
    return _unchecked(directory).get("format") == EXPORTED


def _unchecked(directory: Path) -> dict[str, Any]:
    """The content of `model.json`, without a check of its checksum; empty if it is not readable."""
    try:
        described = parse_json((directory / "model.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return described if isinstance(described, dict) else {}


def _task(described: dict[str, Any]) -> Task:
    # Convert the lists of JSON to tuples.
    units = {name: tuple(described.get(name, ())) for name in ("means", "deviations")}
    return Task(**{**described, **units})


def _to_bytes(tensors: dict[str, Tensor], scores: dict[str, Any]) -> bytes:
    """The weights as safetensors. The header has the scores and a checksum of everything else."""
    metadata = {"scores": json.dumps(scores)}
    return save(tensors, metadata={**metadata, CHECKSUM: _checksum(tensors, metadata)})


def _from_bytes(data: bytes) -> dict[str, Tensor]:
    """The weights in `data`.

    Errors: `CorruptError`, and errors of safetensors, for damaged weights.
    """
    try:
        tensors = load(data)
    except (RuntimeError, OverflowError, TypeError) as error:
        # PyTorch refuses the extents of an empty tensor that safetensors has accepted.
        raise ValueError(f"`model.safetensors`: {str(error).partition(chr(10))[0]}") from None
    header = parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")])
    metadata = header.get("__metadata__") or {}
    expected = metadata.pop(CHECKSUM, None)
    try:
        found = _checksum(tensors, metadata)
    except TypeError as error:
        # A type that NumPy does not have, such as bfloat16, was not written by `_to_bytes`.
        raise ValueError(f"`model.safetensors`: {error}") from None
    if found != expected:
        raise ValueError(f"`model.safetensors`: found checksum {found}, expected {expected}")
    return tensors


def _checksum(tensors: dict[str, Tensor], metadata: dict[str, str]) -> str:
    parts = [
        (name, str(value.dtype), list(value.shape), checksum_of(value.numpy().tobytes()))
        for name, value in sorted(tensors.items())
    ]
    return checksum_of(json.dumps([sorted(metadata.items()), parts]).encode())


def _way_out(directory: Path) -> str:
    """The hint for a damaged model."""
    run = directory.parent
    if (run / "checkpoints" / "latest").exists():
        return f"`outercore train --resume {quoted(run)}` writes it again from the last checkpoint"
    return "restore it from a copy, or train again"


def _build(config: TrainConfig, described: dict[str, Any], code: CustomCode | None) -> Model:
    if "timed" in described.get("schema", ()):
        timed = TimedSchema.from_dict(described["schema"], described["layers"])
        return TemporalLinkModel(config, timed)
    if described["task"]["kind"] == "links":
        return LinkModel(config, described["features"], described["table_rows"])
    sizes = [described[name] for name in ("layers", "features", "outputs")]
    if code is not None:
        return build_custom(code, config.model, *sizes)
    if "schema" in described:
        schema = TypedSchema.from_dict(described["schema"], described["layers"])
        return TypedNetwork(config.model, schema, described["outputs"])
    if not config.of_graphs:
        return build_model(config.model, *sizes)
    return GraphNetwork(
        config.model,
        *sizes,
        categories=tuple(described["categories"]),
        readout=config.graph.readout,
        of_degrees=described["of_degrees"],
    )
