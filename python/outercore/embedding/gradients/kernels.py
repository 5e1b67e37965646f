"""Similarities of queries and candidates, and their gradients. Training spends its time here.

A built-in model turns (anchor, relation) into a query, a vector that is compared with the rows of
candidate entities. The comparison of all pairs costs rows x candidates x width; everything else is
small in comparison. An inner product and a Euclidean distance are matrix products (BLAS); the two
sums of absolute values are not.

Gradients reuse what the forward pass computed: the scores, which the loss turns into their own
derivative in place, and the queries (Legend 6).
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from outercore import _core
from outercore.embedding.gradients.losses import Loss, SoftmaxLoss

Side = Literal["head", "tail"]
"""The open end of a triple. The other end is the anchor."""
WIDEST_FUSED = 256
"""Largest width of a row that the GPU kernels keep on the chip."""


class Workspace:
    """Buffers that the next chunk reuses, because new memory costs more time than the computation.

    Use it from one thread at a time. A buffer is valid until the same name is taken again.
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

    distance: str | None
    """Its name in the core, if the core computes it."""
    block_numbers: int
    """Largest rows x candidates x width of one step; 0: unlimited."""

    def paired(self, queries: Tensor, targets: Tensor) -> Tensor:
        """The score of each query with its own target, [rows]."""

    def paired_backward(
        self, queries: Tensor, targets: Tensor, scores: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of queries and targets from the gradient of `paired`.

        `scores` is the result of `paired`.
        """

    def rounding(self, queries: Tensor, targets: Tensor) -> Tensor:
        """Bound of the difference of `pairs` and `paired` for the same two rows, [rows]."""

    def pairs(
        self, queries: Tensor, candidates: Tensor, out: Tensor, workspace: Workspace
    ) -> Tensor | None:
        """Writes the scores of all pairs to `out` [rows, candidates].

        Returns values for `pairs_backward`, which are valid until the next call.
        """

    def pairs_backward(
        self,
        queries: Tensor,
        candidates: Tensor,
        saved: Tensor | None,
        gradient: Tensor,
        to_queries: Tensor,
        to_candidates: Tensor,
    ) -> None:
        """Adds the gradients of queries and candidates to the last two arguments.

        `gradient` is the gradient of `pairs`. `gradient` may be overwritten.
        """


class Inner:
    """The inner product."""

    distance: str | None = None
    block_numbers = 0

    def paired(self, queries: Tensor, targets: Tensor) -> Tensor:
        """See `Similarity`."""
        return torch.linalg.vecdot(queries, targets)

    def paired_backward(
        self, queries: Tensor, targets: Tensor, scores: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `Similarity`."""
        column = gradient.unsqueeze(1)
        return targets * column, queries * column

    def rounding(self, queries: Tensor, targets: Tensor) -> Tensor:
        """See `Similarity`."""
        return _unit(queries) * queries.norm(dim=1) * targets.norm(dim=1)

    def pairs(self, queries: Tensor, candidates: Tensor, out: Tensor, workspace: Workspace) -> None:
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

    A distance below the rounding error of that product gets a zero gradient, because its direction
    would be noise.
    """

    distance: str | None = None
    block_numbers = 0

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

    def rounding(self, queries: Tensor, targets: Tensor) -> Tensor:
        """See `Similarity`."""
        # The error of the product is an error of squares, so it matters most for close rows.
        squares = queries.square().sum(dim=1) + targets.square().sum(dim=1)
        error = _unit(queries) * squares
        root = error.sqrt()
        return root * root / torch.maximum((queries - targets).norm(dim=1), root).clamp_min(1e-30)

    def pairs(
        self, queries: Tensor, candidates: Tensor, out: Tensor, workspace: Workspace
    ) -> Tensor:
        """See `Similarity`."""
        own = queries.square().sum(dim=1, keepdim=True)
        other = candidates.square().sum(dim=1)
        torch.addmm(other, queries, candidates.t(), alpha=-2.0, out=out).add_(own)
        out.clamp_(min=0.0).sqrt_().neg_()
        return workspace.take("distances", tuple(out.shape), out).copy_(out)

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
        squares = queries.square().sum(dim=1).max() + candidates.square().sum(dim=1).max()
        noise = saved.square() <= torch.finfo(saved.dtype).eps * squares
        slope = torch.div(gradient, saved, out=saved).masked_fill_(noise, 0.0)
        to_queries.addcmul_(queries, slope.sum(dim=1, keepdim=True))
        to_queries.addmm_(slope, candidates, alpha=-1.0)
        to_candidates.addcmul_(candidates, slope.sum(dim=0).unsqueeze(1))
        to_candidates.addmm_(slope.t(), queries, alpha=-1.0)


class Manhattan:
    """Minus the sum of absolute differences.

    A matrix product cannot compute it. Training uses PyTorch's kernels, forward and backward. In
    ranking the core computes it.
    """

    distance: str | None = "manhattan"
    block_numbers = 0

    def paired(self, queries: Tensor, targets: Tensor) -> Tensor:
        """See `Similarity`."""
        return -(queries - targets).abs().sum(dim=1)

    def paired_backward(
        self, queries: Tensor, targets: Tensor, scores: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `Similarity`."""
        to_targets = torch.sign(queries - targets) * gradient.unsqueeze(1)
        return -to_targets, to_targets

    def rounding(self, queries: Tensor, targets: Tensor) -> Tensor:
        """See `Similarity`."""
        return _unit(queries) * (queries.abs() + targets.abs()).sum(dim=1)

    def pairs(self, queries: Tensor, candidates: Tensor, out: Tensor, workspace: Workspace) -> None:
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
        # For p = 1 the kernel uses only signs and ignores the distances in its arguments.
        down = gradient.neg_()
        to_queries.add_(backward(down, queries, candidates, 1.0, down))
        across = down.t().contiguous()
        to_candidates.add_(backward(across, candidates, queries, 1.0, across))


class Modulus:
    """Minus the sum of the moduli of complex differences. A row has real, then imaginary parts.

    In ranking the core computes it, in registers. PyTorch makes several passes over rows x
    candidates x width values. Blocks of rows keep these values in the cache. Differences and moduli
    of a block stay in memory from its scores to its gradient.
    """

    distance: str | None = "modulus"
    block_numbers = 1 << 20

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

    def rounding(self, queries: Tensor, targets: Tensor) -> Tensor:
        """See `Similarity`."""
        least = queries.size(1) * torch.finfo(queries.dtype).tiny ** 0.5
        return _unit(queries) * (queries.abs() + targets.abs()).sum(dim=1) + least

    def pairs(
        self, queries: Tensor, candidates: Tensor, out: Tensor, workspace: Workspace
    ) -> Tensor:
        """See `Similarity`."""
        half = queries.size(1) // 2
        shape = (3, queries.size(0), candidates.size(0), half)
        saved = workspace.take("differences", shape, queries)
        real, imaginary, moduli = saved
        torch.sub(queries[:, None, :half], candidates[:, :half], out=real)
        torch.sub(queries[:, None, half:], candidates[:, half:], out=imaginary)
        # The smallest positive number avoids a division by zero for equal values.
        least = queries.new_tensor(torch.finfo(queries.dtype).tiny)
        torch.addcmul(least, real, real, out=moduli).addcmul_(imaginary, imaginary).sqrt_()
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
        slope = torch.div(gradient.neg_().unsqueeze(2), moduli, out=moduli)
        for part, columns in ((real, slice(0, half)), (imaginary, slice(half, 2 * half))):
            part.mul_(slope)
            to_queries[:, columns] += part.sum(dim=1)
            to_candidates[:, columns] -= part.sum(dim=0)


class Chunk(NamedTuple):
    """Positive triples with one open end, and the negatives that they share."""

    side: Side
    anchors: Tensor
    """[rows, width]"""
    relations: Tensor
    """[rows, relation width]"""
    targets: Tensor
    """[rows, width], the open end."""
    candidates: Tensor
    """[negatives, width]"""
    weights: Tensor
    """[rows]"""
    bias: Tensor | None = None
    """[negatives], added to their scores."""
    own: tuple[Tensor, Tensor] | None = None
    """Ids of targets and of candidates, if a row's own target is not a negative."""
    known: Tensor | None = None
    """bool [rows, negatives]: candidates to ignore."""

    def weigh(self, scores: Tensor, rows: slice = slice(None)) -> None:
        """Adds the bias to the scores of some rows, [rows, negatives].

        Candidates to ignore get minus infinity.
        """
        if self.bias is not None:
            scores.add_(self.bias)
        if self.own is not None:
            scores.masked_fill_(self.own[0][rows].unsqueeze(1) == self.own[1], -torch.inf)
        if self.known is not None:
            scores.masked_fill_(self.known[rows], -torch.inf)


class ChunkGradients(NamedTuple):
    """The loss of a chunk and its gradients, without the gradient of the candidates."""

    value: Tensor
    queries: Tensor
    targets: Tensor


def query_gradients(
    similarity: Similarity,
    loss: Loss,
    queries: Tensor,
    chunk: Chunk,
    to_candidates: Tensor,
    workspace: Workspace,
) -> ChunkGradients:
    """Scores, loss and gradients of a chunk, without autograd.

    Adds the gradients of candidates to `to_candidates`.

    Shapes: `queries` [rows, width], of the chunk's anchors and relations; `to_candidates`
    [negatives, width].
    Source: Legend 6.
    """
    targets, candidates = chunk.targets, chunk.candidates
    positives = similarity.paired(queries, targets)
    to_queries = torch.zeros_like(queries)
    to_positives = torch.empty_like(positives)
    value = positives.new_zeros(())
    for start, stop in _blocks(similarity, queries, candidates):
        rows = slice(start, stop)
        shape = (stop - start, candidates.size(0))
        scores = workspace.take("scores", shape, queries)
        saved = similarity.pairs(queries[rows], candidates, scores, workspace)
        chunk.weigh(scores, rows)
        work = workspace.take("work", shape, queries)
        found = loss.gradients(positives[rows], scores, chunk.weights[rows], work)
        value += found.value
        to_positives[rows] = found.positives
        similarity.pairs_backward(
            queries[rows], candidates, saved, found.negatives, to_queries[rows], to_candidates
        )
    own_queries, to_targets = similarity.paired_backward(queries, targets, positives, to_positives)
    return ChunkGradients(value, to_queries.add_(own_queries), to_targets)


def fuses(similarity: Similarity, loss: Loss, rows: Tensor) -> bool:
    """Whether the GPU kernels can compute this loss, without a matrix of scores in memory."""
    return (
        rows.is_cuda
        and rows.dtype == torch.float32
        and rows.size(1) <= WIDEST_FUSED
        and isinstance(similarity, Inner)
        and isinstance(loss, SoftmaxLoss)
        and find_spec("triton") is not None
    )


def fits_core(*tensors: Tensor) -> bool:
    """Whether the core can use these tensors: float32, on the CPU, contiguous."""
    return all(
        tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and not tensor.requires_grad
        for tensor in tensors
    )


def pair_scores(similarity: Similarity, queries: Tensor, candidates: Tensor) -> Tensor:
    """The scores of all pairs, [queries, candidates]."""
    scores, workspace = queries.new_empty(queries.size(0), candidates.size(0)), Workspace()
    if similarity.distance is not None and fits_core(queries, candidates):
        _core.kernel_distance_scores(
            similarity.distance,
            queries.numpy(),
            candidates.numpy(),
            scores.numpy(),
            torch.get_num_threads(),
        )
        return scores
    for start, stop in _blocks(similarity, queries, candidates):
        similarity.pairs(queries[start:stop], candidates, scores[start:stop], workspace)
    return scores


def _blocks(similarity: Similarity, queries: Tensor, candidates: Tensor) -> list[tuple[int, int]]:
    """Blocks of rows that the similarity can process in one step."""
    rows = queries.size(0)
    step = rows
    if similarity.block_numbers:
        step = max(1, similarity.block_numbers // max(1, candidates.numel()))
    return [(start, min(start + step, rows)) for start in range(0, rows, max(step, 1))]


def _unit(rows: Tensor) -> float:
    """A few rounding errors, relative to the summands."""
    return 8.0 * torch.finfo(rows.dtype).eps


def _divide(gradient: Tensor, by: Tensor) -> Tensor:
    """The quotient; zero for a divisor of zero, because a distance of zero lacks a direction."""
    return torch.where(by == 0, 0.0, gradient / torch.where(by == 0, 1.0, by))
