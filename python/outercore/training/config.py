"""The configuration of a training run. With the data set it determines the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from outercore.base.fields import Configuration, one_of, positive, within
from outercore.base.options import (
    BackendOption,
    Option,
    Policy,
    Precision,
    Topology,
    base_groups,
    flat,
    groups_of,
    merge,
)
from outercore.data.far import FarOptions
from outercore.errors import InvalidError
from outercore.runs.config import Budget, SeedAndDevice, Stopping

ModelKind = Literal["sage", "gcn", "gat", "gin", "rgcn", "hgt", "mlp"]
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
RESUME = "resume with `outercore train --resume RUN`"
"""The next step after a run has filled its device."""

CHANGEABLE = ("epochs", "patience")
"""Options that a resumed run may change."""
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
"""Options without effect on the task `graph`, which reads whole graphs."""
_NODES_OR_EDGES, _GRAPHS = 1024, 64
"""Default seeds of a batch."""


@dataclass(frozen=True)
class ModelConfig:
    """The network. It has as many layers as the fan-out has hops."""

    kind: Annotated[
        str,
        Option(
            "Train the network `sage`, `gcn`, `gat`, `gin` or `mlp`, which uses no edges; for "
            "graphs with several types `rgcn`, `sage`, `gat` or `hgt`. `FILE.py:NAME` loads a "
            "custom network.",
            name="model",
            common=True,
            choices=get_args(ModelKind),
        ),
    ] = "sage"
    hidden: Annotated[
        int,
        Option(
            "Width of the hidden layers. In `gat` and `hgt`, all heads together have this width.",
            common=True,
        ),
    ] = 256
    heads: Annotated[int, Option("Number of attention heads in `gat` and `hgt`.")] = 4
    dropout: Annotated[
        float, Option("Drop this share of the hidden units in each training step.")
    ] = 0.5
    norm: Annotated[
        Norm,
        Option(
            "Add batch normalisation (`batch`) or layer normalisation (`layer`) between layers. "
            "`none` adds neither."
        ),
    ] = "none"
    residual: Annotated[
        bool, Option("Add a learned linear map of a layer's input to its output.")
    ] = False
    jumping: Annotated[
        Jumping,
        Option(
            "Predict from the outputs of all layers (jumping knowledge): from their concatenation "
            "(`cat`) or maximum (`max`). `none` uses only the last layer."
        ),
    ] = "none"

    @property
    def is_custom(self) -> bool:
        """Whether the network is custom code. The kind is then the place of the code."""
        return ":" in self.kind

    def __post_init__(self) -> None:
        if not self.is_custom:
            one_of("model.kind", self.kind, get_args(ModelKind))
        positive("model.hidden", self.hidden)
        positive("model.heads", self.heads)
        within("model.dropout", self.dropout, 0.0, 1.0)
        if self.kind in ("gat", "hgt") and self.hidden % self.heads:
            raise InvalidError(
                f"model.hidden: expected a multiple of the {self.heads} attention heads, "
                f"found {self.hidden}"
            )


@dataclass(frozen=True)
class SamplingConfig:
    """How mini-batches are sampled."""

    fanout: Annotated[
        tuple[int, ...],
        Option(
            "Sample this many in-neighbours in each hop, nearest hop first. `-1` takes all.",
            common=True,
        ),
    ] = (15, 10)
    batch_size: Annotated[
        int | None,
        Option(
            "Number of nodes or edges in a batch (1024 by default), or of whole graphs (64 by "
            "default).",
            common=True,
        ),
    ] = None
    replace: Annotated[bool, Option("Draw neighbours with replacement.")] = False
    features: Annotated[str, Option("Take the features from this node array.", common=True)] = "x"
    precision: Annotated[
        Precision,
        Option(
            "Read feature rows as they are stored (`exact`), or with one byte per value (`int8`). "
            "`int8` needs the layout that `outercore layout --precision int8` writes."
        ),
    ] = "exact"
    labels: Annotated[
        str, Option("Take the labels from this array of nodes or graphs.", common=True)
    ] = "y"
    time: Annotated[
        str | None,
        Option(
            "Take the times of nodes, edges or both from the arrays of this name, so that each "
            "prediction sees only its past. With `--task link`, the latest edges are held out.",
            common=True,
        ),
    ] = None
    train: Annotated[str, Option("Train on this split.", name="train_split")] = "train"
    valid: Annotated[
        str, Option("Keep the epoch with the best score on this split.", name="valid_split")
    ] = "valid"
    test: Annotated[
        str, Option("At the end, score the best model on this split.", name="test_split")
    ] = "test"

    @property
    def seeds(self) -> int:
        """The batch size. `TrainConfig` has replaced a `batch_size` of `None` by its default."""
        assert self.batch_size is not None
        return self.batch_size

    def __post_init__(self) -> None:
        if self.batch_size is not None:
            within("sampling.batch_size", self.batch_size, 1, None)
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
    """Options of the task `graph`."""

    layers: Annotated[int, Option("With `--task graph`: number of layers of the network.")] = 5
    readout: Annotated[
        Readout,
        Option(
            "With `--task graph`: represent a graph by the `sum`, `mean` or `max` of its nodes."
        ),
    ] = "mean"

    def __post_init__(self) -> None:
        positive("graph.layers", self.layers)


@dataclass(frozen=True)
class LinkConfig:
    """Options of the task `link`."""

    held_out: Annotated[
        float,
        Option(
            "With `--task link`: hold out this share of the edges, half for validation and half "
            "for the test."
        ),
    ] = 0.1
    edges: Annotated[
        str | None,
        Option(
            "With `--task link`: read the held-out edges from this `.npz` file, or from a folder "
            "`split/NAME` of OGB. The file has integers `valid` and `test` [n, 2], and optionally "
            "`train`, `valid_neg` and `test_neg` [n, 2], or `valid_target_neg` and "
            "`test_target_neg` [n, k].",
            name="held_out_edges",
        ),
    ] = None
    relation: Annotated[
        str | None,
        Option(
            "With `--time`: predict the edges of this type, given as SOURCE,RELATION,TARGET. By "
            "default, these are the edges with times."
        ),
    ] = None
    negatives: Annotated[
        int,
        Option(
            "With `--task link`: draw this many pairs without an edge for each edge of a batch."
        ),
    ] = 1
    negative_ends: Annotated[
        NegativeEnds,
        Option(
            "With `--task link`: draw the nodes of pairs without an edge uniformly (`uniform`), or "
            "in proportion to their degree (`degree`)."
        ),
    ] = "uniform"
    loss: Annotated[
        LinkLoss,
        Option(
            "With `--task link`: minimise the cross entropy of edges and random pairs (`binary`), "
            "or the BPR loss of each edge against a random target of the same source (`triplet`)."
        ),
    ] = "binary"
    head: Annotated[
        LinkHead,
        Option(
            "With `--task link`: score two embeddings by an `mlp` of their product, by their `dot` "
            "product, or by a dot product with a learned weight for each dimension (`diagonal`). "
            "Scores are symmetric, except for `mlp` with `--time`."
        ),
    ] = "mlp"

    def __post_init__(self) -> None:
        within("link.held_out", self.held_out, 0.0, 0.9)
        positive("link.negatives", self.negatives)
        if self.edges is not None:
            # The run may be resumed in another directory.
            object.__setattr__(self, "edges", str(Path(self.edges).resolve()))


@dataclass(frozen=True)
class OptimiserConfig(Stopping):
    """Adam, and when to stop."""

    learning_rate: Annotated[float, Option("Step size of Adam.", short="--lr", common=True)] = 0.003
    weight_decay: Annotated[float, Option("Weight decay of Adam.")] = 0.0
    epochs: Annotated[int, Option("Maximum number of epochs.", common=True)] = 20
    patience: Annotated[
        int,
        Option(
            "Stop after this many epochs without a better score. 0 never stops early.", common=True
        ),
    ] = 5

    def __post_init__(self) -> None:
        positive("optimiser.learning_rate", self.learning_rate)
        positive("optimiser.epochs", self.epochs)
        within("optimiser.weight_decay", self.weight_decay, 0.0, None)
        within("optimiser.patience", self.patience, 0, None)


@dataclass(frozen=True)
class BudgetConfig(Budget):
    """The memory for the data, and how it is used."""

    validation_share: Annotated[
        float,
        Option(
            "Reserve this share of the budget for validation, so that the training caches stay "
            "filled. With 0, each validation releases these caches and uses the whole budget."
        ),
    ] = 0.25
    backend: BackendOption = "auto"
    threads: Annotated[
        int | None, Option("Number of threads that load batches. The default is one for each core.")
    ] = None
    topology: Annotated[
        Topology,
        Option(
            "Keep the edges in memory (`resident`), or read them from disk as needed (`paged`). "
            "`auto` decides by their size and the budget."
        ),
    ] = "auto"
    policy: Annotated[
        Policy,
        Option(
            "Evict from the cache the row whose next use is farthest (`window`), or the least "
            "recently used row (`lru`)."
        ),
    ] = "window"
    hotness: Annotated[
        str,
        Option(
            "Fill the static cache with the most visited rows of sampled batches (`presample`), or "
            "with the rows of most expected visits (`visits`), most in-edges (`in_degree`), or "
            "largest values of a node array. `none` uses no static cache."
        ),
    ] = "presample"
    far: FarOptions | None = None
    """A memory server that holds features and topology too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        within("budget.validation_share", self.validation_share, 0.0, 0.9)


@dataclass(frozen=True)
class RunConfig(SeedAndDevice):
    """Seed, evaluation and checkpoints."""

    validation: Annotated[
        Validation,
        Option(
            "Score epochs on `full` or `sampled` neighbourhoods; `auto` takes `full` up to two "
            "million edges. The final scores use full neighbourhoods, but with `--time` all scores "
            "use sampled ones."
        ),
    ] = "auto"
    task: Annotated[
        Literal["auto", "graph", TaskName],
        Option(
            "Learn labels of nodes (`classification`, `multi-label` or `regression`), edges "
            "(`link`), or labels of whole graphs (`graph`). `auto` decides by the labels.",
            common=True,
        ),
    ] = "auto"
    metric: Annotated[
        MetricName,
        Option(
            "Choose the best epoch by `accuracy`, `roc_auc`, `f1_micro` or `f1_macro`; for numbers "
            "by `r2`, `mse`, `rmse` or `mae`. For edges, choose by `roc_auc`, `average_precision`, "
            "`mrr`, or `hits@20` with this or another k.",
            common=True,
        ),
    ] = "auto"
    checkpoint_seconds: Annotated[
        float,
        Option(
            "Write a checkpoint after every epoch, and each time this many seconds have passed. "
            "With 0, only epochs end with a checkpoint."
        ),
    ] = 300.0


@dataclass(frozen=True)
class TrainConfig(Configuration):
    """One training run.

    Example:
        >>> config = TrainConfig(model=ModelConfig(kind="gcn"))
        >>> TrainConfig.from_dict(config.to_dict()) == config
        True
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    run: RunConfig = field(default_factory=RunConfig)
    graph: GraphConfig = field(default_factory=GraphConfig)
    link: LinkConfig = field(default_factory=LinkConfig)

    def __post_init__(self) -> None:
        if self.sampling.batch_size is None:
            size = _GRAPHS if self.of_graphs else _NODES_OR_EDGES
            object.__setattr__(self, "sampling", replace(self.sampling, batch_size=size))

    @property
    def layers(self) -> int:
        """The number of layers: one for each hop, or `graph.layers` for the task `graph`."""
        return self.graph.layers if self.of_graphs else len(self.sampling.fanout)

    @property
    def of_links(self) -> bool:
        """Whether edges are predicted."""
        return self.run.task == "link"

    @property
    def of_graphs(self) -> bool:
        """Whether labels of whole graphs are predicted."""
        return self.run.task == "graph"

    def to_dict(self) -> dict[str, Any]:
        """The configuration as groups of plain JSON values, in the order of the fields."""
        values = super().to_dict()
        values["sampling"]["fanout"] = list(self.sampling.fanout)
        return values


def configuration(
    base: TrainConfig | Mapping[str, Any] | str | Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> TrainConfig:
    """The configuration `base` with changed `options`; see `outercore.base.options.configuration`.

    Errors: as that function; also `InvalidError` for an option without effect on the task.
    """
    groups = groups_of(TrainConfig, options or {})
    config = TrainConfig.from_dict(merge(base_groups(base), groups))
    for path in flat(groups):
        if config.of_graphs and path.startswith(_NOT_OF_GRAPHS):
            raise InvalidError(f"{path}: no effect with task `graph`, which reads whole graphs")
        group = path.partition(".")[0]
        if group in ("graph", "link") and config.run.task != group:
            raise InvalidError(
                f"{path}: no effect without task `{group}`\nhint: add `--task {group}`"
            )
    return config
