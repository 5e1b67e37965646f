"""Texts numbered from 0 by a dictionary on disk, within a budget of memory.

The importer of triples of the core builds it: each pair of texts is a triple of one relation. The
triples by ids are then the numbers of the pairs, in their order. Names are numbered by their length
in bytes, then by their bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from outercore.base.native import Names, Progress, TripleImporter
from outercore.data.directories import MANIFEST
from outercore.data.graph import Graph
from outercore.data.schema import Schema
from outercore.errors import REFUSALS
from outercore.files.atomic import remove_at_once
from outercore.files.large_arrays import mapped

Part = Literal["train", "valid"]
"""Two lists of pairs that a dictionary may have."""


class Dictionary:
    """A dictionary in the directory `place`; a context that removes it.

    `inputs` tell another dictionary. After an interrupt it stays, and the next build resumes.

    Cost: 24 bytes a pair on disk, and the texts.
    """

    def __init__(self, place: Path, inputs: list[str]) -> None:
        self.place = place
        self._inputs = inputs
        self._is_ours = False

    def __enter__(self) -> Dictionary:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._is_ours and (kind is None or issubclass(kind, REFUSALS)):
            remove_at_once(self.place)

    def build(
        self, memory: int, progress: Progress, pairs: Iterable[tuple[Part, Names, Names]]
    ) -> Graph:
        """The dictionary of all `pairs`, as a data set of names; they are not read where it is
        complete."""
        options = {
            "memory": memory,
            "unknown": "keep",
            "inputs": self._inputs,
            # Drops the dictionary of other inputs that an interrupted import left behind.
            "overwrite": True,
        }
        if not self._is_complete():
            with TripleImporter(self.place, options, progress) as importer:
                self._is_ours = True
                for part, first, second in pairs:
                    count = len(first[0]) - 1
                    relation = np.arange(count + 1), np.full(count, ord("e"), np.uint8)
                    importer.push(part, first, relation, second, None)
                importer.finish()
        self._is_ours = True
        return Graph(self.place)

    def numbers(self, names: Graph, part: Part) -> NDArray[np.int64]:
        """[pairs, 2] the numbers of the pairs of a part, mapped from the disk."""
        return mapped(self.place, names.arrays[f"triples/{part}"])[:, ::2]

    def _is_complete(self) -> bool:
        try:
            schema = Schema(json.loads((self.place / MANIFEST).read_text()))
            return bool(schema.provenance["inputs"] == self._inputs)
        except (OSError, ValueError, KeyError, TypeError):
            return False
