"""Ranks held-out triples with finished embeddings: metrics, ranks, and comparisons."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from outercore.base.sizes import parse_size
from outercore.data.triples import PARTS, Part
from outercore.embedding.config import CandidateKind, EmbedConfig
from outercore.embedding.data.parts import data_of
from outercore.embedding.gradients.chunk import Side
from outercore.embedding.ranking.scoring import (
    RankedTriples,
    Scoring,
    choose,
    count_answers,
    drawn_places,
)
from outercore.errors import CorruptError, InvalidError, NotFoundError
from outercore.files.input_file import require_file
from outercore.files.large_arrays import blocks
from outercore.importing.table.torch_file import read_torch
from outercore.runs.progress import Observer, until_stopped
from outercore.runs.stop import StopRequest, stop_on_signals

if TYPE_CHECKING:
    from outercore.base.native import Progress
    from outercore.embedding.data.parts import EmbedData
    from outercore.embedding.use.embedding import Embedding

GivenCandidates = str | os.PathLike[str] | Mapping[str, ArrayLike]
"""A file `.npz` or `.pt`, or its arrays by name."""
_SIDES: dict[str, Side] = {"tail_neg": "tail", "head_neg": "head", "target_node_neg": "tail"}
"""Names of arrays in ogbl-wikikg2, ogbl-biokg and ogbl-citation2 of OGB."""
_COLUMNS = {"head": 0, "relation": 1, "tail": 2, "source_node": 0, "target_node": 2}
_BLOCK = 1 << 12
"""Number of rows that are checked together."""
_BLOCK_ROWS = 1 << 14
_NORMAL_95 = 1.96
"""Standard errors within which 95 % of normal draws lie."""


def ogb_candidates(
    source: GivenCandidates, part: str, triples: NDArray[np.int64], entities: int
) -> dict[Side, NDArray[Any]]:
    """Reads the candidates of each triple of a part (`train`, `valid`, `test`), by the open side.

    It compares arrays `head`, `relation`, `tail` (or `source_node`, `target_node`) in the file with
    the triples, so that each triple gets its own candidates.

    Shapes: `triples` int64 [m, 3]; results [m, candidates], ids of entities.
    Errors: `InvalidError` for arrays of a wrong shape or type, for other triples, and for entities
    out of range; errors of reading the file.
    """
    what = "negatives" if isinstance(source, Mapping) else f"negatives `{os.fspath(source)}`"
    arrays = {
        name: np.asarray(array) if not isinstance(array, np.ndarray) else array
        for name, array in _arrays(source, what).items()
    }
    candidates = {side: arrays[name] for name, side in _SIDES.items() if name in arrays}
    if not candidates:
        raise InvalidError(
            f"{what}: expected an array {', '.join(f'`{name}`' for name in _SIDES)}, found "
            f"{', '.join(f'`{name}`' for name in arrays) or 'none'}"
        )
    for name in (name for name in _SIDES if name in arrays):
        _check(f"{what}: array `{name}`", arrays[name], part, len(triples), entities)
    for name, column in _COLUMNS.items():
        if name in arrays:
            _require_same(f"{what}: array `{name}`", arrays[name], triples[:, column], part)
    return candidates


def _arrays(source: GivenCandidates, what: str) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    path = Path(source)
    if path.suffix == ".pt":
        read = read_torch(path)
        if not isinstance(read, dict):
            raise InvalidError(f"{what}: expected arrays by name, found {type(read).__name__}")
        return {str(name): array for name, array in read.items() if isinstance(array, np.ndarray)}
    if path.suffix != ".npz":
        raise InvalidError(f"{what}: expected `.npz` or `.pt`, found `{path.name}`")
    require_file(path, "negatives")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError) as error:
        raise CorruptError(f"{what}: expected an `.npz` of arrays: {error}") from error


def _check(what: str, array: NDArray[Any], part: str, count: int, entities: int) -> None:
    if array.ndim != 2 or array.dtype.kind not in "iu" or not array.shape[1]:
        raise InvalidError(
            f"{what}: expected entity ids, integers [n, candidates], found {array.dtype} "
            f"{list(array.shape)}"
        )
    if len(array) != count:
        raise InvalidError(
            f"{what}: expected a row for each of the {count:,} triples in `{part}`, found "
            f"{len(array):,}"
        )
    for first, block in blocks(array, _BLOCK):
        wrong = np.flatnonzero(((block < 0) | (block >= entities)).any(axis=1))
        if len(wrong):
            row = block[wrong[0]]
            bad = row[(row < 0) | (row >= entities)][0]
            raise InvalidError(
                f"{what}: row {first + int(wrong[0])}: found entity {bad}, expected 0 to "
                f"{entities - 1}\nhint: candidates are ids of the data set, which "
                "`outercore embedding export --ids` lists"
            )


def _require_same(what: str, array: NDArray[Any], column: NDArray[np.int64], part: str) -> None:
    array = array.reshape(-1)
    if len(array) != len(column):
        raise InvalidError(
            f"{what}: expected the {len(column):,} triples of `{part}`, found {len(array):,}"
        )
    other = np.flatnonzero(array != column)
    if len(other):
        row = int(other[0])
        raise InvalidError(
            f"{what}: row {row}: found {array[row]}, where `{part}` has {column[row]}\n"
            "hint: negatives belong to the triples of the data set, in their order and by its ids"
        )


class FinishedTables:
    """The tables of a finished run."""

    def __init__(self, embedding: Embedding) -> None:
        self._embedding = embedding
        self.entity_count = embedding.num_entities
        self.relation_count = embedding.num_relations
        self.relations = torch.from_numpy(embedding.relations)

    def rows(self, entities: Tensor) -> Tensor:
        """See `Tables`."""
        return torch.from_numpy(self._embedding.rows(entities.numpy()))

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """See `Tables`."""
        for first, rows in self._embedding.blocks(_BLOCK_ROWS):
            yield torch.arange(first, first + len(rows)), torch.from_numpy(rows)


def assess(
    embedding: Embedding,
    *,
    parts: Sequence[Part] = ("test",),
    candidates: Literal["auto", "all", "uniform", "degree"] = "auto",
    count: int = 1000,
    also: Sequence[CandidateKind] = (),
    filtered: bool = True,
    triples: int = 0,
    negatives: GivenCandidates | None = None,
    seed: int | None = None,
    memory: str | int = "256MiB",
    observer: Observer | None = None,
) -> list[dict[str, Any]]:
    """Ranks the held-out triples of the embedding's data set and returns metrics.

    Args:
        embedding: the embedding.
        parts: the parts to rank: `valid`, `test`, or `train`.
        candidates: kind of candidates. `auto` ranks among all entities unless that takes too long.
        count: number of drawn candidates.
        also: further kinds of candidates, each with its own metrics.
        filtered: also return filtered metrics, which ignore other true answers.
        triples: largest number of triples to rank; 0 for all.
        negatives: candidates of each triple in the form of OGB: arrays `tail_neg` and `head_neg`
            (or `target_node_neg`), integers [triples of the part, candidates], by name, or an
            `.npz` or `.pt` file of them. Then only these candidates are ranked, and ranks are not
            filtered. A mapped array stays on disk.
        seed: seed of all draws. Default: the seed of the run.
        memory: memory for the triples that are ranked in one pass over the table.
        observer: called with the progress.

    Returns:
        The metrics of each part and kind of candidates, with the protocol.

    Raises:
        NotFoundError: the data set lacks the part.
        InvalidError: `negatives` belong to other triples, or are combined with several parts or
            other candidates; an unknown kind of candidates; a row that is not finite; a plain
            graph's run without its configuration.
        InterruptError: a stop was requested.
    """
    with _scoring(
        embedding,
        parts,
        candidates=candidates,
        count=count,
        also=list(also),
        filtered=filtered,
        triples=triples,
        negatives=negatives,
        seed=seed,
        memory=memory,
        observer=observer,
    ) as scoring:
        return scoring.final()


class Ranked(NamedTuple):
    """The ranks of the true ends of some triples."""

    triples: NDArray[np.int64]
    """[m, 3]"""
    reciprocal: NDArray[np.float64]
    """[m, 2]: reciprocal ranks of tail and head. The rank is the mean of the optimistic and the
    pessimistic rank. [m, 1] if only one side has negatives.
    """
    protocol: str
    optimistic: NDArray[np.int64]
    """[m, 2]: ranks if the true end precedes all candidates with the same score."""
    pessimistic: NDArray[np.int64]
    """[m, 2]: ranks if the true end follows all candidates with the same score."""
    candidates: NDArray[np.int64]
    """[m, 2]: number of ranked entities, including the true one."""


def ranks(embedding: Embedding, *, part: Part = "test", **options: Any) -> Ranked:
    """Ranks the held-out triples and returns the ranks of each triple.

    Options and errors are as for `assess`. Ranks are filtered unless `filtered` is false.
    """
    with _scoring(embedding, (part,), **options) as scoring:
        if not scoring.has(part):
            raise NotFoundError(f"data set `{embedding.graph.root}`: `{part}` has no triples")
        ranking = scoring.ranking(part)
        held_out = scoring.triples(part)
    return Ranked(
        held_out.numpy(),
        ranking.reciprocal().numpy(),
        ranking.protocol,
        ranking.optimistic().long().numpy(),
        ranking.pessimistic().long().numpy(),
        ranking.candidates().numpy(),
    )


@contextmanager
def _scoring(
    embedding: Embedding,
    parts: Sequence[Part],
    *,
    triples: int = 0,
    negatives: GivenCandidates | None = None,
    seed: int | None = None,
    memory: str | int = "256MiB",
    observer: Observer | None = None,
    **protocol: Any,
) -> Iterator[Scoring]:
    """Context with the scoring of these parts of the embedding's data set. Ctrl-C stops it.

    Errors: `InvalidError` for an unknown protocol.
    """
    # The options are checked as options of a run. There, `test_triples` stands for any part.
    chosen = EmbedConfig.from_dict({"evaluation": {**protocol, "test_triples": triples}})
    evaluation = chosen.evaluation
    config = _config(embedding)
    # Open the data before the seed changes: in a plain graph, the seed determines the held-out
    # links.
    stop, watch = StopRequest(), observer or Observer()
    progress = until_stopped(watch, stop)
    data = data_of(embedding.graph, config, progress)
    if seed is not None:
        config = replace(config, run=replace(config.run, seed=seed))
    config = replace(config, evaluation=evaluation)
    for part in parts:
        if part not in PARTS:
            raise InvalidError(f"part: expected one of {', '.join(PARTS)}; found `{part}`")
        if part not in data.parts:
            known = ", ".join(data.parts)
            raise NotFoundError(
                f"data set `{embedding.graph.root}`: no triples for `{part}`\nhint: it has {known}"
            )
    held_out = _held_out(embedding, data, config, parts, negatives, progress)
    with stop_on_signals(stop):
        is_filtered = evaluation.filtered and negatives is None
        yield Scoring(
            config,
            embedding.build_model(),
            FinishedTables(embedding),
            data,
            held_out,
            count_answers(data, held_out, progress) if is_filtered else {},
            memory=parse_size(memory),
            observer=watch,
            stop=stop,
        )


def _held_out(
    embedding: Embedding,
    data: EmbedData,
    config: EmbedConfig,
    parts: Sequence[Part],
    negatives: GivenCandidates | None,
    progress: Progress | None,
) -> list[RankedTriples]:
    """The ranked triples of each part, with candidates for each triple, if any."""
    evaluation, seed = config.evaluation, config.run.seed
    most = evaluation.test_triples
    if negatives is None:
        distinct = dict.fromkeys(parts)
        return [choose(part, data.parts[part], most, seed, progress) for part in distinct]
    if evaluation.candidates != "auto" or evaluation.also:
        raise InvalidError(
            "negatives: they are all that triples are ranked among\n"
            "hint: leave out `candidates` and `also`, or the negatives"
        )
    if len(set(parts)) != 1:
        raise InvalidError(
            f"negatives: expected one part, found {', '.join(parts)}\n"
            "hint: each part has negatives of its own; rank one after the other"
        )
    held = choose(parts[0], data.parts[parts[0]], 0, seed, progress)
    entities = embedding.num_entities
    own = ogb_candidates(negatives, parts[0], held.triples.numpy(), entities)
    if not most or held.of <= most:
        return [replace(held, own=own)]
    places = drawn_places(held.part, held.of, most, seed)
    chosen = {side: candidates[places] for side, candidates in own.items()}
    return [replace(held, triples=held.triples[torch.from_numpy(places)], own=chosen)]


def _config(embedding: Embedding) -> EmbedConfig:
    """The configuration of the run; only the model if tables were copied without their run."""
    config = embedding.config
    if config is None:
        if not embedding.graph.schema.has_triples:
            raise InvalidError(
                f"embedding `{embedding.root}`: no `config.json` there, and it alone says which "
                "links were held out\nhint: give the run directory with all that was in it"
            )
        return EmbedConfig(model=embedding.model)
    return replace(config, model=embedding.model)


@dataclass(frozen=True)
class PairedComparison:
    """Mean reciprocal ranks of two embeddings, and the standard error of their difference.

    A triple counts once, with the mean of the reciprocal ranks of its tail and its head. Both
    embeddings rank the same triples, so the difficulty of the triples mostly cancels out.
    """

    protocol: str
    triples: int
    mrr: float
    other_mrr: float
    difference: float
    """The MRR of the other embedding minus the MRR of the first."""
    error: float
    """Standard error of the difference over the triples; infinite for a single triple. Different
    seeds of runs add further variance.
    """
    better: float
    """Share of the triples that the other embedding ranks better."""
    worse: float

    @property
    def within_noise(self) -> bool:
        """Whether equally good embeddings show such a difference in more than 5 % of all cases."""
        return abs(self.difference) <= _NORMAL_95 * self.error

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain JSON values; an infinite error becomes `None`."""
        error = self.error if math.isfinite(self.error) else None
        return {**asdict(self), "error": error, "within_noise": self.within_noise}


def compare(
    first: Embedding, other: Embedding, *, seed: int = 0, **options: Any
) -> PairedComparison:
    """Ranks the same held-out triples with two embeddings and compares them.

    `options` are as for `ranks`. Both embeddings draw candidates with the same `seed`.

    Cost: two rankings.

    Raises:
        InvalidError: the held-out triples or their candidates differ.
    """
    ranked, others = (ranks(embedding, seed=seed, **options) for embedding in (first, other))
    if not np.array_equal(ranked.triples, others.triples):
        raise InvalidError(
            f"`{first.root}` and `{other.root}`: other triples are held out\n"
            "hint: compare runs on one data set, with the same "
            "`--held-out` and `--seed` where these say which"
        )
    if ranked.protocol != others.protocol:
        raise InvalidError(
            f"`{first.root}` ranks {ranked.protocol}; `{other.root}` ranks {others.protocol}\n"
            "hint: give both the same `--candidates`"
        )
    gained = (others.reciprocal - ranked.reciprocal).mean(axis=1)
    count = len(gained)
    return PairedComparison(
        protocol=ranked.protocol,
        triples=count,
        mrr=float(ranked.reciprocal.mean()),
        other_mrr=float(others.reciprocal.mean()),
        difference=float(gained.mean()),
        error=float(gained.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf,
        better=float((gained > 0).mean()),
        worse=float((gained < 0).mean()),
    )
