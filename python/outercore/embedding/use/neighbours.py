"""Finds the nearest neighbours of entities, by the metric of the model.

A question is one search, for the neighbours of an entity or a row. The search is exact by default:
one pass over the table answers a group of questions. With an `Index`, it reads only a few lists of
entities, and scores the entities in them exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from outercore.base.display import ShortRepr
from outercore.base.native import Progress
from outercore.base.shell import quoted
from outercore.base.sizes import parse_size
from outercore.embedding.gradients.models import Euclidean, Inner, Manhattan, Modulus
from outercore.embedding.ranking.ranks import require_finite
from outercore.embedding.use.embedding import Embedding
from outercore.errors import (
    CorruptError,
    InvalidError,
    NotFoundError,
    UnsupportedError,
)
from outercore.files.atomic import Storage, device_errors, replace_file
from outercore.files.checked_json import checked_json_bytes, read_checked_json

if TYPE_CHECKING:
    from outercore.embedding.config import ModelConfig

_COLUMNS = 64
"""Number of columns per group. The search first compares only the maximum of each group."""
GROUP = 1024
"""Number of questions that share a pass over the table."""
LARGEST = 1 << 22
"""Largest number of scores in memory at the same time."""
Found = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Ids and scores [questions, k], best first."""
Metric = Literal["model", "inner", "cosine", "euclidean", "manhattan", "modulus"]
_SIMILARITIES: dict[str, Inner] = {
    "inner": Inner(),
    "cosine": Inner(),
    "euclidean": Euclidean(),
    "manhattan": Manhattan(),
    "modulus": Modulus(),
}
_VERSION = 2
"""Version 1 lacks a checksum."""
_NEEDED = ("metric", "lists", "pieces", "table", "recalls")
_DESCRIPTION = "index.json"
_TRAINING_ROWS = 64
"""Number of rows per list that train the centres, if memory permits."""
_QUESTIONS = 200
"""Number of entities whose neighbours are searched to measure the recall of the index."""
_CHECKED_K = 10
_LEAST_CANDIDATES = 64
_OVER_SAMPLED = {"inner": 4, "cosine": 4, "euclidean": 4, "manhattan": 16, "modulus": 16}
_BY_PRODUCT = ("inner", "cosine")
_BLOCK_BYTES = 8 << 20
_SEED = 0


class TopK:
    """The `k` highest scores of each question so far, and their ids.

    Equal scores are in the order of ids, so the result does not depend on the blocks. Scores of
    minus infinity are ignored.
    """

    def __init__(self, questions: int, k: int) -> None:
        if k < 1:
            raise InvalidError(f"k: expected at least 1, found {k}")
        self._k = k
        self._scores = torch.full((questions, k), -torch.inf)
        self._ids = torch.full((questions, k), -1, dtype=torch.int64)

    def offer(self, first: int, scores: Tensor, some: slice = slice(None)) -> None:
        """Adds scores of the candidates `first`, `first` + 1, ... for the questions `some`.

        Call it in the order of ids. Shapes: `scores` [questions, candidates]; the array is not
        stored.
        """
        best, ids = _best(scores, min(self._k, scores.size(1)))
        # Earlier candidates have lower ids. They are first in the array and win ties.
        best = torch.cat([self._scores[some], best], dim=1)
        ids = torch.cat([self._ids[some], ids + first], dim=1)
        best, order = best.sort(dim=1, descending=True, stable=True)
        best, ids = best[:, : self._k], ids.gather(1, order)[:, : self._k]
        self._scores[some] = best
        self._ids[some] = torch.where(best == -torch.inf, -1, ids)

    def best(self) -> Found:
        """Ids and scores [questions, k], best first; -1 and minus infinity for missing answers."""
        return self._ids.numpy(), self._scores.numpy()


def _best(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best scores of each row, and their columns. Of equal scores, the first ones win.

    Only the groups of columns with the highest maxima can hold the best scores. Searching only them
    is ten times as fast as a comparison of every column.
    """
    rows, columns = scores.shape
    grouped = columns // _COLUMNS * _COLUMNS
    if grouped < 4 * _COLUMNS * count:
        return _best_of_all(scores, count)
    highest = scores[:, :grouped].unflatten(1, (-1, _COLUMNS)).amax(dim=2)
    groups = _best_of_all(highest, count)[1].sort(dim=1).values
    places = (groups.unsqueeze(2) * _COLUMNS + torch.arange(_COLUMNS)).flatten(1)
    rest = torch.arange(grouped, columns).expand(rows, -1)
    places = torch.cat([places, rest], dim=1)
    best, among = _best_of_all(scores.gather(1, places), count)
    return best, places.gather(1, among)


def _best_of_all(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Like `_best`, but compares every column."""
    best, places = scores.topk(count, dim=1)
    least = best[:, -1:]
    # If several columns tie for the last place, `topk` returns any of them.
    crowded = (((scores >= least).sum(dim=1) > count) & (least[:, 0] > -torch.inf)).nonzero()[:, 0]
    for row in crowded.tolist():
        above = (scores[row] > least[row]).nonzero()[:, 0]
        level = (scores[row] == least[row]).nonzero()[: count - len(above), 0]
        places[row] = torch.cat([above, level])
    places = places.sort(dim=1).values
    best, order = scores.gather(1, places).sort(dim=1, descending=True, stable=True)
    return best, places.gather(1, order)


class Hidden:
    """Pairs of a question and an id that must not be its answer, each int64 [pairs]."""

    def __init__(self, questions: ArrayLike = (), ids: ArrayLike = ()) -> None:
        of, hidden = (torch.from_numpy(np.array(some, np.int64)) for some in (questions, ids))
        self._ids, order = hidden.sort(stable=True)
        self._questions = of[order]

    @property
    def most(self) -> int:
        """The largest number of hidden ids of one question."""
        return int(torch.bincount(self._questions, minlength=1).max())

    def hide(self, scores: Tensor, start: int, first: int) -> None:
        """Sets hidden scores to minus infinity. `start`, `first`: first question and first id."""
        bounds = torch.tensor([first, first + scores.size(1)])
        begin, end = torch.searchsorted(self._ids, bounds).tolist()
        rows, ids = self._questions[begin:end] - start, self._ids[begin:end] - first
        here = (rows >= 0) & (rows < scores.size(0))
        scores[rows[here], ids[here]] = -torch.inf

    def remove(self, ids: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Replaces hidden ids by -1 in `ids` [questions, n]. All ids must be below `count`."""
        pairs = np.arange(len(ids))[:, None] * count + ids
        return np.where(np.isin(pairs, (self._questions * count + self._ids).numpy()), -1, ids)


class Search:
    """The candidates of a search: all entities, a subset of ids, or candidates from an index.

    Errors: `InvalidError` for an unknown id, an empty list, or candidates together with an index.
    """

    def __init__(
        self, embedding: Embedding, candidates: ArrayLike | None, index: Index | None
    ) -> None:
        self.embedding, self.index = embedding, index
        self._others: Tensor | None = None
        if candidates is None:
            return
        if index is not None:
            raise InvalidError(
                "candidates: an index looks among all entities\n"
                "hint: leave out `--approximate`, or the candidates"
            )
        ids = embedding.entity_ids(np.asarray(candidates).reshape(-1).tolist(), by_id=True)
        if not len(ids):
            raise InvalidError("candidates: expected at least one entity, found none")
        self._others = torch.ones(embedding.num_entities, dtype=torch.bool)
        self._others[torch.from_numpy(ids)] = False

    def table(
        self, questions: int, k: int, score: Callable[[slice, Tensor], Tensor], hidden: Hidden
    ) -> Found:
        """The best `k` candidates for a number of `questions`, in one pass over the table.

        `score` computes scores [questions, entities], for a slice of the questions and a block of
        rows.
        """
        best = TopK(questions, k)
        for first, block in self.embedding.blocks():
            rows = torch.from_numpy(block)
            require_finite("entity", range(first, first + len(rows)), rows)
            step = max(1, LARGEST // len(rows))
            for start in range(0, questions, step):
                some = slice(start, start + step)
                scores = score(some, rows)
                hidden.hide(scores, start, first)
                if self._others is not None:
                    scores[:, self._others[first : first + len(rows)]] = -torch.inf
                best.offer(first, scores, some)
        return best.best()

    def by_index(self, metric: str, queries: Tensor, k: int, hidden: Hidden) -> Found:
        """The best `k` of the candidates that the index proposes, each scored exactly."""
        assert self.index is not None
        self.index.require(self.embedding, metric)
        ids = self.index.candidates(queries, k + hidden.most)
        ids = hidden.remove(ids, self.embedding.num_entities)
        return rescored(self.embedding, metric, queries, ids, k)


def in_groups(questions: int, answer: Callable[[slice], Found]) -> Found:
    """Answers all questions in groups of `GROUP`. `answer` answers one group.

    Columns without an answer to any question are left out.
    """
    groups = [slice(start, start + GROUP) for start in range(0, max(questions, 1), GROUP)]
    answers = [answer(group) for group in groups]
    ids, scores = (np.concatenate(column) for column in zip(*answers, strict=True))
    width = int((ids >= 0).any(axis=0).sum())
    return ids[:, :width], scores[:, :width]


def metric_of(model: ModelConfig, metric: str) -> str:
    """The metric for the value `metric` of the option; for `model`, the metric of the model.

    Errors: `InvalidError` for an unknown name, and for a model without a metric.
    """
    if metric in _SIMILARITIES:
        if metric == "modulus" and model.dim % 2:
            raise InvalidError("metric `modulus`: a row has no halves to be complex numbers")
        return metric
    if metric != "model":
        known = ", ".join(["model", *_SIMILARITIES])
        raise InvalidError(f"metric: expected one of {known}; found `{metric}`")
    if model.similarity is None:
        raise InvalidError(
            "metric `model`: a score function of one's own says no distance\n"
            "hint: for neighbours choose one, for example `--metric cosine`; leave out "
            "`--approximate`: predictions are exact then"
        )
    return model.similarity


def measured(metric: str, rows: Tensor) -> Tensor:
    """Rows in the form for comparisons: for `cosine`, rows other than zeros get the length 1."""
    return torch.nn.functional.normalize(rows, dim=1, eps=1e-30) if metric == "cosine" else rows


def rescored(
    embedding: Embedding, metric: str, queries: Tensor, ids: NDArray[np.int64], k: int
) -> Found:
    """The best `k` of the candidates `ids` [questions, n], of which -1 means none.

    Each candidate is scored separately, without a matrix product. The rounding of a matrix product
    depends on the number of candidates, but scores must not.
    """
    questions, count = ids.shape
    scores = torch.full((questions, count), -torch.inf)
    queries = measured(metric, queries)
    step = max(1, LARGEST // max(count * queries.size(1), 1))
    for start in range(0, questions, step):
        block = ids[start : start + step]
        real = torch.from_numpy(block >= 0).reshape(-1)
        rows = torch.from_numpy(embedding.rows(np.maximum(block, 0)))
        repeated = queries[start : start + step].repeat_interleave(count, dim=0)
        of_pairs = _SIMILARITIES[metric].paired(repeated, measured(metric, rows))
        scores[start : start + step] = torch.where(real, of_pairs, -torch.inf).view(-1, count)
    # Sort by id first, so that equal scores are in the order of ids.
    by_id = torch.from_numpy(ids).argsort(dim=1, stable=True)
    scores = scores.gather(1, by_id)
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    places = by_id.gather(1, order)[:, :k].numpy()
    return np.take_along_axis(ids, places, 1), scores[:, :k].numpy()


@dataclass(frozen=True, repr=False)
class Nearest(ShortRepr):
    """The nearest entities of each question, best first.

    Shapes: [questions, m]. m is `k`, or less if all questions have fewer neighbours. The last ids
    of a question with fewer neighbours are -1.
    """

    metric: str
    """The metric: `inner`, `cosine`, or the name of the distance."""
    ids: NDArray[np.int64]
    scores: NDArray[np.float32]
    """Larger is nearer; distances are negative."""


def neighbours(
    embedding: Embedding,
    of: str | int | Iterable[str | int] | NDArray[np.floating],
    k: int = 10,
    *,
    metric: Metric = "model",
    by_id: bool = False,
    itself: bool = False,
    index: Index | None = None,
    candidates: ArrayLike | None = None,
) -> Nearest:
    """Finds the `k` nearest entities of each given entity or row (question).

    Args:
        embedding: the embedding to search.
        of: the questions: names of entities, ids of entities without names, or rows float32
            [questions, width].
        k: number of neighbours per question.
        metric: `model` uses the metric of the score function: the inner product for `dot`,
            `distmult`, `complex` and `simple`, the distance for `transe` and `rotate`.
        by_id: `of` are ids, even if entities have names.
        itself: whether an entity may be its own neighbour.
        index: proposes candidates and so avoids a pass over the whole table.
        candidates: ids of the entities to search. Default: all.

    Cost: a pass over the table for each 1,024 questions, and questions x entities scores. With an
    index: the searched lists, and a few rows per question.

    Raises:
        NotFoundError: an unknown name.
        InvalidError: an unknown id, a row of a wrong width, a row that is not finite, or an index
            of another metric.

    Example:
        >>> import outercore as oc
        >>> from outercore.embedding import neighbours
        >>> found = neighbours(oc.Embedding.open(tiny_embedding), [7], k=3)
        >>> found.metric, found.ids.shape
        ('inner', (1, 3))
    """
    chosen = metric_of(embedding.model, metric)
    search = Search(embedding, candidates, index)
    own = None
    if isinstance(of, np.ndarray) and of.dtype.kind == "f":
        if of.ndim != 2 or of.shape[1] != embedding.width:
            raise InvalidError(
                f"neighbours: rows of shape {list(of.shape)}, expected [n, {embedding.width}]"
            )
        rows = np.ascontiguousarray(of, np.float32)
    else:
        ids = embedding.entity_ids(of, by_id=by_id)
        rows, own = embedding.rows(ids), None if itself else ids

    def nearest(group: slice) -> Found:
        queries = torch.from_numpy(rows[group])
        require_finite("question", range(len(queries)), queries)
        hidden = Hidden() if own is None else Hidden(range(len(queries)), own[group])
        if index is not None:
            return search.by_index(chosen, queries, k, hidden)
        prepared, similarity = measured(chosen, queries), _SIMILARITIES[chosen]

        def score(some: slice, block: Tensor) -> Tensor:
            return similarity.scores(prepared[some], measured(chosen, block))

        best, _ = search.table(len(queries), k, score, hidden)
        return rescored(embedding, chosen, queries, best, k)

    return Nearest(chosen, *in_groups(len(rows), nearest))


def neighbours_of_all(
    embedding: Embedding,
    k: int = 10,
    *,
    metric: Metric = "model",
    index: Index | None = None,
    candidates: ArrayLike | None = None,
) -> Iterator[tuple[int, Nearest]]:
    """Finds the neighbours of every entity, 1,024 at a time: (first entity, neighbours).

    Cost: as for `neighbours` with all entities. Without an index it is quadratic in their number.
    """
    for start in range(0, embedding.num_entities, GROUP):
        ids = np.arange(start, min(start + GROUP, embedding.num_entities))
        options: Any = {"metric": metric, "index": index, "candidates": candidates}
        yield start, neighbours(embedding, ids, k, by_id=True, **options)


@dataclass(frozen=True)
class Recall:
    """Recall of an index: the share of the true nearest neighbours that a search finds."""

    probes: int
    recall: float


class Index:
    """An inverted file of FAISS on disk, for one metric of one embedding.

    Each entity is in the list of its nearest centre, with one byte per dimension. A question
    searches the lists with the nearest centres. Lists are mapped, so the index may exceed memory.
    It is built in pieces with one file each, and only one piece is in memory.

    FAISS supports inner products and Euclidean distances. For the sums of absolute values of
    `transe` and `rotate`, it proposes more candidates, by Euclidean distance.
    """

    def __init__(self, root: Path, description: dict[str, Any]) -> None:
        self.root = root
        self.metric: str = description["metric"]
        self.lists: int = description["lists"]
        self.table: str = description["table"]
        """Digest of the indexed table."""
        self.recalls = [Recall(**recall) for recall in description["recalls"]]
        """Recall of the 10 nearest neighbours against exact search, measured by `build`."""
        try:
            paths = [str(_piece(root, number)) for number in range(description["pieces"])]
            # The lists are mapped.
            self._pieces = [_faiss().read_index(path, _faiss().IO_FLAG_MMAP) for path in paths]
        except RuntimeError as error:
            raise CorruptError(f"index `{root}`: {str(error).splitlines()[-1]}") from None
        self.probes = self.probes_for(0.95)
        """Number of lists that a question searches."""

    @classmethod
    def build(
        cls,
        embedding: Embedding,
        *,
        metric: str = "model",
        memory: str | int = "1GiB",
        lists: int = 0,
        progress: Progress = lambda *_: None,
    ) -> Index:
        """Builds the index in the run's directory. An existing index for the metric is replaced.

        Args:
            embedding: the embedding to index.
            metric: as for `neighbours`.
            memory: memory for rows; FAISS and the centres need memory in addition. If 64 rows per
                list and a copy of them exceed it, centres are trained on fewer rows.
            lists: number of lists. 0: twice the square root of the number of entities.
            progress: called with the progress.

        Cost: two passes over the table, and a third pass to measure recall. On disk, about
        `width + 8` bytes per entity.

        Raises:
            UnsupportedError: FAISS is not installed.
            InvalidError: a row is not finite.
            NoSpaceError: the device is full.
            DeviceError: the device reports another error.
        """
        # Check the installation before anything is written.
        _faiss()
        chosen = metric_of(embedding.model, metric)
        count = lists or max(1, round(2 * embedding.num_entities**0.5))
        count = min(count, embedding.num_entities)
        root = embedding.root / f"index-{chosen}"
        # An existing index stays until the new one is complete.
        new = root.with_name(f"{root.name}.new")
        storage = Storage()
        with device_errors(f"index `{root}`"):
            storage.remove_tree(new)
            storage.make_directory(new)
            room = parse_size(memory)
            empty = _trained(embedding, chosen, count, room, progress)
            pieces = _fill(empty, embedding, chosen, new, room, progress)
            description: dict[str, Any] = {
                "version": _VERSION,
                "metric": chosen,
                "lists": count,
                "pieces": pieces,
                "table": embedding.digest,
                "recalls": [],
            }
            recalls = cls(new, description)._measure(embedding, progress)
            description["recalls"] = [vars(recall) for recall in recalls]
            for number in range(pieces):
                storage.sync(_piece(new, number))
            storage.sync_directory(new)
            # This file makes the directory an index, so it is written last.
            replace_file(storage, new / _DESCRIPTION, checked_json_bytes(description))
            # After a crash between the two steps, the index is missing, but never incomplete.
            storage.remove_tree(root)
            storage.rename(new, root)
            storage.sync_directory(root.parent)
        return cls.open(embedding, metric=chosen)

    @classmethod
    def open(cls, embedding: Embedding, *, metric: str = "model", recall: float = 0.95) -> Index:
        """Opens the index that `build` made for this metric.

        A question searches the smallest number of lists with at least this `recall` in the
        measurement of `build`; all lists if none reached it.

        Raises:
            NotFoundError: the index is missing.
            InvalidError: the index belongs to an older table, because the run was resumed.
            UnsupportedError: FAISS is not installed.
        """
        chosen = metric_of(embedding.model, metric)
        root = embedding.root / f"index-{chosen}"
        path, build = root / _DESCRIPTION, _build(embedding, chosen)
        if not path.exists():
            raise NotFoundError(f"index `{root}`: there is none\nhint: {build}")
        index = cls(root, read_checked_json(path, _VERSION, _NEEDED, hint=f"{build} again"))
        index.require(embedding, chosen)
        index.probes = index.probes_for(recall)
        return index

    def require(self, embedding: Embedding, metric: str) -> None:
        """Errors: `InvalidError` if the index belongs to another table or metric."""
        if metric != self.metric:
            raise InvalidError(
                f"index `{self.root}`: it is for `{self.metric}`, not for `{metric}`"
            )
        if self.table != embedding.digest:
            raise InvalidError(
                f"index `{self.root}`: the table changed since it was built\n"
                f"hint: {_build(embedding, metric)} again"
            )

    def probes_for(self, recall: float) -> int:
        """Number of lists to search for this recall."""
        enough = [each.probes for each in self.recalls if each.recall >= recall]
        return min(enough, default=self.lists)

    def candidates(self, queries: Tensor, k: int) -> NDArray[np.int64]:
        """Candidates for the `k` nearest entities, [questions, more than `k`]; -1 means none."""
        count = max(_OVER_SAMPLED[self.metric] * k, _LEAST_CANDIDATES)
        rows = measured(self.metric, queries).contiguous().numpy()
        answers = []
        for piece in self._pieces:
            piece.nprobe = self.probes
            answers.append(piece.search(rows, count))
        scores, ids = (np.concatenate(columns, axis=1) for columns in zip(*answers, strict=True))
        # The smallest Euclidean distances are the best. Missing candidates come last.
        scores = scores if self.metric in _BY_PRODUCT else -scores
        order = np.argsort(np.where(ids < 0, np.inf, -scores), axis=1, kind="stable")
        return np.take_along_axis(ids, order[:, :count], 1).astype(np.int64)

    def _measure(self, embedding: Embedding, progress: Progress) -> list[Recall]:
        """Measures recall for a sample of entities, with more lists until it reaches 1."""
        count = min(_QUESTIONS, embedding.num_entities)
        random = np.random.default_rng(_SEED)
        ids = np.sort(random.choice(embedding.num_entities, count, replace=False))
        metric: Any = self.metric
        truth = neighbours(embedding, ids, _CHECKED_K, metric=metric, by_id=True)
        recalls: list[Recall] = []
        probes = 1
        while True:
            progress("measuring recall", probes, self.lists, "lists")
            self.probes = probes
            near = neighbours(embedding, ids, _CHECKED_K, metric=metric, by_id=True, index=self)
            recalls.append(Recall(probes, recall_of(near.ids, truth.ids)))
            if probes == self.lists or recalls[-1].recall == 1.0:
                return recalls
            probes = min(2 * probes, self.lists)


def recall_of(found: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """The share of the ids in `truth` [questions, k] that are in `found`; -1 is ignored."""
    real = truth >= 0
    if not real.any():
        return 1.0
    hits = (found[:, None, :] == truth[:, :, None]).any(axis=2)
    return float(hits[real].mean())


def _build(embedding: Embedding, metric: str) -> str:
    return f"run `outercore embedding index {quoted(embedding.root)} --metric {metric}`"


def _faiss() -> Any:
    if find_spec("faiss") is None:
        raise UnsupportedError(
            "approximate search needs FAISS, which is not installed\n"
            'hint: pip install "outercore[ann]"; exact search needs nothing'
        )
    import faiss

    return faiss


def _trained(embedding: Embedding, metric: str, lists: int, memory: int, progress: Progress) -> Any:
    """An empty index with centres that are trained on a sample of the rows."""
    faiss = _faiss()
    progress("finding centres", 0, lists, "lists")
    measure = faiss.METRIC_INNER_PRODUCT if metric in _BY_PRODUCT else faiss.METRIC_L2
    index = faiss.index_factory(embedding.width, f"IVF{lists},SQ8", measure)
    # Memory for the rows and a copy, but at least as many rows as centres.
    room = max(lists, memory // (2 * 4 * max(embedding.width, 1)))
    count = min(embedding.num_entities, _TRAINING_ROWS * lists, room)
    random = np.random.default_rng(_SEED)
    ids = np.sort(random.choice(embedding.num_entities, count, replace=False, shuffle=False))
    rows = torch.from_numpy(embedding.rows(ids))
    require_finite("entity", ids, rows)
    index.cp.seed = _SEED + 1
    index.cp.min_points_per_centroid = 1
    index.train(measured(metric, rows).numpy())
    return index


def _fill(
    empty: Any,
    embedding: Embedding,
    metric: str,
    root: Path,
    memory: int,
    progress: Progress,
) -> int:
    """Writes all entities to pieces that fit in memory. Returns the number of pieces."""
    faiss = _faiss()
    # Lists grow by doubling, so count the codes twice; each has an id of 8 bytes.
    room = max(1, memory // (2 * (embedding.width + 8)))
    pieces, piece = 0, None
    step = min(room, max(1, _BLOCK_BYTES // (4 * max(embedding.width, 1))))
    for first, block in embedding.blocks(step):
        rows = torch.from_numpy(block)
        require_finite("entity", range(first, first + len(rows)), rows)
        if piece is None:
            piece = faiss.clone_index(empty)
        done = first + len(block)
        piece.add_with_ids(measured(metric, rows).numpy(), np.arange(first, done))
        progress("adding entities", done, embedding.num_entities, "entities")
        if piece.ntotal >= room or done == embedding.num_entities:
            faiss.write_index(piece, str(_piece(root, pieces)))
            pieces, piece = pieces + 1, None
    return pieces


def _piece(root: Path, number: int) -> Path:
    return root / f"piece-{number}.faiss"
