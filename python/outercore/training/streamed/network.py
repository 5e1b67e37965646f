"""The layers of a `Network` in steps.

A linear map comes before the sum of messages where that makes them narrower.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from outercore.training.models import Network
from outercore.training.streamed.steps import Computation, Input, LayerSteps, Relation

_NODE = "node"


def network_steps(model: Network, rows: Input, degrees: Tensor | None) -> Computation:
    """The computation of a network from `rows` of its nodes.

    Shapes: `degrees` float32 [nodes] where it needs them.
    """
    kinds: dict[str, type[_Layer]] = {"sage": _Sage, "gcn": _Gcn, "gin": _Gin, "gat": _Gat}
    kind = kinds[model.config.kind]
    return Computation(
        inputs={_NODE: rows},
        layers=[kind(model, index, degrees) for index in range(model.layers)],
        head=model.head,
        needs_all=model.jumping,
    )


class _Layer(Relation, LayerSteps):
    """A layer over nodes of one type, and the arcs of one."""

    targets = (_NODE,)

    def __init__(self, model: Network, index: int, degrees: Tensor | None) -> None:
        super().__init__((_NODE, "edge", _NODE))
        self._model, self._index = model, index
        self._conv: Any = model.gnn.convs[index]
        self._skip: Any = model.skips[index] if model.config.residual else None
        self._degrees = degrees
        self.relations = [self]
        self.before = model.width(index - 1) if index else model.features
        self.after = model.width(index)
        self.width = self.before

    def own_width(self, target: str) -> int:
        return self.after if self._skip is not None else 0

    def own(self, target: str, x: Tensor) -> Tensor:
        kept: Tensor = x[:, :0] if self._skip is None else self._skip(x)
        return kept

    def combine(
        self, target: str, sums: list[Tensor], counts: list[Tensor], own: Tensor, nodes: Tensor
    ) -> Tensor:
        state = self._combined(sums[0], counts[0], own, nodes)
        return self._model.finished(self._index, state)

    @abstractmethod
    def _combined(self, sums: Tensor, counts: Tensor, own: Tensor, nodes: Tensor) -> Tensor:
        """The states before norm and activation."""

    def _root(self, nodes: Tensor) -> Tensor:
        """1 / sqrt(degree + 1), as a column."""
        assert self._degrees is not None
        return (self._degrees[nodes] + 1).rsqrt().unsqueeze(1).to(self._conv.bias.device)


class _Sage(_Layer):
    def __init__(self, model: Network, index: int, degrees: Tensor | None) -> None:
        super().__init__(model, index, degrees)
        self._early = self.after < self.before
        self.width = min(self.before, self.after)

    def own_width(self, target: str) -> int:
        return self.after

    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        return x @ self._conv.lin_l.weight.T if self._early else x

    def own(self, target: str, x: Tensor) -> Tensor:
        kept: Tensor = self._conv.lin_r(x)
        return kept if self._skip is None else kept + self._skip(x)

    def _combined(self, sums: Tensor, counts: Tensor, own: Tensor, nodes: Tensor) -> Tensor:
        mean = sums / counts.clamp(min=1).unsqueeze(1)
        mapped: Tensor = mean + self._conv.lin_l.bias if self._early else self._conv.lin_l(mean)
        return mapped + own


class _Gcn(_Layer):
    loops = True

    def __init__(self, model: Network, index: int, degrees: Tensor | None) -> None:
        super().__init__(model, index, degrees)
        self._early = self.after <= self.before
        self.width = min(self.before, self.after)

    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        sent: Tensor = self._conv.lin(x) if self._early else x
        return sent * self._root(nodes)

    def _combined(self, sums: Tensor, counts: Tensor, own: Tensor, nodes: Tensor) -> Tensor:
        scaled = sums * self._root(nodes)
        state: Tensor = (scaled if self._early else self._conv.lin(scaled)) + self._conv.bias
        return state if self._skip is None else state + own


class _Gin(_Layer):
    def own_width(self, target: str) -> int:
        return self.before + super().own_width(target)

    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        return x

    def own(self, target: str, x: Tensor) -> Tensor:
        return torch.cat([(1 + self._conv.eps) * x, super().own(target, x)], dim=1)

    def _combined(self, sums: Tensor, counts: Tensor, own: Tensor, nodes: Tensor) -> Tensor:
        state: Tensor = self._conv.nn(sums + own[:, : self.before])
        return state if self._skip is None else state + own[:, self.before :]


class _Gat(_Layer):
    loops = True

    def __init__(self, model: Network, index: int, degrees: Tensor | None) -> None:
        super().__init__(model, index, degrees)
        self.heads = self._conv.heads
        self.width = self.heads * self._conv.out_channels
        self.slope = float(self._conv.negative_slope)

    def message(self, x: Tensor, nodes: Tensor) -> Tensor:
        sent: Tensor = self._conv.lin(x)
        return sent

    def source_scores(self, message: Tensor) -> Tensor:
        return by_head(message, self._conv.att_src)

    def target_scores(self, x: Tensor) -> Tensor:
        return x @ folded(self._conv.lin.weight, self._conv.att_dst)

    def _combined(self, sums: Tensor, counts: Tensor, own: Tensor, nodes: Tensor) -> Tensor:
        state = sums
        if not self._conv.concat:
            state = sums.view(-1, self.heads, self._conv.out_channels).mean(dim=1)
        state = state + self._conv.bias
        return state if self._skip is None else state + own


def by_head(rows: Tensor, attention: Tensor) -> Tensor:
    """The product of each head's share of a row with its vector.

    Shapes: `rows` [nodes, heads * channels], `attention` [1, heads, channels]; result
    [nodes, heads].
    """
    return (rows.view(-1, *attention.shape[1:]) * attention).sum(dim=-1)


def folded(weight: Tensor, attention: Tensor) -> Tensor:
    """The map from rows to the result of a linear map and `by_head`.

    Shapes: `weight` [heads * channels, before], `attention` [1, heads, channels]; result
    [before, heads].
    """
    return by_head(weight.T, attention)
