"""A layer of a network in steps, so that no step needs all rows of its input.

A node sends a `message` along each arc and stores a row of its `own`. For each edge type the
messages into a node are summed. `combine` makes the new state from the sums and the stored row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from outercore.base.options import Precision
from outercore.errors import InternalError

if TYPE_CHECKING:
    from outercore.data.edge_types import EdgeType


class Relation(ABC):
    """The messages along the arcs of an edge type in a layer.

    Shapes: `x` float32 [rows, width before]; `nodes` int64 [rows] ids.
    """

    loops = False
    """Whether each node has exactly one arc from itself, instead of self-loops of the data."""
    heads = 0
    """Of an attention by a score of the source and one of the target; 0 for plain sums."""
    slope = 0.0
    """Of that attention below 0."""
    width: int
    """Of a message."""

    def __init__(self, edge_type: EdgeType) -> None:
        self.source, _, self.target = self.edge_type = edge_type

    @property
    def sends(self) -> Hashable:
        """What names the messages; relations whose messages are the same have the same."""
        return self.edge_type

    @property
    def sum_width(self) -> int:
        """Of what messages add up to."""
        return self.width

    @abstractmethod
    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        """What nodes send, [rows, width]."""

    def source_scores(self, message: Tensor) -> Tensor:
        """Of nodes as sources of arcs, [rows, heads]."""
        raise InternalError("these arcs have no attention")

    def target_scores(self, x: Tensor) -> Tensor:
        """Of nodes as targets of arcs, [rows, heads]."""
        raise InternalError("these arcs have no attention")


class LayerSteps(ABC):
    """A layer of a network over nodes of some types."""

    relations: Sequence[Relation]
    """In the order in which their sums are added."""
    targets: Sequence[str]
    """The node types whose states it computes."""
    before: int
    """Of the input."""
    after: int
    """Of the states."""
    query_heads = 0
    """Of one softmax over the arcs of all relations, by the product of a key, the first half of a
    message, with the target's query. The other half is summed. 0 for none."""

    @abstractmethod
    def own_width(self, target: str) -> int:
        """Of what a node of a type keeps."""

    @abstractmethod
    def own(self, target: str, x: Tensor) -> Tensor:
        """What nodes keep, [rows, own width]."""

    def queries(self, target: str, x: Tensor) -> Tensor:
        """What nodes compare keys with, [rows, sum width of their relations]."""
        raise InternalError("this layer has no queries")

    @abstractmethod
    def combine(
        self, target: str, sums: list[Tensor], counts: list[Tensor], own: Tensor, nodes: Tensor
    ) -> Tensor:
        """The new states [rows, after], with norm and activation.

        Shapes: `sums` [rows, sum width] of `counts` [rows] messages, for each relation into
        `target`; with queries one for all.
        """

    def into(self, target: str) -> list[int]:
        """The relations into a node type, by number."""
        return [place for place, one in enumerate(self.relations) if one.target == target]

    @property
    def widest(self) -> int:
        """Numbers a row, at most."""
        widths = [self.before, self.after, *(one.width for one in self.relations)]
        return max(*widths, *(self.own_width(target) for target in self.targets))


@dataclass(frozen=True)
class Input:
    """The states of a node type before the first layer."""

    encode: Callable[[Tensor, Tensor], Tensor]
    """States [rows, width] of features float32 [rows, columns], without `key` [rows, 0], and ids
    int64 [rows]."""
    key: str | None = None
    """The array of features."""
    precision: Precision = "exact"


@dataclass(frozen=True)
class Computation:
    """The computation of a network for all nodes, a layer at a time."""

    inputs: Mapping[str, Input]
    """By node type; all that a layer reads."""
    layers: Sequence[LayerSteps]
    """The last one has one target: the nodes that outputs are for."""
    head: Callable[[list[Tensor]], Tensor]
    """The outputs from the states of the same nodes after each layer, or after the last one."""
    needs_all: bool
    """Whether the outputs need the states after each layer."""
