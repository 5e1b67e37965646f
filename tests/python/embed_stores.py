"""Helpers for tests of stores: triples, configurations, and a naive store of partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embed_reference import train_epoch
from outercore.data.triples import HeldOut, Part, Triples
from outercore.embedding.config import EmbedConfig
from outercore.embedding.gradients.models import build_model
from outercore.embedding.gradients.trainer import Trainer, table_layout
from outercore.embedding.tables.memory import MemoryStore
from outercore.embedding.tables.order import BufferState, PartitionOrder, Walks, partition_order
from outercore.embedding.tables.partitions import PartitionStore
from outercore.embedding.tables.store import Pool, Progress, TableLayout

MEMORY = 64 << 20
RELATIONS = 3


def config_of(**groups: Any) -> EmbedConfig:
    """A small configuration; groups given by name override its values."""
    values: dict[str, Any] = {
        "model": {"kind": "complex", "dim": 8, "init_scale": 0.1},
        "negatives": {"count": 12},
        "optimiser": {
            "batch_size": 32,
            "chunk_size": 16,
            "epochs": 3,
            "learning_rate": 0.2,
            "validate_every": 1,
        },
    }
    for name, group in groups.items():
        values[name] = {**values.get(name, {}), **group}
    return EmbedConfig.from_dict(values)


def random_triples(count: int, entities: int, seed: int = 0) -> Tensor:
    """Random triples, int64 [count, 3], with repetitions; every entity may be head or tail."""
    random = np.random.default_rng(seed)
    ends = random.integers(entities, size=(count, 2))
    relations = random.integers(RELATIONS, size=count)
    return torch.from_numpy(np.stack([ends[:, 0], relations, ends[:, 1]], axis=1))


def layout_of(config: EmbedConfig, **first: Any) -> TableLayout:
    """The layout of the tables of a run; `first` are rows from another run."""
    return replace(table_layout(config, build_model(config.model), RELATIONS), **first)


@dataclass
class Setting:
    """Triples, a configuration and an order: together they determine a run."""

    order: PartitionOrder
    entities: int = 103
    config: EmbedConfig = field(default_factory=config_of)
    triples: Tensor = field(init=False)
    weights: Tensor | None = None
    walks: Walks | None = None

    def __post_init__(self) -> None:
        self.triples = random_triples(700, self.entities)

    def create(
        self,
        directory: Path,
        *,
        first_rows: Any = None,
        first_relations: Any = None,
        **options: Any,
    ) -> PartitionStore:
        """A new store below `directory`, with its triples in the same directory."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "triples.npy"
        np.save(path, self.triples.numpy())
        weights = None
        if self.weights is not None:
            weights = directory / "weights.npy"
            np.save(weights, self.weights.numpy())
        return PartitionStore.create(
            directory / "table",
            Triples(path, weights, key="train").to_core("test"),
            layout_of(self.config, first_rows=first_rows, first_relations=first_relations),
            entity_count=self.entities,
            relation_count=RELATIONS,
            order=self.order,
            walks=self.walks,
            **{"memory": MEMORY, **options},
        )

    def in_memory(self, directory: Path | None = None, **first: Any) -> MemoryStore:
        """A store with the same first rows in memory."""
        return MemoryStore.create(
            directory,
            self.triples,
            self.entities,
            RELATIONS,
            layout_of(self.config, **first),
        )


def order_of(partitions: int, slots: int, *, spare: bool = False) -> PartitionOrder:
    """The shortest order found with a small amount of work."""
    return partition_order("optimal", partitions=partitions, slots=slots, spare=spare, work=200_000)


def train(setting: Setting, store: Any, epochs: int, first: int = 0) -> None:
    """Trains whole epochs, and takes a checkpoint after each."""
    trainer = Trainer(store, setting.config)
    for epoch in range(first, epochs):
        train_epoch(trainer, epoch)
        store.checkpoint(Progress(epoch=epoch + 1))


def table_of(store: Any) -> Tensor:
    """All rows in the order of the entities."""
    blocks = list(store.blocks())
    entities = torch.cat([entities for entities, _ in blocks])
    assert torch.equal(entities.sort().values, torch.arange(store.entity_count))
    return torch.cat([rows for _, rows in blocks])[entities.argsort()]


def dealt(store: PartitionStore) -> list[Tensor]:
    """The entities of each partition, row by row."""
    partitions = store.shape["partitions"]
    each, longer = divmod(store.entity_count, partitions)
    return [
        torch.from_numpy(store._core.read_rows(partition, 0, each + (partition < longer))[0])
        for partition in range(partitions)
    ]


class NaivePartitions:
    """A naive store: all partitions in memory; pools copy partitions to slots and back."""

    progress: Progress | None = None

    def __init__(self, setting: Setting, dealt: list[Tensor]) -> None:
        """`dealt` has the entities of each partition, row by row."""
        self.setting = setting
        self.dealt = dealt
        config = setting.config
        layout = layout_of(config)
        self.entity_count, self.relation_count = setting.entities, RELATIONS
        self.entities = layout.new_entities(torch.arange(setting.entities))
        self.entity_state = torch.zeros(setting.entities, layout.state_width)
        self.relations, self.relation_state = layout.new_relations(torch.device("cpu"))
        self._slots: list[int | None] = [None] * min(setting.order.slots, setting.order.partitions)
        self._before: tuple[int, ...] = ()
        self._degrees = torch.bincount(
            setting.triples[:, [0, 2]].reshape(-1), minlength=setting.entities
        )

    def checkpoint(self, progress: Progress) -> None:
        """Does nothing: there is no file."""

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The whole table."""
        yield torch.arange(self.entity_count), self.entities

    def pools(self, epoch: int) -> Iterator[Pool]:
        """The pools of an epoch by the states of its order."""
        order = self.setting.order
        states = (order.reversed() if epoch % 2 else order).states
        for index, state in enumerate(states):
            self._bring(state)
            following = states[index + 1] if index + 1 < len(states) else None
            if order.spare:
                yield from self._pool(2 * index + 1, state.resident, state.buckets)
                continue
            yield from self._pool(2 * index, state.resident, state.before_swap)
            gone = None if following is None else following.evicted
            staying = tuple(p for p in state.resident if p != gone)
            yield from self._pool(2 * index + 1, staying, state.during_swap)

    def _bring(self, state: BufferState) -> None:
        for partition in state.resident:
            if partition in self._slots:
                continue
            if state.loaded is None:
                slot = self._slots.index(None)
            elif self.setting.order.spare:
                # The slot that the previous state does not use.
                slot = [held not in self._before for held in self._slots].index(True)
            else:
                slot = self._slots.index(state.evicted)
            self._slots[slot] = partition
        self._before = state.resident

    def _pool(
        self, number: int, there: tuple[int, ...], buckets: tuple[tuple[int, int], ...]
    ) -> Iterator[Pool]:
        if not buckets:
            return
        longest = max(len(entities) for entities in self.dealt)
        width, state_width = self.entities.size(1), self.entity_state.size(1)
        rows = torch.full((longest * len(self._slots), width), torch.nan)
        state = torch.full((longest * len(self._slots), state_width), torch.nan)
        degrees = torch.zeros(len(rows), dtype=torch.int64)
        row_of = torch.full((self.entity_count,), -1)
        partition_of = torch.empty(self.entity_count, dtype=torch.int64)
        ranges = []
        for partition, entities in enumerate(self.dealt):
            partition_of[entities] = partition
        for partition in there:
            entities = self.dealt[partition]
            start = self._slots.index(partition) * longest
            ranges.append((start, start + len(entities)))
            row_of[entities] = torch.arange(start, start + len(entities))
            rows[row_of[entities]] = self.entities[entities]
            state[row_of[entities]] = self.entity_state[entities]
            degrees[row_of[entities]] = self._degrees[entities]
        heads, _, tails = self.setting.triples.unbind(1)
        places = torch.cat(
            [
                ((partition_of[heads] == source) & (partition_of[tails] == target)).nonzero()[:, 0]
                for source, target in buckets
            ]
        )
        triples = self.setting.triples[places].clone()
        triples[:, 0], triples[:, 2] = row_of[triples[:, 0]], row_of[triples[:, 2]]
        weights = None if self.setting.weights is None else self.setting.weights[places]
        pairs = [(there.index(head), there.index(tail)) for head, tail in buckets]
        yield Pool(number, triples, rows, state, ranges, weights, degrees, pairs=pairs)
        for partition in there:
            entities = self.dealt[partition]
            self.entities[entities] = rows[row_of[entities]]
            self.entity_state[entities] = state[row_of[entities]]


def links_of(
    path: Path, part: Part = "train", valid: float = 0.0, test: float = 0.0, seed: int = 0
) -> Triples:
    """The links of a graph in a part."""
    return Triples(path, held_out=HeldOut(valid, test, seed), part=part)
