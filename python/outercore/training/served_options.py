"""Which options of a training an exported model has, and which it cannot have.

A server knows of the training what `model.json` says. An option that changes predictions and that
the format does not have would be dropped in silence, so such models are not exported. The lists
here are closed: a new option is refused until it is in one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from outercore.errors import UnsupportedError
from outercore.training.config import TrainConfig

EXPRESSED = frozenset(
    (
        *("model.kind", "model.hidden", "model.heads", "model.norm", "model.residual"),
        *("model.jumping", "sampling.fanout", "sampling.replace", "sampling.features"),
        *("run.task", "graph.layers", "graph.readout", "link.head"),
    )
)
"""What the format has."""

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
"""What decides how weights are learnt and scored, and not what they predict."""

_WAYS_OUT = {
    "sampling.time": "`outercore predict` and `outercore evaluate` know the times",
    "sampling.precision": "train with `exact` rows; `outercore serve --precision int8` reads int8 "
    "rows for any model",
}
_WAY_OUT = "`outercore predict` writes the model's predictions; or train without the option"


def rule_of(config: TrainConfig) -> dict[str, Any]:
    """The options that predictions depend on, with their values; the export keeps them."""
    return {path: value for path, value in _options(config) if path not in OF_TRAINING}


def require_expressed(rule: Mapping[str, Any], model: str) -> None:
    """Errors: `UnsupportedError` names an option that `model` would be served without."""
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
