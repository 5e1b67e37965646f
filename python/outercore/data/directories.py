"""Finds out whether a directory is a data set or a run, and which command made the run."""

from __future__ import annotations

import json
from pathlib import Path

MANIFEST = "graph.json"
"""Name of the manifest in a data set."""


def is_data_set(path: Path) -> bool:
    """Whether `path` is the directory of a data set."""
    return (path / MANIFEST).exists()


def made_by(path: Path) -> str | None:
    """The command that made the run in `path`: `train`, `embed` or `run`; `None` if unclear."""
    try:
        groups = json.loads((path / "config.json").read_text())["config"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    own = {"sampling": "train", "negatives": "embed", "algorithm": "run"}
    return next((verb for group, verb in own.items() if group in groups), None)
