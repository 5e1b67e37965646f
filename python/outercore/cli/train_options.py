"""Options of a training, which `train` and `plan train` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from outercore.cli import options
from outercore.errors import InvalidError
from outercore.training.config import TrainConfig

_EDGES = "Edges, with `--task link`"
HeldOut = Annotated[
    str,
    typer.Option(
        "--held-out",
        help="Share of the edges for validation and test, half each; or an `.npz` with `valid` and "
        "`test`, perhaps `train`, `valid_neg`, `test_neg`.",
        rich_help_panel=_EDGES,
    ),
]
Negatives = Annotated[
    int,
    typer.Option("--negatives", help="Pairs without an edge for each.", rich_help_panel=_EDGES),
]
Loss = Annotated[
    str,
    typer.Option(
        "--loss",
        help="`binary`, or `triplet` of a source, its target and another node.",
        rich_help_panel=_EDGES,
    ),
]
Head = Annotated[
    str,
    typer.Option(
        "--head",
        help="How two embeddings make a score: `mlp`, `dot` or `diagonal`.",
        rich_help_panel=_EDGES,
    ),
]

_PLACES = {
    "model": "model.kind",
    "hidden": "model.hidden",
    "heads": "model.heads",
    "dropout": "model.dropout",
    "norm": "model.norm",
    "residual": "model.residual",
    "jumping": "model.jumping",
    "fanout": "sampling.fanout",
    "batch_size": "sampling.batch_size",
    "replace": "sampling.replace",
    "features": "sampling.features",
    "labels": "sampling.labels",
    "layers": "graph.layers",
    "readout": "graph.readout",
    "split": "sampling.train",
    "learning_rate": "optimiser.learning_rate",
    "weight_decay": "optimiser.weight_decay",
    "epochs": "optimiser.epochs",
    "patience": "optimiser.patience",
    "memory": "budget.memory",
    "validation_share": "budget.validation_share",
    "backend": "budget.backend",
    "threads": "budget.threads",
    "topology": "budget.topology",
    "policy": "budget.policy",
    "hotness": "budget.hotness",
    "far": "budget.far",
    "seed": "run.seed",
    "validation": "run.validation",
    "metric": "run.metric",
    "task": "run.task",
    "device": "run.device",
    "held_out": "link.held_out",
    "edges": "link.edges",
    "negatives": "link.negatives",
    "loss": "link.loss",
    "head": "link.head",
    "checkpoint_batches": "run.checkpoint_batches",
    "checkpoint_seconds": "run.checkpoint_seconds",
}
"""Where the value of each option stands in the configuration."""


_OF_GRAPHS = ("layers", "readout")
_OF_NODES = (
    "fanout",
    "replace",
    "validation",
    "validation_share",
    "backend",
    "threads",
    "topology",
    "policy",
    "hotness",
    "far",
)


def require_fitting(context: typer.Context, task: str) -> None:
    """Errors: `InvalidError` for an option that has no effect on this task."""
    given = options.given(context)
    others = _OF_NODES if task == "graph" else _OF_GRAPHS
    for name in others:
        if name in given:
            why = (
                "has no effect with `--task graph`: whole graphs are read"
                if task == "graph"
                else "expected `--task graph` with it"
            )
            raise InvalidError(f"{given[name]}: {why}")


def configuration(context: typer.Context, **values: Any) -> TrainConfig:
    """The configuration of a training by the names of its options.

    Errors: `InvalidError` names the option with the wrong value.
    """
    groups: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        group, _, key = _PLACES[name].partition(".")
        groups.setdefault(group, {})[key] = value
    with options.named(context, _PLACES):
        return TrainConfig.from_dict(groups)


def held_out(text: str) -> dict[str, Any]:
    """What `--held-out` says: a share of the edges, or the file that has them."""
    try:
        return {"held_out": float(text)}
    except ValueError:
        # The run may be resumed in another directory.
        return {"edges": str(Path(text).resolve())}


def require_link(context: typer.Context, task: str) -> None:
    """Errors: `InvalidError` for an option of edges where nodes are learnt."""
    for name, option in options.given(context).items():
        if _PLACES.get(name, "").startswith("link.") and task != "link":
            raise InvalidError(f"{option}: it says how edges are learnt\nhint: add `--task link`")
