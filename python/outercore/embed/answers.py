"""Answers to questions that a data set has already."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.embed.data import has_triples
from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.embed.embedding import Embedding
    from outercore.graph import Graph

_COLUMNS = {"head": (1, 2, 0), "tail": (0, 1, 2), "relation": (0, 2, 1)}
"""Of a triple: the two parts that are asked with, and the one that is asked for."""
_CHUNK = 1 << 18


class Answers:
    """What completes each question to a triple of the data set, of any part of it.

    Shapes: `questions` int64 [n, 3], the part that is asked for being -1.
    Cost: one pass over the triples, or over the arcs of a plain graph; 16 bytes an answer.
    """

    def __init__(self, embedding: Embedding, part: str, questions: NDArray[np.int64]) -> None:
        first, second, asked = _COLUMNS[part]
        scale = max(embedding.num_entities, embedding.num_relations)
        # Two ids in one number: exact, as both are less than 2^31.5 on any table that fits a disk.
        if scale > 3_000_000_000:
            raise InvalidError(f"known triples: {scale:,} entities are more than pairs can name")
        keys = questions[:, first] * scale + questions[:, second]
        self._keys, self._question_keys = np.unique(keys, return_inverse=True)
        found = [np.empty((0, 2), np.int64)]
        for triples in _triples(embedding.graph):
            pairs = triples[:, first] * scale + triples[:, second]
            places = np.searchsorted(self._keys, pairs)
            places[places == len(self._keys)] = 0
            matches = self._keys[places] == pairs if len(self._keys) else np.zeros(0, np.bool_)
            found.append(np.stack([places[matches], triples[matches, asked]], axis=1))
        # By key, then by answer, each once.
        self._found = np.unique(np.concatenate(found), axis=0)
        self._starts = np.searchsorted(self._found[:, 0], np.arange(len(self._keys) + 1))

    def of(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Pairs (question counted from `start`, answer), answers ascending."""
        keys = self._question_keys[start:stop]
        begins = self._starts[keys]
        counts = self._starts[keys + 1] - begins
        questions = np.repeat(np.arange(len(keys)), counts)
        before = np.cumsum(counts) - counts
        places = np.arange(len(questions)) - before[questions] + begins[questions]
        answers = self._found[places, 1]
        order = np.argsort(answers, kind="stable")
        return torch.from_numpy(questions[order]), torch.from_numpy(answers[order])


def _triples(graph: Graph) -> Iterator[NDArray[np.int64]]:
    """All triples of a knowledge graph, or all arcs of a plain graph as triples."""
    if has_triples(graph):
        for key in sorted(graph.arrays):
            if key.startswith("triples/") and not key.endswith(".weight"):
                yield from _pieces(_mapped(graph, key))
        return
    yield from _arcs(graph)


def _pieces(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    for start in range(0, len(array), _CHUNK):
        yield np.array(array[start : start + _CHUNK])


def _arcs(graph: Graph) -> Iterator[NDArray[np.int64]]:
    """The arcs of the topology; an undirected edge is there in both directions."""
    offsets, sources = _mapped(graph, "edges/edge/offsets"), _mapped(graph, "edges/edge/sources")
    for start in range(0, len(sources), _CHUNK):
        heads = np.array(sources[start : start + _CHUNK], np.int64)
        places = np.arange(start, start + len(heads), dtype=offsets.dtype)
        tails = np.searchsorted(offsets, places, side="right").astype(np.int64) - 1
        yield np.stack([heads, np.zeros_like(heads), tails], axis=1)


def _mapped(graph: Graph, key: str) -> NDArray[Any]:
    entry = graph.arrays[key]
    shape, dtype = tuple(entry["shape"]), np.dtype(entry["dtype"])
    if 0 in shape:
        return np.empty(shape, dtype)
    path = graph.root / entry["file"]
    return np.memmap(path, dtype, "r", int(entry["data_offset"]), shape)
