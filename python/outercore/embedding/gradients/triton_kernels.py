# Triton's language has no types for mypy to check.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""The softmax loss of an inner product and its gradients, in two kernels for a GPU.

The kernels never write the matrix of scores to memory. With 10,000 rows, 1,000 negatives and a
width of 100, writing and reading it several times would take longer than the products. Each program
keeps its rows of queries, or of candidates, on the chip. It computes the scores twice: for the sum
of exponentials, and for the gradients.

The reference implementation is `Model.gradients` of `dot` with `SoftmaxLoss`. The Legend paper
(section 6) stores the exponentials in memory instead, which is better if products are slow compared
to memory.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from outercore.embedding.gradients.chunk import WIDEST_FUSED, Chunk, QueryGradients
from outercore.errors import InvalidError


@triton.jit
def _places(rows, numbers, width: tl.constexpr):
    """Positions of the values of rows in a table. They may exceed 32 bits."""
    return rows.to(tl.int64)[:, None] * width + numbers[None, :]


@triton.jit
def _scores(
    queries,
    candidates,
    bias,
    columns,
    targets,
    ids,
    count,
    precision: tl.constexpr,
):
    """Scores of a tile; minus infinity beyond the last candidate and at the target of the row."""
    scores = tl.dot(queries, tl.trans(candidates), input_precision=precision)
    inside = columns < count
    if bias is not None:
        scores += tl.load(bias + columns, mask=inside, other=0.0)[None, :]
    keep = inside[None, :]
    if ids is not None:
        own = tl.load(ids + columns, mask=inside, other=-1)
        keep = keep & (targets[:, None] != own[None, :])
    return tl.where(keep, scores, float("-inf"))


@triton.jit
def _queries_kernel(
    queries,
    candidates,
    bias,
    positives,
    weights,
    targets,
    ids,
    totals,
    values,
    to_positives,
    to_queries,
    rows,
    count,
    width: tl.constexpr,
    padded: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    contrastive: tl.constexpr,
    precision: tl.constexpr,
):
    """Computes for a block of rows: the log of their sums, their loss, and query gradients."""
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    number = tl.arange(0, padded)
    inside = row < rows
    at = _places(row, number, width)
    wanted = inside[:, None] & (number[None, :] < width)
    query = tl.load(queries + at, mask=wanted, other=0.0)
    target = row
    if ids is not None:
        target = tl.load(targets + row, mask=inside, other=-2)
    largest = tl.full([block_rows], float("-inf"), tl.float32)
    total = tl.zeros([block_rows], tl.float32)
    for start in range(0, count, block_columns):
        column = start + tl.arange(0, block_columns)
        there = (column[:, None] < count) & (number[None, :] < width)
        candidate = tl.load(candidates + _places(column, number, width), mask=there, other=0.0)
        scores = _scores(query, candidate, bias, column, target, ids, count, precision)
        higher = tl.maximum(largest, tl.max(scores, 1))
        # If all scores are masked so far, the maximum is minus infinity: do not subtract it.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(largest - base) + tl.sum(tl.exp(scores - base[:, None]), 1)
        largest = higher
    positive = tl.load(positives + row, mask=inside, other=0.0)
    weight = tl.load(weights + row, mask=inside, other=0.0)
    empty = largest == float("-inf")
    if contrastive:
        weight = tl.where(empty, 0.0, weight)
        log_sum = tl.where(empty, 0.0, largest + tl.log(tl.where(empty, 1.0, total)))
        share = tl.zeros([block_rows], tl.float32)
    else:
        base = tl.maximum(largest, positive)
        log_sum = base + tl.log(total * tl.exp(largest - base) + tl.exp(positive - base))
        share = tl.exp(positive - log_sum)
    tl.store(totals + row, log_sum, mask=inside)
    tl.store(values + row, weight * (log_sum - positive), mask=inside)
    tl.store(to_positives + row, weight * (share - 1.0), mask=inside)
    gradient = tl.zeros([block_rows, padded], tl.float32)
    for start in range(0, count, block_columns):
        column = start + tl.arange(0, block_columns)
        there = (column[:, None] < count) & (number[None, :] < width)
        candidate = tl.load(candidates + _places(column, number, width), mask=there, other=0.0)
        scores = _scores(query, candidate, bias, column, target, ids, count, precision)
        share_of_each = tl.exp(scores - log_sum[:, None]) * weight[:, None]
        gradient += tl.dot(share_of_each, candidate, input_precision=precision)
    tl.store(to_queries + at, gradient, mask=wanted)


@triton.jit
def _candidates_kernel(
    queries,
    candidates,
    bias,
    weights,
    targets,
    ids,
    totals,
    to_candidates,
    rows,
    count,
    width: tl.constexpr,
    padded: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    contrastive: tl.constexpr,
    precision: tl.constexpr,
):
    """Computes the gradients of a block of candidates, summed over all rows."""
    column = tl.program_id(0) * block_columns + tl.arange(0, block_columns)
    number = tl.arange(0, padded)
    at = _places(column, number, width)
    wanted = (column[:, None] < count) & (number[None, :] < width)
    candidate = tl.load(candidates + at, mask=wanted, other=0.0)
    gradient = tl.zeros([block_columns, padded], tl.float32)
    for start in range(0, rows, block_rows):
        row = start + tl.arange(0, block_rows)
        inside = row < rows
        there = inside[:, None] & (number[None, :] < width)
        query = tl.load(queries + _places(row, number, width), mask=there, other=0.0)
        target = row
        if ids is not None:
            target = tl.load(targets + row, mask=inside, other=-2)
        weight = tl.load(weights + row, mask=inside, other=0.0)
        # Beyond the last row the sum is infinite, so that the shares are zero.
        total = tl.load(totals + row, mask=inside, other=float("inf"))
        scores = _scores(query, candidate, bias, column, target, ids, count, precision)
        shares = tl.exp(scores - total[:, None]) * weight[:, None]
        gradient += tl.dot(tl.trans(shares), query, input_precision=precision)
    before = tl.load(to_candidates + at, mask=wanted, other=0.0)
    tl.store(to_candidates + at, before + gradient, mask=wanted)


def softmax_gradients(
    queries: Tensor,
    chunk: Chunk,
    to_candidates: Tensor,
    *,
    contrastive: bool = False,
    tf32: bool = True,
) -> QueryGradients:
    """The loss and gradients of a chunk by the softmax loss of inner products.

    It adds the gradients of the candidates to `to_candidates`. `Chunk.known` must be `None`. `tf32`
    allows products of reduced precision on the GPU.

    Shapes: `queries` [rows, width] and `to_candidates` [negatives, width], float32.
    Cost: five products of rows x negatives x width, without memory of rows x negatives.
    Errors: `InvalidError` for another dtype, or rows wider than 256.
    """
    rows, width = queries.shape
    targets, candidates, weights = chunk.targets, chunk.candidates, chunk.weights
    for tensor in (queries, targets, candidates, weights, to_candidates):
        if tensor.dtype != torch.float32:
            raise InvalidError(f"softmax kernel: expected float32, found {tensor.dtype}")
    if width > WIDEST_FUSED:
        raise InvalidError(
            f"softmax kernel: expected rows of at most {WIDEST_FUSED}, found {width}"
        )
    if not to_candidates.is_contiguous():
        raise InvalidError("softmax kernel: expected contiguous gradients to add to")
    queries, candidates, weights = (
        tensor.contiguous() for tensor in (queries, candidates, weights)
    )
    positives = torch.linalg.vecdot(queries, targets)
    totals, values, to_positives = (torch.empty_like(positives) for _ in range(3))
    to_queries = torch.empty_like(queries)
    shared: dict[str, Any] = {
        "width": width,
        "padded": max(16, triton.next_power_of_2(width)),
        "block_rows": 64,
        "block_columns": 32,
        "contrastive": contrastive,
        "precision": "tf32" if tf32 else "ieee",
    }
    bias = None if chunk.bias is None else chunk.bias.contiguous()
    own, ids = chunk.own or (None, None)
    count = len(candidates)
    if rows:
        _queries_kernel[(triton.cdiv(rows, shared["block_rows"]),)](
            queries,
            candidates,
            bias,
            positives,
            weights,
            own,
            ids,
            totals,
            values,
            to_positives,
            to_queries,
            rows,
            count,
            **shared,
        )
    if rows and count:
        _candidates_kernel[(triton.cdiv(count, shared["block_columns"]),)](
            queries,
            candidates,
            bias,
            weights,
            own,
            ids,
            totals,
            to_candidates,
            rows,
            count,
            **shared,
        )
    column = to_positives.unsqueeze(1)
    to_queries.addcmul_(targets, column)
    return QueryGradients(values.sum(), to_queries, queries * column)
