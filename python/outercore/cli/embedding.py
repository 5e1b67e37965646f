"""`outercore embedding`: use what `outercore embed` has made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from outercore import embedding as embeddings
from outercore.base.common import MemoryOption
from outercore.base.shell import quoted
from outercore.cli import console, options
from outercore.cli.embed_options import Score
from outercore.cli.embedding_figures import compare, evaluate
from outercore.cli.embedding_options import Ids, Metric, OfRun, Searching
from outercore.cli.embedding_results import written
from outercore.data.outputs import check_output
from outercore.embedding.use.export import FORMATS
from outercore.embedding.use.questions import read_questions
from outercore.errors import InvalidError
from outercore.files.npy import read_npy

_GROUP = 1024
"""Questions of a file that share a pass over the table."""

embedding = typer.Typer(
    help="Use the rows that `outercore embed` has found.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
embedding.command("evaluate", no_args_is_help=True)(evaluate)
embedding.command("compare", no_args_is_help=True)(compare)


@dataclass(frozen=True, kw_only=True)
class _Export(OfRun):
    out: Annotated[
        Path,
        typer.Option("--out", help="`.npy`, `.parquet`, `.csv` or `.tsv`.", show_default=False),
    ]
    relations: Annotated[
        bool, typer.Option("--relations", help="The relations' rows instead of the entities'.")
    ] = False
    ids: Ids = False
    overwrite: options.Overwrite = False


@embedding.command("export", no_args_is_help=True)
@options.of(_Export)
def export(arguments: _Export) -> None:
    """Write rows with their names for other programs, streaming.

    **Examples**

        outercore embedding export runs/first --out vectors.parquet

        outercore embedding export runs/first --relations --out relations.tsv
    """
    check_output(arguments.out, FORMATS, option="--out", overwrite=arguments.overwrite)
    opened = arguments.open()
    with console.bars(quiet=arguments.json) as progress:
        rows = embeddings.export(
            opened,
            arguments.out,
            what="relations" if arguments.relations else "entities",
            by_id=arguments.ids,
            overwrite=arguments.overwrite,
            progress=progress,
        )
    written(rows, arguments.out, json=arguments.json)


@dataclass(frozen=True, kw_only=True)
class _Neighbours(Searching):
    of: Annotated[
        list[str] | None, typer.Argument(help="Entities, by name.", show_default=False)
    ] = None
    everything: Annotated[bool, typer.Option("--all", help="Of every entity; needs `--out`.")] = (
        False
    )
    metric: Metric = "model"


@embedding.command("neighbours", no_args_is_help=True)
@options.of(_Neighbours)
def neighbours(arguments: _Neighbours) -> None:
    """Find the entities whose rows are nearest, by the model's own measure.

    Exact: one pass over the table for each 1,024 entities. `--approximate` looks at a part of an
    index instead. A distance is shown as a negative score.

    **Examples**

        outercore embedding neighbours runs/first Berlin Paris -k 5

        outercore embedding neighbours runs/first --all --approximate --out near.parquet
    """
    arguments.check_out()
    opened = arguments.open()
    if arguments.everything == bool(arguments.of):
        raise InvalidError("embedding neighbours: expected entities, or `--all`")
    if arguments.everything and arguments.out is None:
        raise InvalidError("embedding neighbours: `--all` needs `--out FILE`")
    asked: Any = {
        "k": arguments.k,
        "metric": arguments.metric,
        **arguments.where(opened, arguments.metric),
    }
    with arguments.answers(opened) as answers, console.bars(quiet=arguments.json) as bars:
        if not arguments.everything:
            wanted = opened.entity_ids(arguments.of or [], by_id=arguments.ids)
            found = embeddings.neighbours(opened, wanted, by_id=True, **asked)
            answers.add_neighbours(wanted.tolist(), found)
            return
        for first, found in embeddings.neighbours_of_all(opened, **asked):
            done = first + len(found.ids)
            answers.add_neighbours(range(first, done), found)
            bars("finding neighbours", done, opened.num_entities, "entities")


@dataclass(frozen=True, kw_only=True)
class _Predict(Searching):
    head: Annotated[
        list[str] | None, typer.Option("--head", help="A known head; may be repeated.")
    ] = None
    relation: Annotated[
        list[str] | None, typer.Option("--relation", help="A known relation; may be repeated.")
    ] = None
    tail: Annotated[
        list[str] | None, typer.Option("--tail", help="A known tail; may be repeated.")
    ] = None
    questions: Annotated[
        Path | None,
        typer.Option(
            "--questions",
            help="A text of head, relation and tail a line, tabs between, one of them `?`.",
        ),
    ] = None
    leave_out_known: Annotated[
        bool,
        typer.Option("--leave-out-known", help="No answers that the data set has already."),
    ] = False
    score: Score = None


@embedding.command("predict", no_args_is_help=True)
@options.of(_Predict)
def predict(arguments: _Predict) -> None:
    """Complete triples: give two of head, relation and tail, and get the best for the third.

    Of a plain graph, which has no relations, one of `--head` and `--tail` is enough, and so it is
    for the model `dot`, which knows none.

    **Examples**

        outercore embedding predict runs/first --head Berlin --relation "capital of"

        outercore embedding predict runs/first --questions open.tsv --leave-out-known --out new.tsv
    """
    arguments.check_out()
    opened = arguments.open(arguments.score)
    parts = {"head": arguments.head, "relation": arguments.relation, "tail": arguments.tail}
    known: Any = {name: some for name, some in parts.items() if some}
    if (arguments.questions is None) == (not known):
        raise InvalidError(
            "embedding predict: expected two of `--head`, `--relation` and `--tail`, or "
            "`--questions FILE`"
        )
    asked: Any = {"k": arguments.k, "leave_out_known": arguments.leave_out_known}
    asked |= arguments.where(opened, "model")
    with arguments.answers(opened) as answers:
        if arguments.questions is None:
            found = embeddings.predict(opened, **known, by_id=arguments.ids, **asked)
            answers.add_predictions(found)
            return
        for group in read_questions(arguments.questions, opened, _GROUP, by_id=arguments.ids):
            found = embeddings.predict(opened, by_id=True, **{**group, **asked})
            answers.add_predictions(found)


@dataclass(frozen=True, kw_only=True)
class _Features(OfRun):
    data_set: Annotated[
        Path | None,
        typer.Argument(help="Data set to write to; the run's own by default.", show_default=False),
    ] = None
    name: Annotated[str, typer.Option(help="Name of the node array.")] = "embedding"
    beside: Annotated[
        str | None, typer.Option(help="Node array of numbers whose columns come first.")
    ] = None
    entities: Annotated[
        Path | None,
        typer.Option("--map", help="`.npy` of integers: the entity of each node, or -1."),
    ] = None
    missing: Annotated[
        str, typer.Option(help="Nodes without an embedding: `error`, or rows of `zeros`.")
    ] = "error"
    overwrite: options.Overwrite = False


@embedding.command("features", no_args_is_help=True)
@options.of(_Features)
def features(arguments: _Features) -> None:
    """Write rows into a data set as a node array, which `outercore train` can learn from.

    **Examples**

        outercore embedding features runs/first --name place

        outercore train friends --features place --model sage
    """
    from outercore.data.graph import Graph

    opened = arguments.open()
    graph = Graph(arguments.data_set or opened.data_set)
    places = None
    if arguments.entities is not None:
        places = read_npy(arguments.entities, "--map: file")
    chosen: Any = arguments.missing
    with console.bars(quiet=arguments.json) as progress:
        added = embeddings.add_features(
            opened,
            graph,
            arguments.name,
            beside=arguments.beside,
            entities=places,
            missing=chosen,
            overwrite=arguments.overwrite,
            progress=progress,
        )
    if arguments.json:
        console.json_data(vars(added))
        return
    without = f", {added.missing:,} of them without an embedding" if added.missing else ""
    console.data(
        f"{added.nodes:,} nodes{without}, {added.width} numbers each, as `{added.name}` in "
        f"{graph.root}"
    )
    if graph.num_edges and graph.num_classes and graph.splits:
        console.note(
            f"hint: `outercore train {quoted(graph.root)} --features {quoted(added.name)}` learns "
            "from it"
        )


@dataclass(frozen=True, kw_only=True)
class _Index(OfRun):
    metric: Metric = "model"
    memory: MemoryOption = "1GiB"
    lists: Annotated[
        int, typer.Option(help="Lists of entities; 0 takes twice the root of their number.")
    ] = 0


@embedding.command("index", no_args_is_help=True)
@options.of(_Index)
def index(arguments: _Index) -> None:
    """Build an index for approximate search, and measure what it finds (needs `outercore[ann]`).

    **Example**

        outercore embedding index runs/first --metric cosine
    """
    with console.bars(quiet=arguments.json) as progress:
        built = embeddings.Index.build(
            arguments.open(),
            metric=arguments.metric,
            memory=arguments.memory,
            lists=arguments.lists,
            progress=progress,
        )
    if arguments.json:
        found = [vars(recall) for recall in built.recalls]
        console.json_data({"metric": built.metric, "lists": built.lists, "recalls": found})
        return
    console.table(
        f"{built.root}: {built.lists:,} lists, recall of the 10 nearest ({built.metric})",
        [(f"{found.probes:,} lists looked at", f"{found.recall:.4f}") for found in built.recalls],
    )
