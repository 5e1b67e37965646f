"""Sums over neighbours as products with a sparse matrix: no message is written to memory."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

# The product with a dense matrix is all that is used; the first use would warn each process.
warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")


class Arcs:
    """Arcs from sources to targets, with a weight each.

    The arcs of a target are added in their order, with any number of threads; in the gradient the
    arcs of a source are. The bits are those of a loop over the arcs.

    **Cost** the arcs are sorted by source with the first gradient, and by target where they are not
    yet. The same object serves all layers that have these arcs.
    """

    def __init__(
        self, edge_index: Tensor, targets: int, sources: int, weight: Tensor | None = None
    ) -> None:
        """Shapes: `edge_index` int64 [2, arcs] of source and target; `weight` float32 [arcs]."""
        self._source, self._target = edge_index
        self._sizes = targets, sources
        ones = torch.ones(edge_index.size(1), device=edge_index.device)
        self._weight = ones if weight is None else weight

    def sum(self, x: Tensor) -> Tensor:
        """The weighted sum of each target's sources.

        Shapes: `x` float32 [sources, width]; result [targets, width].
        """
        result: Tensor = _Product.apply(x, self)
        return result

    def mean(self, x: Tensor) -> Tensor:
        """The mean of each target's sources, for arcs with weight 1; 0 for a target without arcs.

        Shapes: as `sum`.
        """
        count = torch.bincount(self._target, minlength=self._sizes[0]).clamp(min=1)
        return self.sum(x) / count.unsqueeze(1)

    @cached_property
    def incoming(self) -> Tensor:
        """The matrix [targets, sources]."""
        return _compressed(self._target, self._source, self._weight, self._sizes)

    @cached_property
    def outgoing(self) -> Tensor:
        """Its transpose [sources, targets]."""
        return _compressed(self._source, self._target, self._weight, self._sizes[::-1])


class _Product(torch.autograd.Function):
    """PyTorch's own gradient would transpose the matrix anew for each layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, arcs: Arcs) -> Tensor:
        ctx.arcs = arcs
        return arcs.incoming @ x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.arcs.outgoing @ gradients[0].contiguous(), None


def _compressed(rows: Tensor, columns: Tensor, values: Tensor, sizes: tuple[int, ...]) -> Tensor:
    if not bool((rows[1:] >= rows[:-1]).all()):
        order = torch.argsort(rows, stable=True)
        rows, columns, values = rows[order], columns[order], values[order]
    starts = rows.new_zeros(sizes[0] + 1)
    torch.cumsum(torch.bincount(rows, minlength=sizes[0]), 0, out=starts[1:])
    return torch.sparse_csr_tensor(starts, columns, values, sizes, check_invariants=False)
