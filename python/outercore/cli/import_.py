"""`outercore import`: make a data set from edges, features, labels and splits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

import outercore
from outercore.base.display import flat
from outercore.base.options import Option
from outercore.cli import console, options
from outercore.cli.info import types
from outercore.cli.next_step import read_again
from outercore.data.names import KEY
from outercore.errors import InvalidError, NotFoundError
from outercore.files.file_spec import FileSpec
from outercore.importing.build.graph import import_graph
from outercore.importing.build.triples import TripleOptions, import_triples
from outercore.importing.edge_arrays import EdgeChoice
from outercore.importing.format.registry import TypedFormat, located, typed_format
from outercore.importing.id_notes import notes_on_ids
from outercore.importing.inputs import Inputs, TypedInputs
from outercore.importing.named_inputs import open_named
from outercore.importing.options import ImportOptions
from outercore.importing.plain_graph import open_inputs
from outercore.importing.splits import SplitChoice
from outercore.importing.table.standard_input import piped
from outercore.importing.table.text import TextOptions
from outercore.importing.typed_graph import open_typed

_TRIPLES = "Knowledge graphs"
_TYPES = "Several types of nodes and edges"
_EDGES = "Values of edges"
_TEXTS = "Format of text files"
_OF_TYPED = (
    *("edge_types", "nodes", "features", "labels", "split", "text", "add_reverse", "dangling"),
    *("fill", "task", "feature_dtype", "in_place"),
)
"""Options of several types of nodes and edges."""
_OF_FOLDERS = (
    *("edges", "labels", "split", "text", "add_reverse", "dangling", "outside_files"),
    *("fill", "task", "feature_dtype", "in_place"),
)
"""Options of a folder of several types."""


@dataclass(frozen=True, kw_only=True)
class _Options:
    """Options of `outercore import`."""

    edges: Annotated[
        list[str] | None,
        typer.Argument(
            help="Edge lists as text, `.mtx`, `.gr`, `.npy`, `.npz` or `.parquet`; "
            "`FILE:SOURCE,TARGET` chooses columns, and `-` reads standard input. Or one graph: "
            "`pyg:Name`, `ogb:name`, the directory of a raw OGB data set, a data set of "
            "triples, a folder of tables with a `tables.yaml`, a folder of Neo4j (CSV files), "
            "GraphBolt, IGBH or MAG240M, or a set of many graphs (TU directory, text of GIN, "
            "molecules in `.npz`).",
            show_default=False,
        ),
    ] = None
    out: options.OutDataSet
    features: Annotated[
        Sequence[str],
        Option(
            "Read features, one row per node, from `.npy`, `.npz:NAME`, CSV or Parquet; "
            "`FILE:COLUMN,COLUMN` takes only these columns, `'FILE:!COLUMN,COLUMN'` all others. "
            "With several node types, write `TYPE=FILE`. By default, the features of a type are "
            "all columns of numbers in its table."
        ),
    ] = ()
    labels: Annotated[
        str | None,
        Option(
            "Read labels, one row per node; `-1` or NaN means that there is no label. With several "
            "node types, write `TYPE.COLUMN` or `TYPE=FILE`.",
            short="--label",
        ),
    ] = None
    split: options.Split = ()
    array: Annotated[Sequence[str], Option("Add another node array, as `NAME=FILE`.")] = ()
    texts: Annotated[
        Sequence[str],
        Option(
            "Store texts of nodes unchanged, such as titles, as `NAME=FILE:COLUMN`. With several "
            "node types, write `TYPE.COLUMN`.",
            name="text",
        ),
    ] = ()
    graph_ids: Annotated[
        str | None,
        Option(
            "Import many graphs: read the graph of each node from this file, in a format of "
            "`--features`. Labels and splits then belong to graphs."
        ),
    ] = None
    edge_values: Annotated[EdgeChoice, _EDGES]
    edge_shape: Annotated[
        str | None,
        Option("Read an array of edges of shape [2, 2] as `2,E` or as `E,2`.", panel=_EDGES),
    ] = None
    format: Annotated[
        str,
        Option(
            "Read the files as `text`, `npy`, `npz`, `parquet`, `mtx` or `dimacs`. `auto` detects "
            "the format.",
            panel=_TEXTS,
        ),
    ] = "auto"
    text: Annotated[TextOptions, _TEXTS]
    fill: Annotated[
        float | None,
        Option(
            "Replace missing entries of features and edges by this value. `nan` keeps them missing."
        ),
    ] = None
    how: ImportOptions
    ids: Annotated[
        str,
        Option(
            "Read node ids as `numbers` from 0, or as names or sparse numbers (`dictionary`). The "
            "data set stores the dictionary, and results use its names."
        ),
    ] = "numbers"
    ogb_split: Annotated[
        str | None, Option("Read the splits of an OGB data set from this folder under `split/`.")
    ] = None
    nodes: Annotated[
        Sequence[str],
        Option(
            "Number of nodes, if some nodes lack edges; or a table with one row per node and its "
            "column of names, as `FILE:KEY`. With several node types, write `TYPE=FILE:KEY` or "
            "`TYPE=COUNT`; a type may have several files."
        ),
    ] = ()
    edge_types: Annotated[
        list[str] | None,
        # Typer's own, because the argument of the command is called `edges`, too.
        typer.Option(
            "--edges",
            help="Import edges between two node types from a file with the keys of their ends, as "
            "`SOURCE,RELATION,TARGET=FILE`. May be repeated.",
            rich_help_panel=_TYPES,
        ),
    ] = None
    add_reverse: Annotated[
        bool,
        Option("Add each edge type in the other direction, as `rev_RELATION`.", panel=_TYPES),
    ] = False
    dangling: Annotated[
        str,
        Option(
            "Refuse the import (`refuse`) or drop the edge (`drop`) if no node has the key of an "
            "edge.",
            panel=_TYPES,
        ),
    ] = "refuse"
    triples: Annotated[
        bool,
        Option(
            "Read the files as a knowledge graph, with names of head, relation and tail.",
            panel=_TRIPLES,
        ),
    ] = False
    valid: Annotated[
        str | None, Option("Read the validation triples from this file.", panel=_TRIPLES)
    ] = None
    test: Annotated[str | None, Option("Read the test triples from this file.", panel=_TRIPLES)] = (
        None
    )
    facts: Annotated[TripleOptions, _TRIPLES]
    relation: Annotated[
        str | None,
        Option(
            "Take only the triples of this relation as edges, if the input is a data set of "
            "triples. By default, all triples become edges.",
            panel=_TRIPLES,
        ),
    ] = None
    json: options.Json = False


@options.command
def import_(context: typer.Context, arguments: _Options) -> None:
    """Import a graph of any size.

    The import detects the format of each text file from its first 2,000 lines, and prints it. It
    sorts the edges on disk within `--memory`. Run the same command again to resume a stopped
    import.

    **Examples**

        outercore import edges.csv.gz --undirected --out papers

        outercore import edges.npy --features x.npy --labels y.npy --split splits.npz --out papers

        zcat edges.gz | outercore import - --out papers

        outercore import roads.csv --weight length --edge-time opened --out roads

        outercore import USA-road-d.NY.gr.gz --out new-york

        outercore import users.parquet:follower,followed --nodes 1000000 --out users

        outercore import follows.csv --ids dictionary --labels users.csv --out users

        outercore import ogbn_products --out products

        outercore import MUTAG --split train=train.npy --split test=test.npy --out mutag

        outercore import train.tsv --triples --valid valid.tsv --test test.tsv --out facts

        outercore import facts --out facts-graph

        outercore import --nodes paper=papers.parquet:id --nodes author=authors.csv:id --edges
        author,writes,paper=writes.parquet --add-reverse --label paper.venue --out mag

        outercore import shop/ --add-reverse --label purchase.late --out shop-graph
    """
    with piped(arguments.edges or (), arguments.out, overwrite=arguments.how.overwrite) as files:

        def note(text: str) -> None:
            console.note(files.named(text))

        _import(context, replace(arguments, edges=files.files), note)


def _import(context: typer.Context, arguments: _Options, note: Callable[[str], object]) -> None:
    """Imports the files; `note` prints how they were read."""
    if arguments.edge_types:
        _import_types(context, arguments)
    elif not arguments.edges:
        raise InvalidError(
            "edges: expected at least one file of edges, or `--edges SOURCE,RELATION,TARGET=FILE`"
        )
    elif arguments.triples:
        _import_facts(context, arguments, note)
    elif len(arguments.edges) == 1 and (folder := typed_format(path := located(*arguments.edges))):
        _import_types(context, arguments, (folder, path))
    else:
        _import_edges(context, arguments, note)


def _import_facts(
    context: typer.Context, arguments: _Options, note: Callable[[str], object]
) -> None:
    known = ("triples", *options.WITH_TRIPLES)
    _refuse(context, lambda name: name not in known, "does not go with `--triples`")
    how = replace(
        arguments.facts,
        header=arguments.text.header,
        separator=arguments.text.separator,
        comment=arguments.text.comment,
        duplicates=arguments.how.duplicates,
        memory=arguments.how.memory,
        overwrite=arguments.how.overwrite,
        command=options.command_line(),
    )
    with console.bars(quiet=arguments.json) as progress:
        summary = import_triples(
            arguments.edges or [],
            arguments.out,
            valid=arguments.valid,
            test=arguments.test,
            options=how,
            progress=progress,
            note=note,
        )
    rows = notable(summary, ("entities", "relations"))
    console.result(summary, str(arguments.out), rows, as_json=arguments.json)


def _import_types(
    context: typer.Context, arguments: _Options, folder: tuple[TypedFormat, Path] | None = None
) -> None:
    """Imports a graph of several types of nodes and edges; `folder` describes it, if given."""
    of_input: tuple[str, ...] = _OF_TYPED
    what = "`--edges`"
    if folder is not None:
        of_input, what = (*_OF_FOLDERS, *folder[0].options), folder[0].what
    known = {*of_input, *options.OF_EACH_IMPORT}
    _refuse(context, lambda name: name not in known, f"does not go with {what}")
    inputs = _typed_inputs(arguments)
    how = replace(arguments.how, allow_nan=_keeps_gaps(arguments), command=options.command_line())
    source = open_typed(inputs, how) if folder is None else folder[0].open(folder[1], inputs, how)
    with console.bars(quiet=arguments.json) as progress:
        summary = import_graph(source, arguments.out, how, progress, console.note)
    _show_types(arguments, summary)


def _typed_inputs(arguments: _Options) -> TypedInputs:
    if arguments.dangling not in ("refuse", "drop"):
        raise InvalidError(f"--dangling: expected refuse or drop; found `{arguments.dangling}`")
    return TypedInputs(
        nodes=tuple(arguments.nodes),
        edges=tuple(arguments.edge_types or ()),
        features=tuple(arguments.features),
        label=arguments.labels,
        texts=tuple(arguments.texts),
        splits=SplitChoice.parse([*arguments.split]),
        add_reverse=arguments.add_reverse,
        ogb_split=arguments.ogb_split,
        dangling="drop" if arguments.dangling == "drop" else "refuse",
        text=arguments.text,
        fill=None if _keeps_gaps(arguments) else arguments.fill,
    )


def _keeps_gaps(arguments: _Options) -> bool:
    """Whether missing values stay missing: `--fill nan`."""
    return arguments.fill is not None and math.isnan(arguments.fill)


def _show_types(arguments: _Options, summary: dict[str, Any]) -> None:
    """Prints the counts of an import, a table of node types and a table of edge types."""
    # Tables of types follow, so of each array only what is missing in it is listed.
    gaps = ("nan", "infinite", "unlabelled")
    counts: dict[str, Any] = {}
    for name, value in summary.items():
        if name.startswith("names/"):
            continue
        if "/" in name:
            counts[name] = {gap: value[gap] for gap in gaps}
        elif name != "node_types":
            counts[name] = value
    if arguments.json:
        counts = summary
    console.result(counts, str(arguments.out), notable(counts), as_json=arguments.json)
    if not arguments.json:
        types(outercore.open(arguments.out))


def _import_edges(
    context: typer.Context, arguments: _Options, note: Callable[[str], object]
) -> None:
    _refuse(context, lambda name: name in options.OF_TRIPLES, "expected `--triples` with it")
    only_typed = ("add_reverse", "dangling")
    _refuse(context, lambda name: name in only_typed, "expected `--edges` with it")
    if arguments.ids not in ("numbers", "dictionary"):
        raise InvalidError(f"--ids: expected numbers or dictionary; found `{arguments.ids}`")
    nodes, table = _nodes(_only("--nodes", arguments.nodes))
    keeps_gaps = _keeps_gaps(arguments)
    if arguments.how.in_place and arguments.fill is not None and not keeps_gaps:
        raise InvalidError(
            "--in-place: does not go with `--fill`: features in place stay as they are\n"
            "hint: leave `--in-place` out, and they are copied and filled"
        )
    chosen = replace(arguments.how, allow_nan=keeps_gaps, command=options.command_line())
    inputs = Inputs(
        edges=tuple(arguments.edges or ()),
        format=arguments.format,
        features=_only("--features", arguments.features),
        labels=arguments.labels,
        splits=SplitChoice.parse([*arguments.split]),
        arrays=tuple(arguments.array),
        texts=tuple(arguments.texts),
        nodes=nodes,
        node_table=table,
        ogb_split=arguments.ogb_split,
        relation=arguments.relation,
        graph_ids=arguments.graph_ids,
        edge_shape=arguments.edge_shape,  # type: ignore[arg-type]  # looked at when it is used
        edge_values=arguments.edge_values,
        text=arguments.text,
        fill=None if keeps_gaps else arguments.fill,
    )
    with console.bars(quiet=arguments.json) as progress:
        if arguments.ids == "dictionary" or table is not None:
            if arguments.graph_ids is not None:
                raise InvalidError(
                    "--graph-ids: does not go with `--ids dictionary`\n"
                    "hint: number the nodes from 0, graph after graph"
                )
            source = open_named(inputs, chosen)
        else:
            source = open_inputs(inputs, chosen)
        summary = import_graph(source, arguments.out, chosen, progress, note)
        words = context.find_root().obj or []
        for of_ids in notes_on_ids(source, outercore.open(arguments.out), summary):
            command = read_again(words, *of_ids.option)
            note(f"{of_ids.text}: `{command}`" if command else of_ids.text)
    console.result(summary, str(arguments.out), notable(summary), as_json=arguments.json)


def _only(option: str, texts: Sequence[str]) -> str | None:
    """The value of an option that may be repeated only for several node types."""
    if len(texts) > 1:
        raise InvalidError(
            f"{option}: expected once, found {len(texts)} times\n"
            "hint: several node types have `--edges SOURCE,RELATION,TARGET=FILE`"
        )
    return texts[0] if texts else None


def _nodes(text: str | None) -> tuple[int | None, str | None]:
    """The number of nodes, or the table that names them."""
    if text is None:
        return None, None
    try:
        return int(text), None
    except ValueError:
        pass
    try:
        return None, str(FileSpec.parse(text))
    except NotFoundError:
        raise InvalidError(
            f"--nodes: expected a number, or a file as FILE:KEY, found `{text}`\n"
            "hint: several node types have `--edges SOURCE,RELATION,TARGET=FILE`"
        ) from None


def _refuse(context: typer.Context, wrong: Callable[[str], bool], why: str) -> None:
    """Errors: `InvalidError` for an option of the user without effect here."""
    for name, option in options.set_on_command_line(context).items():
        if wrong(name):
            raise InvalidError(f"{option}: {why}")


def notable(
    summary: dict[str, Any], always: tuple[str, ...] = ("nodes", "edges")
) -> list[tuple[str, str]]:
    """The counts, without zeros and counts that do not apply to an array."""
    return [
        (name, value)
        for name, value in flat(_with_texts(summary))
        if (
            value not in ("-", "0", "none")
            and not (name.endswith("task guessed") and value == "no")
            and not name.startswith("names/")
        )
        or name in always
    ]


def _with_texts(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary with the number of texts by name, such as `texts/node.title`."""
    counts_by_name = dict(summary)
    for name, counts in summary.items():
        kind, _, part = name.removeprefix("names/").rpartition(".")
        of_type, _, text = kind.rpartition(".")
        if name.startswith("names/") and part == "offsets" and of_type and text != KEY:
            # The last text has an offset for its end, too.
            counts_by_name[f"texts/{kind}"] = {"rows": counts["rows"] - 1}
    return counts_by_name
