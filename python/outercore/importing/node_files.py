"""Files with values of nodes: features, labels, splits, texts and further arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

from outercore.base.native import Role
from outercore.data.batch_arrays import RESERVED
from outercore.errors import InvalidError
from outercore.importing.labels import label_arrays
from outercore.importing.splits import open_split
from outercore.importing.table.rows import NodeArray, Reading, as_times, open_rows
from outercore.importing.texts import open_texts


@dataclass(frozen=True)
class NodeFile:
    """A file with its columns, and the role of its values."""

    role: Role
    name: str
    file: str
    of_type: str | None = None
    """The node type, in a graph with several types."""

    def open(self, reading: Reading, task: str | None) -> list[NodeArray]:
        """Opens the array in the file. Related arrays follow, such as the names of classes.

        Errors: as `label_arrays`, `open_split`, `open_texts` and `open_rows`.
        """
        if self.role == "labels":
            return label_arrays(self.file, reading, task, self.of_type)
        if self.role == "names":
            return open_texts(self.name, self.of_type, self.file, reading)[0]
        if self.role == "split":
            rows = open_split(self.name, self.file, reading)
        else:
            is_other = self.role == "array"
            rows = open_rows(self.file, replace(reading, takes_times=is_other))
            rows = as_times(self.name, rows) if is_other else rows
        return [NodeArray(self.role, self.name, rows, self.of_type)]


def require_array_name(name: str, file: str) -> None:
    """Errors: `InvalidError` for an array name that batches use in another way."""
    if name in RESERVED:
        raise InvalidError(
            f"--array: a batch has something else under the name `{name}`\n"
            f"hint: choose another name for `{file}`"
        )
