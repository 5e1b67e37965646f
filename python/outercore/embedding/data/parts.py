"""The triples of a knowledge graph, or the links of a plain graph, by part.

The parts are `train`, `valid` and `test`. Held-out parts are not trained on.

Does not need PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outercore.base.native import Progress
from outercore.data.triples import PARTS, HeldOut, Part, Triples
from outercore.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from outercore.data.graph import Graph
    from outercore.embedding.config import DataConfig, EmbedConfig, EvaluationConfig


@dataclass(frozen=True)
class EmbedData:
    """The triples of a run by part: `train`, `valid`, `test`. Links of a graph are triples, too."""

    entities: int
    relations: int
    parts: Mapping[Part, Triples]
    """The triples of each part that is not empty."""
    undirected: bool = False
    """Whether each triple also stands for its reverse."""

    @property
    def train(self) -> Triples:
        """The training triples."""
        return self.parts["train"]

    @property
    def triples(self) -> int:
        """Number of training triples."""
        return self.train.count

    @property
    def weighted(self) -> bool:
        """Whether training triples have weights."""
        return self.train.weighted

    def ranked_by_part(self, config: EvaluationConfig) -> dict[Part, int]:
        """Number of triples to rank, for each held-out part that is not empty."""
        most = {"valid": config.valid_triples, "test": config.test_triples}
        counts = {part: some.count for part, some in self.parts.items() if part != "train"}
        return {part: min(count, most[part] or count) for part, count in counts.items() if count}

    def answers(self, what: str, progress: Progress | None = None) -> Iterator[NDArray[np.int64]]:
        """The triples of all parts in chunks, int64 [n, 3]; undirected triples in both directions.

        `progress` is called with `what`, the purpose, and the number of triples so far.
        """
        total = sum(triples.count for triples in self.parts.values())
        stored = dict.fromkeys(triples.undivided for triples in self.parts.values())
        every = chain.from_iterable(triples.chunks() for triples in stored)
        for chunk in watched(every, what, total, progress):
            yield chunk
            if self.undirected:
                yield np.ascontiguousarray(chunk[:, ::-1])

    def degrees(self, progress: Progress | None = None) -> NDArray[np.int64]:
        """Number of training triples of each entity.

        Shapes: int64 [entities].

        Cost: one read of the triples, and memory for the result.
        """
        counts = np.zeros(self.entities, np.int64)
        for chunk in watched(self.train.chunks(), "count degrees", self.triples, progress):
            for ends in (chunk[:, 0], chunk[:, 2]):
                np.add.at(counts, ends, 1)
        return counts


def data_of(graph: Graph, config: EmbedConfig, progress: Progress | None = None) -> EmbedData:
    """The triples of a data set by part, or the links of its topology if it lacks triples.

    Errors: `NotFoundError` if the data set has neither; `InvalidError` for an array of a wrong
    shape.
    """
    if graph.schema.has_triples:
        return knowledge_graph(graph, config.data, config.run.seed, progress)
    return link_graph(graph, config.data, config.run.seed, progress)


def is_plain(graph: Graph) -> bool:
    """Whether the data set is a plain graph: without triples, and with one edge type."""
    return not (graph.schema.has_triples or graph.is_typed)


def knowledge_graph(
    graph: Graph, config: DataConfig, seed: int, progress: Progress | None = None
) -> EmbedData:
    """The triples of a knowledge graph by part. Some of its training triples may be held out.

    Cost: reads the training triples once if relations lack names, and once to hold out triples.
    Errors: `NotFoundError` without training triples; `InvalidError` for an array of a wrong shape,
    and if `config` holds out triples although the data set already has held-out triples.
    """
    parts: dict[Part, Triples] = {}
    for part, name in zip(PARTS, (config.train, config.valid, config.test), strict=True):
        triples = _triples(graph, name)
        if triples is not None and triples.count:
            parts[part] = triples
    if "train" not in parts:
        known = ", ".join(sorted(key for key in graph.arrays if key.startswith("triples/")))
        raise NotFoundError(
            f"data set `{graph.root}`: no array `triples/{config.train}`; it has {known}\n"
            "hint: import it with `outercore import FILE --triples`"
        )
    relations = _relations(graph, parts, progress)
    if config.held_out_triples:
        return EmbedData(graph.num_nodes, relations, _divided(graph, parts, config, seed, progress))
    return EmbedData(graph.num_nodes, relations, parts)


def link_graph(
    graph: Graph, config: DataConfig, seed: int, progress: Progress | None = None
) -> EmbedData:
    """The links of a graph as triples of one relation, by part. Some links are held out.

    The part of a link depends only on its nodes and the seed. Weights are from the edge array
    `weight`. In a graph with several types, each edge type is a relation, and links do not have
    weights. Entities are then the nodes of all types, numbered type after type.

    Cost: at most one pass over the topology, to count the links of each part.
    Errors: `NotFoundError` without a topology; `InvalidError` for weights of a wrong shape.
    """
    share = config.held_out / 2
    links = Triples(Path(graph.root), generation=graph.generation)
    parts = links.divided(HeldOut(share, share, seed), progress)
    if "train" not in parts:
        raise NotFoundError(f"data set `{graph.root}`: it has no links to train on")
    relations = len(graph.edge_types)
    return EmbedData(graph.num_nodes, relations, parts, undirected=graph.schema.is_undirected)


def _triples(graph: Graph, name: str) -> Triples | None:
    key = f"triples/{name}"
    if key not in graph.arrays:
        return None
    entry = graph.arrays[key]
    if entry["dtype"] != "int64" or list(entry["shape"])[1:] != [3]:
        raise InvalidError(
            f"array `{key}`: expected int64 [m, 3], found {entry['dtype']} {entry['shape']}"
        )
    path, count = graph.root / entry["file"], int(entry["shape"][0])
    weights = graph.arrays.get(f"{key}.weight")
    if weights is None:
        return Triples(path, counted=count, key=key)
    if weights["dtype"] != "float32" or list(weights["shape"]) != [count]:
        raise InvalidError(
            f"array `{key}.weight`: expected float32 [{count}], found {weights['dtype']} "
            f"{weights['shape']}"
        )
    return Triples(path, graph.root / weights["file"], counted=count, key=key)


def _divided(
    graph: Graph,
    parts: Mapping[Part, Triples],
    config: DataConfig,
    seed: int,
    progress: Progress | None,
) -> dict[Part, Triples]:
    """Divides the training triples into parts at random."""
    held_out = [f"`{triples.name}`" for part, triples in parts.items() if part != "train"]
    if held_out:
        raise InvalidError(
            f"held-out share {config.held_out_triples:g}: data set `{graph.root}` brings "
            f"{' and '.join(held_out)} of its own, which are ranked\n"
            "hint: leave out `--held-out`, or import the training triples alone"
        )
    share = config.held_out_triples / 2
    divided = parts["train"].divided(HeldOut(share, share, seed), progress)
    if "train" not in divided:
        raise InvalidError(
            f"held-out share {config.held_out_triples:g}: none of the {parts['train'].count:,} "
            f"triples of data set `{graph.root}` is left to train on\nhint: hold out fewer"
        )
    return divided


def _relations(graph: Graph, parts: Mapping[Part, Triples], progress: Progress | None) -> int:
    names = graph.arrays.get("names/relation.offsets")
    if names is not None:
        return int(names["shape"][0]) - 1
    chunks = chain.from_iterable(part.chunks() for part in parts.values())
    total = sum(part.count for part in parts.values())
    watched_chunks = watched(chunks, "count relations", total, progress)
    return 1 + max(int(chunk[:, 1].max()) for chunk in watched_chunks)


def watched(
    chunks: Iterable[NDArray[np.int64]], what: str, total: int, progress: Progress | None
) -> Iterator[NDArray[np.int64]]:
    """Yields the chunks unchanged and reports the number of triples so far to `progress`."""
    done = 0
    for chunk in chunks:
        if progress is not None:
            progress(what, done, total, "triples")
        yield chunk
        done += len(chunk)
    if progress is not None:
        progress(what, done, total, "triples")
