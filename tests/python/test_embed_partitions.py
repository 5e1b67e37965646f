"""Partitions on disk against everything in memory: the same bits, within the budget."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from embed_stores import NaivePartitions, Setting, order_of, table_of, train


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tables this small gain nothing from a second thread, and lose by waiting for it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def dealt(store: object) -> list[torch.Tensor]:
    """The entities of each partition, row by row."""
    shape = store.shape  # type: ignore[attr-defined]
    each, longer = divmod(shape["nodes"], shape["partitions"])
    core = store._core  # type: ignore[attr-defined]
    return [
        torch.from_numpy(core.read_rows(partition, 0, each + (partition < longer))[0])
        for partition in range(shape["partitions"])
    ]


@pytest.mark.parametrize("spare", [False, True])
@pytest.mark.parametrize("partitions", [4, 8, 16])
def test_training_in_partitions_gives_the_bits_of_a_naive_store(
    tmp_path: Path, partitions: int, spare: bool
) -> None:
    setting = Setting(order_of(partitions, 4 if spare else 3, spare=spare))
    store = setting.create(tmp_path)
    naive = NaivePartitions(setting, dealt(store))
    assert torch.equal(table_of(store), naive.entities)
    for epoch in range(3):
        train(setting, store, epoch + 1, epoch)
        train(setting, naive, epoch + 1, epoch)
        assert torch.equal(table_of(store), naive.entities), epoch
        assert torch.equal(store.relations, naive.relations)
        assert torch.equal(store.relation_state, naive.relation_state)
