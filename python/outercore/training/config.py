"""Everything a training run is a function of, besides the data set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from outercore.config.fields import Configuration, positive, within
from outercore.errors import InvalidError
from outercore.far import FarOptions
from outercore.threads import MOST_THREADS

ModelKind = Literal["sage", "gcn", "gat", "gin", "mlp"]
Norm = Literal["none", "batch", "layer"]
Jumping = Literal["none", "cat", "max"]
Validation = Literal["auto", "sampled", "full"]
TaskName = Literal["classification", "multi-label", "regression", "link"]
LinkMetric = Literal[
    "roc_auc", "average_precision", "mrr", "hits@1", "hits@10", "hits@20", "hits@50", "hits@100"
]
MetricName = Literal[
    "auto", "accuracy", "f1_micro", "f1_macro", "r2", "mse", "rmse", "mae", LinkMetric
]
LinkLoss = Literal["binary", "triplet"]
LinkHead = Literal["mlp", "dot", "diagonal"]
NegativeEnds = Literal["uniform", "degree"]
Readout = Literal["sum", "mean", "max"]
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
        positive("model.hidden", self.hidden)
        positive("model.heads", self.heads)
        within("model.dropout", self.dropout, 0.0, 1.0)
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
    """Seed nodes a batch, or graphs."""
    replace: bool = False
    features: str = "x"
    labels: str = "y"
    train: str = "train"
    valid: str = "valid"
    test: str = "test"

    def __post_init__(self) -> None:
        positive("sampling.batch_size", self.batch_size)
        if not self.fanout:
            raise InvalidError("sampling.fanout: expected at least one hop, found none")
        for hop, count in enumerate(self.fanout):
            if count < 1 and count != -1:
                raise InvalidError(
                    f"sampling.fanout: hop {hop + 1}: expected a positive number or -1 for all, "
                    f"found {count}"
                )


@dataclass(frozen=True)
class GraphConfig:
    """What only the task `graph` has."""

    layers: int = 5
    """Layers of the network; each takes all neighbours, so there are no fan-outs."""
    readout: Readout = "mean"
    """How the states of a graph's nodes become one."""

    def __post_init__(self) -> None:
        positive("graph.layers", self.layers)


@dataclass(frozen=True)
class LinkConfig:
    """What `task: link` learns from; other tasks do not look at it."""

    held_out: float = 0.1
    """Share of the edges that is not trained on, half of it for validation, half for the test."""
    edges: str | None = None
    """An `.npz` with the held-out edges instead: `valid` and `test`, int [n, 2]; perhaps `train`,
    `valid_neg` and `test_neg`."""
    negatives: int = 1
    """Pairs without an edge for each edge of a batch."""
    negative_ends: NegativeEnds = "uniform"
    """How likely a node is drawn as the end of a negative: all alike, or as its degree says."""
    loss: LinkLoss = "binary"
    """`binary`: cross entropy of edges and random pairs. `triplet`: an edge shall score higher than
    the same source with a random target, by the loss of BPR."""
    head: LinkHead = "mlp"
    """What makes one score of two embeddings: a perceptron over their product by elements, the dot
    product, or that with a learned weight a dimension. All are symmetric."""

    def __post_init__(self) -> None:
        within("link.held_out", self.held_out, 0.0, 0.9)
        positive("link.negatives", self.negatives)


@dataclass(frozen=True)
class OptimiserConfig:
    """Adam, and when to stop."""

    learning_rate: float = 0.003
    weight_decay: float = 0.0
    epochs: int = 20
    patience: int = 5
    """Epochs without a better validation score before stopping; 0 never stops early."""

    def __post_init__(self) -> None:
        positive("optimiser.learning_rate", self.learning_rate)
        positive("optimiser.epochs", self.epochs)
        within("optimiser.weight_decay", self.weight_decay, 0.0, None)
        within("optimiser.patience", self.patience, 0, None)


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
        within("budget.validation_share", self.validation_share, 0.0, 0.9)
        if self.threads is not None:
            within("budget.threads", self.threads, 1, MOST_THREADS)


@dataclass(frozen=True)
class RunConfig:
    """Seed, evaluation and checkpoints."""

    seed: int = 0
    validation: Validation = "auto"
    """How the score after each epoch is computed.

    `full` by exact layer-wise inference over all neighbours, `sampled` with the training
    fan-outs; `auto` is `full` up to two million edges. The final scores are always exact.
    """
    task: Literal["auto", "graph", TaskName] = "auto"
    """What the labels are; `auto` tells by their type, shape and values. `graph` learns labels of
    whole graphs, which say the same way what they are. `link` predicts edges."""
    metric: MetricName = "auto"
    """`auto`: ROC-AUC for two classes, for several labels a node and for links, R2 for numbers,
    else accuracy."""
    device: Device = "auto"
    checkpoint_batches: int = 0
    """A checkpoint after this many batches, besides the one of each epoch; 0 for none."""
    checkpoint_seconds: float = 300.0
    """A checkpoint when the last one is this old; 0 for none."""

    def __post_init__(self) -> None:
        within("run.seed", self.seed, 0, 2**63 - 1)
        within("run.checkpoint_batches", self.checkpoint_batches, 0, None)
        within("run.checkpoint_seconds", self.checkpoint_seconds, 0.0, None)


@dataclass(frozen=True)
class TrainConfig(Configuration):
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
    graph: GraphConfig = field(default_factory=GraphConfig)
    link: LinkConfig = field(default_factory=LinkConfig)

    @property
    def layers(self) -> int:
        """Layers of the network: one a hop, or what the task `graph` is told."""
        return self.graph.layers if self.of_graphs else len(self.sampling.fanout)

    @property
    def of_links(self) -> bool:
        """Whether edges are learnt."""
        return self.run.task == "link"

    @property
    def of_graphs(self) -> bool:
        """Whether whole graphs are learnt from."""
        return self.run.task == "graph"

    def to_dict(self) -> dict[str, Any]:
        """Groups of plain JSON values, in the order of the fields."""
        values = super().to_dict()
        values["sampling"]["fanout"] = list(self.sampling.fanout)
        return values
