"""Answers to questions that a data set has already."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.embedding.data import has_triples
from outercore.errors import InvalidError
from outercore.triples import Triples

if TYPE_CHECKING:
    from outercore.embedding.use.embedding import Embedding
    from outercore.graph import Graph

_COLUMNS = {"head": (1, 2, 0), "tail": (0, 1, 2), "relation": (0, 2, 1)}
"""Of a triple: the two parts that are asked with, and the one that is asked for."""
_CHUNK = 1 << 18


class Answers:
    """What completes each question to a triple of the data set, of any part of it.

    Shapes: `questions` int64 [n, 3], the part that is asked for being -1; where all relations are
    -1, too, a triple of any relation counts.
    Cost: one pass over the triples, or over the links of a plain graph; 16 bytes an answer.
    """

    def __init__(self, embedding: Embedding, part: str, questions: NDArray[np.int64]) -> None:
        first, second, asked = _COLUMNS[part]
        if part != "relation" and len(questions) and (questions[:, 1] < 0).all():
            first = second = 2 if part == "head" else 0
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
    """All triples of a knowledge graph, or all links of a plain graph in their directions."""
    if not has_triples(graph):
        undirected = graph.manifest["edge_types"]["edge"].get("undirected", False)
        for links in Triples(Path(graph.root)).chunks():
            yield links
            if undirected:
                yield links[:, ::-1]
        return
    for key in sorted(graph.arrays):
        entry = graph.arrays[key]
        if key.startswith("triples/") and not key.endswith(".weight") and entry["shape"][0]:
            path, shape = graph.root / entry["file"], tuple(entry["shape"])
            triples = np.memmap(path, np.int64, "r", int(entry["data_offset"]), shape)
            for start in range(0, len(triples), _CHUNK):
                yield np.array(triples[start : start + _CHUNK])
