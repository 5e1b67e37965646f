"""The layers of a `Network` in three steps, so that no step needs all rows of its input.

`message` is what a node sends along each arc, `own` what it keeps for itself, and `combine` makes
the new state of a node from the sum of the messages that it gets. They are those of
`Network.layer`; a linear map comes before the sum where that makes the messages narrower.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from outercore.errors import InternalError
from outercore.training.models import Network


class Steps(ABC):
    """A layer in three steps.

    Shapes: `nodes` int64 [rows] ids; `x` float32 [rows, width before].
    """

    loops = False
    """Whether each node has exactly one arc from itself, in place of those of the data."""
    heads = 0
    """Of attention; 0 for plain sums."""
    slope = 0.0
    """Of attention below 0."""

    def __init__(self, model: Network, index: int, degrees: Tensor | None) -> None:
        self._conv: Any = model.gnn.convs[index]
        self._skip: Any = model.skips[index] if model.config.residual else None
        self._degrees = degrees
        self.before = model.width(index - 1) if index else model.features
        self.after = model.width(index)
        self.width = self.before
        """Of a message."""

    @property
    def own_width(self) -> int:
        """Of what a node keeps."""
        return self.after if self._skip is not None else 0

    @abstractmethod
    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        """What nodes send, [rows, width]."""

    def own(self, x: Tensor) -> Tensor:
        """What nodes keep, [rows, own_width]."""
        kept: Tensor = x[:, :0] if self._skip is None else self._skip(x)
        return kept

    def scores(self, message: Tensor) -> tuple[Tensor, Tensor]:
        """Of nodes as sources and as targets of arcs, [rows, heads] each."""
        raise InternalError("this layer has no attention")

    @abstractmethod
    def combine(self, sums: Tensor, own: Tensor, counts: Tensor, nodes: Tensor) -> Tensor:
        """The new state [rows, after] from sums [rows, width] of `counts` [rows] messages."""

    def _root(self, nodes: Tensor) -> Tensor:
        """1 / sqrt(degree + 1), as a column."""
        assert self._degrees is not None
        return (self._degrees[nodes] + 1).rsqrt().unsqueeze(1).to(self._conv.bias.device)


class _Sage(Steps):
    def __init__(self, model: Network, index: int, degrees: Tensor | None) -> None:
        super().__init__(model, index, degrees)
        self._early = self.after < self.before
        self.width = min(self.before, self.after)

    @property
    def own_width(self) -> int:
        return self.after

    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        return x @ self._conv.lin_l.weight.T if self._early else x

    def own(self, x: Tensor) -> Tensor:
        kept: Tensor = self._conv.lin_r(x)
        return kept if self._skip is None else kept + self._skip(x)

    def combine(self, sums: Tensor, own: Tensor, counts: Tensor, nodes: Tensor) -> Tensor:
        mean = sums / counts.clamp(min=1).unsqueeze(1)
        mapped: Tensor = mean + self._conv.lin_l.bias if self._early else self._conv.lin_l(mean)
        return mapped + own


class _Gcn(Steps):
    loops = True

    def __init__(self, model: Network, index: int, degrees: Tensor | None) -> None:
        super().__init__(model, index, degrees)
        self._early = self.after <= self.before
        self.width = min(self.before, self.after)

    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        sent: Tensor = self._conv.lin(x) if self._early else x
        return sent * self._root(nodes)

    def combine(self, sums: Tensor, own: Tensor, counts: Tensor, nodes: Tensor) -> Tensor:
        scaled = sums * self._root(nodes)
        state: Tensor = (scaled if self._early else self._conv.lin(scaled)) + self._conv.bias
        return state if self._skip is None else state + own


class _Gin(Steps):
    @property
    def own_width(self) -> int:
        return self.before + super().own_width

    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        return x

    def own(self, x: Tensor) -> Tensor:
        return torch.cat([(1 + self._conv.eps) * x, super().own(x)], dim=1)

    def combine(self, sums: Tensor, own: Tensor, counts: Tensor, nodes: Tensor) -> Tensor:
        state: Tensor = self._conv.nn(sums + own[:, : self.before])
        return state if self._skip is None else state + own[:, self.before :]


class _Gat(Steps):
    loops = True

    def __init__(self, model: Network, index: int, degrees: Tensor | None) -> None:
        super().__init__(model, index, degrees)
        self.heads = self._conv.heads
        self.width = self.heads * self._conv.out_channels
        self.slope = float(self._conv.negative_slope)

    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        sent: Tensor = self._conv.lin(x)
        return sent

    def scores(self, message: Tensor) -> tuple[Tensor, Tensor]:
        by_head = message.view(-1, self.heads, self._conv.out_channels)
        found = [(by_head * of).sum(dim=-1) for of in (self._conv.att_src, self._conv.att_dst)]
        return found[0], found[1]

    def combine(self, sums: Tensor, own: Tensor, counts: Tensor, nodes: Tensor) -> Tensor:
        state = sums
        if not self._conv.concat:
            state = sums.view(-1, self.heads, self._conv.out_channels).mean(dim=1)
        state = state + self._conv.bias
        return state if self._skip is None else state + own


_KINDS: dict[str, type[Steps]] = {"sage": _Sage, "gcn": _Gcn, "gin": _Gin, "gat": _Gat}


def steps_of(model: Network, index: int, degrees: Tensor | None) -> Steps:
    """Layer `index` of a network; `degrees` float32 [nodes] where it needs them."""
    return _KINDS[model.config.kind](model, index, degrees)
