"""The configuration of a training from its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from outercore.base.options import base_groups, fields, groups_of, merge, paths_of
from outercore.data.far import FarOptions
from outercore.errors import InvalidError
from outercore.training.config import TrainConfig

_NOT_OF_GRAPHS = (
    "sampling.fanout",
    "sampling.replace",
    "run.validation",
    "budget.validation_share",
    "budget.backend",
    "budget.threads",
    "budget.topology",
    "budget.policy",
    "budget.hotness",
    "budget.far.",
)
"""What the task `graph` reads whole graphs without."""


def configuration(
    base: TrainConfig | Mapping[str, Any] | str | Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> TrainConfig:
    """As `outercore.base.options.configuration`; options without effect on the task are refused.

    Errors: `InvalidError`, `NotFoundError` as there; `InvalidError` for an option of another task.
    """
    groups = groups_of(TrainConfig, _with_server(options or {}))
    config = TrainConfig.from_dict(merge(base_groups(base), groups))
    for path in paths_of(groups):
        if config.of_graphs and path.startswith(_NOT_OF_GRAPHS):
            raise InvalidError(f"{path}: no effect with task `graph`, which reads whole graphs")
        group = path.partition(".")[0]
        if group in ("graph", "link") and config.run.task != group:
            raise InvalidError(
                f"{path}: no effect without task `{group}`\nhint: add `--task {group}`"
            )
    return config


def _with_server(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options with those of a memory server by their own names."""
    far = options.get("far")
    if not isinstance(far, FarOptions):
        return options
    names = {field.path.rpartition(".")[2]: field.name for field in fields(FarOptions)}
    return {**options, **{names[name]: value for name, value in asdict(far).items()}}
