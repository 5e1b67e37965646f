"""`outercore embedding`: use what `outercore embed` has made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from outercore import embedding as embeddings
from outercore.base.options import MemoryOption
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
def export(given: _Export) -> None:
    """Write rows with their names for other programs, streaming.

    **Examples**

        outercore embedding export runs/first --out vectors.parquet

        outercore embedding export runs/first --relations --out relations.tsv
    """
    check_output(given.out, FORMATS, option="--out", overwrite=given.overwrite)
    opened = given.open()
    with console.bars(quiet=given.json) as progress:
        rows = embeddings.export(
            opened,
            given.out,
            what="relations" if given.relations else "entities",
            by_id=given.ids,
            overwrite=given.overwrite,
            progress=progress,
        )
    written(rows, given.out, json=given.json)


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
def neighbours(given: _Neighbours) -> None:
    """Find the entities whose rows are nearest, by the model's own measure.

    Exact: one pass over the table for each 1,024 entities. `--approximate` looks at a part of an
    index instead. A distance is shown as a negative score.

    **Examples**

        outercore embedding neighbours runs/first Berlin Paris -k 5

        outercore embedding neighbours runs/first --all --approximate --out near.parquet
    """
    given.check_out()
    opened = given.open()
    if given.everything == bool(given.of):
        raise InvalidError("embedding neighbours: expected entities, or `--all`")
    if given.everything and given.out is None:
        raise InvalidError("embedding neighbours: `--all` needs `--out FILE`")
    asked: Any = {"k": given.k, "metric": given.metric, **given.where(opened, given.metric)}
    with given.answers(opened) as answers, console.bars(quiet=given.json) as bars:
        if not given.everything:
            wanted = opened.entity_ids(given.of or [], by_id=given.ids)
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
def predict(given: _Predict) -> None:
    """Complete triples: give two of head, relation and tail, and get the best for the third.

    Of a plain graph, which has no relations, one of `--head` and `--tail` is enough, and so it is
    for the model `dot`, which knows none.

    **Examples**

        outercore embedding predict runs/first --head Berlin --relation "capital of"

        outercore embedding predict runs/first --questions open.tsv --leave-out-known --out new.tsv
    """
    given.check_out()
    opened = given.open(given.score)
    parts = {"head": given.head, "relation": given.relation, "tail": given.tail}
    known: Any = {name: some for name, some in parts.items() if some}
    if (given.questions is None) == (not known):
        raise InvalidError(
            "embedding predict: expected two of `--head`, `--relation` and `--tail`, or "
            "`--questions FILE`"
        )
    asked: Any = {"k": given.k, "leave_out_known": given.leave_out_known}
    asked |= given.where(opened, "model")
    with given.answers(opened) as answers:
        if given.questions is None:
            found = embeddings.predict(opened, **known, by_id=given.ids, **asked)
            answers.add_predictions(found)
            return
        for group in read_questions(given.questions, opened, _GROUP, by_id=given.ids):
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
def features(given: _Features) -> None:
    """Write rows into a data set as a node array, which `outercore train` can learn from.

    **Examples**

        outercore embedding features runs/first --name place

        outercore train friends --features place --model sage
    """
    from outercore.data.graph import Graph

    opened = given.open()
    graph = Graph(given.data_set or opened.data_set)
    places = None
    if given.entities is not None:
        places = read_npy(given.entities, "--map: file")
    chosen: Any = given.missing
    with console.bars(quiet=given.json) as progress:
        added = embeddings.add_features(
            opened,
            graph,
            given.name,
            beside=given.beside,
            entities=places,
            missing=chosen,
            overwrite=given.overwrite,
            progress=progress,
        )
    if given.json:
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
def index(given: _Index) -> None:
    """Build an index for approximate search, and measure what it finds (needs `outercore[ann]`).

    **Example**

        outercore embedding index runs/first --metric cosine
    """
    with console.bars(quiet=given.json) as progress:
        built = embeddings.Index.build(
            given.open(),
            metric=given.metric,
            memory=given.memory,
            lists=given.lists,
            progress=progress,
        )
    if given.json:
        found = [vars(recall) for recall in built.recalls]
        console.json_data({"metric": built.metric, "lists": built.lists, "recalls": found})
        return
    console.table(
        f"{built.root}: {built.lists:,} lists, recall of the 10 nearest ({built.metric})",
        [(f"{found.probes:,} lists looked at", f"{found.recall:.4f}") for found in built.recalls],
    )
