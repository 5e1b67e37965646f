"""Labels that are texts: classes numbered in the order of their names, which are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.importing.graph import NodeArray
from outercore.importing.table.rows import RowSource, from_array
from outercore.importing.triples import names_of


def class_arrays(
    name: str,
    where: str,
    texts: Callable[[], Iterator[pa.Array]],
    count: int | None,
    node_type: str | None = None,
) -> list[NodeArray]:
    """Labels from batches of large strings, and the names of the classes.

    A null and an empty text are no label. `name` is that of the input, `where` that in messages.

    Cost: goes through the texts twice.
    Errors: `InvalidError` where no row has a label.
    """
    names = sorted({name for batch in texts() for name in pc.unique(batch).to_pylist() if name})
    if not names:
        raise InvalidError(f"{where} has no label in any row")
    known = pa.array(names, pa.large_string())

    def chunks() -> Iterator[NDArray[np.int64]]:
        for batch in texts():
            places = pc.fill_null(pc.index_in(batch, known), -1)
            yield places.to_numpy(zero_copy_only=False).astype(np.int64)

    notes = [numbered_classes(where, len(names))]
    rows = RowSource(name, np.dtype(np.int64), None, count, chunks, notes=notes)
    return [NodeArray("labels", "y", rows, node_type), *class_names(known)]


def class_names(names: pa.Array) -> list[NodeArray]:
    """The arrays that keep the names of classes, in the order of their numbers."""
    offsets, data = names_of(names)
    kept: dict[str, NDArray] = {"offsets": offsets.astype(np.uint64), "bytes": data}
    return [
        NodeArray("names", f"class.{part}", from_array(f"class.{part}", values))
        for part, values in kept.items()
    ]


def numbered_classes(where: str, count: int) -> str:
    """What the user is told of words that became classes."""
    return f"{where} has {count:,} classes, numbered in the order of their names"
