"""`outercore import`: edges, features, labels and splits become a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from outercore.cli import console, options
from outercore.errors import InvalidError
from outercore.sources.graph import ImportOptions, import_graph
from outercore.sources.inputs import Inputs, open_inputs
from outercore.sources.triples import TripleOptions, import_triples
from outercore.storage import missing_file

_TRIPLES = "Knowledge graphs"
_PLACES = {name: name for name in ("self_loops", "duplicates", "feature_dtype", "unknown")}
"""Options whose value the import checks, which has the same names for them."""
_PIECE = 1 << 20
"""Weights that are looked at together."""


def import_(
    context: typer.Context,
    edges: Annotated[
        list[str],
        typer.Argument(
            help="Edge lists (text, `.npy`, `.npz`, `.parquet`, `.mtx`; `FILE:SOURCE,TARGET`), "
            "`pyg:Name`, `ogb:name`, or the directory of a raw OGB data set.",
            show_default=False,
        ),
    ],
    out: options.OutDataSet,
    features: Annotated[
        str | None,
        typer.Option(help="Features, a row a node: `.npy`, `.npz:NAME`, CSV, Parquet."),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="Labels, one row a node; `-1` or NaN for none.")
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option("--split", help="`NAME=FILE` with ids or a mask; may be repeated."),
    ] = None,
    splits: Annotated[
        Path | None, typer.Option(help="`.npz` with train, valid and test as ids or masks.")
    ] = None,
    array: Annotated[
        list[str] | None,
        typer.Option("--array", help="`NAME=FILE`: any further node array; may be repeated."),
    ] = None,
    edge_weights: Annotated[
        Path | None,
        typer.Option(
            help="`.npy` with a number for each edge of the input, as edge array `weight`."
        ),
    ] = None,
    format: Annotated[
        str, typer.Option("--format", help="`auto`, `text`, `npy`, `npz`, `parquet` or `mtx`.")
    ] = "auto",
    ogb_split: Annotated[
        str | None, typer.Option(help="Folder under `split/` of an OGB data set.")
    ] = None,
    undirected: Annotated[
        bool | None,
        typer.Option("--undirected/--directed", help="Store every edge in both directions."),
    ] = None,
    self_loops: Annotated[str, typer.Option(help="`keep`, `drop` or `add`.")] = "keep",
    duplicates: Annotated[str, typer.Option(help="`keep` or `drop`.")] = "keep",
    nodes: Annotated[
        int | None, typer.Option(help="Number of nodes, where some have no edge.")
    ] = None,
    memory: options.Memory = "1GiB",
    feature_dtype: Annotated[
        str | None, typer.Option(help="`float32`, `float16` or `bfloat16`; as they are by default.")
    ] = None,
    allow_nan: Annotated[bool, typer.Option("--allow-nan", help="Accept NaN features.")] = False,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Register a `.npy` of features without copying it.")
    ] = False,
    overwrite: options.Overwrite = False,
    triples: Annotated[
        bool,
        typer.Option(
            "--triples",
            help="The files hold a knowledge graph: names of head, relation and tail.",
            rich_help_panel=_TRIPLES,
        ),
    ] = False,
    valid: Annotated[
        str | None,
        typer.Option(help="Triples to stop training by.", rich_help_panel=_TRIPLES),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(help="Triples to judge the result by.", rich_help_panel=_TRIPLES),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="A letter a column: `h` head, `r` relation, `t` tail, `w` weight, `_` anything "
            "else; `hrt` by default.",
            rich_help_panel=_TRIPLES,
        ),
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether the first line names the columns; found out by default.",
            rich_help_panel=_TRIPLES,
        ),
    ] = None,
    unknown: Annotated[
        str | None,
        typer.Option(
            help="Names of `--valid` and `--test` that the training triples do not have: `error` "
            "(by default), `drop` their triples, or `keep` them.",
            rich_help_panel=_TRIPLES,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Import a graph of any size.

    Edges are sorted on disk within `--memory`. A stopped import goes on when the same command is
    run again.

    **Examples**

        outercore import edges.csv.gz --undirected --out papers

        outercore import edges.npy --features x.npy --labels y.npy --splits splits.npz --out papers

        outercore import roads.npy --edge-weights lengths.npy --undirected --out roads

        outercore import users.parquet:follower,followed --nodes 1000000 --out users

        outercore import ogbn_products --undirected --out products

        outercore import train.tsv --triples --valid valid.tsv --test test.tsv --out facts
    """
    of_triples = {
        "valid": valid,
        "test": test,
        "columns": columns,
        "header": header,
        "unknown": unknown,
    }
    if triples:
        of_graphs = {
            "features": features,
            "labels": labels,
            "split": split,
            "splits": splits,
            "array": array,
            "edge-weights": edge_weights,
            "ogb-split": ogb_split,
            "undirected": undirected,
            "nodes": nodes,
            "feature-dtype": feature_dtype,
            "self-loops": None if self_loops == "keep" else self_loops,
            "format": None if format == "auto" else format,
            "allow-nan": allow_nan or None,
            "in-place": in_place or None,
        }
        _refuse(of_graphs, "does not go with `--triples`")
        with options.named(context, _PLACES):
            how = TripleOptions.parse(
                columns=columns or "hrt",
                header=header,
                unknown=unknown or "error",
                duplicates=duplicates,
                memory=memory,
                overwrite=overwrite,
                command=options.command_line(),
            )
        with console.bars(quiet=json) as progress:
            found = import_triples(
                edges, out, valid=valid, test=test, options=how, progress=progress
            )
        if json:
            console.json_data(found)
            return
        console.table(f"{out}", _notable(found, ("entities", "relations")))
        return
    _refuse(of_triples, "expected `--triples` with it")
    with options.named(context, _PLACES):
        chosen = ImportOptions.parse(
            undirected=undirected,
            self_loops=self_loops,
            duplicates=duplicates,
            memory=memory,
            feature_dtype=feature_dtype,
            allow_nan=allow_nan,
            in_place=in_place,
            overwrite=overwrite,
            command=options.command_line(),
        )
    weights = None if edge_weights is None else _edge_weights(edge_weights)
    source = open_inputs(
        Inputs(
            edges=tuple(edges),
            format=format,
            features=features,
            labels=labels,
            split=tuple(split or ()),
            splits=splits,
            arrays=tuple(array or ()),
            nodes=nodes,
            ogb_split=ogb_split,
        )
    )
    with console.bars(quiet=json) as progress:
        summary = import_graph(source, out, chosen, progress)
    if weights is not None:
        _add_weights(out, weights, f"{edge_weights}")
    if json:
        console.json_data(summary)
        return
    console.table(f"{out}", _notable(summary))


def _refuse(values: dict[str, Any], why: str) -> None:
    """Options that mean nothing here, rather than passing them over."""
    for name, value in values.items():
        if value is not None:
            raise InvalidError(f"--{name}: {why}")


def _edge_weights(path: Path) -> NDArray[Any]:
    """The weights, mapped and looked through, so that a wrong file is known before the import."""
    try:
        weights: NDArray[Any] = np.load(path, mmap_mode="r")
    except FileNotFoundError:
        raise missing_file("--edge-weights: file", path) from None
    except ValueError as error:
        raise InvalidError(f"--edge-weights: `{path}`: {error}") from None
    if weights.ndim != 1:
        raise InvalidError(
            f"--edge-weights: `{path}` has shape {weights.shape}, expected one dimension"
        )
    if weights.dtype.kind == "f":
        _require_finite(path, weights)
    return weights


def _require_finite(path: Path, weights: NDArray[Any]) -> None:
    """Errors: `InvalidError` with the number of weights that are not finite."""
    count, first = 0, 0
    for start in range(0, len(weights), _PIECE):
        rows = np.flatnonzero(~np.isfinite(weights[start : start + _PIECE]))
        if len(rows) and count == 0:
            first = start + int(rows[0])
        count += len(rows)
    if count:
        raise InvalidError(
            f"--edge-weights: `{path}`: {count:,} of {len(weights):,} weights are not finite, the "
            f"first in row {first} ({weights[first]})\nhint: every edge needs a finite number"
        )


def _add_weights(data_set: Path, weights: NDArray[Any], origin: str) -> None:
    import outercore

    try:
        outercore.open(data_set).add_edge_array("weight", weights, overwrite=True, origin=origin)
    except InvalidError as error:
        raise InvalidError(
            f"--edge-weights: {error}\nhint: `{data_set}` is there without them; add others by "
            f'`outercore.open("{data_set}").add_edge_array("weight", ...)` in Python, or import '
            "again with `--overwrite`"
        ) from None


def _notable(
    summary: dict[str, Any], always: tuple[str, ...] = ("nodes", "edges")
) -> list[tuple[str, str]]:
    """The counts, without the many that are zero or do not apply to an array."""
    return [
        (name, value)
        for name, value in console.flat(summary)
        if value not in ("-", "0", "none") or name in always
    ]
