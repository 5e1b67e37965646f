"""`outercore add`: add features, labels, splits and arrays to a data set."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from outercore.cli import console, options
from outercore.cli.import_ import notable
from outercore.importing.build.additions import Additions
from outercore.importing.build.additions import add as add_arrays
from outercore.importing.options import ArrayOptions
from outercore.importing.splits import SplitChoice
from outercore.importing.table.text import TextOptions

_TEXTS = "How files are written"


@dataclass(frozen=True, kw_only=True)
class _Options:
    """Options of `outercore add`."""

    data_set: options.DataSet
    features: Annotated[
        list[str] | None,
        typer.Option(
            "--features",
            help="Features, a row a node: `.npy`, `.npz:NAME`, CSV, Parquet. With several node "
            "types `TYPE=FILE`, may be repeated.",
        ),
    ] = None
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            "--label",
            help="Labels, one row a node; `-1` or NaN for none. With several node types "
            "`TYPE=FILE`.",
        ),
    ] = None
    split: options.Split = None
    array: Annotated[
        list[str] | None,
        typer.Option(
            "--array",
            help="`NAME=FILE`: any further node array; with several node types `TYPE/NAME=FILE`; "
            "may be repeated.",
        ),
    ] = None
    texts: Annotated[
        list[str] | None,
        typer.Option(
            "--text",
            help="`NAME=FILE:COLUMN`: texts of nodes, such as titles, kept as they are; with "
            "several node types `TYPE/NAME=FILE`; may be repeated.",
        ),
    ] = None
    edge_array: Annotated[
        list[str] | None,
        typer.Option(
            "--edge-array",
            help="`NAME=FILE`: a row for each imported edge, in their order, such as "
            "`weight=w.npy`; with several edge types `SOURCE__RELATION__TARGET/NAME=FILE`; may be "
            "repeated.",
        ),
    ] = None
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            help="Column of ids in tables of nodes, if its name is not `id` or similar.",
        ),
    ] = None
    fill: Annotated[
        float | None, typer.Option(help="Value for missing entries; `nan` keeps them missing.")
    ] = None
    how: ArrayOptions
    overwrite: options.Overwrite = False
    text: Annotated[TextOptions, _TEXTS]
    json: options.Json = False


@options.of(_Options)
def add(arguments: _Options) -> None:
    """Add features, labels, splits or arrays to a data set, without importing it again.

    Files are read as `outercore import` reads them; a table with a column of ids is joined by it.
    Everything is added at once, or nothing. Stopped in between, run the same command again.

    **Examples**

        outercore add papers --features x.npy --labels y.csv --split splits.npz

        outercore add papers --array year=years.csv --edge-array weight=w.npy
    """
    keeps_gaps = arguments.fill is not None and math.isnan(arguments.fill)
    additions = Additions(
        features=tuple(arguments.features or ()),
        labels=arguments.labels,
        splits=SplitChoice.parse(arguments.split or []),
        arrays=tuple(arguments.array or ()),
        texts=tuple(arguments.texts or ()),
        edge_arrays=tuple(arguments.edge_array or ()),
        key=arguments.key,
        text=arguments.text,
        fill=None if keeps_gaps else arguments.fill,
    )
    how = replace(arguments.how, allow_nan=keeps_gaps)
    with console.bars(quiet=arguments.json) as progress:
        summary = add_arrays(
            arguments.data_set,
            additions,
            how,
            progress,
            console.note,
            overwrite=arguments.overwrite,
        )
    console.result(
        summary, str(arguments.data_set), notable(summary, always=()), as_json=arguments.json
    )
