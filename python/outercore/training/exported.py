"""Exported models: the trained weights that they come from, and the options of their training.

A server reads `model.json`. If an option changes predictions but is not part of the format, the
server would silently ignore it. So models with such an option are not exported. An option that is
in neither of the two lists below must have its default value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from outercore.errors import CorruptError, NotFoundError, UnsupportedError
from outercore.files.checked_json import parse_json
from outercore.training.config import TrainConfig

EXPRESSED = frozenset(
    (
        *("model.kind", "model.hidden", "model.heads", "model.norm", "model.residual"),
        *("model.jumping", "sampling.fanout", "sampling.replace", "sampling.features"),
        *("run.task", "graph.layers", "graph.readout", "link.head"),
    )
)
"""Options that are part of the format."""

OF_TRAINING = frozenset(
    (
        *("model.dropout", "sampling.batch_size", "sampling.labels", "sampling.train"),
        *("sampling.valid", "sampling.test", "optimiser.learning_rate", "optimiser.weight_decay"),
        *("optimiser.epochs", "optimiser.patience", "budget.memory", "budget.validation_share"),
        *("budget.backend", "budget.threads", "budget.topology", "budget.policy"),
        *("budget.hotness", "budget.far", "run.seed", "run.validation", "run.metric"),
        *("run.device", "run.checkpoint_seconds", "link.held_out", "link.edges"),
        *("link.negatives", "link.negative_ends", "link.loss"),
    )
)
"""Options that affect training and scores, but not predictions."""

_WAYS_OUT = {
    "sampling.time": "`outercore predict` and `outercore evaluate` know the times",
    "sampling.precision": "train with `exact` rows; `outercore serve --precision int8` reads int8 "
    "rows for any model",
}
_WAY_OUT = "`outercore predict` writes the model's predictions; or train without the option"
_LONGEST_HEADER = 100_000_000
"""Maximum bytes of a header, the limit of the safetensors library."""


def model_of(run: Path) -> tuple[str, Path]:
    """The name of a model and its exported directory; exports it if it is not exported yet.

    Raises:
        NotFoundError: the run has no model.
        UnsupportedError: the model has to be exported, but PyTorch is not installed.
    """
    trained, exported = run / "model" / "model.json", run / "serving" / "model.json"
    if trained.exists() and not is_of(exported.parent, trained.parent):
        # A late import, because it also imports PyTorch.
        from outercore import training

        training.export_model(run, overwrite=True)
    if exported.exists():
        return run.resolve().name, exported.parent
    if (run / "model.json").exists():
        return run.resolve().name, run
    raise NotFoundError(
        f"model `{run}`: no `model.json` there\nhint: give a finished run of `outercore train`"
    )


def require_known_options(exported: Path) -> None:
    """Checks that a server supports the options with which a model was trained.

    Raises:
        CorruptError: the weights do not have the options of the training.
        UnsupportedError: a server does not know an option that changes predictions.
    """
    try:
        rule = json.loads(_metadata(exported)["rule"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptError(
            f"model `{exported}`: the options of its training are missing\n"
            "hint: export the run again: `outercore export-model RUN --overwrite`"
        ) from error
    require_expressed(rule, str(exported))


def is_of(exported: Path, trained: Path) -> bool:
    """Whether a model was exported from these trained weights; false if either is missing."""
    try:
        weights = (trained / "model.safetensors").read_bytes()
        found = _metadata(exported)["trained"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return (exported / "model.json").exists() and found == digest_of(weights)


def _metadata(exported: Path) -> dict[str, str]:
    """The metadata in the header of exported weights."""
    with (exported / "model.safetensors").open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = parse_json(file.read(min(length, _LONGEST_HEADER)))
    metadata: dict[str, str] = header["__metadata__"]
    return metadata


def digest_of(data: bytes) -> str:
    """The digest of a file's content, in the form of the manifest."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def rule_of(config: TrainConfig) -> dict[str, Any]:
    """The options that predictions depend on, with their values. The export stores them."""
    return {path: value for path, value in _options(config) if path not in OF_TRAINING}


def require_expressed(rule: Mapping[str, Any], model: str) -> None:
    """Checks that the format has all options in `rule`.

    Errors: `UnsupportedError` names an option that a server of `model` would ignore.
    """
    usual = dict(_options(TrainConfig()))
    for path, value in rule.items():
        if path in EXPRESSED or (path in usual and usual[path] == value):
            continue
        raise UnsupportedError(
            f"model `{model}`: trained with {path} = {value}, which an exported model does not "
            "have: a server would predict something else\n"
            f"hint: {_WAYS_OUT.get(path, _WAY_OUT)}"
        )


def _options(config: TrainConfig) -> Iterator[tuple[str, Any]]:
    for group, values in config.to_dict().items():
        for name, value in values.items():
            yield f"{group}.{name}", value
