"""`outercore import`: edges, features, labels and splits become a data set."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import outercore
from outercore._native import Progress
from outercore.cli import console, options
from outercore.config.sizes import parse_size
from outercore.errors import InvalidError
from outercore.sources.dictionary import NamedInputs
from outercore.sources.edge_arrays import EdgeChoice
from outercore.sources.first_node import note_on_first_node
from outercore.sources.graph import GraphSource, ImportOptions, import_graph
from outercore.sources.inputs import Inputs, open_inputs
from outercore.sources.splits import SplitChoice
from outercore.sources.text import TextOptions
from outercore.sources.triples import TripleOptions, import_triples

_TRIPLES = "Knowledge graphs"
_EDGES = "Values of edges"
_TEXTS = "How files are written"
_PLACES = {
    name: name
    for name in ("self_loops", "duplicates", "feature_dtype", "unknown", "task", "separator")
}
"""Options whose value the import checks, which has the same names for them."""


@dataclass(frozen=True)
class _Options:
    """What `outercore import` takes."""

    edges: Annotated[
        list[str],
        typer.Argument(
            help="Edge lists (text, `.mtx`, `.gr`, `.npy`, `.npz`, `.parquet`; "
            "`FILE:SOURCE,TARGET`), `pyg:Name`, `ogb:name`, the directory of a raw OGB data "
            "set, or a set of many graphs (TU directory, text of GIN, molecules in `.npz`).",
            show_default=False,
        ),
    ]
    out: options.OutDataSet
    features: Annotated[
        str | None,
        typer.Option(help="Features, a row a node: `.npy`, `.npz:NAME`, CSV, Parquet."),
    ] = None
    labels: Annotated[
        str | None, typer.Option(help="Labels, one row a node; `-1` or NaN for none.")
    ] = None
    split: Annotated[
        list[str] | None,
        typer.Option(
            "--split",
            help="`NAME=FILE` with ids or a mask, may be repeated; or `.npz` with train, valid and "
            "test.",
        ),
    ] = None
    array: Annotated[
        list[str] | None,
        typer.Option("--array", help="`NAME=FILE`: any further node array; may be repeated."),
    ] = None
    graph_ids: Annotated[
        str | None,
        typer.Option(
            "--graph-ids",
            help="The graph of each node, in a file like features: a data set of many graphs. "
            "Labels and splits are then of graphs.",
        ),
    ] = None
    weight: Annotated[
        str | None,
        typer.Option(
            help="Column of the edges, or a file with a row for each edge: the edge weights.",
            rich_help_panel=_EDGES,
        ),
    ] = None
    edge_time: Annotated[
        str | None,
        typer.Option(
            help="Column or file: the time of each edge, a whole number.", rich_help_panel=_EDGES
        ),
    ] = None
    edge_features: Annotated[
        str | None,
        typer.Option(
            help="Columns separated by commas, or a file: the features of each edge.",
            rich_help_panel=_EDGES,
        ),
    ] = None
    edge_shape: Annotated[
        str | None,
        typer.Option(
            help="`2,E` or `E,2`, for an edge array of shape [2, 2].", rich_help_panel=_EDGES
        ),
    ] = None
    format: Annotated[
        str,
        typer.Option(
            "--format",
            help="`auto`, `text`, `npy`, `npz`, `parquet`, `mtx` or `dimacs`.",
            rich_help_panel=_TEXTS,
        ),
    ] = "auto"
    separator: Annotated[
        str | None,
        typer.Option(
            help="`tab`, `comma`, `semicolon`, `pipe` or `blanks`; detected by default.",
            rich_help_panel=_TEXTS,
        ),
    ] = None
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether the first line names the columns; detected by default.",
            rich_help_panel=_TEXTS,
        ),
    ] = None
    comment: Annotated[
        str | None,
        typer.Option(
            help="How comment lines begin; by default `#` and `%`, and nothing among names.",
            rich_help_panel=_TEXTS,
        ),
    ] = None
    one_based: Annotated[
        bool,
        typer.Option("--one-based", help="Node ids count from 1.", rich_help_panel=_TEXTS),
    ] = False
    fill: Annotated[
        float | None,
        typer.Option(
            help="What stands for missing values of features and edges; `nan` keeps them."
        ),
    ] = None
    task: Annotated[
        str | None,
        typer.Option(
            help="What the labels are: `classification`, `multi-label` or `regression`; by their "
            "values by default."
        ),
    ] = None
    undirected: Annotated[
        bool | None,
        typer.Option("--undirected/--directed", help="Store every edge in both directions."),
    ] = None
    self_loops: Annotated[str, typer.Option(help="`keep`, `drop` or `add`.")] = "keep"
    duplicates: Annotated[str, typer.Option(help="`keep` or `drop`.")] = "keep"
    ids: Annotated[
        str,
        typer.Option(
            help="`numbers` from 0 on, or `dictionary`: names or sparse numbers, kept in the data "
            "set and given back in results."
        ),
    ] = "numbers"
    ogb_split: Annotated[
        str | None, typer.Option(help="Folder under `split/` of an OGB data set.")
    ] = None
    nodes: Annotated[int | None, typer.Option(help="Number of nodes, where some have no edge.")] = (
        None
    )
    memory: options.Memory = "1GiB"
    feature_dtype: Annotated[
        str | None, typer.Option(help="`float32`, `float16` or `bfloat16`; the file's by default.")
    ] = None
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Register a `.npy` of features without copying it.")
    ] = False
    overwrite: options.Overwrite = False
    triples: Annotated[
        bool,
        typer.Option(
            "--triples",
            help="The files hold a knowledge graph: names of head, relation and tail.",
            rich_help_panel=_TRIPLES,
        ),
    ] = False
    valid: Annotated[
        str | None,
        typer.Option(help="Triples to stop training by.", rich_help_panel=_TRIPLES),
    ] = None
    test: Annotated[
        str | None,
        typer.Option(help="Triples to judge the result by.", rich_help_panel=_TRIPLES),
    ] = None
    columns: Annotated[
        str | None,
        typer.Option(
            help="A letter a column: `h` head, `r` relation, `t` tail, `w` weight, `_` anything "
            "else; `hrt` by default.",
            rich_help_panel=_TRIPLES,
        ),
    ] = None
    unknown: Annotated[
        str | None,
        typer.Option(
            help="Names of `--valid` and `--test` that the training triples do not have: `error` "
            "(by default), `drop` their triples, or `keep` them.",
            rich_help_panel=_TRIPLES,
        ),
    ] = None
    json: options.Json = False


@options.of(_Options)
def import_(context: typer.Context, given: _Options) -> None:
    """Import a graph of any size.

    How each text file is written is detected from its first 2,000 lines and printed. Edges are
    sorted on disk within `--memory`. Run the same command again to resume a stopped import.

    **Examples**

        outercore import edges.csv.gz --undirected --out papers

        outercore import edges.npy --features x.npy --labels y.npy --split splits.npz --out papers

        outercore import roads.csv --weight length --edge-time opened --out roads

        outercore import USA-road-d.NY.gr.gz --out new-york

        outercore import users.parquet:follower,followed --nodes 1000000 --out users

        outercore import follows.csv --ids dictionary --labels users.csv --out users

        outercore import ogbn_products --out products

        outercore import MUTAG --split train=train.npy --split test=test.npy --out mutag

        outercore import train.tsv --triples --valid valid.tsv --test test.tsv --out facts
    """
    if given.triples:
        _import_facts(context, given)
    else:
        _import_edges(context, given)


def _import_facts(context: typer.Context, given: _Options) -> None:
    """A knowledge graph."""
    of_graphs = {
        "features": given.features,
        "labels": given.labels,
        "split": given.split,
        "array": given.array,
        "graph-ids": given.graph_ids,
        "weight": given.weight,
        "edge-time": given.edge_time,
        "edge-features": given.edge_features,
        "edge-shape": given.edge_shape,
        "ogb-split": given.ogb_split,
        "one-based": given.one_based or None,
        "fill": given.fill,
        "task": given.task,
        "ids": None if given.ids == "numbers" else given.ids,
        "undirected": given.undirected,
        "nodes": given.nodes,
        "feature-dtype": given.feature_dtype,
        "self-loops": None if given.self_loops == "keep" else given.self_loops,
        "format": None if given.format == "auto" else given.format,
        "in-place": given.in_place or None,
    }
    _refuse(of_graphs, "does not go with `--triples`")
    with options.named(context, _PLACES):
        how = TripleOptions.parse(
            columns=given.columns or "hrt",
            header=given.header,
            separator=given.separator,
            comment=given.comment,
            unknown=given.unknown or "error",
            duplicates=given.duplicates,
            memory=given.memory,
            overwrite=given.overwrite,
            command=options.command_line(),
        )
    with console.bars(quiet=given.json) as progress:
        found = import_triples(
            given.edges,
            given.out,
            valid=given.valid,
            test=given.test,
            options=how,
            progress=progress,
            note=console.note,
        )
    rows = _notable(found, ("entities", "relations"))
    console.result(found, str(given.out), rows, as_json=given.json)


def _import_edges(context: typer.Context, given: _Options) -> None:
    """Any other graph."""
    of_triples = {
        "valid": given.valid,
        "test": given.test,
        "columns": given.columns,
        "unknown": given.unknown,
    }
    _refuse(of_triples, "expected `--triples` with it")
    if given.ids not in ("numbers", "dictionary"):
        raise InvalidError(f"--ids: expected numbers or dictionary; found `{given.ids}`")
    keeps_gaps = given.fill is not None and math.isnan(given.fill)
    if given.in_place and given.fill is not None and not keeps_gaps:
        raise InvalidError(
            "--in-place: does not go with `--fill`: features in place stay as they are\n"
            "hint: leave `--in-place` out, and they are copied and filled"
        )
    with options.named(context, _PLACES):
        chosen = ImportOptions.parse(
            undirected=given.undirected,
            self_loops=given.self_loops,
            duplicates=given.duplicates,
            memory=given.memory,
            feature_dtype=given.feature_dtype,
            allow_nan=keeps_gaps,
            in_place=given.in_place,
            overwrite=given.overwrite,
            command=options.command_line(),
            task=given.task,
        )
        text = TextOptions(given.separator, given.header, given.comment, given.one_based)
    inputs = Inputs(
        edges=tuple(given.edges),
        format=given.format,
        features=given.features,
        labels=given.labels,
        splits=SplitChoice.parse(given.split or []),
        arrays=tuple(given.array or ()),
        nodes=given.nodes,
        ogb_split=given.ogb_split,
        graph_ids=given.graph_ids,
        edge_shape=given.edge_shape,  # type: ignore[arg-type]  # looked at when it is used
        edge_values=EdgeChoice(given.weight, given.edge_time, given.edge_features),
        text=text,
        fill=None if keeps_gaps else given.fill,
        keeps_gaps=keeps_gaps,
        memory=parse_size(given.memory),
        task=given.task,
    )
    with console.bars(quiet=given.json) as progress:
        if given.ids == "dictionary":
            if given.graph_ids is not None:
                raise InvalidError(
                    "--graph-ids: does not go with `--ids dictionary`\n"
                    "hint: number the nodes from 0, those of a graph after each other"
                )
            with NamedInputs(inputs, given.out) as named:
                summary = _import(named.build(progress), given.out, chosen, progress)
        else:
            summary = _import(open_inputs(inputs), given.out, chosen, progress)
    console.result(summary, str(given.out), _notable(summary), as_json=given.json)


def _import(
    source: GraphSource, out: Path, options: ImportOptions, progress: Progress
) -> dict[str, Any]:
    for note in source.notes:
        console.note(note)
    for array in source.arrays:
        wide = array.rows.typed and array.rows.dtype.itemsize == 8
        if array.role == "features" and wide and options.feature_dtype is None:
            console.note(
                f"features stay {array.rows.dtype}; `--feature-dtype float32` would halve what "
                "training reads"
            )
    summary = import_graph(source, out, options, progress)
    if (first := note_on_first_node(source, outercore.open(out))) is not None:
        console.note(first)
    return summary


def _refuse(values: dict[str, Any], why: str) -> None:
    """Options that mean nothing here, rather than passing them over."""
    for name, value in values.items():
        if value is not None:
            raise InvalidError(f"--{name}: {why}")


def _notable(
    summary: dict[str, Any], always: tuple[str, ...] = ("nodes", "edges")
) -> list[tuple[str, str]]:
    """The counts, without the many that are zero or do not apply to an array."""
    return [
        (name, value)
        for name, value in console.flat(summary)
        if (
            value not in ("-", "0", "none")
            and not (name.endswith("task_guessed") and value == "no")
            and not name.startswith("names/")
        )
        or name in always
    ]
