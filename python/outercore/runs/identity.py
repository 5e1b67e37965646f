"""What a run reads of a data set: a change is noticed, and named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Identity:
    """The arrays that a job reads, and facts about the data set that it depends on.

    Other arrays may be added, changed or removed without any effect on the run.
    """

    arrays: Mapping[str, list[Any]]
    """Type, shape and checksum of each, by its name in the manifest."""
    facts: Mapping[str, Any]
    """Such as the number of nodes."""

    @classmethod
    def of(
        cls, manifest: Mapping[str, Any], reads: Callable[[str], bool], **facts: Any
    ) -> Identity:
        """That of the arrays whose names `reads` accepts."""
        arrays = {
            name: [entry["dtype"], entry["shape"], entry["checksum"]]
            for name, entry in manifest["arrays"].items()
            if reads(name)
        }
        return cls(arrays, facts)

    @property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        values = {**self.facts, "arrays": self.arrays}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def changes(self, known: Mapping[str, Any]) -> list[str]:
        """What differs from an identity that `to_dict` has described, in words."""
        before: Mapping[str, Any] = known["arrays"]
        words = [
            f"array `{name}` was {_change(before.get(name), self.arrays.get(name))}"
            for name in sorted({*before, *self.arrays})
            if before.get(name) != self.arrays.get(name)
        ]
        return words + [
            f"`{name}` was {known['facts'].get(name)} and is {value}"
            for name, value in self.facts.items()
            if known["facts"].get(name) != value
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"arrays": dict(self.arrays), "facts": dict(self.facts)}


def _change(before: Any, after: Any) -> str:
    if before is None:
        return "added"
    return "removed" if after is None else "changed"
