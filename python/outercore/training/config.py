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
            "`sage`, `gcn`, `gat`, `gin`, or `mlp`, which uses no edge; for graphs with several "
            "types `rgcn`, `sage`, `gat` or `hgt`; or `FILE.py:NAME`, a network of your own.",
            name="model",
            common=True,
            choices=get_args(ModelKind),
        ),
    ] = "sage"
    hidden: Annotated[
        int,
        Option("Width of the hidden layers; of `gat` and `hgt` all heads together.", common=True),
    ] = 256
    heads: Annotated[int, Option("Attention heads of `gat` and `hgt`.")] = 4
    dropout: Annotated[float, Option("Share of units that are dropped in training.")] = 0.5
    norm: Annotated[Norm, Option("Normalisation: `none`, `batch` or `layer`.")] = "none"
    residual: Annotated[
        bool, Option("Add a learned linear map of a layer's input to its output.")
    ] = False
    jumping: Annotated[
        Jumping,
        Option("Jumping knowledge: classify from all layers, by `cat` or `max`; or `none`."),
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
        Option("In-neighbours per hop, nearest hop first; `-1` takes all.", common=True),
    ] = (15, 10)
    batch_size: Annotated[
        int | None,
        Option(
            "Nodes or edges in a batch, 1024 by default; or graphs, 64 by default.", common=True
        ),
    ] = None
    replace: Annotated[bool, Option("Draw neighbours with replacement.")] = False
    features: Annotated[str, Option("Node array with the features.", common=True)] = "x"
    precision: Annotated[
        Precision,
        Option(
            "Feature rows: `exact`, or `int8`, a byte a value, from the layout that "
            "`outercore layout --precision int8` writes."
        ),
    ] = "exact"
    labels: Annotated[str, Option("Node array with the labels.", common=True)] = "y"
    time: Annotated[
        str | None,
        Option(
            "Array with the times of nodes, edges or both: what is predicted sees the past alone. "
            "With `--task link` the latest edges are held out.",
            common=True,
        ),
    ] = None
    train: Annotated[str, Option("Split to train on.", name="train_split")] = "train"
    valid: Annotated[str, Option("Split that decides between epochs.", name="valid_split")] = (
        "valid"
    )
    test: Annotated[str, Option("Split that is scored at the end.", name="test_split")] = "test"

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

    layers: Annotated[int, Option("With `--task graph`: layers of the network.")] = 5
    readout: Annotated[
        Readout,
        Option("With `--task graph`: a graph is the `sum`, `mean` or `max` of its nodes."),
    ] = "mean"

    def __post_init__(self) -> None:
        positive("graph.layers", self.layers)


@dataclass(frozen=True)
class LinkConfig:
    """Options of the task `link`."""

    held_out: Annotated[
        float,
        Option("With `--task link`: share of the edges for validation and test, half each."),
    ] = 0.1
    edges: Annotated[
        str | None,
        Option(
            "With `--task link`: `.npz` file of the held-out edges: `valid` and `test`, integers "
            "[n, 2]; perhaps `train`, `valid_neg` and `test_neg`, or `valid_target_neg` and "
            "`test_target_neg`, [n, k] for each edge. Or a folder `split/NAME` of OGB.",
            name="held_out_edges",
        ),
    ] = None
    relation: Annotated[
        str | None,
        Option(
            "With `--time`: the edges to predict, SOURCE,RELATION,TARGET; by default those with "
            "times."
        ),
    ] = None
    negatives: Annotated[
        int, Option("With `--task link`: pairs without an edge for each edge of a batch.")
    ] = 1
    negative_ends: Annotated[
        NegativeEnds,
        Option("With `--task link`: draw the nodes of these `uniform` or by `degree`."),
    ] = "uniform"
    loss: Annotated[
        LinkLoss,
        Option(
            "With `--task link`: `binary` cross entropy of edges and random pairs; or `triplet`, "
            "the loss of BPR for the same source with a random target."
        ),
    ] = "binary"
    head: Annotated[
        LinkHead,
        Option(
            "With `--task link`: score of two embeddings: `mlp` of their product, `dot` product, "
            "or `diagonal`, a dot product with a learned weight a dimension. All are symmetric, "
            "but `mlp` with `--time`."
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
        Option("Stop after so many epochs without a better score; 0 never stops.", common=True),
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
            "Share of the budget for validation while the training caches stay filled. 0 releases "
            "the training caches for each validation."
        ),
    ] = 0.25
    backend: BackendOption = "auto"
    threads: Annotated[int | None, Option("Threads of the loader; all cores by default.")] = None
    topology: Annotated[
        Topology, Option("Where the edges are: `auto`, `resident` in memory, or `paged`.")
    ] = "auto"
    policy: Annotated[Policy, Option("Cache eviction: `window` or `lru`.")] = "window"
    hotness: Annotated[
        str,
        Option(
            "How the static cache is filled: `presample`, `visits`, `in_degree`, `none`, or a node "
            "array."
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
            "How epochs are scored: `full` neighbourhoods, `sampled` ones, or `auto`: full up to "
            "two million edges. The last scores are exact; with `--time` all are sampled."
        ),
    ] = "auto"
    task: Annotated[
        Literal["auto", "graph", TaskName],
        Option(
            "`classification`, `multi-label`, `regression`; `link` predicts edges, `graph` labels "
            "of whole graphs; `auto` decides by the labels.",
            common=True,
        ),
    ] = "auto"
    metric: Annotated[
        MetricName,
        Option(
            "`accuracy`, `roc_auc`, `f1_micro`, `f1_macro`; of numbers `r2`, `mse`, `rmse`, `mae`; "
            "of edges also `average_precision`, `mrr`, `hits@20` and other k.",
            common=True,
        ),
    ] = "auto"
    checkpoint_seconds: Annotated[
        float, Option("Seconds between two checkpoints, besides one an epoch; 0 for none.")
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
