"""Partitions on disk against everything in memory: the same bits, within the budget."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tracemalloc
import weakref
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import outercore as oc
from embed_reference import evaluate, train_epoch
from embed_stores import (
    MEMORY,
    RELATIONS,
    NaivePartitions,
    Setting,
    config_of,
    dealt,
    links_of,
    order_of,
    random_triples,
    table_of,
    train,
)
from outercore import _core
from outercore.cli import run
from outercore.data.triples import PARTS
from outercore.embedding.config import DataConfig, EmbedConfig, Swap
from outercore.embedding.data.parts import link_graph
from outercore.embedding.gradients import trainer as trainer_module
from outercore.embedding.gradients.models import build_model
from outercore.embedding.gradients.negatives import PoolNegatives
from outercore.embedding.gradients.trainer import CoreBatches, Trainer, table_layout
from outercore.embedding.ranking.ranks import Candidates
from outercore.embedding.tables.order import Walks
from outercore.embedding.tables.partitions import PartitionStore
from outercore.embedding.tables.placement import Size, decide
from outercore.embedding.tables.placement import order_of as order_of_run
from outercore.embedding.tables.store import Pool, Progress
from outercore.errors import BudgetError, CorruptError, InvalidError, NotFoundError


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tables this small gain nothing from a second thread, and lose by waiting for it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_a_checkpoint_has_one_copy_of_the_relations(tmp_path: Path) -> None:
    store = Setting(order_of(4, 3)).create(tmp_path)
    store.relations = torch.rand(100_000, 32)
    store.relation_state = torch.zeros(100_000, 32)
    relations, size = store.relations, 2 * store.relations.nbytes
    tracemalloc.start()
    try:
        store.checkpoint(Progress())
        _, written = tracemalloc.get_traced_memory()
        store.close()
        tracemalloc.reset_peak()
        again = PartitionStore(store.directory, 64 << 20)
        _, opened = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert written < 1.05 * size
    # Their bytes, and the tables.
    assert opened < 2.05 * size
    assert torch.equal(again.relations, relations)


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


def test_weights_and_degrees_go_with_their_rows(tmp_path: Path) -> None:
    config = config_of(
        model={"kind": "transe", "dim": 6},
        negatives={"count": 9, "degree_share": 0.5},
        optimiser={"kind": "row-adagrad"},
    )
    setting = Setting(order_of(6, 3), config=config)
    setting.weights = torch.rand(len(setting.triples), generator=torch.Generator().manual_seed(3))
    store = setting.create(tmp_path, degrees=True)
    naive = NaivePartitions(setting, dealt(store))
    train(setting, store, 2)
    train(setting, naive, 2)
    assert torch.equal(table_of(store), naive.entities)


def test_partitions_without_triples_train_with_draws_by_degree(tmp_path: Path) -> None:
    config = config_of(negatives={"count": 9, "degree_share": 0.5})
    setting = Setting(order_of(6, 3), config=config)
    # The other hundred entities are in held-out triples only.
    setting.triples = random_triples(200, 3)
    store = setting.create(tmp_path, degrees=True)
    naive = NaivePartitions(setting, dealt(store))
    train(setting, store, 2)
    train(setting, naive, 2)
    assert torch.equal(table_of(store), naive.entities)


def test_every_store_begins_with_the_same_rows(tmp_path: Path) -> None:
    setting = Setting(order_of(4, 3))
    memory = setting.in_memory()
    for order in (setting.order, order_of(8, 3), order_of(1, 1)):
        setting.order = order
        store = setting.create(tmp_path / str(order.partitions))
        assert torch.equal(table_of(store), memory.entities)
        assert torch.equal(store.relations, memory.relations)


def test_given_rows_come_first_and_those_that_are_no_number_are_the_models_own(
    tmp_path: Path,
) -> None:
    def start(entities: Tensor) -> Tensor:
        rows = entities.float().unsqueeze(1).repeat(1, 8)
        rows[entities % 3 == 0] = torch.nan
        return rows

    setting = Setting(order_of(4, 3))
    relations = torch.full((RELATIONS, 8), torch.nan)
    relations[1] = 7.0
    plain = setting.in_memory()
    memory = setting.in_memory(first_rows=start, first_relations=relations)
    own = torch.arange(setting.entities) % 3 == 0
    assert torch.equal(memory.entities[own], plain.entities[own])
    assert torch.equal(memory.entities[~own], start(torch.arange(setting.entities))[~own])
    assert torch.equal(memory.relations[1], torch.full((8,), 7.0))
    assert torch.equal(memory.relations[[0, 2]], plain.relations[[0, 2]])
    store = setting.create(tmp_path, first_rows=start, first_relations=relations)
    assert torch.equal(table_of(store), memory.entities)
    assert torch.equal(store.relations, memory.relations)
    with pytest.raises(InvalidError, match=r"start: expected rows \[\d+, 8\], found \[\d+, 3\]"):
        setting.create(
            tmp_path / "other", first_rows=lambda entities: torch.zeros(len(entities), 3)
        )


@pytest.mark.parametrize("spare", [False, True])
@pytest.mark.parametrize(
    "walks",
    [
        Walks(),
        Walks(2, spread=True, rename=True),
        Walks(2, spread=True, rename=True, in_turn=True),
        Walks(2, spread=True, rename=True, group=3),
        Walks(3),
    ],
)
def test_bytes_moved_are_those_of_the_plan(tmp_path: Path, walks: Walks, spare: bool) -> None:
    # Partitions of whole pages, so that no row is added.
    order = order_of(8, 4 if spare else 3, spare=spare)
    setting = Setting(order, entities=8 * 512 * walks.group, walks=walks)
    store = setting.create(tmp_path)
    plan = setting.order.plan(
        nodes=setting.entities,
        row_bytes=2 * 8 * 4,
        edges=len(setting.triples),
        seconds_per_edge=1e-6,
        read_bandwidth=1e9,
        write_bandwidth=1e9,
        walks=walks,
    )
    assert plan.walks == walks
    assert plan.memory == store._core.memory()["slots"]
    trainer = Trainer(store, setting.config)
    train_epoch(trainer, 0)
    first = store.counters()
    assert first["bytes_read"] == plan.bytes_read
    train_epoch(trainer, 1)
    second = store.counters()
    assert second["bytes_read"] - first["bytes_read"] == plan.bytes_between
    assert second["bytes_written"] - first["bytes_written"] == plan.bytes_between


@pytest.mark.parametrize("spare", [False, True])
@pytest.mark.parametrize(
    "walks",
    [
        Walks(2, spread=True, rename=True),
        Walks(2, spread=True, rename=True, in_turn=True),
        Walks(2, spread=True, rename=True, group=4),
        Walks(2, rename=True, group=2),
        Walks(3, rename=True),
    ],
)
def test_an_epoch_of_several_walks_trains_every_triple_once(
    tmp_path: Path, walks: Walks, spare: bool
) -> None:
    setting = Setting(order_of(8, 4, spare=spare), walks=walks)
    # A weight tells a triple from every other one.
    setting.weights = torch.arange(len(setting.triples), dtype=torch.float32)
    store = setting.create(tmp_path)
    assert store.shape["walks"] == asdict(walks)
    pools = []
    for epoch in range(2):
        found = []
        for pool in store.pools(epoch):
            assert pool.weights is not None
            found.append(pool.weights.long().tolist())
            for row, name in ((0, "head"), (2, "tail")):
                ends = pool.triples[:, row]
                inside = [(ends >= start) & (ends < stop) for start, stop in pool.ranges]
                assert bool(torch.stack(inside).any(0).all()), name
            assert (pool.shares is not None) == (walks.spread and len(set(pool.shares or [])) > 1)
        assert sorted(place for places in found for place in places) == list(range(700))
        pools.append(found)
        store.checkpoint(Progress(epoch=epoch + 1))
    assert pools[0] != pools[1]


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize(
    ("swap", "slots"), [("in-place", 2), ("in-place", 4), ("in-turn", 2), ("spare-slot", 4)]
)
@pytest.mark.parametrize("loss", ["softmax", "margin"])
@pytest.mark.parametrize("group", [1, 3])
def test_no_pool_draws_more_than_the_plan_counts(
    tmp_path: Path, group: int, loss: str, swap: Swap, slots: int, spread: bool
) -> None:
    spare = swap == "spare-slot"
    walks = Walks(2, spread=spread, rename=True, in_turn=swap == "in-turn", group=group)
    setting = Setting(order_of(8, slots, spare=spare), walks=walks)
    budget = {"partitions": 8, "slots": slots, "swap": swap, "group": group, "spread": spread}
    config = EmbedConfig.from_dict(
        {"loss": {"kind": loss}, "negatives": {"count": 5}, "budget": budget}
    )
    most = 0
    for pool in setting.create(tmp_path).pools(0):
        negatives = PoolNegatives(config.negatives, pool, 10**6, weighs=config.bias_weighs)
        asked = negatives.draw(torch.arange(len(pool.triples)), (0, 0, 0, 0))
        most = max(most, len(asked["tail"]))
    draws = decide(config, Size(1000, 3, 20_000)).placement.negative_sets
    assert 1 <= most <= draws
    # Not many more, either; parts of groups meet as often as chance has it.
    assert most == draws or (swap != "in-place" and not spread) or (group > 1 and spread)


def test_the_least_budget_is_said_and_gives_the_same_bits(tmp_path: Path) -> None:
    setting = Setting(order_of(6, 3))
    store = setting.create(tmp_path / "much")
    train(setting, store, 2)
    with pytest.raises(BudgetError, match="which is") as raised:
        PartitionStore(setting.create(tmp_path / "little").directory, 1 << 10)
    found = re.search(r"which is (\d+) bytes", str(raised.value))
    assert found is not None
    least = int(found[1])
    directory = tmp_path / "little" / "table"
    with pytest.raises(BudgetError):
        PartitionStore(directory, least - 1)
    little = PartitionStore(directory, least)
    assert sum(little._core.memory().values()) <= least
    train(setting, little, 2)
    assert torch.equal(table_of(little), table_of(store))


def test_evaluation_over_blocks_is_that_in_memory(tmp_path: Path) -> None:
    setting = Setting(order_of(8, 3), entities=500)
    store = setting.create(tmp_path)
    train(setting, store, 1)
    memory = setting.in_memory()
    memory.entities, memory.relations = table_of(store), store.relations.clone()
    model = build_model(setting.config.model)
    questions = setting.triples[::7]
    for candidates in (Candidates(), Candidates("uniform", 50)):
        found, expected = (
            evaluate(one, model, questions, known=[setting.triples], candidates=candidates)
            for one in (store, memory)
        )
        assert found == expected
    some = torch.tensor([3, 499, 0, 3])
    assert torch.equal(store.rows(some), memory.entities[some])


def test_tables_are_written_by_number_and_training_goes_on_as_before(tmp_path: Path) -> None:
    for spare in (False, True):
        setting = Setting(order_of(8, 4, spare=spare), entities=3000)
        store = setting.create(tmp_path / f"{spare}")
        other = setting.create(tmp_path / f"{spare}-other")
        for epoch in range(3):
            train(setting, store, epoch + 1, epoch)
            train(setting, other, epoch + 1, epoch)
            store.write_entities(tmp_path / "entities.npy")
            store.write_relations(tmp_path / "relations.npy")
            entities = torch.from_numpy(np.load(tmp_path / "entities.npy"))
            assert torch.equal(entities, table_of(other))
            assert np.array_equal(np.load(tmp_path / "relations.npy"), other.relations.numpy())
            memory = setting.in_memory()
            memory.entities = entities
            memory.write_entities(tmp_path / "memory.npy")
            same = (tmp_path / "memory.npy").read_bytes()[4096:]
            assert same == (tmp_path / "entities.npy").read_bytes()[4096:]


def test_kept_tables_come_back_after_a_restart_and_in_the_midst_of_a_state(tmp_path: Path) -> None:
    setting = Setting(order_of(6, 3))
    store = setting.create(tmp_path)
    train(setting, store, 1)
    best, relations = table_of(store), store.relations.clone()
    store.keep()
    train(setting, store, 2, 1)
    assert not torch.equal(table_of(store), best)
    pools = store.pools(2)
    assert not next(pools).ends_state
    store.restore()
    assert torch.equal(table_of(store), best)
    assert torch.equal(store.relations, relations)
    directory = store.directory
    del store, pools
    again = PartitionStore(directory, MEMORY)
    assert again.progress == Progress(epoch=2)
    assert not torch.equal(table_of(again), best)
    again.restore()
    assert torch.equal(table_of(again), best)
    assert torch.equal(again.relations, relations)
    kept = directory / "kept-0-relations.npy"
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CorruptError, match=r"relations\.npy`: found checksum"):
        again.restore()


def test_a_table_is_trained_by_one_process_and_in_its_turn(tmp_path: Path) -> None:
    setting = Setting(order_of(6, 3))
    store = setting.create(tmp_path)
    with pytest.raises(InvalidError, match="another process holds it"):
        PartitionStore(store.directory, MEMORY)
    with pytest.raises(InvalidError, match="epoch 3: expected epoch 1"):
        next(store.pools(2))
    train(setting, store, 1)
    assert list(store.pools(0)) == []
    directory = store.directory
    del store
    with pytest.raises(InvalidError, match="holds a table"):
        setting.create(tmp_path)
    with pytest.raises(NotFoundError):
        PartitionStore(tmp_path / "nowhere", MEMORY)
    assert PartitionStore(directory, MEMORY).relation_count == RELATIONS


def test_a_table_that_is_there_stays_as_it_is_when_another_is_to_be_created(tmp_path: Path) -> None:
    setting = Setting(order_of(6, 3))
    store = setting.create(tmp_path)
    train(setting, store, 1)
    directory, expected = store.directory, table_of(store)
    other = Setting(order_of(4, 3))
    other.triples = other.triples[:300]
    buckets = (directory / "buckets.bin").read_bytes()
    with pytest.raises(InvalidError, match="another process holds it"):
        other.create(tmp_path)
    store.close()
    with pytest.raises(InvalidError, match="holds a table"):
        other.create(tmp_path)
    assert (directory / "buckets.bin").read_bytes() == buckets
    again = PartitionStore(directory, MEMORY)
    assert torch.equal(table_of(again), expected)
    again.close()
    other.create(tmp_path / "other").close()
    shutil.copy(tmp_path / "other" / "table" / "buckets.bin", directory)
    with pytest.raises(CorruptError, match=r"buckets\.bin.*as the table has"):
        PartitionStore(directory, MEMORY)


def test_too_little_memory_is_said_before_a_table_is_written(tmp_path: Path) -> None:
    setting = Setting(order_of(4, 3), entities=20_000)
    with pytest.raises(BudgetError, match="which is"):
        setting.create(tmp_path, memory=1 << 20)
    assert not (tmp_path / "table" / "partitions.bin").exists()
    setting.create(tmp_path)


def test_the_least_that_a_plan_says_is_enough(tmp_path: Path) -> None:
    entities, count = 20_000, 2_000_000
    config = config_of(
        model={"dim": 16},
        budget={"memory": "1", "partitions": 4},
        optimiser={"batch_size": 1000, "chunk_size": 100},
    )
    size = Size(entities, RELATIONS, count)
    with pytest.raises(BudgetError, match="which is") as raised:
        decide(config, size)
    found = re.search(r"which is (\d+) bytes", str(raised.value))
    assert found is not None
    config = replace(config, budget=replace(config.budget, memory=found[1]))
    placement = decide(config, size).placement
    setting = Setting(order_of_run(config, placement), entities, config)
    setting.triples = random_triples(count, entities)
    store = setting.create(tmp_path, memory=placement.for_partitions)
    assert sum(store._core.memory().values()) <= placement.for_partitions
    assert next(store.pools(0)).triples.shape[1] == 3


def test_a_pool_that_is_given_back_keeps_no_triples(tmp_path: Path) -> None:
    store = Setting(order_of(6, 3), weights=torch.ones(700)).create(tmp_path)
    before = None
    for pool in store.pools(0):
        assert len(pool.triples) > 0
        assert pool.weights is not None
        assert len(pool.weights) == len(pool.triples)
        assert before is None or (len(before.triples), before.weights) == (0, None)
        before = pool


@pytest.mark.parametrize("native", [True, False], ids=["core", "torch"])
def test_known_triples_of_a_pool_end_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    setting = Setting(order_of(6, 3), config=config_of(negatives={"filter": "known"}))
    store = setting.create(tmp_path)
    pools, alive = store.pools, []

    def watched(epoch: int) -> Iterator[Pool]:
        before = None
        for pool in pools(epoch):
            alive.append(before is not None and before() is not None)
            before = weakref.ref(pool.triples)
            yield pool

    monkeypatch.setattr(store, "pools", watched)
    forget, forgotten = CoreBatches.forget, []

    def counted(self: CoreBatches) -> None:
        forgotten.append(alive[-1])
        forget(self)

    monkeypatch.setattr(CoreBatches, "forget", counted)
    trainer = Trainer(store, setting.config, native=native)
    train_epoch(trainer, 0)
    assert len(forgotten) == (len(alive) if native else 0)
    assert len(alive) > 2
    assert not any(alive)
    # Nor is what is known of the last pool there when its end is followed by ranking.
    assert not trainer._known


@pytest.mark.parametrize("native", [True, False], ids=["core", "torch"])
def test_known_triples_in_memory_are_looked_up_once(
    monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    setting = Setting(order_of(6, 3), config=config_of(negatives={"filter": "known"}))
    made = []

    known_answers, know = trainer_module.known_answers, CoreBatches.know

    def collected(triples: Tensor) -> dict[str, _core.KnownAnswers]:
        made.append(len(triples))
        return known_answers(triples)

    monkeypatch.setattr(trainer_module, "known_answers", collected)

    def counted(self: CoreBatches, triples: Tensor, *, undirected: bool) -> None:
        made.append(len(triples))
        know(self, triples, undirected=undirected)

    monkeypatch.setattr(CoreBatches, "know", counted)
    trainer = Trainer(setting.in_memory(), setting.config, native=native)
    for epoch in range(3):
        train_epoch(trainer, epoch)
    assert len(made) == 1


def test_without_kept_tables_those_in_the_midst_of_a_state_stay_as_they_are(
    tmp_path: Path,
) -> None:
    store = Setting(order_of(6, 3)).create(tmp_path)
    pools = store.pools(0)
    pool = next(pools)
    assert not pool.ends_state
    pool.entities[pool.ranges[1][0]] = 7.0
    before = table_of(store)
    store.restore()
    assert len(pool.triples) == 0
    assert torch.equal(table_of(store), before)
    store.write_entities(tmp_path / "entities.npy")
    assert np.array_equal(np.load(tmp_path / "entities.npy"), before.numpy())
    assert int((before == 7.0).all(1).sum()) == 1


def test_a_pool_outlives_its_store(tmp_path: Path) -> None:
    setting = Setting(order_of(6, 3))
    store = setting.create(tmp_path)
    pools = store.pools(0)
    pool = next(pools)
    before = pool.entities[pool.ranges[0][0]].clone()
    del store, pools
    assert torch.equal(pool.entities[pool.ranges[0][0]], before)


def test_triples_out_of_range_and_weights_that_are_none_are_named(tmp_path: Path) -> None:
    setting = Setting(order_of(4, 3))
    setting.triples[5, 2] = 103
    with pytest.raises(InvalidError, match="row 5: tail 103, expected 0 to 102"):
        setting.create(tmp_path / "range")
    setting = Setting(order_of(4, 3))
    setting.weights = torch.ones(len(setting.triples))
    setting.weights[9] = torch.nan
    with pytest.raises(InvalidError, match="row 9: weight NaN"):
        setting.create(tmp_path / "weights")


CHILD = """
import json, sys
from pathlib import Path
from embed_stores import Setting, config_of, order_of, train
from outercore.embedding.tables.partitions import PartitionStore
import torch

torch.set_num_threads(1)

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))

root, entities, memory = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
config = config_of(model={"dim": 64})
small = Setting(order_of(16, 3), config=config)
store = small.create(root / "small")
train(small, store, 1)
store.write_entities(root / "small.npy")
large = Setting(order_of(16, 3), entities=entities, config=config)
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
store = large.create(root / "large", memory=memory)
train(large, store, 1)
store.keep()
store.restore()
store.write_entities(root / "large.npy")
print(json.dumps({"peak": status("VmHWM") - before, "plan": store._core.memory()}))
"""


def test_a_table_of_several_budgets_stays_within_one(tmp_path: Path) -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("peak memory is read from /proc")
    mib = 1 << 20
    memory, entities = 48 * mib, 400_000
    table = entities * 64 * 2 * 4
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, tmp_path, str(entities), str(memory)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.returncode == 0, child.stderr
    found = json.loads(child.stdout)
    assert sum(found["plan"].values()) <= memory
    # Beside the budget: first rows and blocks on their way through Python, and freed memory that
    # allocators keep.
    assert found["peak"] <= memory + 48 * mib < table / 2, found


def undirected(path: Path, edges: list[tuple[int, int]], *, undirected: bool) -> Path:
    """A data set of a plain graph."""
    text = path.with_suffix(".txt")
    text.write_text("".join(f"{source} {target}\n" for source, target in edges))
    command = ["import", str(text), "--out", str(path)]
    assert run([*command, "--undirected" if undirected else "--directed"]) == 0
    return path


def test_links_of_a_graph_are_there_once_and_held_out_by_their_ends(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    pairs = {tuple(sorted(pair)) for pair in random.integers(60, size=(400, 2)).tolist()}
    edges = sorted((int(a), int(b)) for a, b in pairs if a != b)
    one_way = [edge if number % 2 else edge[::-1] for number, edge in enumerate(edges)]
    both = undirected(tmp_path / "both", one_way, undirected=True)
    directed = undirected(tmp_path / "directed", one_way, undirected=False)
    found = links_of(both).read()
    assert sorted(map(tuple, found[:, [0, 2]].tolist())) == edges
    assert not found[:, 1].any()
    found = links_of(directed).read()
    assert sorted(map(tuple, found[:, [0, 2]].tolist())) == sorted(one_way)
    parts = {}
    for path in (both, directed):
        shares = {"valid": 0.1, "test": 0.2, "seed": 4}
        split = [links_of(path, part, **shares) for part in ("train", "valid", "test")]
        held_out = [
            {tuple(sorted(pair)) for pair in links.read()[:, [0, 2]].tolist()} for links in split
        ]
        assert [links.count for links in split] == [len(part) for part in held_out]
        assert sum(map(len, held_out)) == len(edges)
        assert 0.1 < len(held_out[2]) / len(edges) < 0.3
        parts[path.name] = held_out
    assert parts["both"] == parts["directed"], "held out whatever the direction"
    for path, ways in ((both, 2), (directed, 1)):
        data = link_graph(oc.open(path), DataConfig(held_out=0.3), seed=4)
        assert {part: links.count for part, links in data.parts.items()} == {
            part: len(links_of(path, part, 0.15, 0.15, 4).read()) for part in PARTS
        }
        answers = np.concatenate(list(data.answers("test")))
        assert len(answers) == ways * len(edges)
        assert {tuple(sorted(pair)) for pair in answers[:, [0, 2]].tolist()} == set(edges)
    for wrong in (len(edges) - 1, len(edges) + 1):
        with pytest.raises(CorruptError, match=f"found .*, expected {wrong}"):
            replace(links_of(both), counted=wrong).read()
    chunks = list(links_of(both).chunks(7))
    assert {len(some) for some in chunks[:-1]} == {7}
    assert np.array_equal(np.concatenate(chunks), links_of(both).read())
    with pytest.raises(InvalidError, match="together less than 1"):
        _ = links_of(both, "train", 0.5, 0.5).count


def test_links_of_a_graph_are_trained_in_partitions(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    edges = [(int(a), int(b)) for a, b in random.integers(80, size=(300, 2)) if a != b]
    graph = undirected(tmp_path / "graph", edges, undirected=True)
    links = links_of(graph, "train", valid=0.1, test=0.1)
    config = config_of(model={"kind": "dot", "dim": 8})
    setting = Setting(order_of(6, 3), entities=80, config=config)
    setting.triples = torch.from_numpy(links.read())
    layout = table_layout(config, build_model(config.model), 1)
    store = PartitionStore.create(
        tmp_path / "table",
        links.to_core(),
        layout,
        entity_count=80,
        relation_count=1,
        order=setting.order,
        memory=MEMORY,
    )
    naive = NaivePartitions(setting, dealt(store))
    train(setting, store, 2)
    train(setting, naive, 2)
    assert torch.equal(table_of(store), naive.entities)
