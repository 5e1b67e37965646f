"""Link prediction: the best completions of triples with one open part.

For an open head or tail, all entities are scored in passes over the table, or only the candidates
of an `Index`. For an open relation, all relations are scored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from outercore import _core
from outercore.base.display import ShortRepr
from outercore.data.triples import QUESTION_COLUMNS
from outercore.embedding.config import EmbedConfig
from outercore.embedding.data.parts import data_of
from outercore.embedding.gradients.chunk import Side
from outercore.embedding.ranking.ranks import require_finite
from outercore.embedding.use.neighbours import (
    LARGEST,
    Found,
    Hidden,
    Search,
    TopK,
    in_groups,
    metric_of,
)
from outercore.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from outercore.embedding.use.embedding import Embedding
    from outercore.embedding.use.neighbours import Index

Open = Literal["head", "relation", "tail"]
Some = str | int | Iterable[str | int] | NDArray[np.integer]


class Answers:
    """Known answers: entities or relations that complete a question to a triple of the data set.

    Triples of all parts of the run count. If the relations of all questions are -1, triples of any
    relation count.

    Shapes: `questions` int64 [n, 3], with -1 for the open part.

    Cost: two passes over the triples, or over the links of a plain graph; 8 bytes per answer.
    """

    def __init__(self, embedding: Embedding, part: str, questions: NDArray[np.int64]) -> None:
        first, second, answer = QUESTION_COLUMNS[part]
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
        """Pairs of a question, counted from the first of `some`, and its answer."""
        return self._known.of(self._questions[some])


@dataclass(frozen=True, repr=False)
class Predictions(ShortRepr):
    """The best completions, best first.

    Shapes: `ids` int64 and `scores` float32 [questions, m]. m is `k`, or less if all questions have
    fewer answers. The last ids of a question with fewer answers are -1.
    """

    part: Open
    """The open part."""
    questions: NDArray[np.int64]
    """int64 [questions, 3]: -1 for the open part, and for a missing relation."""
    ids: NDArray[np.int64]
    """Ids of entities, or of relations if the relation is open."""
    scores: NDArray[np.float32]
    """Scores of the model. Larger is better. They are comparable only within a question."""


def predict(
    embedding: Embedding,
    *,
    head: Some | None = None,
    relation: Some | None = None,
    tail: Some | None = None,
    k: int = 10,
    by_id: bool = False,
    leave_out_known: bool = False,
    index: Index | None = None,
    candidates: ArrayLike | None = None,
) -> Predictions:
    """Predicts the `k` best completions of each question.

    A question has two of head, relation and tail, as names or as ids of entities without names. In
    a plain graph, or with the model `dot`, one of head and tail is enough, because relations do not
    matter. Lists of values make several questions; a single value applies to all of them.

    Args:
        embedding: the embedding to search.
        head: known heads.
        relation: known relations.
        tail: known tails.
        k: number of answers per question.
        by_id: questions are ids, even if entities have names.
        leave_out_known: leave out answers that complete a triple of any part of the data set;
            without a relation, a triple of any relation. In a plain graph a node is never its own
            answer.
        index: an index for the metric of the model, which proposes candidates. Only for heads and
            tails.
        candidates: ids of the entities to search. Default: all.

    Cost: a pass over the table for each 1,024 questions, and questions x entities scores.
    `leave_out_known` adds two passes over the triples of the data set.

    Raises:
        NotFoundError: an unknown name.
        InvalidError: not exactly one part is open, lists have different lengths, or a row is not
            finite.

    Example:
        >>> import outercore as oc
        >>> from outercore.embedding import predict
        >>> found = predict(oc.Embedding.open(tiny_embedding), head=[3, 4], k=5)
        >>> found.part, found.ids.shape
        ('tail', (2, 5))
    """
    plain = _plain(embedding)
    part, questions = _questions(embedding, head, relation, tail, by_id=by_id, plain=plain)
    if index is not None and part == "relation":
        raise InvalidError("predict: an index knows entities, not relations")
    if candidates is not None and part == "relation":
        raise InvalidError("predict: candidates are entities, and a relation is asked for")
    search = Search(embedding, candidates, index)
    scorer = _Scorer(embedding, part)
    known = Answers(embedding, part, questions) if leave_out_known else None

    def answer(group: slice) -> Found:
        found = None if known is None else known.of(group)
        hidden = _hidden(part, questions[group], found, plain=plain)
        if part == "relation":
            return scorer.relations(questions[group], k, hidden)
        return scorer.entities(questions[group], k, hidden, search)

    return Predictions(part, questions, *in_groups(len(questions), answer))


class _Scorer:
    """Scores answers to questions with one open part by the model and its tables."""

    def __init__(self, embedding: Embedding, part: Open) -> None:
        self._embedding, self._part = embedding, part
        self._model = embedding.build_model()
        self._relations = torch.from_numpy(embedding.relations)

    def entities(
        self, questions: NDArray[np.int64], k: int, hidden: Hidden, search: Search
    ) -> Found:
        """The best heads or tails."""
        anchors = self._rows(questions[:, 0 if self._part == "tail" else 2])
        side, relations = self._asked(questions[:, 1])
        if search.index is None:
            return search.table(
                len(questions),
                k,
                lambda some, rows: self._model.scores(side, anchors[some], relations[some], rows),
                hidden,
            )
        metric = metric_of(self._embedding.model, "model")
        # Only custom models lack queries, and they do not support an index.
        model: Any = self._model
        queries = model.queries(side, anchors, relations)
        return search.by_index(metric, queries, k, hidden)

    def relations(self, questions: NDArray[np.int64], k: int, hidden: Hidden) -> Found:
        """The best relations."""
        heads, tails = self._rows(questions[:, 0]), self._rows(questions[:, 2])
        best = TopK(len(questions), k)
        # Use the first rows of relations: the second rows are for questions about heads.
        count = self._embedding.num_relations
        width = max(heads.size(1), 1)
        step = max(1, LARGEST // (width * max(len(heads), 1)))
        for first in range(0, count, step):
            rows = self._relations[first : min(first + step, count)]
            pairs = [
                self._model.paired("tail", heads, row.expand(len(heads), -1), tails) for row in rows
            ]
            scores = torch.stack(pairs, dim=1)
            hidden.hide(scores, 0, first)
            best.offer(first, scores)
        return best.best()

    def _asked(self, relations: NDArray[np.int64]) -> tuple[Side, Tensor]:
        """With reciprocal relations, an open head becomes the open tail of the reverse relation."""
        rows = torch.from_numpy(relations)
        if self._part == "head" and self._embedding.reciprocal:
            return "tail", self._relations[rows + self._embedding.num_relations]
        return cast("Side", self._part), self._relations[rows]

    def _rows(self, entities: NDArray[np.int64]) -> Tensor:
        rows = torch.from_numpy(self._embedding.rows(entities))
        require_finite("question", range(len(rows)), rows)
        return rows


def _plain(embedding: Embedding) -> bool:
    """Whether the embedding is of a plain graph."""
    try:
        return not embedding.graph.schema.has_triples
    except (InvalidError, NotFoundError):
        # Questions by id work without the data set; then decide by the tables.
        return embedding.num_relations == 1 and not embedding.relations.shape[1]


def _hidden(
    part: Open,
    questions: NDArray[np.int64],
    known: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
    *,
    plain: bool,
) -> Hidden:
    """Pairs of questions and ids that are not answers.

    In a plain graph a node is never its own answer, although it is often the nearest.
    """
    rows, ids = known or (np.empty(0, np.int64), np.empty(0, np.int64))
    if plain and part != "relation":
        rows = np.append(rows, np.arange(len(questions)))
        ids = np.append(ids, questions[:, 0 if part == "tail" else 2])
    return Hidden(rows, ids)


def _questions(
    embedding: Embedding,
    head: Some | None,
    relation: Some | None,
    tail: Some | None,
    *,
    by_id: bool,
    plain: bool,
) -> tuple[Open, NDArray[np.int64]]:
    """The open part, and the questions as ids."""
    by_id_relation = by_id
    if relation is None and plain and (head is None) != (tail is None):
        # A plain graph has only one relation.
        relation, by_id_relation = [0], True
    given = {"head": head, "relation": relation, "tail": tail}
    missing = [name for name, some in given.items() if some is None]
    if len(missing) == 2 and relation is None and not embedding.relations.shape[1]:
        # Scores do not depend on the relation.
        missing.remove("relation")
    if len(missing) != 1:
        found = ", ".join(name for name in given if name not in missing) or "nothing"
        raise InvalidError(
            f"predict: expected two of head, relation and tail, found {found}"
            + ("; a plain graph needs one of head and tail" if not missing else "")
        )
    columns = []
    for name, some in given.items():
        if some is None:
            columns.append(np.array([-1], np.int64))
        elif name == "relation":
            columns.append(embedding.relation_ids(some, by_id=by_id_relation))
        else:
            columns.append(embedding.entity_ids(some, by_id=by_id))
    counts = {len(column) for column in columns} - {1}
    if len(counts) > 1:
        sizes = ", ".join(str(len(column)) for column in columns if len(column) != 1)
        raise InvalidError(f"predict: lists of {sizes}, expected the same length, or one")
    count = counts.pop() if counts else 1
    triples = [np.broadcast_to(column, (count,)) for column in columns]
    return cast("Open", missing[0]), np.ascontiguousarray(np.stack(triples, axis=1))
