"""Exported models: whose weights they hold, and by which options they were trained."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from outercore.errors import InvalidError, NotFoundError
from outercore.files.checked_json import parse_json


def model_of(run: Path) -> tuple[str, Path]:
    """What a model is called, and where it is as data; exports it where that is not done yet.

    Raises:
        NotFoundError: there is none.
        UnsupportedError: it has to be exported, and PyTorch is not installed.
    """
    trained, exported = run / "model" / "model.json", run / "serving" / "model.json"
    if trained.exists() and not is_of(exported.parent, trained.parent):
        # Imported here: PyTorch comes with it.
        from outercore import training

        training.export_model(run, overwrite=True)
    if exported.exists():
        return run.resolve().name, exported.parent
    if (run / "model.json").exists():
        return run.resolve().name, run
    raise NotFoundError(
        f"model `{run}`: no `model.json` there\nhint: give a finished run of `outercore train`"
    )


_LONGEST_HEADER = 100_000_000
"""Bytes of a header, as the library safetensors has it."""


def require_known_options(exported: Path) -> bool:
    """Whether it is known by which options a model was trained: by the export, or the run there.

    Raises:
        UnsupportedError: by one that changes predictions and that a server does not know.
    """
    # Imported here: serving needs nothing else of the training.
    from outercore.training.config import TrainConfig
    from outercore.training.served_options import require_expressed, rule_of

    try:
        rule = json.loads(_kept_by(exported)["rule"])
    except (OSError, ValueError, KeyError, TypeError):
        # Exported by an earlier release.
        trained = exported.absolute().parent / "model"
        if not is_of(exported, trained):
            return False
        try:
            described = json.loads((trained / "model.json").read_bytes())
            rule = rule_of(TrainConfig.from_dict(described["config"]))
        except (OSError, ValueError, KeyError, TypeError, InvalidError):
            return False
    require_expressed(rule, str(exported))
    return True


def is_of(exported: Path, trained: Path) -> bool:
    """Whether an exported model is that of these trained weights; false where one is missing."""
    try:
        weights = (trained / "model.safetensors").read_bytes()
        found = _kept_by(exported)["trained"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return (exported / "model.json").exists() and found == digest_of(weights)


def _kept_by(exported: Path) -> dict[str, str]:
    """What the header of exported weights says beside the tensors."""
    with (exported / "model.safetensors").open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = parse_json(file.read(min(length, _LONGEST_HEADER)))
    kept: dict[str, str] = header["__metadata__"]
    return kept


def digest_of(weights: bytes) -> str:
    """The digest of trained weights, which the export keeps."""
    return f"sha256:{hashlib.sha256(weights).hexdigest()}"
