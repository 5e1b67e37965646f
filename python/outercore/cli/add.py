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
            "Read features, one row per node, from `.npy`, `.npz:NAME`, CSV or Parquet. With "
            "several node types, write `TYPE=FILE`."
        ),
    ] = (),
    labels: Annotated[
        str | None,
        Option(
            "Read labels, one row per node; `-1` or NaN means that there is no label. With several "
            "node types, write `TYPE=FILE`.",
            short="--label",
        ),
    ] = None,
    split: options.Split = (),
    array: Annotated[
        Sequence[str],
        Option(
            "Add another node array, as `NAME=FILE`. With several node types, write "
            "`TYPE/NAME=FILE`."
        ),
    ] = (),
    texts: Annotated[
        Sequence[str],
        Option(
            "Store texts of nodes unchanged, such as titles, as `NAME=FILE:COLUMN`. With several "
            "node types, write `TYPE/NAME=FILE`.",
            name="text",
        ),
    ] = (),
    edge_array: Annotated[
        Sequence[str],
        Option(
            "Add an array with one row per imported edge, in the order of the import, as "
            "`NAME=FILE`, such as `weight=w.npy`. With several edge types, write "
            "`SOURCE__RELATION__TARGET/NAME=FILE`."
        ),
    ] = (),
    key: Annotated[
        str | None,
        Option("Join tables of nodes by this column of ids, if its name is not `id` or similar."),
    ] = None,
    fill: Annotated[
        float | None, Option("Replace missing entries by this value. `nan` keeps them missing.")
    ] = None,
    how: ArrayOptions,
    overwrite: options.Overwrite = False,
    text: Annotated[TextOptions, "Format of text files"],
    json: options.Json = False,
) -> None:
    """Add features, labels, splits or arrays to a data set, without importing it again.

    Files are read as by `outercore import`. A table with a column of ids is joined by these ids.
    The command adds all arrays or none. If it was stopped, run the same command again.

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
