"""Files and names that the user gives to an import, still as text."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from outercore.base.sizes import parse_size
from outercore.importing.edge_arrays import EdgeChoice
from outercore.importing.keyed_edges import Dangling
from outercore.importing.options import ArrayOptions
from outercore.importing.splits import SplitChoice
from outercore.importing.table.edge_array import EdgeShape
from outercore.importing.table.rows import Reading
from outercore.importing.table.text import TextOptions


@dataclass(frozen=True, kw_only=True)
class FileInputs:
    """Files, still as text from the user, and how they are written."""

    splits: SplitChoice = field(default_factory=SplitChoice)
    texts: tuple[str, ...] = ()
    """`NAME=FILE`, or `TYPE.COLUMN` in a graph of several types."""
    text: TextOptions = field(default_factory=TextOptions)
    fill: float | None = None
    """Replaces missing values; with `ArrayOptions.allow_nan` they may stay missing."""

    def reading(self, options: ArrayOptions) -> Reading:
        """How the files are read."""
        return Reading(self.text, self.fill, options.allow_nan, parse_size(options.memory) // 4)


@dataclass(frozen=True)
class Inputs(FileInputs):
    """Files and names of a graph of one type."""

    edges: tuple[str, ...]
    format: str = "auto"
    features: str | None = None
    labels: str | None = None
    arrays: tuple[str, ...] = ()
    nodes: int | None = None
    node_table: str | None = None
    """`FILE` or `FILE:KEY`: a row a node, and the column by which other files name it."""
    ogb_split: str | None = None
    """Folder of the splits in a directory of OGB."""
    relation: str | None = None
    """The relation to import from a data set of triples; `None` imports all relations."""
    graph_ids: str | None = None
    """The graph of each node, in a data set of many."""
    edge_shape: EdgeShape | None = None
    """For edge arrays of shape [2, 2]."""
    edge_values: EdgeChoice = field(default_factory=EdgeChoice)


@dataclass(frozen=True)
class TypedInputs(FileInputs):
    """Files of a graph of several types."""

    nodes: tuple[str, ...]
    """`TYPE=FILE`, `TYPE=FILE:KEY` or `TYPE=COUNT`."""
    edges: tuple[str, ...]
    """`SOURCE,RELATION,TARGET=FILE`."""
    features: tuple[str, ...] = ()
    """`TYPE=FILE`."""
    label: str | None = None
    """`TYPE.COLUMN` or `TYPE=FILE`."""
    add_reverse: bool = False
    """Whether each edge type gets one in the other direction."""
    dangling: Dangling = "refuse"
    ogb_split: str | None = None
    """Folder of the splits in a directory of OGB."""
    is_in_order: bool = False
    """Whether row i is node i, even if a column has ids."""

    def reading(self, options: ArrayOptions) -> Reading:
        """How the files are read."""
        return replace(super().reading(options), is_in_order=self.is_in_order)
