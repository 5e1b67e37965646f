"""Link prediction: the best completions of triples with one part left open.

An open head or tail is looked for among all entities in passes over the table, or with an `Index`
among the candidates that it proposes. An open relation is looked for among all relations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from outercore.embedding.data import has_triples
from outercore.embedding.models import Model, Side
from outercore.embedding.use.among import Among, without_empty
from outercore.embedding.use.answers import Answers
from outercore.embedding.use.topk import LARGEST, TopK, require_finite
from outercore.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from outercore.embedding.use.approximate import Index
    from outercore.embedding.use.embedding import Embedding

Open = Literal["head", "relation", "tail"]
Some = str | int | Iterable[str | int] | NDArray[np.integer]
GROUP = 1024
"""Questions that share a pass over the table."""


@dataclass(frozen=True)
class Predictions:
    """What was found, best first.

    Shapes: `ids` int64 and `scores` float32 [questions, k], or as many as the question with the
    most answers has. Where another has fewer, its last ids are -1.
    """

    part: Open
    """What was asked for."""
    questions: NDArray[np.int64]
    """int64 [questions, 3], the open part -1, and a relation that `dot` was asked without."""
    ids: NDArray[np.int64]
    """Entities, or relations where they were asked for."""
    scores: NDArray[np.float32]
    """By the model; larger is better, and only comparable within a question."""


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
    """The `k` best completions of each question.

    A question is two of head, relation and tail, by name (by id, where there are no names); of a
    plain graph, which has no relations, or of `dot`, which knows none, one of head and tail is
    enough. Several values make several questions; a single one goes with all of them.

    Args:
        embedding: what to ask.
        head: known heads.
        relation: known relations.
        tail: known tails.
        k: how many answers.
        by_id: questions are ids, though there are names.
        leave_out_known: no answers that make a triple of the data set, whatever part it is of;
            without a relation, a triple of any. In a plain graph a node is never an answer for
            itself.
        index: of the model's own metric, to ask it for candidates; only for heads and tails.
        candidates: ids of entities to look among; all by default.

    Cost: a pass over the table for each 1,024 questions and questions x entities scores; with
    known triples left out, a pass over those.

    Raises:
        NotFoundError: no such name.
        InvalidError: not exactly one part open, lists of different lengths, a row that is not
            finite.

    Example:
        >>> import outercore as oc
        >>> found = oc.Embedding.open(tiny_embedding).predict(head=[3, 4], k=5)
        >>> found.part, found.ids.shape
        ('tail', (2, 5))
    """
    plain = _plain(embedding)
    part, questions = _questions(embedding, head, relation, tail, by_id=by_id, plain=plain)
    if index is not None and part == "relation":
        raise InvalidError("predict: an index knows entities, not relations")
    if candidates is not None and part == "relation":
        raise InvalidError("predict: candidates are entities, and a relation is asked for")
    among = Among(embedding, candidates, index)
    predictor = Predictor(embedding)
    answers = Answers(embedding, part, questions) if leave_out_known else None
    parts = [
        predictor.answer(
            part,
            questions[start : start + GROUP],
            k,
            hidden=_hidden(part, questions, answers, start, plain=plain),
            index=index,
            among=among,
        )
        for start in range(0, max(len(questions), 1), GROUP)
    ]
    found = np.concatenate([ids for ids, _ in parts])
    scores = np.concatenate([some for _, some in parts])
    return Predictions(part, questions, *without_empty(found, scores))


class Predictor:
    """Scores questions by a model and its tables."""

    def __init__(self, embedding: Embedding, model: Model | None = None) -> None:
        self._embedding = embedding
        self._model = embedding.build_model() if model is None else model
        self._relations = torch.from_numpy(embedding.relations)

    def answer(
        self,
        part: Open,
        questions: NDArray[np.int64],
        k: int,
        *,
        hidden: tuple[Tensor, Tensor] | None = None,
        index: Index | None = None,
        among: Among | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Ids and scores [questions, k] of the best answers.

        `hidden` are pairs of a question and an id that is no answer, ids ascending.
        """
        if part == "relation":
            return self._answer_relations(questions, k, hidden)
        anchors = self._rows(questions[:, 0 if part == "tail" else 2])
        side, relations = self._asked(part, questions[:, 1])
        if index is not None:
            return self._answer_by_index(side, anchors, relations, k, hidden, index)
        best = TopK(len(questions), k)
        for first, block in self._embedding.blocks():
            rows = torch.from_numpy(block)
            require_finite("entity", first, rows)
            step = max(1, LARGEST // len(rows))
            for start in range(0, len(questions), step):
                some = slice(start, start + step)
                scores = self._model.scores(side, anchors[some], relations[some], rows)
                _hide(scores, hidden, start, first)
                if among is not None:
                    among.hide_others(scores, first)
                best.offer(first, scores, some)
        return best.best()

    def _answer_by_index(
        self,
        side: Side,
        anchors: Tensor,
        relations: Tensor,
        k: int,
        hidden: tuple[Tensor, Tensor] | None,
        index: Index,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        from outercore.embedding.use.neighbours import metric_of, rescored

        metric = metric_of(self._embedding.model, "model")
        index.require(self._embedding, metric)
        queries = queries_of(self._model, side, anchors, relations)
        most_hidden = 0
        if hidden is not None and len(hidden[0]):
            most_hidden = int(torch.bincount(hidden[0]).max())
        ids = index.candidates(queries, k + most_hidden)
        if hidden is not None:
            known = hidden[0] * self._embedding.num_entities + hidden[1]
            rows = torch.arange(len(ids)).unsqueeze(1) * self._embedding.num_entities
            ids = np.where(torch.isin(rows + torch.from_numpy(ids), known).numpy(), -1, ids)
        return rescored(self._embedding, metric, queries, ids, k)

    def _answer_relations(
        self, questions: NDArray[np.int64], k: int, hidden: tuple[Tensor, Tensor] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        heads, tails = self._rows(questions[:, 0]), self._rows(questions[:, 2])
        best = TopK(len(questions), k)
        # By their first rows: those of the reverse ask for heads.
        count = self._embedding.num_relations
        width = max(heads.size(1), 1)
        step = max(1, LARGEST // (width * max(len(heads), 1)))
        for first in range(0, count, step):
            rows = self._relations[first : min(first + step, count)]
            pairs = [
                self._model.paired("tail", heads, row.expand(len(heads), -1), tails) for row in rows
            ]
            scores = torch.stack(pairs, dim=1)
            _hide(scores, hidden, 0, first)
            best.offer(first, scores)
        return best.best()

    def _asked(self, part: Open, relations: NDArray[np.int64]) -> tuple[Side, Tensor]:
        """With reciprocal relations a head is the tail of the reverse."""
        rows = torch.from_numpy(relations)
        if part == "head" and self._embedding.reciprocal:
            return "tail", self._relations[rows + self._embedding.num_relations]
        return cast("Side", part), self._relations[rows]

    def _rows(self, entities: NDArray[np.int64]) -> Tensor:
        rows = torch.from_numpy(self._embedding.rows(entities))
        require_finite("question", 0, rows)
        return rows


def queries_of(model: Model, side: Side, anchors: Tensor, relations: Tensor) -> Tensor:
    """What candidates are compared with by the model's similarity.

    Errors: `InvalidError` for a model that is none of the built-in ones.
    """
    queries = getattr(model, "queries", None)
    if queries is None:
        raise InvalidError(
            f"model `{model.name}`: it has no queries that an index could search for"
        )
    return cast("Tensor", queries(side, anchors, relations))


def _plain(embedding: Embedding) -> bool:
    """Whether the nodes of a plain graph were embedded."""
    try:
        return not has_triples(embedding.graph)
    except (InvalidError, NotFoundError):
        # Questions by id need no data set; without it the tables say what they can.
        return embedding.num_relations == 1 and not embedding.relations.shape[1]


def _hidden(
    part: Open,
    questions: NDArray[np.int64],
    answers: Answers | None,
    start: int,
    *,
    plain: bool,
) -> tuple[Tensor, Tensor] | None:
    """What is no answer for a group of questions: (question of the group, id), ids ascending.

    In a plain graph a node is none for itself; it is often the nearest, and so the first.
    """
    known = None if answers is None else answers.of(start, start + GROUP)
    if part == "relation" or not plain:
        return known
    asked = questions[start : start + GROUP, 0 if part == "tail" else 2]
    rows, ids = torch.arange(len(asked)), torch.from_numpy(asked.copy())
    if known is not None:
        rows, ids = torch.cat([known[0], rows]), torch.cat([known[1], ids])
    ids, order = ids.sort(stable=True)
    return rows[order], ids


def _hide(scores: Tensor, hidden: tuple[Tensor, Tensor] | None, start: int, first: int) -> None:
    """Takes the pairs that lie in this block of scores, [questions, candidates], out of it."""
    if hidden is None:
        return
    rows, ids = hidden
    begin, end = torch.searchsorted(ids, torch.tensor([first, first + scores.size(1)])).tolist()
    rows, ids = rows[begin:end] - start, ids[begin:end] - first
    here = (rows >= 0) & (rows < scores.size(0))
    scores[rows[here], ids[here]] = -torch.inf


def _questions(
    embedding: Embedding,
    head: Some | None,
    relation: Some | None,
    tail: Some | None,
    *,
    by_id: bool,
    plain: bool,
) -> tuple[Open, NDArray[np.int64]]:
    """The open part, and the questions by id."""
    by_id_relation = by_id
    if relation is None and plain and (head is None) != (tail is None):
        # Of a plain graph there is only one relation to mean.
        relation, by_id_relation = [0], True
    given = {"head": head, "relation": relation, "tail": tail}
    missing = [name for name, some in given.items() if some is None]
    if len(missing) == 2 and relation is None and not embedding.relations.shape[1]:
        # Scores are the same whatever the relation.
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
            columns.append(embedding.relation_ids(_listed(some), by_id=by_id_relation))
        else:
            columns.append(embedding.entity_ids(_listed(some), by_id=by_id))
    counts = {len(column) for column in columns} - {1}
    if len(counts) > 1:
        sizes = ", ".join(str(len(column)) for column in columns if len(column) != 1)
        raise InvalidError(f"predict: lists of {sizes}, expected the same length, or one")
    count = counts.pop() if counts else 1
    triples = [np.broadcast_to(column, (count,)) for column in columns]
    return cast("Open", missing[0]), np.ascontiguousarray(np.stack(triples, axis=1))


def _listed(some: Some) -> list[str | int]:
    return [some] if isinstance(some, (str, int)) else list(some)
