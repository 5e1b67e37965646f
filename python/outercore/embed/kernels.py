"""How well queries fit candidates, and the gradients of that: where the time goes.

A built-in model turns (anchor, relation) into a query, a vector that is compared with the rows of
candidate entities. The comparison of all pairs costs rows x candidates x width; everything else is
small beside it. An inner product and a Euclidean distance are matrix products (BLAS); the two
sums of absolute values are not.

Gradients reuse what the forward pass computed: the scores, which the loss turns into their own
derivative in place, and the queries (Legend 6).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from outercore.embed.losses import Loss


class Workspace:
    """Buffers that are used again by the next chunk: fresh memory costs more than the work in it.

    One thread at a time. A buffer is valid until the same name is taken again.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """An uninitialised tensor of this shape, of the dtype and device of `like`."""
        key = (name, like.dtype, like.device)
        count = 1
        for extent in shape:
            count *= extent
        buffer = self._buffers.get(key)
        if buffer is None or buffer.numel() < count:
            buffer = torch.empty(count, dtype=like.dtype, device=like.device)
            self._buffers[key] = buffer
        return buffer[:count].view(shape)


class Similarity(Protocol):
    """A score of a query and a candidate; larger is better."""

    exact_block: int
    """Numbers that the work on one block of rows may need at once; 0: no limit."""

    def paired(self, queries: Tensor, targets: Tensor) -> Tensor:
        """The score of each query with its own target, [rows]."""

    def paired_backward(
        self, queries: Tensor, targets: Tensor, scores: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of queries and targets, given that of `paired`, which returned `scores`."""

    def pairs(self, queries: Tensor, candidates: Tensor, out: Tensor) -> Tensor | None:
        """Writes the scores of all pairs to `out` [rows, candidates]; returns what it saved."""

    def pairs_backward(
        self,
        queries: Tensor,
        candidates: Tensor,
        saved: Tensor | None,
        gradient: Tensor,
        to_queries: Tensor,
        to_candidates: Tensor,
    ) -> None:
        """Adds the gradients of queries and candidates, given that of `pairs`, to the last two.

        `gradient` may be overwritten.
        """


class Inner:
    """The inner product."""

    exact_block = 0

    def paired(self, queries: Tensor, targets: Tensor) -> Tensor:
        """See `Similarity`."""
        return torch.linalg.vecdot(queries, targets)

    def paired_backward(
        self, queries: Tensor, targets: Tensor, scores: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `Similarity`."""
        column = gradient.unsqueeze(1)
        return targets * column, queries * column

    def pairs(self, queries: Tensor, candidates: Tensor, out: Tensor) -> None:
        """See `Similarity`."""
        torch.mm(queries, candidates.t(), out=out)

    def pairs_backward(
        self,
        queries: Tensor,
        candidates: Tensor,
        saved: Tensor | None,
        gradient: Tensor,
        to_queries: Tensor,
        to_candidates: Tensor,
    ) -> None:
        """See `Similarity`."""
        to_queries.addmm_(gradient, candidates)
        to_candidates.addmm_(gradient.t(), queries)


class Euclidean:
    """Minus the Euclidean distance, by one matrix product.

    Squares of distances below the rounding of that product are raised to it: there the direction
    of the gradient would be noise.
    """

    exact_block = 0

    def paired(self, queries: Tensor, targets: Tensor) -> Tensor:
        """See `Similarity`."""
        return -(queries - targets).norm(dim=1)

    def paired_backward(
        self, queries: Tensor, targets: Tensor, scores: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `Similarity`."""
        slope = _divide(gradient, scores).unsqueeze(1)
        to_queries = (queries - targets) * slope
        return to_queries, -to_queries

    def pairs(self, queries: Tensor, candidates: Tensor, out: Tensor) -> Tensor:
        """See `Similarity`."""
        own = queries.square().sum(dim=1, keepdim=True)
        other = candidates.square().sum(dim=1)
        torch.addmm(other, queries, candidates.t(), alpha=-2.0, out=out).add_(own)
        number = torch.finfo(out.dtype)
        least = number.eps * float(own.max() + other.max())
        out.clamp_(min=max(least, number.tiny)).sqrt_().neg_()
        return out.clone()

    def pairs_backward(
        self,
        queries: Tensor,
        candidates: Tensor,
        saved: Tensor | None,
        gradient: Tensor,
        to_queries: Tensor,
        to_candidates: Tensor,
    ) -> None:
        """See `Similarity`."""
        assert saved is not None
        slope = torch.div(gradient, saved, out=saved)
        to_queries.addcmul_(queries, slope.sum(dim=1, keepdim=True))
        to_queries.addmm_(slope, candidates, alpha=-1.0)
        to_candidates.addcmul_(candidates, slope.sum(dim=0).unsqueeze(1))
        to_candidates.addmm_(slope.t(), queries, alpha=-1.0)


class Manhattan:
    """Minus the sum of absolute differences.

    No matrix product does it, so PyTorch's own kernels of that distance do, forward and backward.
    """

    exact_block = 0

    def paired(self, queries: Tensor, targets: Tensor) -> Tensor:
        """See `Similarity`."""
        return -(queries - targets).abs().sum(dim=1)

    def paired_backward(
        self, queries: Tensor, targets: Tensor, scores: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `Similarity`."""
        to_targets = torch.sign(queries - targets) * gradient.unsqueeze(1)
        return -to_targets, to_targets

    def pairs(self, queries: Tensor, candidates: Tensor, out: Tensor) -> None:
        """See `Similarity`."""
        torch.neg(torch.cdist(queries, candidates, p=1.0), out=out)

    def pairs_backward(
        self,
        queries: Tensor,
        candidates: Tensor,
        saved: Tensor | None,
        gradient: Tensor,
        to_queries: Tensor,
        to_candidates: Tensor,
    ) -> None:
        """See `Similarity`."""
        backward = torch.ops.aten._cdist_backward
        # For p = 1 the kernel looks at signs only: the distances that it asks for do not count.
        down = gradient.neg_()
        to_queries.add_(backward(down, queries, candidates, 1.0, down))
        across = down.t().contiguous()
        to_candidates.add_(backward(across, candidates, queries, 1.0, across))


class Modulus:
    """Minus the sum of the moduli of complex differences; a row is real parts, then imaginary.

    Cost: several passes over rows x candidates x width numbers. Blocks of rows keep them in the
    cache, and the differences and moduli of a block are kept from its scores to its gradient.
    """

    exact_block = 1 << 19

    def paired(self, queries: Tensor, targets: Tensor) -> Tensor:
        """See `Similarity`."""
        real, imaginary = (queries - targets).chunk(2, dim=1)
        return -torch.hypot(real, imaginary).sum(dim=1)

    def paired_backward(
        self, queries: Tensor, targets: Tensor, scores: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `Similarity`."""
        real, imaginary = (queries - targets).chunk(2, dim=1)
        slope = _divide(gradient.unsqueeze(1), -torch.hypot(real, imaginary))
        to_queries = torch.cat([real * slope, imaginary * slope], dim=1)
        return to_queries, -to_queries

    def pairs(self, queries: Tensor, candidates: Tensor, out: Tensor) -> Tensor:
        """See `Similarity`."""
        half = queries.size(1) // 2
        saved = queries.new_empty(3, queries.size(0), candidates.size(0), half)
        real, imaginary, moduli = saved
        torch.sub(queries[:, None, :half], candidates[:, :half], out=real)
        torch.sub(queries[:, None, half:], candidates[:, half:], out=imaginary)
        torch.mul(real, real, out=moduli).addcmul_(imaginary, imaginary).sqrt_()
        torch.sum(moduli, dim=2, out=out).neg_()
        return saved

    def pairs_backward(
        self,
        queries: Tensor,
        candidates: Tensor,
        saved: Tensor | None,
        gradient: Tensor,
        to_queries: Tensor,
        to_candidates: Tensor,
    ) -> None:
        """See `Similarity`."""
        assert saved is not None
        half = queries.size(1) // 2
        real, imaginary, moduli = saved
        moduli.clamp_(min=torch.finfo(moduli.dtype).tiny)
        slope = torch.div(gradient.neg_().unsqueeze(2), moduli, out=moduli)
        for part, columns in ((real, slice(0, half)), (imaginary, slice(half, 2 * half))):
            part.mul_(slope)
            to_queries[:, columns] += part.sum(dim=1)
            to_candidates[:, columns] -= part.sum(dim=0)


class ChunkGradients(NamedTuple):
    """The loss of a chunk and its gradients, except that of the candidates."""

    value: Tensor
    queries: Tensor
    targets: Tensor


class Masked(NamedTuple):
    """Pairs of a row and a candidate that do not count, rows ascending."""

    rows: Tensor
    columns: Tensor

    def between(self, start: int, stop: int) -> Masked:
        """The pairs of rows `start` to `stop`, with rows counted from `start`."""
        first, last = torch.searchsorted(self.rows, self.rows.new_tensor([start, stop])).tolist()
        return Masked(self.rows[first:last] - start, self.columns[first:last])

    def to(self, device: torch.device) -> Masked:
        """The same pairs on a device."""
        return Masked(self.rows.to(device), self.columns.to(device))


def query_gradients(
    similarity: Similarity,
    loss: Loss,
    queries: Tensor,
    targets: Tensor,
    candidates: Tensor,
    weights: Tensor,
    *,
    masked: Masked | None,
    bias: Tensor | None,
    to_candidates: Tensor,
    workspace: Workspace,
) -> ChunkGradients:
    """Scores, loss and gradients of a chunk, without autograd.

    Shapes: `queries` and `targets` [rows, width], `candidates` and `to_candidates`
    [negatives, width], `weights` [rows], `bias` [negatives], added to the negatives' scores.
    `to_candidates` is added to.
    Source: Legend 6.
    """
    positives = similarity.paired(queries, targets)
    to_queries = torch.zeros_like(queries)
    to_positives = torch.empty_like(positives)
    value = positives.new_zeros(())
    for start, stop in _blocks(similarity, queries, candidates):
        rows = slice(start, stop)
        shape = (stop - start, candidates.size(0))
        scores = workspace.take("scores", shape, queries)
        saved = similarity.pairs(queries[rows], candidates, scores)
        if bias is not None:
            scores.add_(bias)
        if masked is not None:
            hidden = masked.between(start, stop)
            scores[hidden.rows, hidden.columns] = -torch.inf
        work = workspace.take("work", shape, queries)
        found = loss.gradients(positives[rows], scores, weights[rows], work)
        value += found.value
        to_positives[rows] = found.positives
        similarity.pairs_backward(
            queries[rows], candidates, saved, found.negatives, to_queries[rows], to_candidates
        )
    own_queries, to_targets = similarity.paired_backward(queries, targets, positives, to_positives)
    return ChunkGradients(value, to_queries.add_(own_queries), to_targets)


def pair_scores(similarity: Similarity, queries: Tensor, candidates: Tensor) -> Tensor:
    """The scores of all pairs, [queries, candidates]."""
    scores = queries.new_empty(queries.size(0), candidates.size(0))
    for start, stop in _blocks(similarity, queries, candidates):
        similarity.pairs(queries[start:stop], candidates, scores[start:stop])
    return scores


def _blocks(similarity: Similarity, queries: Tensor, candidates: Tensor) -> list[tuple[int, int]]:
    """The rows in blocks that the similarity can work on at once."""
    rows = queries.size(0)
    step = rows
    if similarity.exact_block:
        step = max(1, similarity.exact_block // max(1, candidates.numel()))
    return [(start, min(start + step, rows)) for start in range(0, rows, max(step, 1))]


def _divide(gradient: Tensor, by: Tensor) -> Tensor:
    """The quotient, zero where the divisor is: a distance of zero has no direction."""
    return torch.where(by == 0, 0.0, gradient / torch.where(by == 0, 1.0, by))
