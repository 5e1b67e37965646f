"""What a data set says already: true answers to questions.

Needs no PyTorch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outercore import _core
from outercore.data.triples import ASKED
from outercore.embedding.config import EmbedConfig
from outercore.embedding.data.parts import data_of

if TYPE_CHECKING:
    from outercore.embedding.use.embedding import Embedding


class Answers:
    """What completes each question to a triple of the data set, of any part that the run knows.

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
        config = embedding.config or EmbedConfig()
        whole = replace(config.data, held_out=0.0, held_out_triples=0.0)
        data = data_of(embedding.graph, replace(config, data=whole))
        for triples in data.answers("count true answers"):
            self._known.count(triples)
        for triples in data.answers("collect true answers"):
            self._known.add(triples)
        self._known.finish()

    def of(self, some: slice) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs (question counted from the first of these, answer)."""
        return self._known.of(self._questions[some])
