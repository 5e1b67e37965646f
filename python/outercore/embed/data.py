"""The triples of a data set: those of a knowledge graph, or the links of a plain graph.

Needs no PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.errors import CorruptError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from outercore.embed.config import DataConfig
    from outercore.embed.partitions import ArraySource
    from outercore.graph import Graph

Part = Literal["train", "valid", "test"]
PARTS: tuple[Part, ...] = ("train", "valid", "test")
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Triples:
    """An array of triples on disk, int64 [count, 3], and perhaps weights, float32 [count]."""

    name: str
    path: Path
    offset: int
    count: int
    weights: Path | None = None
    weights_offset: int = 0

    def read(self) -> NDArray[np.int64]:
        """All of them, [count, 3]."""
        return _rows(self.path, self.offset, np.dtype(np.int64), 3 * self.count).reshape(-1, 3)

    def read_weights(self) -> NDArray[np.float32] | None:
        """Their weights, `None` where each counts 1."""
        if self.weights is None:
            return None
        return _rows(self.weights, self.weights_offset, np.dtype(np.float32), self.count)

    def chunks(self, rows: int = _CHUNK) -> Iterator[NDArray[np.int64]]:
        """All of them in order, so many at a time."""
        for start in range(0, self.count, rows):
            some = min(rows, self.count - start)
            offset = self.offset + 24 * start
            yield _rows(self.path, offset, np.dtype(np.int64), 3 * some).reshape(-1, 3)


@dataclass(frozen=True)
class KnowledgeGraph:
    """The triples of a knowledge graph by part."""

    entities: int
    relations: int
    parts: dict[Part, Triples]

    @property
    def train(self) -> Triples:
        """What is trained on."""
        return self.parts["train"]

    def source(self, identity: str) -> ArraySource:
        """The training triples as partitions take them in."""
        from outercore.embed.partitions import ArraySource

        return ArraySource(self.train.path, self.train.weights, identity)


def has_triples(graph: Graph) -> bool:
    """Whether the data set is a knowledge graph."""
    return any(key.startswith("triples/") for key in graph.arrays)


def knowledge_graph(graph: Graph, config: DataConfig) -> KnowledgeGraph:
    """The triples of a data set.

    Cost: reads the training triples once where the data set has no names of relations.
    Errors: `NotFoundError` where there are no training triples; `InvalidError` for an array of
    another shape.
    """
    parts: dict[Part, Triples] = {}
    for part, name in zip(PARTS, (config.train, config.valid, config.test), strict=True):
        found = _triples(graph, name)
        if found is not None and found.count:
            parts[part] = found
    if "train" not in parts:
        known = ", ".join(sorted(key for key in graph.arrays if key.startswith("triples/")))
        raise NotFoundError(
            f"data set `{graph.root}`: no array `triples/{config.train}`; it has {known}\n"
            "hint: import it with `outercore import FILE --triples`"
        )
    return KnowledgeGraph(graph.num_nodes, _relations(graph, parts), parts)


def _triples(graph: Graph, name: str) -> Triples | None:
    key = f"triples/{name}"
    if key not in graph.arrays:
        return None
    entry = graph.arrays[key]
    if entry["dtype"] != "int64" or list(entry["shape"])[1:] != [3]:
        raise InvalidError(
            f"array `{key}`: expected int64 [m, 3], found {entry['dtype']} {entry['shape']}"
        )
    path, offset = _place(graph.root, entry)
    weights = graph.arrays.get(f"{key}.weight")
    weights_path, weights_offset = (None, 0) if weights is None else _place(graph.root, weights)
    return Triples(key, path, offset, int(entry["shape"][0]), weights_path, weights_offset)


def _relations(graph: Graph, parts: dict[Part, Triples]) -> int:
    names = graph.arrays.get("names/relation.offsets")
    if names is not None:
        return int(names["shape"][0]) - 1
    return 1 + max(int(some[:, 1].max()) for part in parts.values() for some in part.chunks())


def _place(root: Path, entry: dict[str, Any]) -> tuple[Path, int]:
    return root / entry["file"], int(entry["data_offset"])


def _rows(path: Path, offset: int, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    try:
        found = np.fromfile(path, dtype, count, offset=offset)
    except OSError as error:
        raise NotFoundError(f"array `{path}`: {error.strerror}") from error
    if len(found) != count:
        raise CorruptError(
            f"array `{path}`: expected {count * dtype.itemsize:,} bytes from byte {offset}, "
            f"found {found.nbytes:,}\nhint: run `outercore check`"
        )
    return found
