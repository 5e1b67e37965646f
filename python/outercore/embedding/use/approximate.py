"""Approximate search: an index on disk proposes candidates, the table scores them.

The index is FAISS's: entities in lists by the nearest of many centres, a byte for each number. A
question looks at the lists whose centres are nearest to it. Lists are mapped, so an index need not
fit in memory; it is built in pieces, one file each, of which only one is in memory.

FAISS knows inner products and Euclidean distances. For the sums of absolute values of `transe` and
`rotate` it proposes by Euclidean distance, and more of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.base.native import Progress
from outercore.base.shell import quoted
from outercore.base.sizes import parse_size
from outercore.embedding.ranking.ranks import require_finite
from outercore.embedding.use.embedding import Embedding
from outercore.embedding.use.metrics import measured, metric_of
from outercore.embedding.use.neighbours import neighbours
from outercore.errors import (
    CorruptError,
    InvalidError,
    NotFoundError,
    UnsupportedError,
)
from outercore.files.atomic import Storage, device_errors, replace_file
from outercore.files.checked_json import read_sealed, seal

_VERSION = 2
"""The first one had no checksum."""
_NEEDED = ("metric", "lists", "pieces", "table", "recalls")
_DESCRIPTION = "index.json"
_TRAINING_ROWS = 64
"""Rows a list from which centres are found, where there is memory for them."""
_QUESTIONS = 200
"""Entities whose neighbours are looked up to find out what the index is worth."""
_CHECKED_K = 10
_LEAST_CANDIDATES = 64
_OVER_SAMPLED = {"inner": 4, "cosine": 4, "euclidean": 4, "manhattan": 16, "modulus": 16}
_BY_PRODUCT = ("inner", "cosine")
_BLOCK_BYTES = 8 << 20
_SEED = 0


@dataclass(frozen=True)
class Recall:
    """How many of the true nearest neighbours are found, by lists looked at."""

    probes: int
    recall: float


class Index:
    """Lists of entities on disk, for one metric of one embedding."""

    def __init__(self, root: Path, described: dict[str, Any]) -> None:
        self.root = root
        self.metric: str = described["metric"]
        self.lists: int = described["lists"]
        self.table: str = described["table"]
        """Digest of the table that is indexed."""
        self.recalls = [Recall(**found) for found in described["recalls"]]
        """Recall of the 10 nearest, measured against exact search when the index was built."""
        self._pieces = _mapped(root, described["pieces"])
        self.probes = self.probes_for(0.95)
        """Lists that a question looks at."""

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
        """Builds the index in the run's directory; one that is there for the metric is replaced.

        Args:
            embedding: what to index.
            metric: as in `neighbours`.
            memory: what the rows in work may take, besides FAISS itself and the centres. Where
                64 rows a list and a copy of them are more, centres are found from fewer.
            lists: how many; 0 takes twice the root of the number of entities.
            progress: told what is done.

        Cost: two passes over the table, and a third to measure recall; on disk, about
        `width + 8` bytes an entity.

        Raises:
            UnsupportedError: FAISS is not installed.
            InvalidError: a row that is not finite.
            NoSpaceError, DeviceError.
        """
        # Asked for before anything is written.
        _faiss()
        chosen = metric_of(embedding.model, metric)
        count = lists or max(1, round(2 * embedding.num_entities**0.5))
        count = min(count, embedding.num_entities)
        root = _directory(embedding, chosen)
        # An index that is there stays until there is another.
        new = root.with_name(f"{root.name}.new")
        storage = Storage()
        with device_errors(f"index `{root}`"):
            storage.remove_tree(new)
            storage.make_directory(new)
            room = parse_size(memory)
            empty = _trained(embedding, chosen, count, room, progress)
            pieces = _fill(empty, embedding, chosen, new, room, progress)
            described: dict[str, Any] = {
                "version": _VERSION,
                "metric": chosen,
                "lists": count,
                "pieces": pieces,
                "table": embedding.digest,
                "recalls": [],
            }
            recalls = cls(new, described)._measure(embedding, progress)
            described["recalls"] = [vars(found) for found in recalls]
            for number in range(pieces):
                storage.sync(_piece(new, number))
            storage.sync_directory(new)
            # Last: a directory without it is no index.
            replace_file(storage, new / _DESCRIPTION, seal(described))
            # A crash between the two leaves none, and nothing that is taken for one.
            storage.remove_tree(root)
            storage.rename(new, root)
            storage.sync_directory(root.parent)
        return cls.open(embedding, metric=chosen)

    @classmethod
    def open(cls, embedding: Embedding, *, metric: str = "model", recall: float = 0.95) -> Index:
        """The index that `build` made for this metric.

        It looks at as many lists as had at least `recall` when it was built, at all lists where
        none had.

        Raises:
            NotFoundError: there is none.
            InvalidError: it is of another table, because the run went on.
            UnsupportedError: FAISS is not installed.
        """
        chosen = metric_of(embedding.model, metric)
        root = _directory(embedding, chosen)
        path = root / _DESCRIPTION
        if not path.exists():
            raise NotFoundError(
                f"index `{root}`: there is none\n"
                f"hint: run `outercore embedding index {quoted(embedding.root)} --metric {chosen}`"
            )
        again = f"run `outercore embedding index {quoted(embedding.root)} --metric {chosen}` again"
        described = read_sealed(path, _VERSION, _NEEDED, hint=again)
        index = cls(root, described)
        index.require(embedding, chosen)
        index.probes = index.probes_for(recall)
        return index

    def require(self, embedding: Embedding, metric: str) -> None:
        """Raises `InvalidError` unless this is the index of that table and metric."""
        if metric != self.metric:
            raise InvalidError(
                f"index `{self.root}`: it is for `{self.metric}`, not for `{metric}`"
            )
        if self.table != embedding.digest:
            raise InvalidError(
                f"index `{self.root}`: the table changed since it was built\n"
                f"hint: run `outercore embedding index {quoted(embedding.root)} --metric {metric}` "
                "again"
            )

    def probes_for(self, recall: float) -> int:
        """Lists to look at for this recall."""
        enough = [found.probes for found in self.recalls if found.recall >= recall]
        return min(enough, default=self.lists)

    def candidates(self, queries: Tensor, k: int) -> NDArray[np.int64]:
        """Entities [questions, more than `k`] that may be among the `k` nearest; -1 is none."""
        count = max(_OVER_SAMPLED[self.metric] * k, _LEAST_CANDIDATES)
        rows = measured(self.metric, queries).contiguous().numpy()
        found = []
        for piece in self._pieces:
            piece.nprobe = self.probes
            found.append(piece.search(rows, count))
        if len(found) == 1:
            return np.asarray(found[0][1], np.int64)
        scores = np.concatenate([scores for scores, _ in found], axis=1)
        ids = np.concatenate([ids for _, ids in found], axis=1)
        # Of Euclidean distances the least are the best; a place without an entity is the worst.
        scores = scores if self.metric in _BY_PRODUCT else -scores
        order = np.argsort(np.where(ids < 0, np.inf, -scores), axis=1, kind="stable")
        return np.take_along_axis(ids, order[:, :count], 1).astype(np.int64)

    def _measure(self, embedding: Embedding, progress: Progress) -> list[Recall]:
        """Recall over some entities, by lists looked at, until all are found."""
        count = min(_QUESTIONS, embedding.num_entities)
        random = np.random.default_rng(_SEED)
        ids = np.sort(random.choice(embedding.num_entities, count, replace=False))
        metric: Any = self.metric
        truth = neighbours(embedding, ids, _CHECKED_K, metric=metric, by_id=True)
        found: list[Recall] = []
        probes = 1
        while True:
            progress("measuring recall", probes, self.lists, "lists")
            self.probes = probes
            near = neighbours(embedding, ids, _CHECKED_K, metric=metric, by_id=True, index=self)
            found.append(Recall(probes, recall_of(near.ids, truth.ids)))
            if probes == self.lists or found[-1].recall == 1.0:
                return found
            probes = min(2 * probes, self.lists)


def recall_of(found: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """The share of `truth` [questions, k] that is in `found`; -1 does not count."""
    real = truth >= 0
    if not real.any():
        return 1.0
    hits = (found[:, None, :] == truth[:, :, None]).any(axis=2)
    return float(hits[real].mean())


def _faiss() -> Any:
    if find_spec("faiss") is None:
        raise UnsupportedError(
            "approximate search needs FAISS, which is not installed\n"
            'hint: pip install "outercore[ann]"; exact search needs nothing'
        )
    import faiss

    return faiss


def _directory(embedding: Embedding, metric: str) -> Path:
    return embedding.root / f"index-{metric}"


def _trained(embedding: Embedding, metric: str, lists: int, memory: int, progress: Progress) -> Any:
    """An empty index whose centres are found from a sample of the rows."""
    faiss = _faiss()
    progress("finding centres", 0, lists, "lists")
    measure = faiss.METRIC_INNER_PRODUCT if metric in _BY_PRODUCT else faiss.METRIC_L2
    index = faiss.index_factory(embedding.width, f"IVF{lists},SQ8", measure)
    # The rows and a copy of them; as many as there are centres, which take as much, in any case.
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
    """Writes every entity to a piece, as many to each as fit in memory; returns how many pieces."""
    faiss = _faiss()
    # Lists grow by doubling, so twice the codes; each with an id of 8 bytes.
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


def _mapped(root: Path, pieces: int) -> list[Any]:
    """The pieces of an index, whose lists are mapped and not read."""
    faiss = _faiss()
    try:
        paths = [str(_piece(root, number)) for number in range(pieces)]
        return [faiss.read_index(path, faiss.IO_FLAG_MMAP) for path in paths]
    except RuntimeError as error:
        raise CorruptError(f"index `{root}`: {str(error).splitlines()[-1]}") from None


def _piece(root: Path, number: int) -> Path:
    return root / f"piece-{number}.faiss"
