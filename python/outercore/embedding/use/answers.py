"""What a data set says already: true answers to questions.

Needs no PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outercore import _core
from outercore.embedding.data.parts import has_triples
from outercore.triples import ASKED, Triples

if TYPE_CHECKING:
    from outercore.embedding.use.embedding import Embedding
    from outercore.graph import Graph


class Answers:
    """What completes each question to a triple of the data set, of any part of it.

    Shapes: `questions` int64 [n, 3], the part that is asked for being -1; where all relations are
    -1, too, a triple of any relation counts.
    Cost: two passes over the triples, or over the links of a plain graph; 8 bytes an answer.
    """

    def __init__(self, embedding: Embedding, part: str, questions: NDArray[np.int64]) -> None:
        first, second, answer = ASKED[part]
        any_relation = part != "relation" and bool((questions[:, 1] < 0).all())
        scale = embedding.num_entities if part == "relation" else embedding.num_relations
        columns = (first, None if any_relation else second, answer)
        self._questions = questions
        self._known = _core.KnownAnswers(questions, columns, embedding.num_entities, scale)
        for triples in _triples(embedding.graph):
            self._known.count(triples)
        for triples in _triples(embedding.graph):
            self._known.add(triples)
        self._known.finish()

    def of(self, some: slice) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs (question counted from the first of these, answer)."""
        return self._known.of(self._questions[some])


def _triples(graph: Graph) -> Iterator[NDArray[np.int64]]:
    """All triples of a knowledge graph, or all links of a plain graph in their directions."""
    if not has_triples(graph):
        undirected = graph.manifest["edge_types"]["edge"].get("undirected", False)
        for links in Triples(Path(graph.root)).chunks():
            yield links
            if undirected:
                yield links[:, ::-1]
        return
    for name in sorted(graph.arrays):
        entry = graph.arrays[name]
        if name.startswith("triples/") and not name.endswith(".weight") and entry["shape"][0]:
            yield from Triples(graph.root / entry["file"], key=name).chunks()
