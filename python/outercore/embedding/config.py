"""Everything that an embedding is a function of, besides the triples. Needs no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from outercore.config.fields import Configuration, positive, within
from outercore.errors import InvalidError
from outercore.threads import MOST_THREADS

BuiltInModel = Literal["dot", "distmult", "complex", "transe", "rotate", "simple"]
ModelName = Literal[BuiltInModel, "custom"]
LossName = Literal["softmax", "contrastive", "logistic", "margin", "self-adversarial"]
NegativeKind = Literal["sampled", "all"]
Filter = Literal["none", "own", "known"]
Correction = Literal["none", "frequency"]
OptimiserName = Literal["adagrad", "row-adagrad", "adam"]
Schedule = Literal["constant", "linear"]
RegulariserName = Literal["none", "n3", "l2"]
Device = Literal["auto", "cpu", "cuda"]
OrderName = Literal["optimal", "legend", "beta", "cover", "sequential"]
Swap = Literal["auto", "in-place", "in-turn", "spare-slot"]
CandidateKind = Literal["all", "uniform", "degree"]
MAX_SWEEPS = 1024
RESUME = "go on with `outercore embed --resume RUN`"
"""What to do when the device is full in the midst of a run."""


@dataclass(frozen=True)
class ModelConfig:
    """The score function."""

    kind: ModelName = "complex"
    """`custom`: a score function of one's own, which is given beside the configuration."""
    dim: int = 100
    """Numbers in an entity's row. `complex`, `rotate` and `simple` use two for each rank."""
    norm: Literal[1, 2] = 1
    """Distance of `transe`: sum of absolute differences, or Euclidean."""
    reciprocal: bool = False
    """Learns a second row for each relation, by which its heads are asked for."""
    init_scale: float = 0.0
    """Size of the initial values; 0 takes the model's own."""
    relation_dim: int = 0
    """Numbers in a relation's row of `custom`; 0: as many as in an entity's."""

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


@dataclass(frozen=True)
class LossConfig:
    """What a good score is."""

    kind: LossName = "softmax"
    """`softmax`: cross entropy of the positive among the negatives.

    `contrastive`: equation 1 of Legend, where the positive is not in the sum.
    """
    margin: float = 0.0
    """What a positive must be ahead (`margin`; 0 takes 1), or what is added to scores before the
    sigmoid."""
    temperature: float = 1.0
    """How much harder negatives count more, in `self-adversarial`."""

    def __post_init__(self) -> None:
        within("loss.temperature", self.temperature, 0.0, None)

    @property
    def ahead(self) -> float:
        """What a positive must be ahead in `margin`: with 0, next to nothing would be learned."""
        return self.margin or 1.0


@dataclass(frozen=True)
class NegativesConfig:
    """With what a triple's entities are replaced."""

    kind: NegativeKind = "sampled"
    """`all`: every entity is a negative (1vsAll with the softmax loss); for small graphs."""
    count: int = 1000
    """Negatives that the triples of a chunk share, drawn for each side."""
    degree_share: float = 0.0
    """Part of the negatives drawn in proportion to degree, the rest uniformly."""
    degree_power: float = 1.0
    """Exponent of the degree."""
    filter: Filter = "own"
    """Which negatives do not count.

    `own`: the triple's own entity; `known`: any that makes a triple of the training set.
    """
    correction: Correction = "none"
    """`frequency`: lowers a negative's score by the log of how often it is expected in a draw.

    The sum of a softmax then estimates the sum over all entities.
    """

    def __post_init__(self) -> None:
        positive("negatives.count", self.count)
        within("negatives.degree_share", self.degree_share, 0.0, 1.0)
        within("negatives.degree_power", self.degree_power, 0.0, None)


@dataclass(frozen=True)
class OptimiserConfig:
    """How gradients become steps."""

    kind: Literal["adagrad", "row-adagrad"] = "adagrad"
    """Of entities; `row-adagrad` keeps one number a row instead of one for each value."""
    learning_rate: float = 0.1
    relations: OptimiserName = "adagrad"
    relation_learning_rate: float = 0.0
    """0 takes that of the entities."""
    schedule: Schedule = "constant"
    """`linear`: both rates fall from epoch to epoch, to a part of `1 / epochs` in the last one."""
    epochs: int = 30
    batch_size: int = 1000
    """Triples an update, about: the batches of a pool are alike in size, three quarters of this to
    one and a half times it."""
    chunk_size: int = 1000
    """Triples that share their negatives, about; a batch is one chunk or several."""
    patience: int = 0
    """Validations without a better score before stopping; 0 never stops early."""
    validate_every: int = 5
    """Epochs between two validations."""

    def __post_init__(self) -> None:
        positive("optimiser.learning_rate", self.learning_rate)
        within("optimiser.relation_learning_rate", self.relation_learning_rate, 0.0, None)
        for name in ("epochs", "batch_size", "chunk_size", "validate_every"):
            positive(f"optimiser.{name}", getattr(self, name))
        within("optimiser.patience", self.patience, 0, None)

    def over(self, done: int, stale: int) -> bool:
        """Whether nothing is left to train after `done` epochs, the last `stale` validations of
        which found nothing better."""
        return done >= self.epochs or self.impatient(stale)

    def impatient(self, stale: int) -> bool:
        """Whether so many validations without a better one end a run."""
        return 0 < self.patience <= stale

    def factor(self, epoch: int) -> float:
        """What both rates are multiplied by in an epoch, the first of which is 0.

        Example:
            >>> options = OptimiserConfig(schedule="linear", epochs=4)
            >>> [options.factor(epoch) for epoch in range(4)]
            [1.0, 0.75, 0.5, 0.25]
        """
        return 1.0 if self.schedule == "constant" else max(1, self.epochs - epoch) / self.epochs


@dataclass(frozen=True)
class RegulariserConfig:
    """What keeps the rows of a batch's triples small."""

    kind: RegulariserName = "none"
    weight: float = 0.0
    relation_weight: float | None = None
    """For the relations' rows; absent, `weight`."""

    def __post_init__(self) -> None:
        within("regulariser.weight", self.weight, 0.0, None)
        if self.relation_weight is not None:
            within("regulariser.relation_weight", self.relation_weight, 0.0, None)


@dataclass(frozen=True)
class DataConfig:
    """Which triples are for what."""

    train: str = "train"
    """Name under `triples/`, as the next two."""
    valid: str = "valid"
    test: str = "test"
    held_out: float = 0.05
    """Share of a plain graph's links that is not trained on, half of it for validation."""
    held_out_triples: float = 0.0
    """The same of a knowledge graph's triples, where it brings none for validation or test.

    Refused where it does. The option `held_out` gives both shares.
    """

    def __post_init__(self) -> None:
        within("data.held_out", self.held_out, 0.0, 0.9)
        within("data.held_out_triples", self.held_out_triples, 0.0, 0.9)


@dataclass(frozen=True)
class BudgetConfig:
    """The memory promised to tables and triples, and how it is used."""

    memory: str = "2GiB"
    partitions: int = 0
    """Of the entities; 1 keeps all in memory, 0 is chosen by the budget."""
    slots: int = 0
    """Partitions in memory, the spare one included; 0 is chosen by the budget."""
    order: OrderName = "optimal"
    swap: Swap = "auto"
    """Where a loaded partition goes, and when: to the slot of the one that leaves, while the others
    are trained (`in-place`) or when all are (`in-turn`), or to a spare one."""
    sweeps: int = 0
    """Walks through the order that make an epoch; each trains another part of every bucket.

    The more, the closer to an epoch with everything in memory, for so many times the bytes moved.
    0: up to sixteen, if training hides their I/O.
    """
    spread: bool = True
    """Deals a bucket's triples to all states that hold both its partitions, not to the first.

    With the filter `known` buckets stay whole, as they do where `sweeps` is 0 or 1 then.
    """
    rename: bool = True
    """Whether partitions change their places in the order at random from walk to walk."""
    group: int = 0
    """Parts of a partition; which parts make one is drawn anew from walk to walk.

    The more, the closer to an epoch with everything in memory: entities that are in memory together
    in one walk are not in another. Needs `rename`. 0: eight or fewer, by the number of entities.
    """
    threads: int | None = None
    """Of PyTorch; absent, as many as it takes."""

    def __post_init__(self) -> None:
        within("budget.partitions", self.partitions, 0, 512)
        within("budget.slots", self.slots, 0, None)
        within("budget.sweeps", self.sweeps, 0, MAX_SWEEPS)
        within("budget.group", self.group, 0, 512)
        if self.group > 1 and not self.rename:
            raise InvalidError(
                f"budget.group: {self.group} parts of partitions that keep their places from walk "
                "to walk\nhint: `rename` as well, or `group` 1"
            )
        if self.threads is not None:
            within("budget.threads", self.threads, 1, MOST_THREADS)


@dataclass(frozen=True)
class EvaluationConfig:
    """Among what the true ends of held-out triples are ranked."""

    candidates: Literal["auto", "all", "uniform", "degree"] = "auto"
    """`auto`: all entities, unless that takes too many products; then drawn uniformly."""
    count: int = 1000
    """Candidates that are drawn."""
    also: tuple[CandidateKind, ...] = ()
    """Further kinds of candidates for the figures at the end, as other publications use them."""
    filtered: bool = True
    """Whether figures without other true answers are given beside the raw ones, and count."""
    valid_triples: int = 100_000
    """Triples that a validation ranks at most, drawn once; 0 for all."""
    test_triples: int = 100_000
    """The same for the figures at the end."""

    def __post_init__(self) -> None:
        positive("evaluation.count", self.count)
        within("evaluation.valid_triples", self.valid_triples, 0, None)
        within("evaluation.test_triples", self.test_triples, 0, None)


@dataclass(frozen=True)
class RunConfig:
    """Seed, device and checkpoints."""

    seed: int = 0
    device: Device = "auto"
    checkpoint_seconds: float = 60.0
    """A checkpoint when the last one is this old; 0 takes those of the epochs' ends only."""

    def __post_init__(self) -> None:
        within("run.seed", self.seed, 0, 2**63 - 1)
        within("run.checkpoint_seconds", self.checkpoint_seconds, 0.0, None)


@dataclass(frozen=True)
class EmbedConfig(Configuration):
    """One embedding run.

    Example:
        >>> config = EmbedConfig(model=ModelConfig(kind="distmult", dim=64))
        >>> EmbedConfig.from_json(config.to_json()) == config
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
        """Whether a negative counts for more by a bias of its score as it does by being drawn more
        often: in the sum of a softmax the bias is a factor.

        Drawn by degree it is one only if scores are corrected. Where every entity is a negative,
        nothing else can weigh them.
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
