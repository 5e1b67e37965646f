"""Exported models: whose weights they hold, and by which options they were trained."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from outercore.errors import CorruptError, NotFoundError
from outercore.files.checked_json import parse_json
from outercore.training.served_options import require_expressed


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


def require_known_options(exported: Path) -> None:
    """Makes sure that a server knows the options by which a model was trained.

    Raises:
        CorruptError: the weights do not say by which options.
        UnsupportedError: an option changes predictions, and a server does not know it.
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
    """Whether an exported model is that of these trained weights; false where one is missing."""
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


def digest_of(weights: bytes) -> str:
    """The digest of trained weights, which the export keeps."""
    return f"sha256:{hashlib.sha256(weights).hexdigest()}"
