"""Files and names that the user gives to an import, still as text."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from outercore.base.sizes import parse_size
from outercore.importing.edge_arrays import EdgeChoice
from outercore.importing.keyed_edges import Dangling
from outercore.importing.options import ImportOptions
from outercore.importing.splits import SplitChoice
from outercore.importing.table.edge_array import EdgeShape
from outercore.importing.table.rows import Reading
from outercore.importing.table.text import TextOptions


@dataclass(frozen=True)
class Inputs:
    """Files and names, still as text."""

    edges: tuple[str, ...]
    format: str = "auto"
    features: str | None = None
    labels: str | None = None
    splits: SplitChoice = field(default_factory=SplitChoice)
    arrays: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    nodes: int | None = None
    node_table: str | None = None
    """`FILE` or `FILE:KEY`: a row a node, and the column by which other files name it."""
    ogb_split: str | None = None
    relation: str | None = None
    """Of a data set of triples; all relations without it."""
    graph_ids: str | None = None
    """The graph of each node, in a data set of many."""
    edge_shape: EdgeShape | None = None
    """For edge arrays of shape [2, 2]."""
    edge_values: EdgeChoice = field(default_factory=EdgeChoice)
    text: TextOptions = field(default_factory=TextOptions)
    fill: float | None = None
    """What stands for missing values; with `ImportOptions.allow_nan` they may stay missing."""

    def reading(self, options: ImportOptions) -> Reading:
        """How the files are read."""
        return _reading(self.text, self.fill, options)


@dataclass(frozen=True)
class TypedInputs:
    """Files of a graph of several types, still as text."""

    nodes: tuple[str, ...]
    """`TYPE=FILE`, `TYPE=FILE:KEY` or `TYPE=COUNT`."""
    edges: tuple[str, ...]
    """`SOURCE,RELATION,TARGET=FILE`."""
    features: tuple[str, ...] = ()
    """`TYPE=FILE`."""
    label: str | None = None
    """`TYPE.COLUMN` or `TYPE=FILE`."""
    texts: tuple[str, ...] = ()
    """`TYPE.COLUMN`."""
    splits: SplitChoice = field(default_factory=SplitChoice)
    add_reverse: bool = False
    """Whether each edge type gets one in the other direction."""
    dangling: Dangling = "refuse"
    text: TextOptions = field(default_factory=TextOptions)
    fill: float | None = None
    """What stands for missing features; with `ImportOptions.allow_nan` they may stay missing."""
    ogb_split: str | None = None
    """The folder of the splits in a directory of OGB."""
    is_in_order: bool = False
    """Whether rows are nodes in their order, whatever columns of ids say."""

    def reading(self, options: ImportOptions) -> Reading:
        """How the files are read."""
        return replace(_reading(self.text, self.fill, options), is_in_order=self.is_in_order)


def _reading(text: TextOptions, fill: float | None, options: ImportOptions) -> Reading:
    return Reading(text, fill, options.allow_nan, parse_size(options.memory) // 4)
