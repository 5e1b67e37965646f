"""Bytes as a sequence of choices, so that one generator serves random and guided fuzzing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Choices:
    """Each choice takes bytes from the front; at the end every choice is the first one."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    @property
    def are_left(self) -> bool:
        return self._place < len(self._data)

    def byte(self) -> int:
        if not self.are_left:
            return 0
        self._place += 1
        return self._data[self._place - 1]

    def number(self, below: int) -> int:
        return (self.byte() | (self.byte() << 8 if below > 256 else 0)) % below

    def one(self, items: Sequence[Item]) -> Item:
        return items[self.number(len(items))]

    def flag(self, in_how_many: int = 2) -> bool:
        return self.byte() % in_how_many == in_how_many - 1

    def bytes(self, most: int) -> bytes:
        length = self.number(most + 1)
        found = self._data[self._place : self._place + length]
        self._place += length
        return found
