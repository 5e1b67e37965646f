"""What an embedding run gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.base.display import html_table
from outercore.base.sizes import format_size
from outercore.embedding.use.embedding import Embedding


@dataclass(frozen=True)
class EmbedResult:
    """A finished run."""

    run: Path
    """Its directory."""
    record: dict[str, Any]
    """What happened, as in `record.json`."""

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The figures at the end, each with its `part` and `protocol`."""
        found: list[dict[str, Any]] = self.record["result"]["metrics"]
        return found

    @property
    def mrr(self) -> float | None:
        """The mean reciprocal rank of the test triples, else of the validation triples.

        Filtered where it was filtered; `None` where nothing was held out.
        """
        for part in ("test", "valid"):
            for one in self.metrics:
                if one["part"] == part:
                    return float(one["mrr"])
        return None

    @property
    def entities(self) -> NDArray[np.float32]:
        """The entities' rows by id, mapped: float32 [entities, width]."""
        return self.embedding.entities

    @property
    def relations(self) -> NDArray[np.float32]:
        """The relations' rows; the second half are the reciprocal ones, if there are."""
        return self.embedding.relations

    @cached_property
    def embedding(self) -> Embedding:
        """The same with names, neighbours and predictions."""
        return Embedding.open(self.run)

    def _repr_html_(self) -> str:
        rows, width = self.entities.shape
        figures = [
            (f"{one['part']} MRR, among {one['candidates']}", f"{one['mrr']:.4f}")
            for one in self.metrics
        ]
        table = f"{rows:,} rows of {width:,} numbers, {format_size(self.entities.nbytes)}"
        title = f"Embedding by {self.record['description']['model']}"
        return html_table(title, [*figures, ("entities", table), ("run", str(self.run))])

    def __repr__(self) -> str:
        rows, width = self.entities.shape
        score = "" if self.mrr is None else f", mrr={self.mrr:.4f}"
        size = format_size(self.entities.nbytes)
        return f"EmbedResult(run='{self.run}', entities=[{rows}, {width}] ({size}){score})"
