"""Opens the triples of a knowledge graph as edges of a graph, for all relations or one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.base.native import verify_arrays
from outercore.base.shell import quoted
from outercore.data.directories import MANIFEST
from outercore.data.graph import Graph
from outercore.data.schema import TRIPLES
from outercore.errors import InvalidError
from outercore.files.input_file import is_there
from outercore.files.large_arrays import blocks, forget, mapped
from outercore.importing.edge_arrays import WEIGHT
from outercore.importing.edges import pushed
from outercore.importing.inputs import Inputs
from outercore.importing.options import ImportOptions
from outercore.importing.source import Format, GraphSource
from outercore.importing.table.file_state import states
from outercore.importing.table.rows import NodeArray, RowSource, from_array

_WEIGHTS = f"{TRIPLES}.weight"
_CHUNK = 1 << 20
_PARTS = ("offsets", "bytes", "order")


def open_triples(root: Path, inputs: Inputs, _: ImportOptions) -> GraphSource:
    """Opens the training triples as edges from head to tail, with the names of the entities.

    Entity ids become node ids. Weights of triples become the edge array `weight`. Without a chosen
    relation, the edge array `relation` has the id of each edge's relation.

    Cost: reads all these arrays once more, to verify their checksums.
    Errors: `InvalidError` for a data set without triples; `NotFoundError` for an unknown relation,
    with similar names; `CorruptError` for a damaged array.
    """
    graph, relation = Graph(root), inputs.relation
    if TRIPLES not in graph.arrays:
        raise InvalidError(
            f"`{root}` is a data set already, without triples\n"
            "hint: use it as it is, or add arrays to it: "
            f"`outercore add {quoted(root)} --features FILE`"
        )
    chosen = None if relation is None else graph.relation_id(relation)
    kinds = ("entity", "relation") if chosen is None else ("entity",)
    names = [
        key for kind in kinds for part in _PARTS if (key := f"names/{kind}.{part}") in graph.arrays
    ]
    # The new data set computes new checksums, so damage must be found here.
    weighted = [_WEIGHTS] if _WEIGHTS in graph.arrays else []
    verify_arrays(graph.root, [TRIPLES, *weighted, *names])
    triples = mapped(graph.root, graph.arrays[TRIPLES])
    count = len(triples) if chosen is None else None

    def kept(of: NDArray[Any]) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """The triples of the chosen relation in blocks, with their rows of the array `of`."""
        for first, block in blocks(triples, _CHUNK):
            some, rows = np.array(block), np.array(of[first : first + len(block)])
            mine = slice(None) if chosen is None else some[:, 1] == chosen
            yield some[mine], rows[mine]
            forget(of)

    def ends() -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        for some, _ in kept(triples):
            yield np.ascontiguousarray(some[:, 0]), np.ascontiguousarray(some[:, 2])

    arrays: list[NodeArray] = []
    if chosen is None:
        arrays.append(
            _edge_array(
                "relation",
                np.dtype(np.int64),
                count,
                lambda: (np.ascontiguousarray(some[:, 1]) for some, _ in kept(triples)),
            )
        )
    if _WEIGHTS in graph.arrays:
        weights = mapped(graph.root, graph.arrays[_WEIGHTS])
        arrays.append(
            _edge_array(WEIGHT, weights.dtype, count, lambda: (rows for _, rows in kept(weights)))
        )
    files = states(graph.root / graph.arrays[TRIPLES]["file"])
    taken = (TRIPLES, _WEIGHTS, "names/", "grid/")
    left = [key for key in sorted(graph.arrays) if not key.startswith(taken)]
    return GraphSource(
        [pushed(str(root), ends, files=files)],
        [*(_name_array(graph, key) for key in names), *arrays],
        graph.num_nodes,
        identity=f"relation {relation}",
        notes=[f"left out: {', '.join(left)}"] if left else [],
    )


def _edge_array(name: str, dtype: np.dtype, count: int | None, chunks: Any) -> NodeArray:
    rows = RowSource(f"`{name}` of the triples", dtype, chunks, count=count)
    return NodeArray("edge", name, rows)


def _name_array(graph: Graph, key: str) -> NodeArray:
    """One array of the dictionary of entities or relations."""
    rows = from_array(key, mapped(graph.root, graph.arrays[key]))
    return NodeArray("names", key.removeprefix("names/"), rows)


FORMAT = Format(
    "a data set of triples",
    lambda root: is_there(root / MANIFEST),
    open_triples,
    ("relation",),
)
