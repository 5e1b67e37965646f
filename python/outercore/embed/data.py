"""The triples of a data set: those of a knowledge graph, or the links of a plain graph.

Needs no PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.errors import CorruptError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from outercore.embed.config import DataConfig, EmbedConfig, EvaluationConfig
    from outercore.embed.links import Links
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

    @property
    def weighted(self) -> bool:
        """Whether they have weights."""
        return self.weights is not None

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
class EmbedData:
    """What is embedded: triples by part, of a knowledge graph or of a plain graph's links."""

    entities: int
    relations: int
    parts: Mapping[Part, Triples | Links]
    """Those that are not empty."""
    undirected: bool = False
    """Whether a triple means its reverse, too."""

    @property
    def train(self) -> Triples | Links:
        """What is trained on."""
        return self.parts["train"]

    @property
    def triples(self) -> int:
        """Number of training triples."""
        return self.train.count

    @property
    def weighted(self) -> bool:
        """Whether training triples have weights."""
        return self.train.weighted

    @property
    def loops(self) -> bool:
        """Whether an entity can be its own neighbour; a plain graph's links join two nodes."""
        return isinstance(self.train, Triples)

    def ranked(self, config: EvaluationConfig) -> int:
        """How many triples of all held-out parts are ranked."""
        most = {"valid": config.valid_triples, "test": config.test_triples}
        counts = ((self.parts[part].count, most[part]) for part in self.parts if part != "train")
        return sum(min(count, limit or count) for count, limit in counts)

    def source(self, identity: str) -> ArraySource | Links:
        """The training triples as partitions take them in; `identity` tells them from others."""
        train = self.train
        if not isinstance(train, Triples):
            return train
        from outercore.embed.partitions import ArraySource

        return ArraySource(train.path, train.weights, identity)

    def answers(self) -> Iterator[NDArray[np.int64]]:
        """The triples of all parts, int64 [some, 3] at a time, in both directions if they are."""
        for triples in self.parts.values():
            for chunk in triples.chunks():
                yield chunk
                if self.undirected:
                    yield np.ascontiguousarray(chunk[:, ::-1])

    def degrees(self) -> NDArray[np.int64]:
        """How many training triples each entity is in, int64 [entities].

        Cost: one read of the triples, and no more memory than what is returned.
        """
        counts = np.zeros(self.entities, np.int64)
        for chunk in self.train.chunks():
            for ends in (chunk[:, 0], chunk[:, 2]):
                np.add.at(counts, ends, 1)
        return counts


def data_of(graph: Graph, config: EmbedConfig) -> EmbedData:
    """The triples of a data set, or the links of its topology where it has none.

    Errors: `NotFoundError` where there is neither; `InvalidError` for an array of another shape.
    """
    if has_triples(graph):
        return knowledge_graph(graph, config.data)
    return link_graph(graph, config.data, config.run.seed)


def has_triples(graph: Graph) -> bool:
    """Whether the data set is a knowledge graph."""
    return any(key.startswith("triples/") for key in graph.arrays)


def knowledge_graph(graph: Graph, config: DataConfig) -> EmbedData:
    """The triples of a data set.

    Cost: reads the training triples once where the data set has no names of relations.
    Errors: `NotFoundError` where there are no training triples; `InvalidError` for an array of
    another shape.
    """
    parts: dict[Part, Triples | Links] = {}
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
    return EmbedData(graph.num_nodes, _relations(graph, parts), parts)


def link_graph(graph: Graph, config: DataConfig, seed: int) -> EmbedData:
    """The links of a plain graph as triples of one relation, some of them held out.

    Which ones is a function of their nodes and the seed. The edge array `weight` gives them
    weights.

    Cost: a pass over the topology for each part, to count its links.
    Errors: `NotFoundError` where there is no topology; `InvalidError` for weights of another shape.
    """
    from outercore.embed.links import Links

    share = config.held_out / 2
    parts: dict[Part, Triples | Links] = {}
    for part in PARTS:
        links = Links(graph.root, part, share, share, seed)
        if (part == "train" or share) and links.count:
            parts[part] = links
    if "train" not in parts:
        raise NotFoundError(f"data set `{graph.root}`: it has no links to train on")
    edges = graph.manifest.get("edge_types", {}).get("edge", {})
    return EmbedData(graph.num_nodes, 1, parts, undirected=bool(edges.get("undirected")))


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
    count = int(entry["shape"][0])
    weights = graph.arrays.get(f"{key}.weight")
    if weights is None:
        return Triples(key, path, offset, count)
    if weights["dtype"] != "float32" or list(weights["shape"]) != [count]:
        raise InvalidError(
            f"array `{key}.weight`: expected float32 [{count}], found {weights['dtype']} "
            f"{weights['shape']}"
        )
    return Triples(key, path, offset, count, *_place(graph.root, weights))


def _relations(graph: Graph, parts: Mapping[Part, Triples | Links]) -> int:
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
