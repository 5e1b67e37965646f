"""`outercore embedding`: use what `outercore embed` has made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from outercore.cli import console, options
from outercore.cli.embedding_figures import compare, evaluate
from outercore.cli.embedding_options import (
    Among,
    Approximate,
    Data,
    Ids,
    K,
    Metric,
    Out,
    Recall,
    Run,
    Score,
    open_run,
)
from outercore.cli.embedding_results import Answers, show_nearest
from outercore.config.fields import within
from outercore.embedding.use.embedding import Embedding, scoring
from outercore.errors import InvalidError, NotFoundError
from outercore.outputs import TABLES, check_output, check_place
from outercore.storage import missing_file

if TYPE_CHECKING:
    from outercore.embedding.use.approximate import Index

_GROUP = 1024
"""Questions of a file that share a pass over the table."""

embedding = typer.Typer(
    help="Use the rows that `outercore embed` has found.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
embedding.command("evaluate", no_args_is_help=True)(evaluate)
embedding.command("compare", no_args_is_help=True)(compare)


@embedding.command("export", no_args_is_help=True)
def export(
    run: Run,
    out: Annotated[
        Path, typer.Option("--out", help="`.npy`, `.parquet` or `.tsv`.", show_default=False)
    ],
    relations: Annotated[
        bool, typer.Option("--relations", help="The relations' rows instead of the entities'.")
    ] = False,
    format: Annotated[
        str | None, typer.Option(help="`npy`, `parquet` or `tsv`, whatever the file's name.")
    ] = None,
    ids: Ids = False,
    overwrite: options.OverwriteFile = False,
    data: Data = None,
    json: options.Json = False,
) -> None:
    """Write rows with their names for other programs, streaming.

    **Examples**

        outercore embedding export runs/first --out vectors.parquet

        outercore embedding export runs/first --relations --out relations.tsv
    """
    check_place(out, option="--out", overwrite=overwrite)
    opened = open_run(run, data)
    chosen: Any = format
    with console.bars(quiet=json) as progress:
        rows = opened.export(
            out,
            what="relations" if relations else "entities",
            format=chosen,
            by_id=ids,
            overwrite=overwrite,
            progress=progress,
        )
    if json:
        console.json_data({"rows": rows, "file": str(out)})
        return
    console.data(f"{rows:,} rows in {out}")


@embedding.command("neighbours", no_args_is_help=True)
def neighbours(
    run: Run,
    of: Annotated[
        list[str] | None, typer.Argument(help="Entities, by name.", show_default=False)
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Of every entity; needs `--out`.")
    ] = False,
    k: K = 10,
    metric: Metric = "model",
    candidates: Among = None,
    approximate: Approximate = False,
    recall: Recall = 0.95,
    ids: Ids = False,
    out: Out = None,
    overwrite: options.OverwriteFile = False,
    data: Data = None,
    json: options.Json = False,
) -> None:
    """Find the entities whose rows are nearest, by the model's own measure.

    Exact: one pass over the table for each 1,024 entities. `--approximate` looks at a part of an
    index instead. A distance is shown as a negative score.

    **Examples**

        outercore embedding neighbours runs/first Berlin Paris -k 5

        outercore embedding neighbours runs/first --all --approximate --out near.parquet
    """
    within("--recall", recall, 0.0, 1.0)
    if out is not None:
        check_output(out, TABLES, option="--out", overwrite=overwrite)
    opened = open_run(run, data)
    if everything == bool(of):
        raise InvalidError("embedding neighbours: expected entities, or `--all`")
    if everything and out is None:
        raise InvalidError("embedding neighbours: `--all` needs `--out FILE`")
    index = _index(opened, metric, recall) if approximate else None
    among = _among(opened, candidates, ids=ids)
    nearest_of_all = scoring("use.neighbours", "neighbours_of_all")
    chosen: Any = metric
    if everything:
        assert out is not None
        with (
            Answers(opened, out, ids=ids) as file,
            console.bars(quiet=json) as bars,
        ):
            for first, found in nearest_of_all(
                opened, k, metric=chosen, index=index, candidates=among
            ):
                file.add_neighbours(range(first, first + len(found.ids)), found)
                done = first + len(found.ids)
                bars("finding neighbours", done, opened.num_entities, "entities")
        _written(file.rows, out, json=json)
        return
    wanted = opened.entity_ids(of or [], by_id=ids)
    asked: Any = {"metric": chosen, "index": index, "candidates": among}
    found = opened.neighbours(wanted, k, by_id=True, **asked)
    if out is not None:
        with Answers(opened, out, ids=ids) as file:
            file.add_neighbours(wanted.tolist(), found)
        _written(file.rows, out, json=json)
        return
    show_nearest(opened, wanted, found, ids=ids, json=json)


@embedding.command("predict", no_args_is_help=True)
def predict(
    run: Run,
    head: Annotated[
        list[str] | None, typer.Option("--head", help="A known head; may be repeated.")
    ] = None,
    relation: Annotated[
        list[str] | None, typer.Option("--relation", help="A known relation; may be repeated.")
    ] = None,
    tail: Annotated[
        list[str] | None, typer.Option("--tail", help="A known tail; may be repeated.")
    ] = None,
    questions: Annotated[
        Path | None,
        typer.Option(
            "--questions",
            help="A text of head, relation and tail a line, tabs between, one of them `?`.",
        ),
    ] = None,
    leave_out_known: Annotated[
        bool,
        typer.Option("--leave-out-known", help="No answers that the data set has already."),
    ] = False,
    k: K = 10,
    candidates: Among = None,
    approximate: Approximate = False,
    recall: Recall = 0.95,
    ids: Ids = False,
    out: Out = None,
    overwrite: options.OverwriteFile = False,
    data: Data = None,
    score: Score = None,
    json: options.Json = False,
) -> None:
    """Complete triples: give two of head, relation and tail, and get the best for the third.

    Of a plain graph, which has no relations, one of `--head` and `--tail` is enough, and so it is
    for the model `dot`, which knows none.

    **Examples**

        outercore embedding predict runs/first --head Berlin --relation "capital of"

        outercore embedding predict runs/first --questions open.tsv --leave-out-known --out new.tsv
    """
    from outercore.embedding.use.questions import Group, check_names, read_questions

    within("--recall", recall, 0.0, 1.0)
    if out is not None:
        check_output(out, TABLES, option="--out", overwrite=overwrite)
    opened = open_run(run, data, score)
    parts = {"head": head, "relation": relation, "tail": tail}
    given = {name: some for name, some in parts.items() if some}
    if (questions is None) == (not given):
        raise InvalidError(
            "embedding predict: expected two of `--head`, `--relation` and `--tail`, or "
            "`--questions FILE`"
        )
    if approximate and opened.model.kind == "custom":
        raise InvalidError(
            "--approximate: an index needs a distance, your own score function has none\n"
            "hint: leave it out; predictions are exact then, by a pass over the table"
        )
    index = _index(opened, "model", recall) if approximate else None
    among = _among(opened, candidates, ids=ids)
    groups: Iterable[Group] = [Group([1], given)]
    if questions is not None:
        groups = read_questions(questions, _GROUP)
    with Answers(opened, out, ids=ids, json=json) as file:
        for group in groups:
            asked: Any = {**group.given, "by_id": ids, "leave_out_known": leave_out_known}
            asked["candidates"] = among
            try:
                found = opened.predict(k=k, index=index, **asked)
            except (InvalidError, NotFoundError):
                if questions is not None:
                    check_names(questions, group, opened, by_id=ids)
                raise
            file.add_predictions(found)
    if out is not None:
        _written(file.rows, out, json=json)


@embedding.command("features", no_args_is_help=True)
def features(
    run: Run,
    data_set: Annotated[
        Path | None,
        typer.Argument(help="Data set to write to; the run's own by default.", show_default=False),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the node array.")] = "embedding",
    beside: Annotated[
        str | None, typer.Option(help="Node array of numbers whose columns come first.")
    ] = None,
    entities: Annotated[
        Path | None,
        typer.Option("--map", help="`.npy` of integers: the entity of each node, or -1."),
    ] = None,
    missing: Annotated[
        str, typer.Option(help="Nodes without an embedding: `error`, or rows of `zeros`.")
    ] = "error",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an array of this name.")
    ] = False,
    data: Data = None,
    json: options.Json = False,
) -> None:
    """Write rows into a data set as a node array, which `outercore train` can learn from.

    **Examples**

        outercore embedding features runs/first --name place

        outercore train friends --features place --model sage
    """
    from outercore.embedding.use.features import add_features
    from outercore.graph import Graph

    opened = open_run(run, data)
    graph = Graph(data_set or opened.data_set)
    places = None
    if entities is not None:
        try:
            places = np.load(entities, allow_pickle=False)
        except FileNotFoundError:
            raise missing_file("--map: file", entities) from None
        except (OSError, ValueError) as error:
            raise InvalidError(f"--map: `{entities}`: {error}") from None
    chosen: Any = missing
    with console.bars(quiet=json) as progress:
        written = add_features(
            opened,
            graph,
            name,
            beside=beside,
            entities=places,
            missing=chosen,
            overwrite=overwrite,
            progress=progress,
        )
    if json:
        console.json_data(vars(written))
        return
    without = f", {written.missing:,} of them without an embedding" if written.missing else ""
    console.data(
        f"{written.nodes:,} nodes{without}, {written.width} numbers each, as `{name}` in "
        f"{graph.root}"
    )
    if graph.num_edges and graph.num_classes and graph.splits:
        console.note(f"hint: `outercore train {graph.root} --features {name}` learns from it")


@embedding.command("index", no_args_is_help=True)
def index(
    run: Run,
    metric: Metric = "model",
    memory: options.Memory = "1GiB",
    lists: Annotated[
        int, typer.Option(help="Lists of entities; 0 takes twice the root of their number.")
    ] = 0,
    json: options.Json = False,
) -> None:
    """Build an index for approximate search, and measure what it finds (needs `outercore[ann]`).

    **Example**

        outercore embedding index runs/first --metric cosine
    """
    opened = open_run(run, None)
    build: Any = scoring("use.approximate", "Index")
    with console.bars(quiet=json) as progress:
        built = build.build(opened, metric=metric, memory=memory, lists=lists, progress=progress)
    if json:
        found = [vars(recall) for recall in built.recalls]
        console.json_data({"metric": built.metric, "lists": built.lists, "recalls": found})
        return
    console.table(
        f"{built.root}: {built.lists:,} lists, recall of the 10 nearest ({built.metric})",
        [(f"{found.probes:,} lists looked at", f"{found.recall:.4f}") for found in built.recalls],
    )


def _index(opened: Embedding, metric: str, recall: float) -> Index:
    kind: Any = scoring("use.approximate", "Index")
    index: Index = kind.open(opened, metric=metric, recall=recall)
    return index


def _among(opened: Embedding, file: Path | None, *, ids: bool) -> NDArray[np.int64] | None:
    if file is None:
        return None
    found: NDArray[np.int64] = scoring("use.among", "read_candidates")(opened, file, by_id=ids)
    return found


def _written(rows: int, out: Path, *, json: bool) -> None:
    if json:
        console.json_data({"rows": rows, "file": str(out)})
        return
    console.data(f"{rows:,} rows in {out}")
