"""Whether two embeddings answer the same questions equally well."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from outercore.embedding.ranking.assess import ranks
from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.embedding.use.embedding import Embedding

_NORMAL_95 = 1.96
"""Standard errors within which 95 % of normal draws lie."""


@dataclass(frozen=True)
class PairedComparison:
    """Mean reciprocal ranks of two embeddings, and how much of their difference is chance.

    A triple counts once, by the mean of its tail's and its head's reciprocal rank. Both embeddings
    rank the same triples, so most of what makes these hard or easy cancels out.
    """

    protocol: str
    triples: int
    mrr: float
    other_mrr: float
    difference: float
    """The other's MRR less the first one's."""
    error: float
    """Standard error of the difference, by the triples; infinite for a single one. Runs with other
    seeds vary besides."""
    better: float
    """Share of the triples that the other ranks better."""
    worse: float

    @property
    def within_noise(self) -> bool:
        """Whether a difference as large is no surprise between equals: in 5 % of all cases."""
        return abs(self.difference) <= _NORMAL_95 * self.error

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; an infinite error is `None`."""
        error = self.error if math.isfinite(self.error) else None
        return {**asdict(self), "error": error, "within_noise": self.within_noise}


def compare(
    first: Embedding, other: Embedding, *, seed: int = 0, **options: Any
) -> PairedComparison:
    """Ranks the same held-out triples by two embeddings.

    `options` are those of `assess.ranks`; both draw by `seed`.

    Cost: that of ranking twice.

    Raises:
        InvalidError: other triples are held out, or they are ranked among other candidates.
    """
    found, others = (ranks(one, seed=seed, **options) for one in (first, other))
    if not np.array_equal(found.triples, others.triples):
        raise InvalidError(
            f"`{first.root}` and `{other.root}`: other triples are held out\n"
            "hint: compare runs on one data set, with the same "
            "`--held-out` and `--seed` where these say which"
        )
    if found.protocol != others.protocol:
        raise InvalidError(
            f"`{first.root}` ranks {found.protocol}; `{other.root}` ranks {others.protocol}\n"
            "hint: give both the same `--candidates`"
        )
    gained = (others.reciprocal - found.reciprocal).mean(axis=1)
    count = len(gained)
    return PairedComparison(
        protocol=found.protocol,
        triples=count,
        mrr=float(found.reciprocal.mean()),
        other_mrr=float(others.reciprocal.mean()),
        difference=float(gained.mean()),
        error=float(gained.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf,
        better=float((gained > 0).mean()),
        worse=float((gained < 0).mean()),
    )
