"""Which entity of one data set is which of another: by name, or by id where there are no names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.data.outputs import arrow_names
from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.data.names import Names

_BLOCK = 1 << 16


def match_names(old: Names, new: Names) -> NDArray[np.int64]:
    """The old id of each new one, -1 for names that were not there; int64 [new ids].

    Cost: reads both dictionaries once in the order of names, which is that of ids as imports give
    them; a block of each in memory.
    """
    found = np.full(len(new), -1, np.int64)
    for start in range(0, len(new), _BLOCK):
        ids, names = _ranked(new, start, min(start + _BLOCK, len(new)))
        # Both are sorted: the old names that can be among these lie in one range.
        first = old.place(names[0].as_py().encode())
        last = min(old.place(names[-1].as_py().encode()) + 1, len(old))
        for begin in range(first, last, _BLOCK):
            old_ids, old_names = _ranked(old, begin, min(begin + _BLOCK, last))
            places = pc.index_in(names, value_set=old_names)
            hits = pc.is_valid(places).to_numpy(zero_copy_only=False)
            found[ids[hits]] = old_ids[places.drop_null().to_numpy()]
    return found


def match_ids(old: int, new: int) -> NDArray[np.int64]:
    """As `match_names`, where ids stand for themselves and new ones follow the old ones."""
    found = np.arange(new)
    found[old:] = -1
    return found


def match(what: str, old: Names | int, new: Names | int) -> NDArray[np.int64]:
    """The old id of each new one, -1 for new ones.

    Errors: `InvalidError` where only one side has names.
    """
    if isinstance(old, int) and isinstance(new, int):
        return match_ids(old, new)
    if isinstance(old, int) or isinstance(new, int):
        with_names, without = ("new", "old") if isinstance(old, int) else ("old", "new")
        raise InvalidError(
            f"{what}: the {with_names} data set has names, the {without} one has not, so that "
            "nobody can say which is which"
        )
    return match_names(old, new)


def _ranked(names: Names, start: int, stop: int) -> tuple[NDArray[np.int64], pa.Array]:
    """Ids and names at these places in the order of names."""
    ids = names.ranked(start, stop)
    if np.array_equal(ids, np.arange(start, stop)):
        return ids, arrow_names(names, start, stop)
    return ids, pa.array(names.names(ids), pa.large_string())
