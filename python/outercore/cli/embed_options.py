"""Options of an embedding, which `embed` and `plan embed` share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, get_args

import typer

from outercore.cli import options
from outercore.config.fields import one_of
from outercore.embedding.config import BuiltInModel, EmbedConfig
from outercore.embedding.options import CHANGEABLE, PLACES
from outercore.embedding.recipes import RECIPES
from outercore.errors import InvalidError

_MODEL, _TRAINING = "Model", "Training"
_MEMORY, _EVALUATION, _RUN = "Memory and disk", "Evaluation", "Run"
_DEFAULTS = EmbedConfig()
_PARAMETERS = {
    "regulariser_weight": "weight",
    "relation_regulariser_weight": "relation_weight",
    "filtered": "raw",
}
"""Parameters of the command line that are not called like their option."""


def _default(name: str, text: str) -> str:
    """The help of the option `name`, with what counts where it is not given."""
    group, key = PLACES[name]
    match getattr(getattr(_DEFAULTS, group), key):
        case bool(value):
            told = "on" if value else "off"
        case str(value):
            told = f"`{value}`"
        case value:
            told = f"{value:.12g}"
    return f"{text}; {told} by default."


Recipe = Annotated[
    str | None,
    typer.Option(
        help=f"A measured configuration, which other options are laid on: {', '.join(RECIPES)}."
    ),
]
Config = Annotated[
    Path | None, typer.Option(help="JSON file of a configuration, as `config.json` of a run.")
]
StartFrom = Annotated[
    Path | None,
    typer.Option("--from", help="Begin with the rows of this run, where both have the entity."),
]
FromData = Annotated[
    Path | None,
    typer.Option(help="With `--from`: where the data set of that run is now, if it was moved."),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="`dot`, `distmult`, `complex`, `transe`, `rotate` or `simple`; `complex` by default, "
        "`dot` for a graph without triples.",
        rich_help_panel=_MODEL,
    ),
]
Score = Annotated[
    str | None,
    typer.Option(
        help="A score function of your own instead, in PyTorch: `FILE.py:NAME` or `MODULE:NAME`.",
        rich_help_panel=_MODEL,
    ),
]
RelationDim = Annotated[
    int | None,
    typer.Option(
        help="With `--score`: numbers of a relation; as many as of an entity by default.",
        rich_help_panel=_MODEL,
    ),
]
Dim = Annotated[
    int | None, typer.Option(help=_default("dim", "Numbers of an entity"), rich_help_panel=_MODEL)
]
Norm = Annotated[
    int | None,
    typer.Option(
        help=_default("norm", "Distance of `transe`: 1, sums of absolute values, or 2, Euclidean"),
        rich_help_panel=_MODEL,
    ),
]
Reciprocal = Annotated[
    bool | None,
    typer.Option(
        "--reciprocal/--no-reciprocal",
        help=_default("reciprocal", "Learn a second row for each relation, to ask for heads"),
        rich_help_panel=_MODEL,
    ),
]
InitScale = Annotated[
    float | None,
    typer.Option(help="Size of first values; the model's own by default.", rich_help_panel=_MODEL),
]
Loss = Annotated[
    str | None,
    typer.Option(
        help=_default(
            "loss", "`softmax`, `contrastive`, `logistic`, `margin` or `self-adversarial`"
        ),
        rich_help_panel=_TRAINING,
    ),
]
Margin = Annotated[
    float | None,
    typer.Option(
        help="How far ahead a true triple must be (`margin`), 1 by default, or what is added to "
        "scores (`logistic`, `self-adversarial`), 0 by default.",
        rich_help_panel=_TRAINING,
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        help=_default("temperature", "How much harder negatives count more in `self-adversarial`"),
        rich_help_panel=_TRAINING,
    ),
]
Negatives = Annotated[
    str | None,
    typer.Option(
        help=_default("negatives", "How many each chunk shares, or `all` entities"),
        rich_help_panel=_TRAINING,
    ),
]
DegreeShare = Annotated[
    float | None,
    typer.Option(
        help=_default("degree_share", "Share of negatives drawn by degree"),
        rich_help_panel=_TRAINING,
    ),
]
DegreePower = Annotated[
    float | None,
    typer.Option(
        help=_default("degree_power", "Exponent of the degree in these"),
        rich_help_panel=_TRAINING,
    ),
]
NegativeFilter = Annotated[
    str | None,
    typer.Option(
        help=_default(
            "negative_filter",
            "Negatives that do not count: `none`, the `own` entity, or all that are `known`",
        ),
        rich_help_panel=_TRAINING,
    ),
]
Correction = Annotated[
    str | None,
    typer.Option(
        help=_default("correction", "`none`, or `frequency`: estimate the sum over all entities"),
        rich_help_panel=_TRAINING,
    ),
]
Optimiser = Annotated[
    str | None,
    typer.Option(
        help=_default("optimiser", "`adagrad`, or `row-adagrad` with half the bytes"),
        rich_help_panel=_TRAINING,
    ),
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        "--learning-rate",
        "--lr",
        help=_default("learning_rate", "How far a step goes"),
        rich_help_panel=_TRAINING,
    ),
]
RelationOptimiser = Annotated[
    str | None,
    typer.Option(
        help=_default("relation_optimiser", "Of relations: `adagrad`, `row-adagrad` or `adam`"),
        rich_help_panel=_TRAINING,
    ),
]
RelationLearningRate = Annotated[
    float | None,
    typer.Option(
        help="How far a step of relations goes; as far as one of entities by default.",
        rich_help_panel=_TRAINING,
    ),
]
Schedule = Annotated[
    str | None,
    typer.Option(
        help=_default("schedule", "`constant`, or `linear`: the rate falls over the epochs"),
        rich_help_panel=_TRAINING,
    ),
]
Regulariser = Annotated[
    str | None,
    typer.Option(help=_default("regulariser", "`none`, `n3` or `l2`"), rich_help_panel=_TRAINING),
]
Weight = Annotated[
    float | None,
    typer.Option(
        help=_default("regulariser_weight", "Of the regulariser"), rich_help_panel=_TRAINING
    ),
]
RelationWeight = Annotated[
    float | None,
    typer.Option(
        help="The same for relations; as for entities by default.", rich_help_panel=_TRAINING
    ),
]
Epochs = Annotated[
    int | None, typer.Option(help=_default("epochs", "Epochs at most"), rich_help_panel=_TRAINING)
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        help=_default("batch_size", "Triples an update, about"), rich_help_panel=_TRAINING
    ),
]
ChunkSize = Annotated[
    int | None,
    typer.Option(
        help=_default("chunk_size", "Triples that share their negatives, about"),
        rich_help_panel=_TRAINING,
    ),
]
Patience = Annotated[
    int | None,
    typer.Option(
        help=_default(
            "patience", "Validations without a better figure before stopping, or 0 for never"
        ),
        rich_help_panel=_TRAINING,
    ),
]
ValidateEvery = Annotated[
    int | None,
    typer.Option(
        help=_default("validate_every", "Epochs between validations"), rich_help_panel=_TRAINING
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        callback=options.size,
        help=_default("memory", "Memory budget: `8GiB`, `25%` of the machine, or `auto`"),
        rich_help_panel=_MEMORY,
    ),
]
Partitions = Annotated[
    int | None,
    typer.Option(
        help="Of the entities; 1 keeps all in memory, 0 goes by the budget.",
        rich_help_panel=_MEMORY,
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(help="Partitions in memory; 0 goes by the budget.", rich_help_panel=_MEMORY),
]
Order = Annotated[
    str | None,
    typer.Option(
        help=_default(
            "order", "Of partitions: `optimal`, `legend`, `beta`, `cover` or `sequential`"
        ),
        rich_help_panel=_MEMORY,
    ),
]
Swap = Annotated[
    str | None,
    typer.Option(
        help=_default(
            "swap",
            "Where a loaded partition goes: `in-place` while others are trained, `in-turn` when "
            "all are, `spare-slot`, or `auto`",
        ),
        rich_help_panel=_MEMORY,
    ),
]
Sweeps = Annotated[
    int | None,
    typer.Option(
        help="Walks through the order an epoch: better mixed, more I/O; 0 for what hides.",
        rich_help_panel=_MEMORY,
    ),
]
Spread = Annotated[
    bool | None,
    typer.Option(
        "--spread/--no-spread",
        help=_default(
            "spread", "Train a bucket in every state that holds its partitions, not in the first"
        ),
        rich_help_panel=_MEMORY,
    ),
]
Rename = Annotated[
    bool | None,
    typer.Option(
        "--rename/--no-rename",
        help=_default("rename", "Shuffle the partitions' places in the order from walk to walk"),
        rich_help_panel=_MEMORY,
    ),
]
Group = Annotated[
    int | None,
    typer.Option(
        help="Parts of a partition, put together anew from walk to walk; 0 goes by the entities.",
        rich_help_panel=_MEMORY,
    ),
]
HeldOut = Annotated[
    float | None,
    typer.Option(
        help=_default(
            "held_out", "Share of a plain graph's links held out, half of it for validation"
        )
        + " If given, also of triples that came without `--valid` and `--test`.",
        rich_help_panel=_EVALUATION,
    ),
]
Candidates = Annotated[
    str | None,
    typer.Option(
        help=_default(
            "candidates",
            "Rank among `all` entities, or some drawn `uniform` or by `degree`, or go by their "
            "number",
        ),
        rich_help_panel=_EVALUATION,
    ),
]
CandidateCount = Annotated[
    int | None,
    typer.Option(help=_default("candidate_count", "Candidates drawn"), rich_help_panel=_EVALUATION),
]
Also = Annotated[
    list[str] | None,
    typer.Option(
        help="Further kinds of candidates for the figures at the end; may be repeated.",
        rich_help_panel=_EVALUATION,
    ),
]
Raw = Annotated[
    bool,
    typer.Option(
        "--raw", help="Other true answers count as wrong ones.", rich_help_panel=_EVALUATION
    ),
]
ValidTriples = Annotated[
    int | None,
    typer.Option(
        help=_default("valid_triples", "Triples that a validation ranks at most, or 0 for all"),
        rich_help_panel=_EVALUATION,
    ),
]
TestTriples = Annotated[
    int | None,
    typer.Option(
        help=_default("test_triples", "The same for the figures at the end"),
        rich_help_panel=_EVALUATION,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help=_default("seed", "Everything random is a function of it"), rich_help_panel=_RUN
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help=_default("device", "`auto`, `cpu` or `cuda`"), rich_help_panel=_RUN),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", help="Threads that compute; PyTorch's by default.", rich_help_panel=_RUN
    ),
]
CheckpointSeconds = Annotated[
    float | None,
    typer.Option(
        help=_default(
            "checkpoint_seconds",
            "A checkpoint when the last one is so old, or 0 for epochs' ends only",
        ),
        rich_help_panel=_RUN,
    ),
]


def model(name: str | None, score: str | None) -> str | None:
    """`--model`; with `--score` it is `custom`.

    Errors: `InvalidError` for both, and for a name that is none.
    """
    if score is None:
        if name not in (None, "custom"):
            one_of("--model (model.kind)", name, get_args(BuiltInModel))
        return name
    if name not in (None, "custom"):
        raise InvalidError(f"--model {name}: does not go with `--score`, which is a model")
    return "custom"


def negatives(text: str | None) -> dict[str, object]:
    """`--negatives` as options of a configuration."""
    if text is None:
        return {}
    if text == "all":
        return {"negative_kind": "all"}
    if not text.isdecimal():
        # Told by the configuration, which knows what it expects.
        return {"negatives": text}
    return {"negative_kind": "sampled", "negatives": int(text)}


def require_changeable(context: typer.Context) -> None:
    """Errors: `InvalidError` for an option that the run of `--resume` keeps as it was."""
    allowed = [_PARAMETERS.get(name, name) for name in CHANGEABLE]
    known = ", ".join(f"`--{name}`".replace("_", "-") for name in allowed)
    hint = f"leave it out, or start another run with `--from`; a run goes on with another {known}"
    options.require_nothing_else(context, "memory", "score", *allowed, hint=hint)


@contextmanager
def named(context: typer.Context) -> Iterator[None]:
    """Tells a mistake in the configuration by its option; see `options.named`."""
    places = {_PARAMETERS.get(name, name): ".".join(place) for name, place in PLACES.items()}
    with options.named(context, places):
        yield
