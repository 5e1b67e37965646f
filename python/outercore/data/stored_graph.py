"""A data set as its arrays are, for those who only look at it."""

from __future__ import annotations

from typing import Any

from outercore import _core
from outercore.data.graph import Graph


class StoredGraph(Graph):
    """A graph as its arrays are, without the updates that are only in the log.

    Opening it writes nothing. So it works on a full disk, in a directory that cannot be written to,
    and beside a server, which a :class:`Graph` asks to fold the log into the arrays.
    """

    @staticmethod
    def _opened(place: str, generation: str | None = None) -> Any:
        """The data set in `place` as its arrays are, or as it was in `generation`."""
        return _core.DataSet(place, generation, fold=False)

    @property
    def pending_updates(self) -> int:
        """Updates in the log that the arrays do not hold. Reads the log.

        Raises:
            CorruptError: the log is damaged.
        """
        return int(self._core.pending_updates())
