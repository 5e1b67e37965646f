"""`outercore add`: add features, labels, splits and arrays to a data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from outercore.base.options import Option
from outercore.cli import console, options
from outercore.cli.import_ import notable
from outercore.importing.build.additions import Additions
from outercore.importing.build.additions import add as add_arrays
from outercore.importing.options import ArrayOptions
from outercore.importing.splits import SplitChoice
from outercore.importing.table.text import TextOptions


@dataclass(frozen=True, kw_only=True)
class _Options:
    """Options of `outercore add`."""

    data_set: options.DataSet
    features: Annotated[
        Sequence[str],
        Option(
            "Features, a row a node: `.npy`, `.npz:NAME`, CSV, Parquet. With several node types "
            "`TYPE=FILE`."
        ),
    ] = ()
    labels: Annotated[
        str | None,
        Option(
            "Labels, one row a node; `-1` or NaN for none. With several node types `TYPE=FILE`.",
            short="--label",
        ),
    ] = None
    split: options.Split = ()
    array: Annotated[
        Sequence[str],
        Option("`NAME=FILE`: any further node array; with several node types `TYPE/NAME=FILE`."),
    ] = ()
    texts: Annotated[
        Sequence[str],
        Option(
            "`NAME=FILE:COLUMN`: texts of nodes, such as titles, stored unchanged; with several "
            "node types `TYPE/NAME=FILE`.",
            name="text",
        ),
    ] = ()
    edge_array: Annotated[
        Sequence[str],
        Option(
            "`NAME=FILE`: a row for each imported edge, in their order, such as `weight=w.npy`; "
            "with several edge types `SOURCE__RELATION__TARGET/NAME=FILE`."
        ),
    ] = ()
    key: Annotated[
        str | None,
        Option("Column of ids in tables of nodes, if its name is not `id` or similar."),
    ] = None
    fill: Annotated[
        float | None, Option("Value for missing entries; `nan` keeps them missing.")
    ] = None
    how: ArrayOptions
    overwrite: options.Overwrite = False
    text: Annotated[TextOptions, "How files are written"]
    json: options.Json = False


@options.command
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
        features=tuple(arguments.features),
        labels=arguments.labels,
        splits=SplitChoice.parse([*arguments.split]),
        arrays=tuple(arguments.array),
        texts=tuple(arguments.texts),
        edge_arrays=tuple(arguments.edge_array),
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
