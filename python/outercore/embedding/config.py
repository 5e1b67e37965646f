"""The configuration of an embedding, which determines its result. Does not need PyTorch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from outercore.base.fields import Configuration, positive, within
from outercore.base.likeness import suggestion
from outercore.base.options import (
    Option,
    base_groups,
    groups_of,
    merge,
)
from outercore.errors import InvalidError
from outercore.runs.config import Budget, SeedAndDevice, Stopping

BuiltInModel = Literal["dot", "distmult", "complex", "transe", "rotate", "simple"]
ModelName = Literal[BuiltInModel, "custom"]
LossName = Literal["softmax", "contrastive", "logistic", "margin", "self-adversarial"]
NegativeKind = Literal["sampled", "all"]
Filter = Literal["none", "own", "known"]
Correction = Literal["none", "frequency"]
OptimiserName = Literal["adagrad", "row-adagrad", "adam"]
Schedule = Literal["constant", "linear"]
RegulariserName = Literal["none", "n3", "l2"]
OrderName = Literal["optimal", "legend", "beta", "cover"]
Swap = Literal["auto", "in-place", "in-turn", "spare-slot"]
CandidateKind = Literal["all", "uniform", "degree"]
MAX_SWEEPS = 1024
RESUME = "resume with `outercore embed --resume RUN`"
"""Hint for a run whose disk is full."""
GIVE_SCORE = "give it by `--score FILE.py:NAME`, or a function in Python"
"""Hint for a missing custom score function."""
CHANGEABLE = (
    "epochs",
    "patience",
    "learning_rate",
    "relation_learning_rate",
    "regulariser_weight",
    "relation_regulariser_weight",
    "checkpoint_seconds",
)
"""Options that a resumed run may change."""


@dataclass(frozen=True)
class ModelConfig:
    """The score function."""

    kind: Annotated[
        ModelName,
        Option(
            "Score triples by `dot`, `distmult`, `complex`, `transe`, `rotate` or `simple`. The "
            "default is `complex`, or `dot` for a graph without triples.",
            name="model",
            common=True,
        ),
    ] = "complex"
    dim: Annotated[int, Option("Number of dimensions of an embedding.", common=True)] = 100
    norm: Annotated[
        Literal[1, 2],
        Option(
            "Measure the distance in `transe` by the sum of absolute differences (1) or by the "
            "Euclidean distance (2)."
        ),
    ] = 1
    reciprocal: Annotated[
        bool, Option("Learn a second embedding of each relation, for predictions of heads.")
    ] = False
    init_scale: Annotated[
        float,
        Option(
            "Scale of the initial embeddings of entities. 0, the default, takes the scale of the "
            "model."
        ),
    ] = 0.0
    relation_dim: Annotated[
        int,
        Option(
            "With `--score`: number of dimensions of a relation. 0, the default, takes as many as "
            "for entities."
        ),
    ] = 0

    def __post_init__(self) -> None:
        positive("model.dim", self.dim)
        within("model.relation_dim", self.relation_dim, 0, None)
        if self.relation_dim and self.kind != "custom":
            raise InvalidError(
                f"model.relation_dim: only `custom` has one of its own, found `{self.kind}`"
            )
        within("model.init_scale", self.init_scale, 0.0, None)
        if self.kind in ("complex", "rotate", "simple") and self.dim % 2:
            raise InvalidError(
                f"model.dim: `{self.kind}` needs an even number, found {self.dim}\n"
                f"hint: use {self.dim + 1}"
            )

    @property
    def similarity(self) -> str | None:
        """The similarity by which the score compares rows; `None` for `custom`."""
        distances = {
            "transe": "manhattan" if self.norm == 1 else "euclidean",
            "rotate": "modulus",
            "custom": None,
        }
        return distances.get(self.kind, "inner")

    @property
    def relation_width(self) -> int:
        """Number of values in a relation's row; 0 for a model without relations."""
        special = {"dot": 0, "rotate": self.dim // 2, "custom": self.relation_dim or self.dim}
        return special.get(self.kind, self.dim)


@dataclass(frozen=True)
class LossConfig:
    """The loss."""

    kind: Annotated[
        LossName,
        Option(
            "Minimise the loss `softmax` (cross entropy of the positive among the negatives), "
            "`contrastive` (equation 1 of the Legend paper), `logistic`, `margin` or "
            "`self-adversarial`.",
            name="loss",
            common=True,
        ),
    ] = "softmax"
    margin: Annotated[
        float,
        Option(
            "With the loss `margin`, a positive must score this far above a negative; 0, the "
            "default, means 1. The losses `logistic` and `self-adversarial` add it to each score."
        ),
    ] = 0.0
    temperature: Annotated[
        float,
        Option(
            "The loss `self-adversarial` weights negatives by a softmax of their scores times this "
            "number."
        ),
    ] = 1.0

    def __post_init__(self) -> None:
        within("loss.temperature", self.temperature, 0.0, None)

    @property
    def ahead(self) -> float:
        """The margin of the loss `margin`. 0 means 1: a margin of 0 would teach almost nothing."""
        return self.margin or 1.0


@dataclass(frozen=True)
class NegativesConfig:
    """The negatives: entities that replace the head or tail of a triple."""

    kind: Annotated[
        NegativeKind,
        Option(
            "Compare triples with `sampled` negatives, or with `all` entities (1vsAll), which "
            "suits only small graphs.",
            name="negative_kind",
        ),
    ] = "sampled"
    count: Annotated[
        int,
        Option(
            "Draw this many negatives for heads, and as many for tails. The triples of a chunk "
            "share them.",
            name="negatives",
            common=True,
        ),
    ] = 1000
    degree_share: Annotated[
        float, Option("Draw this share of the negatives by their degree, and the others uniformly.")
    ] = 0.0
    degree_power: Annotated[
        float,
        Option("Negatives by degree are drawn in proportion to the degree raised to this power."),
    ] = 1.0
    filter: Annotated[
        Filter,
        Option(
            "Ignore as negatives the true entity of the triple (`own`), all entities that make a "
            "training triple (`known`), or `none`.",
            name="negative_filter",
        ),
    ] = "own"
    correction: Annotated[
        Correction,
        Option(
            "`frequency` subtracts from the score of a negative the log of its expected count, so "
            "that a softmax estimates the sum over all entities. `none` changes no score."
        ),
    ] = "none"

    def __post_init__(self) -> None:
        positive("negatives.count", self.count)
        within("negatives.degree_share", self.degree_share, 0.0, 1.0)
        within("negatives.degree_power", self.degree_power, 0.0, None)


@dataclass(frozen=True)
class OptimiserConfig(Stopping):
    """The optimiser, the learning rates and the batches."""

    kind: Annotated[
        Literal["adagrad", "row-adagrad"],
        Option(
            "Train entities with `adagrad`, or with `row-adagrad`, which stores one number per "
            "embedding instead of one per dimension.",
            name="optimiser",
        ),
    ] = "adagrad"
    learning_rate: Annotated[
        float, Option("Step size of the optimiser.", short="--lr", common=True)
    ] = 0.1
    relations: Annotated[
        OptimiserName,
        Option(
            "Train relations with `adagrad`, `row-adagrad` or `adam`.",
            name="relation_optimiser",
        ),
    ] = "adagrad"
    relation_learning_rate: Annotated[
        float, Option("Step size for relations. 0, the default, takes the step size for entities.")
    ] = 0.0
    schedule: Annotated[
        Schedule,
        Option(
            "Keep the step sizes `constant`, or reduce them by the same amount from epoch to epoch "
            "(`linear`). The last epoch then has `1 / epochs` of the first step size."
        ),
    ] = "constant"
    epochs: Annotated[int, Option("Maximum number of epochs.", common=True)] = 30
    batch_size: Annotated[
        int,
        Option(
            "Approximate number of triples in a batch. A batch may have from three quarters to one "
            "and a half times as many.",
            common=True,
        ),
    ] = 1000
    chunk_size: Annotated[
        int,
        Option(
            "Approximate number of triples that share negatives. Each batch consists of one or "
            "more of these chunks."
        ),
    ] = 1000
    patience: Annotated[
        int, Option("Stop after this many validations without a better score. 0 never stops early.")
    ] = 0
    validate_every: Annotated[int, Option("Number of epochs between two validations.")] = 5

    def __post_init__(self) -> None:
        positive("optimiser.learning_rate", self.learning_rate)
        within("optimiser.relation_learning_rate", self.relation_learning_rate, 0.0, None)
        for name in ("epochs", "batch_size", "chunk_size", "validate_every"):
            positive(f"optimiser.{name}", getattr(self, name))
        within("optimiser.patience", self.patience, 0, None)

    def factor(self, epoch: int) -> float:
        """Factor for both learning rates in an epoch; epochs count from 0.

        Example:
            >>> options = OptimiserConfig(schedule="linear", epochs=4)
            >>> [options.factor(epoch) for epoch in range(4)]
            [1.0, 0.75, 0.5, 0.25]
        """
        return 1.0 if self.schedule == "constant" else max(1, self.epochs - epoch) / self.epochs


@dataclass(frozen=True)
class RegulariserConfig:
    """The regulariser: a penalty for large values in the rows of a batch."""

    kind: Annotated[
        RegulariserName,
        Option(
            "Penalise large values in the embeddings of a batch by `n3` or `l2`. `none` does not.",
            name="regulariser",
        ),
    ] = "none"
    weight: Annotated[float, Option("Weight of the regulariser.", name="regulariser_weight")] = 0.0
    relation_weight: Annotated[
        float | None,
        Option(
            "Weight of the regulariser for relations. The default is the weight for entities.",
            name="relation_regulariser_weight",
        ),
    ] = None

    def __post_init__(self) -> None:
        within("regulariser.weight", self.weight, 0.0, None)
        if self.relation_weight is not None:
            within("regulariser.relation_weight", self.relation_weight, 0.0, None)

    def of_relations(self, model: ModelConfig) -> float:
        """The weight for the rows of relations. A row of angles has no size."""
        if model.relation_width != model.dim:
            return 0.0
        return self.weight if self.relation_weight is None else self.relation_weight


@dataclass(frozen=True)
class DataConfig:
    """The triples for training, validation and the final metrics."""

    train: Annotated[str, Option("Train on the triples of this name.", name="train_part")] = "train"
    valid: Annotated[str, Option("Validate on the triples of this name.", name="valid_part")] = (
        "valid"
    )
    test: Annotated[
        str, Option("Compute the test metrics on the triples of this name.", name="test_part")
    ] = "test"
    held_out: Annotated[
        float,
        Option(
            "Hold out this share of the links of a plain graph, half for validation and half for "
            "the test. If you set it, it holds for triples, too.",
            common=True,
            sets_also="data.held_out_triples",
        ),
    ] = 0.05
    held_out_triples: Annotated[
        float,
        Option(
            "Hold out this share of the triples, half for validation and half for the test. The "
            "data set must not have triples for validation or test."
        ),
    ] = 0.0

    def __post_init__(self) -> None:
        within("data.held_out", self.held_out, 0.0, 0.9)
        within("data.held_out_triples", self.held_out_triples, 0.0, 0.9)


@dataclass(frozen=True)
class BudgetConfig(Budget):
    """The memory for tables and triples, and its division."""

    partitions: Annotated[
        int,
        Option(
            "Divide the entities into this many partitions; 1 keeps all in memory. 0, the default, "
            "chooses a number that fits the budget."
        ),
    ] = 0
    slots: Annotated[
        int,
        Option(
            "Keep this many partitions in memory. 0, the default, chooses a number that fits the "
            "budget."
        ),
    ] = 0
    order: Annotated[
        OrderName,
        Option("Load the partitions in this order: `optimal`, `legend`, `beta` or `cover`."),
    ] = "optimal"
    swap: Annotated[
        Swap,
        Option(
            "Replace a partition while others are trained (`in-place`) or after all are trained "
            "(`in-turn`), or load the next one into a `spare-slot`. `auto` lets the plan choose."
        ),
    ] = "auto"
    sweeps: Annotated[
        int,
        Option(
            "Divide every bucket among this many walks through the order in an epoch. More walks "
            "come closer to training in memory, but each moves the same bytes again; 0, the "
            "default, takes up to sixteen, if training hides their I/O."
        ),
    ] = 0
    spread: Annotated[
        bool,
        Option(
            "Divide a bucket among all states that hold both its partitions, instead of training "
            "all of it in the first. With the filter `known`, buckets stay whole."
        ),
    ] = True
    rename: Annotated[
        bool, Option("Shuffle the places of the partitions in the order before each walk.")
    ] = True
    group: Annotated[
        int,
        Option(
            "Divide each partition into this many parts, and combine the parts into other "
            "partitions for each walk; needs `rename`. 0, the default, takes at most eight, by the "
            "number of entities."
        ),
    ] = 0
    threads: Annotated[
        int | None, Option("Number of threads of PyTorch. By default, PyTorch chooses it.")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        within("budget.partitions", self.partitions, 0, 512)
        within("budget.slots", self.slots, 0, None)
        within("budget.sweeps", self.sweeps, 0, MAX_SWEEPS)
        within("budget.group", self.group, 0, 512)
        if self.group > 1 and not self.rename:
            raise InvalidError(
                f"budget.group: {self.group} parts of partitions that keep their places from walk "
                "to walk\nhint: `rename` as well, or `group` 1"
            )


@dataclass(frozen=True)
class EvaluationConfig:
    """The evaluation: candidates for the true ends of held-out triples, and triples to rank."""

    candidates: Annotated[
        Literal["auto", "all", "uniform", "degree"],
        Option(
            "Rank the true entity among `all` entities, or among entities drawn uniformly "
            "(`uniform`) or by `degree`. `auto` takes all, unless that takes too long."
        ),
    ] = "auto"
    count: Annotated[int, Option("Number of candidates to draw.", name="candidate_count")] = 1000
    also: Annotated[
        tuple[CandidateKind, ...],
        Option(
            "Compute the final metrics with these kinds of candidates, too. Separate the kinds by "
            "commas."
        ),
    ] = ()
    filtered: Annotated[
        bool,
        Option(
            "Leave other true answers out of the candidates. With `false`, only raw metrics are "
            "computed."
        ),
    ] = True
    valid_triples: Annotated[
        int, Option("Rank at most this many validation triples, which are drawn once. 0 ranks all.")
    ] = 100_000
    test_triples: Annotated[
        int, Option("Rank at most this many test triples, which are drawn once. 0 ranks all.")
    ] = 100_000

    def __post_init__(self) -> None:
        positive("evaluation.count", self.count)
        within("evaluation.valid_triples", self.valid_triples, 0, None)
        within("evaluation.test_triples", self.test_triples, 0, None)


@dataclass(frozen=True)
class RunConfig(SeedAndDevice):
    """Seed, device and checkpoints."""

    checkpoint_seconds: Annotated[
        float,
        Option(
            "Write a checkpoint each time this many seconds have passed. 0 writes them only at the "
            "ends of epochs."
        ),
    ] = 60.0


@dataclass(frozen=True)
class EmbedConfig(Configuration):
    """The configuration of an embedding run.

    Example:
        >>> config = EmbedConfig(model=ModelConfig(kind="distmult", dim=64))
        >>> EmbedConfig.from_dict(config.to_dict()) == config
        True
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    negatives: NegativesConfig = field(default_factory=NegativesConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    regulariser: RegulariserConfig = field(default_factory=RegulariserConfig)
    data: DataConfig = field(default_factory=DataConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    run: RunConfig = field(default_factory=RunConfig)

    @property
    def bias_weighs(self) -> bool:
        """Whether a bias on the score of a negative has the effect of drawing it more often.

        This holds for the softmax, where the bias is a factor in the sum. If negatives are drawn by
        degree, it holds only with corrected scores. If every entity is a negative, a bias is the
        only way to weight them.
        """
        negatives = self.negatives
        if negatives.kind == "all":
            return True
        corrected = negatives.correction == "frequency" or not negatives.degree_share
        return self.loss.kind in ("softmax", "contrastive") and corrected

    def to_dict(self) -> dict[str, Any]:
        """Groups of plain JSON values, in the order of the fields."""
        values = super().to_dict()
        values["evaluation"]["also"] = list(self.evaluation.also)
        return values


def _read() -> dict[str, dict[str, Any]]:
    # All recipes were chosen by validation metrics; `docs/benchmarks/embedding.md` has the results.
    text = resources.files("outercore.embedding").joinpath("recipes.json").read_text("utf-8")
    return {name: one["config"] for name, one in json.loads(text).items()}


RECIPES = _read()
"""The groups of `EmbedConfig` for each recipe. Missing keys take their defaults."""


def recipe_named(name: str) -> Mapping[str, Any]:
    """The groups of a recipe.

    Errors: `InvalidError` for an unknown name; the hint has a similar name.
    """
    if name not in RECIPES:
        raise InvalidError(f"recipe: unknown name `{name}`\nhint: {suggestion(name, RECIPES)}")
    return RECIPES[name]


def configuration(
    base: EmbedConfig | Mapping[str, Any] | str | Path | None = None,
    *,
    recipe: str | None = None,
    plain_graph: bool = False,
    has_score: bool = False,
    **options: Any,
) -> EmbedConfig:
    """A configuration from a recipe, `base` and options. Later ones override earlier ones.

    `base` and `options` are as for `outercore.base.options.configuration`. A plain graph has only
    one relation, so its default model is `dot`. A custom score function replaces the model.

    Errors: `InvalidError` for an unknown option, key or recipe; `NotFoundError` for a missing file.

    Example:
        >>> config = configuration({"model": {"dim": 64}}, model="distmult", epochs=3)
        >>> config.model.kind, config.model.dim, config.optimiser.epochs
        ('distmult', 64, 3)
    """
    if has_score:
        if (model := options.get("model")) not in (None, "custom"):
            raise InvalidError(
                f"model `{model}`: found a score function beside it, which is a model itself"
            )
        options["model"] = "custom"
    groups = merge({} if recipe is None else recipe_named(recipe), base_groups(base))
    groups = merge(groups, groups_of(EmbedConfig, options))
    if plain_graph and "kind" not in groups.get("model", {}):
        groups = merge(groups, {"model": {"kind": "dot"}})
    return EmbedConfig.from_dict(groups)
