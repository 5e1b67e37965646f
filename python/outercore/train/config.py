"""Everything a training run is a function of, besides the data set."""

from __future__ import annotations

import dataclasses
import difflib
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from outercore.errors import InvalidError
from outercore.far import FarOptions

ModelKind = Literal["sage", "gcn", "gat", "gin", "mlp"]
Norm = Literal["none", "batch", "layer"]
Jumping = Literal["none", "cat", "max"]
Validation = Literal["auto", "sampled", "full"]
MetricName = Literal["auto", "accuracy", "roc_auc", "f1_micro", "f1_macro"]
Device = Literal["auto", "cpu", "cuda"]
Backend = Literal["auto", "uring", "threads", "mmap"]
RESUME = "go on with `outercore train --resume RUN`"
"""What to do when the device is full in the midst of a run."""

TopologyMode = Literal["auto", "resident", "paged"]
Policy = Literal["window", "lru"]


@dataclass(frozen=True)
class ModelConfig:
    """The network. It has as many layers as the fan-out has hops."""

    kind: ModelKind = "sage"
    """`mlp` looks at no edge: the baseline a graph network has to beat."""
    hidden: int = 256
    """Width between the layers; for `gat`, all heads together."""
    heads: int = 4
    """Attention heads, `gat` only."""
    dropout: float = 0.5
    norm: Norm = "none"
    residual: bool = False
    """Adds a learned linear map of a layer's input to its output."""
    jumping: Jumping = "none"
    """Classify from the states of all layers (jumping knowledge) instead of the last."""

    def __post_init__(self) -> None:
        _positive("model.hidden", self.hidden)
        _positive("model.heads", self.heads)
        _within("model.dropout", self.dropout, 0.0, 1.0)
        if self.kind == "gat" and self.hidden % self.heads:
            raise InvalidError(
                f"model.hidden: expected a multiple of the {self.heads} attention heads, "
                f"found {self.hidden}"
            )


@dataclass(frozen=True)
class SamplingConfig:
    """What a mini-batch is."""

    fanout: tuple[int, ...] = (15, 10)
    """In-neighbours per hop, nearest hop first; -1 takes all."""
    batch_size: int = 1024
    """Seed nodes a batch."""
    replace: bool = False
    features: str = "x"
    labels: str = "y"
    train: str = "train"
    valid: str = "valid"
    test: str = "test"

    def __post_init__(self) -> None:
        _positive("sampling.batch_size", self.batch_size)
        if not self.fanout:
            raise InvalidError("sampling.fanout: expected at least one hop, found none")
        for hop, count in enumerate(self.fanout):
            if count < 1 and count != -1:
                raise InvalidError(
                    f"sampling.fanout: hop {hop + 1}: expected a positive number or -1 for all, "
                    f"found {count}"
                )


@dataclass(frozen=True)
class OptimiserConfig:
    """Adam, and when to stop."""

    learning_rate: float = 0.003
    weight_decay: float = 0.0
    epochs: int = 20
    patience: int = 5
    """Epochs without a better validation score before stopping; 0 never stops early."""

    def __post_init__(self) -> None:
        _positive("optimiser.learning_rate", self.learning_rate)
        _positive("optimiser.epochs", self.epochs)
        _within("optimiser.weight_decay", self.weight_decay, 0.0, None)
        _within("optimiser.patience", self.patience, 0, None)


@dataclass(frozen=True)
class BudgetConfig:
    """The memory promised to the data, and how it is used."""

    memory: str = "2GiB"
    """For topology, caches, staging and degree table together."""
    validation_share: float = 0.25
    """Part of the budget for validating while the training caches stay filled.

    0 releases the training loader for each validation instead: more for the caches, but they
    are filled again each epoch. Chosen by itself where the share would be below the minimum.
    """
    backend: Backend = "auto"
    threads: int | None = None
    topology: TopologyMode = "auto"
    policy: Policy = "window"
    hotness: str = "presample"
    far: FarOptions | None = None
    """A memory server that holds features and topology too."""

    def __post_init__(self) -> None:
        _within("budget.validation_share", self.validation_share, 0.0, 0.9)
        if self.threads is not None:
            _positive("budget.threads", self.threads)


@dataclass(frozen=True)
class RunConfig:
    """Seed, evaluation and checkpoints."""

    seed: int = 0
    validation: Validation = "auto"
    """How the score after each epoch is computed.

    `full` by exact layer-wise inference over all neighbours, `sampled` with the training
    fan-outs; `auto` is `full` up to two million edges. The final scores are always exact.
    """
    metric: MetricName = "auto"
    """`auto`: ROC-AUC for two classes and for several labels a node, else accuracy."""
    device: Device = "auto"
    checkpoint_batches: int = 0
    """A checkpoint after this many batches, besides the one of each epoch; 0 for none."""
    checkpoint_seconds: float = 300.0
    """A checkpoint when the last one is this old; 0 for none."""

    def __post_init__(self) -> None:
        _within("run.seed", self.seed, 0, 2**63 - 1)
        _within("run.checkpoint_batches", self.checkpoint_batches, 0, None)
        _within("run.checkpoint_seconds", self.checkpoint_seconds, 0.0, None)


@dataclass(frozen=True)
class TrainConfig:
    """One training run.

    Example:
        >>> config = TrainConfig(model=ModelConfig(kind="gcn"))
        >>> TrainConfig.from_json(config.to_json()) == config
        True
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    run: RunConfig = field(default_factory=RunConfig)

    @property
    def layers(self) -> int:
        """Layers of the network: one a hop."""
        return len(self.sampling.fanout)

    def to_dict(self) -> dict[str, Any]:
        """Groups of plain JSON values, in the order of the fields."""
        values = dataclasses.asdict(self)
        values["sampling"]["fanout"] = list(self.sampling.fanout)
        return values

    def to_json(self) -> str:
        """The configuration as indented JSON."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """The configuration that `values` describes; what is absent takes its default.

        Errors: `InvalidError` names an unknown group or key, or a value of the wrong type.
        """
        return _build(cls, values, "")

    @classmethod
    def from_json(cls, text: str) -> TrainConfig:
        """Inverse of `to_json`."""
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidError(f"configuration: expected JSON, found: {error}") from None
        return cls.from_dict(values)


_Config = TypeVar("_Config")


def _build(kind: type[_Config], values: Any, path: str) -> _Config:
    name = path or "configuration"
    if not isinstance(values, Mapping):
        raise InvalidError(f"{name}: expected an object, found {values!r}")
    hints = typing.get_type_hints(kind)
    prefix = f"{path}." if path else ""
    for key in values:
        if key not in hints:
            close = difflib.get_close_matches(key, hints, n=1)
            guess = f"did you mean `{prefix}{close[0]}`" if close else f"known: {', '.join(hints)}"
            raise InvalidError(f"{name}: unknown key `{prefix}{key}`\nhint: {guess}")
    return kind(**{key: _value(hints[key], value, prefix + key) for key, value in values.items()})


def _value(hint: Any, value: Any, path: str) -> Any:
    """`value` as the type `hint`, without the guesses that hide a mistake (`"3"` is no number)."""
    if dataclasses.is_dataclass(hint):
        return _build(hint, value, path)  # type: ignore[arg-type]
    origin = typing.get_origin(hint)
    if origin is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise InvalidError(f"{path}: expected one of {', '.join(choices)}; found {value!r}")
        return value
    if origin is types.UnionType:
        inner = next(choice for choice in typing.get_args(hint) if choice is not type(None))
        return None if value is None else _value(inner, value, path)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise InvalidError(f"{path}: expected a list, found {value!r}")
        return tuple(_value(typing.get_args(hint)[0], item, path) for item in value)
    accepted = (int, float) if hint is float else hint
    if not isinstance(value, accepted) or (isinstance(value, bool) and hint is not bool):
        raise InvalidError(f"{path}: expected {hint.__name__}, found {value!r}")
    return float(value) if hint is float else value


def _positive(name: str, value: float) -> None:
    if value <= 0:
        raise InvalidError(f"{name}: expected a positive number, found {value}")


def _within(name: str, value: float, least: float, most: float | None) -> None:
    if value < least or (most is not None and value > most):
        limits = f"at least {least:g}" if most is None else f"{least:g} to {most:g}"
        raise InvalidError(f"{name}: expected {limits}, found {value}")
