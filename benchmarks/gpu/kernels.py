"""Outercore's Triton kernels: compared with their definition in float64, and timed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from bench import Bench

from outercore.embedding.gradients.chunk import Chunk
from outercore.embedding.gradients.losses import SoftmaxLoss
from outercore.embedding.gradients.models import BUILT_IN, Model
from outercore.embedding.gradients.triton_kernels import softmax_gradients

SIZES = ((1, 1, 1), (65, 33, 17), (1000, 999, 100), (513, 77, 256))
"""Rows, candidates and width."""
WITHIN = {"ieee": 1e-5, "tf32": 3e-3}
"""Allowed difference, as a share of the norm of the expected gradient."""


def run(bench: Bench) -> None:
    """Compare softmax and contrastive loss, with and without bias and hidden targets; time them."""
    worst: dict[str, float] = {}
    for rows, count, width in bench.pick(SIZES, SIZES[:2]):
        for precision, contrastive, extras in _variants(width):
            apart = _apart(bench, rows, count, width, contrastive, extras, precision)
            worst[precision] = max(worst.get(precision, 0.0), apart)
            what = f"softmax kernel, {rows} x {count} x {width}, {precision}"
            what += ", contrastive" * contrastive + ", bias and own" * extras
            bench.check(what, apart <= WITHIN[precision], apart)
    bench.keep("largest_relative_error", worst)
    for name, rows in bench.pick({"1000 rows": 1000, "10000 rows": 10_000}, {"9 rows": 9}).items():
        bench.keep(f"speed, {name}", _speed(bench, rows, bench.pick(1000, 7), bench.pick(100, 5)))
    if not bench.small:
        _beyond_32_bits(bench)


def _variants(width: int) -> Iterator[tuple[str, bool, bool]]:
    """Precision, contrastive loss, bias and hidden targets.

    Without TF32, products of wide rows are unrolled. Compiling such a kernel takes many seconds.
    """
    for contrastive, extras in ((True, True), (False, False), (False, True)):
        yield "tf32", contrastive, extras
        if width <= 32 or (width <= 100 and contrastive):
            yield "ieee", contrastive, extras


def _chunk(
    bench: Bench, rows: int, count: int, width: int, *, extras: bool, seed: int
) -> tuple[torch.Tensor, Chunk]:
    random = torch.Generator().manual_seed(seed)
    queries, targets = torch.randn(2, rows, width, generator=random) * width**-0.25
    candidates = torch.randn(count, width, generator=random) * width**-0.25
    chunk = Chunk("tail", queries, queries, targets, candidates, torch.rand(rows, generator=random))
    if extras:
        ids = torch.randint(0, 9, (count,), generator=random)
        own = torch.randint(0, 9, (rows,), generator=random)
        bias = torch.randn(count, generator=random)
        chunk = chunk._replace(bias=bias, own=(own.to(bench.device), ids.to(bench.device)))
    moved = {
        name: value.to(bench.device)
        for name, value in chunk._asdict().items()
        if torch.is_tensor(value)
    }
    chunk = chunk._replace(**moved)
    return chunk.anchors, chunk


def _precise(chunk: Chunk) -> Chunk:
    wide = {
        name: value.double() for name, value in chunk._asdict().items() if torch.is_tensor(value)
    }
    return chunk._replace(**wide)


def _apart(
    bench: Bench,
    rows: int,
    count: int,
    width: int,
    contrastive: bool,
    extras: bool,
    precision: str,
) -> float:
    """The largest relative difference of the loss and the three gradients."""
    queries, chunk = _chunk(bench, rows, count, width, extras=extras, seed=rows + count)
    before = torch.randn(count, width, generator=torch.Generator().manual_seed(1)).to(bench.device)
    expected_candidates = before.double()
    expected = BUILT_IN["dot"].gradients(
        _precise(chunk), SoftmaxLoss(contrastive), expected_candidates
    )
    found_candidates = before.clone()
    actual = softmax_gradients(
        queries, chunk, found_candidates, contrastive=contrastive, tf32=precision == "tf32"
    )
    pairs = (
        (actual.value, expected.value),
        (actual.queries, expected.anchors),
        (actual.targets, expected.targets),
        (found_candidates, expected_candidates),
    )
    return max(_relative(mine, theirs) for mine, theirs in pairs)


def _relative(actual: torch.Tensor, expected: torch.Tensor) -> float:
    if not bool(actual.isfinite().all()):
        return float("inf")
    apart = (actual.double() - expected).norm() / expected.norm().clamp(min=1e-12)
    return float(apart)


def _speed(bench: Bench, rows: int, count: int, width: int) -> dict[str, Any]:
    """Seconds of one side of a chunk: by the kernels, by PyTorch, and only for its products."""
    queries, chunk = _chunk(bench, rows, count, width, extras=False, seed=1)
    sums = torch.zeros_like(chunk.candidates)
    candidates = chunk.candidates
    torch.backends.cuda.matmul.allow_tf32 = True
    product = bench.seconds(lambda: queries @ candidates.T)
    torch.backends.cuda.matmul.allow_tf32 = False
    return {
        "kernel, tf32": bench.seconds(lambda: softmax_gradients(queries, chunk, sums)),
        "kernel, ieee": bench.seconds(lambda: softmax_gradients(queries, chunk, sums, tf32=False)),
        "PyTorch, ieee": bench.seconds(
            # The definition, without the kernels.
            lambda: Model.gradients(BUILT_IN["dot"], chunk, SoftmaxLoss(), sums)
        ),
        "five products of PyTorch, tf32": 5 * product,
        "operations": 10.0 * rows * count * width,
    }


def _beyond_32_bits(bench: Bench) -> None:
    """A table of candidates with more than 2^31 values."""
    width, rows = 256, 16
    count = (1 << 31) // width + 100
    room = torch.cuda.mem_get_info()[0]
    if room < 4 * count * width * 4:
        bench.keep("beyond_32_bits", f"skipped: {room:,} bytes free")
        return
    queries, chunk = _chunk(bench, rows, 1, width, extras=False, seed=4)
    candidates = torch.zeros(count, width, device=bench.device)
    last = torch.randn(100, width, device=bench.device)
    candidates[-100:] = last
    sums = torch.zeros_like(candidates)
    softmax_gradients(queries, chunk._replace(candidates=candidates), sums)
    # All rows before the last hundred are zeros, with a score of 0.
    scores = queries.double() @ last.double().T
    positives = torch.linalg.vecdot(queries, chunk.targets).double()
    total = scores.exp().sum(1) + positives.exp() + (count - 100)
    expected = (scores.exp() / total[:, None] * chunk.weights.double()[:, None]).T
    apart = _relative(sums[-100:], expected @ queries.double())
    bench.check("softmax kernel, numbers beyond 2^31", apart <= WITHIN["tf32"], apart)
