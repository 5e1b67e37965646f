"""`outercore add`: add features, labels, splits and arrays to a data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from outercore.base.options import Option
from outercore.cli import console, options
from outercore.cli.import_ import notable
from outercore.importing.build.additions import Additions
from outercore.importing.build.additions import add as add_arrays
from outercore.importing.options import ArrayOptions
from outercore.importing.splits import SplitChoice
from outercore.importing.table.text import TextOptions


@options.command
def add(
    *,
    data_set: options.DataSet,
    features: Annotated[
        Sequence[str],
        Option(
            "Features, a row a node: `.npy`, `.npz:NAME`, CSV, Parquet. With several node types "
            "`TYPE=FILE`."
        ),
    ] = (),
    labels: Annotated[
        str | None,
        Option(
            "Labels, one row a node; `-1` or NaN for none. With several node types `TYPE=FILE`.",
            short="--label",
        ),
    ] = None,
    split: options.Split = (),
    array: Annotated[
        Sequence[str],
        Option("`NAME=FILE`: any further node array; with several node types `TYPE/NAME=FILE`."),
    ] = (),
    texts: Annotated[
        Sequence[str],
        Option(
            "`NAME=FILE:COLUMN`: texts of nodes, such as titles, stored unchanged; with several "
            "node types `TYPE/NAME=FILE`.",
            name="text",
        ),
    ] = (),
    edge_array: Annotated[
        Sequence[str],
        Option(
            "`NAME=FILE`: a row for each imported edge, in their order, such as `weight=w.npy`; "
            "with several edge types `SOURCE__RELATION__TARGET/NAME=FILE`."
        ),
    ] = (),
    key: Annotated[
        str | None,
        Option("Column of ids in tables of nodes, if its name is not `id` or similar."),
    ] = None,
    fill: Annotated[
        float | None, Option("Value for missing entries; `nan` keeps them missing.")
    ] = None,
    how: ArrayOptions,
    overwrite: options.Overwrite = False,
    text: Annotated[TextOptions, "How files are written"],
    json: options.Json = False,
) -> None:
    """Add features, labels, splits or arrays to a data set, without importing it again.

    Files are read as `outercore import` reads them; a table with a column of ids is joined by it.
    Everything is added at once, or nothing. Stopped in between, run the same command again.

    **Examples**

        outercore add papers --features x.npy --labels y.csv --split splits.npz

        outercore add papers --array year=years.csv --edge-array weight=w.npy
    """
    keeps_gaps = fill is not None and math.isnan(fill)
    additions = Additions(
        features=tuple(features),
        labels=labels,
        splits=SplitChoice.parse([*split]),
        arrays=tuple(array),
        texts=tuple(texts),
        edge_arrays=tuple(edge_array),
        key=key,
        text=text,
        fill=None if keeps_gaps else fill,
    )
    how = replace(how, allow_nan=keeps_gaps)
    with console.bars(quiet=json) as progress:
        summary = add_arrays(
            data_set,
            additions,
            how,
            progress,
            console.note,
            overwrite=overwrite,
        )
    console.result(summary, str(data_set), notable(summary, always=()), as_json=json)
