"""Predicts links: the best completions of triples with one open part (questions).

The open part is the head, the relation or the tail. For an open head or tail, all entities are
scored in passes over the table, or only the candidates of an `Index`. For an open relation, all
relations are scored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

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
    from outercore.embedding.gradients.models import QueryModel
    from outercore.embedding.use.embedding import Embedding
    from outercore.embedding.use.neighbours import Index

Open = Literal["head", "relation", "tail"]
Some = str | int | Iterable[str | int] | NDArray[np.integer]


class Answers:
    """Known answers: entities or relations that complete a question to a triple of the data set.

    Triples for training, validation and test count. If the relations of all questions are -1,
    triples of any relation count.

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
        """Pairs (question, answer) for the questions `some`. They are counted from its start."""
        return self._known.of(self._questions[some])


@dataclass(frozen=True, repr=False)
class Predictions(ShortRepr):
    """The best completions of each question, best first.

    Shapes: `ids` int64 and `scores` float32 [questions, m]. m is `k`, or less if all questions have
    fewer answers. The last ids of a question with fewer answers are -1.
    """

    part: Open
    """The open part: `head`, `relation` or `tail`."""
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

    A question is a triple with one open part. It has two of head, relation and tail, as names, or
    as ids of entities without names. In a plain graph, or with the model `dot`, head or tail is
    enough, because relations have no effect. Lists of values make several questions; a single value
    applies to all of them.

    Args:
        embedding: the embedding to search.
        head: known heads.
        relation: known relations.
        tail: known tails.
        k: number of answers per question.
        by_id: questions are ids, even if entities have names.
        leave_out_known: leave out answers that complete a triple of the data set, for training,
            validation or test. Without a relation, triples of any relation count. In a plain graph,
            a node is never its own answer.
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
    model, table = embedding.build_model(), torch.from_numpy(embedding.relations)
    known = Answers(embedding, part, questions) if leave_out_known else None

    def rows_of(entities: NDArray[np.int64]) -> Tensor:
        rows = torch.from_numpy(embedding.rows(entities))
        require_finite("question", range(len(rows)), rows)
        return rows

    def entities(group: NDArray[np.int64], hidden: Hidden) -> Found:
        side, anchors = cast("Side", part), rows_of(group[:, 0 if part == "tail" else 2])
        numbers = torch.from_numpy(group[:, 1])
        if side == "head" and embedding.reciprocal:
            # An open head is the open tail of the reverse relation.
            side, numbers = "tail", numbers + embedding.num_relations
        relations = table[numbers]
        if index is not None:
            # Only custom models lack queries and a metric.
            metric, queries = metric_of(embedding.model, "model"), cast("QueryModel", model).queries
            return search.by_index(metric, queries(side, anchors, relations), k, hidden)

        def score(some: slice, rows: Tensor) -> Tensor:
            return model.scores(side, anchors[some], relations[some], rows)

        return search.table(len(group), k, score, hidden)

    def relations(group: NDArray[np.int64], hidden: Hidden) -> Found:
        heads, tails = rows_of(group[:, 0]), rows_of(group[:, 2])
        best = TopK(len(group), k)
        # Use the first rows of relations: the second rows are for predictions of heads.
        count = embedding.num_relations
        step = max(1, LARGEST // (max(heads.size(1), 1) * max(len(heads), 1)))
        for first in range(0, count, step):
            pairs = [
                model.paired("tail", heads, row.expand(len(heads), -1), tails)
                for row in table[first : min(first + step, count)]
            ]
            scores = torch.stack(pairs, dim=1)
            hidden.hide(scores, 0, first)
            best.offer(first, scores)
        return best.best()

    def answer(some: slice) -> Found:
        group = questions[some]
        rows, ids = (np.empty(0, np.int64),) * 2 if known is None else known.of(some)
        if plain and part != "relation":
            # A node is never its own answer, although it is often the nearest.
            rows = np.append(rows, np.arange(len(group)))
            ids = np.append(ids, group[:, 0 if part == "tail" else 2])
        return (relations if part == "relation" else entities)(group, Hidden(rows, ids))

    return Predictions(part, questions, *in_groups(len(questions), answer))


def _plain(embedding: Embedding) -> bool:
    """Whether the embedding is of a plain graph."""
    try:
        return not embedding.graph.schema.has_triples
    except (InvalidError, NotFoundError):
        # Questions by id work without the data set; then decide by the tables.
        return embedding.num_relations == 1 and not embedding.relations.shape[1]


def _questions(
    embedding: Embedding,
    head: Some | None,
    relation: Some | None,
    tail: Some | None,
    *,
    by_id: bool,
    plain: bool,
) -> tuple[Open, NDArray[np.int64]]:
    """The open part, and the questions as ids [questions, 3]."""
    by_id_relation = by_id
    if relation is None and plain and (head is None) != (tail is None):
        # A plain graph has only one relation.
        relation, by_id_relation = [0], True
    parts = {"head": head, "relation": relation, "tail": tail}
    missing = [name for name, some in parts.items() if some is None]
    if len(missing) == 2 and relation is None and not embedding.relations.shape[1]:
        # Scores do not depend on the relation.
        missing.remove("relation")
    if len(missing) != 1:
        found = ", ".join(name for name in parts if name not in missing) or "nothing"
        raise InvalidError(
            f"predict: expected two of head, relation and tail, found {found}"
            + ("; a plain graph needs one of head and tail" if not missing else "")
        )
    columns = []
    for name, some in parts.items():
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
