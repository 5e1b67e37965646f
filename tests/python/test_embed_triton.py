"""Triton's kernels against the reference, under Triton's interpreter where there is no GPU."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from embed_reference import train_epoch
from outercore.embedding.config import EmbedConfig
from outercore.embedding.gradients.chunk import Chunk, QueryGradients
from outercore.embedding.gradients.losses import SoftmaxLoss
from outercore.embedding.gradients.models import BUILT_IN
from outercore.embedding.gradients.trainer import Trainer, table_layout
from outercore.embedding.tables.memory import MemoryStore
from outercore.errors import InvalidError

pytest.importorskip("triton")

import triton
import triton.language as tl

from outercore.embedding.gradients import triton_kernels
from outercore.embedding.gradients.triton_kernels import _places, softmax_gradients

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

ODD_SIZES = [(1, 1, 1), (3, 2, 5), (64, 32, 16), (65, 33, 17), (7, 70, 129)]


def a_chunk(queries: Tensor, targets: Tensor, candidates: Tensor, weights: Tensor) -> Chunk:
    return Chunk("tail", queries, queries, targets, candidates, weights)


def there(chunk: Chunk) -> Chunk:
    """The same on the device."""
    own = chunk.own and tuple(ids.to(DEVICE) for ids in chunk.own)
    rows = {
        name: some.to(DEVICE) for name, some in chunk._asdict().items() if torch.is_tensor(some)
    }
    return chunk._replace(**rows, own=own)


@pytest.mark.parametrize("contrastive", [False, True])
@pytest.mark.parametrize("extras", [False, True])
@pytest.mark.parametrize(("rows", "count", "width"), ODD_SIZES)
def test_the_kernels_give_the_gradients_of_the_reference(
    rows: int, count: int, width: int, extras: bool, contrastive: bool
) -> None:
    random = torch.Generator().manual_seed(rows * 1000 + count)
    queries, targets = torch.randn(2, rows, width, generator=random)
    candidates = torch.randn(count, width, generator=random)
    weights = torch.rand(rows, generator=random)
    bias = torch.randn(count, generator=random)
    ids = torch.randint(0, 9, (count,), generator=random).sort().values
    own = torch.randint(0, 9, (rows,), generator=random)
    before = torch.randn(count, width, generator=random)
    expected_candidates = before.clone().double()
    chunk = a_chunk(queries, targets, candidates, weights)
    if extras:
        chunk = chunk._replace(bias=bias, own=(own, ids))
    precise = chunk._replace(
        anchors=queries.double(),
        targets=targets.double(),
        candidates=candidates.double(),
        weights=weights.double(),
        bias=bias.double() if extras else None,
    )
    expected = BUILT_IN["dot"].gradients(precise, SoftmaxLoss(contrastive), expected_candidates)
    to_candidates = before.clone().to(DEVICE)
    found = triton_kernels.softmax_gradients(
        queries.to(DEVICE), there(chunk), to_candidates, contrastive=contrastive, tf32=False
    )
    for mine, theirs in (
        (found.value, expected.value),
        (found.queries, expected.anchors),
        (found.targets, expected.targets),
        (to_candidates, expected_candidates),
    ):
        torch.testing.assert_close(mine.cpu(), theirs.float(), rtol=1e-4, atol=1e-4)


@triton.jit
def _places_kernel(found, first, width: tl.constexpr) -> None:
    row, number = tl.arange(0, 4), tl.arange(0, 2)
    tl.store(found + row[:, None] * 2 + number[None, :], _places(first + row, number, width))


def test_places_beyond_32_bits_are_exact() -> None:
    # Rows of 256 numbers: from about here on 32 bits are too few.
    first, width = (1 << 23) - 2, 256
    found = torch.zeros(4, 2, dtype=torch.int64, device=DEVICE)
    _places_kernel[(1,)](found, first, width=width)
    expected = [[(first + row) * width + number for number in range(2)] for row in range(4)]
    assert found.tolist() == expected


def test_scores_far_apart_neither_overflow_nor_vanish() -> None:
    queries = torch.tensor([[200.0, 0.0], [-200.0, 0.0]], device=DEVICE)
    candidates = torch.tensor([[1.0, 0.0], [0.5, 0.0]], device=DEVICE)
    to_candidates = torch.zeros(2, 2, device=DEVICE)
    chunk = a_chunk(queries, candidates, candidates, torch.ones(2, device=DEVICE))
    found = triton_kernels.softmax_gradients(queries, chunk, to_candidates, tf32=False)
    # Twice the positive among the negatives too: log 2 for each row.
    torch.testing.assert_close(float(found.value), 2 * 0.6931472, rtol=1e-4, atol=0)
    assert bool(found.queries.isfinite().all())


def test_what_the_kernels_cannot_do_is_refused() -> None:
    rows = torch.zeros(2, 300, device=DEVICE)
    wide = a_chunk(rows, rows, rows, rows[:, 0])
    with pytest.raises(InvalidError, match="at most 256, found 300"):
        triton_kernels.softmax_gradients(rows, wide, rows)
    half = rows[:, :8].half()
    short = a_chunk(half, half, half, half[:, 0])
    with pytest.raises(InvalidError, match="expected float32"):
        triton_kernels.softmax_gradients(half, short, half)


def test_training_with_the_kernels_is_training_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    triples = torch.tensor([[head, 0, (head + 3) % 20] for head in range(20)])
    config = EmbedConfig.from_dict(
        {
            "model": {"dim": 8, "init_scale": 0.5},
            "negatives": {"count": 12, "degree_share": 0.5, "correction": "frequency"},
            "optimiser": {"batch_size": 20, "chunk_size": 10},
        }
    )
    calls = []

    def counted(*arguments: Any, **options: Any) -> QueryGradients:
        calls.append(arguments)
        return softmax_gradients(*arguments, **options)

    monkeypatch.setattr(triton_kernels, "softmax_gradients", counted)
    tables, counts = [], []
    for fused in (False, True):
        choose = partial(chosen, fused)
        monkeypatch.setattr("outercore.embedding.gradients.models.fuses", choose)
        store = MemoryStore(triples, 20, 1)
        # Without the core, which trains whole batches on a CPU and asks no kernel.
        trainer = Trainer(store, config, native=False)
        store.allocate(table_layout(config, trainer.model, 1), torch.device(DEVICE))
        # From a state of zeros the first step is the sign of the gradient, rounding and all.
        store.entity_state.fill_(1.0)
        store.relation_state.fill_(1.0)
        train_epoch(trainer, 0)
        tables.append(store.entities.cpu())
        counts.append(len(calls))
    # Two chunks, each asked for heads and for tails.
    assert counts == [0, 4]
    torch.testing.assert_close(tables[1], tables[0], rtol=1e-2, atol=1e-3)


def chosen(fused: bool, *_: object) -> bool:
    """In place of `fuses`."""
    return fused
