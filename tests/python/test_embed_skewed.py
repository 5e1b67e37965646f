"""Budgets of embeddings of graphs whose triples are not spread evenly."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import outercore as oc
from embed_runs import IN_PARTITIONS, After, assert_same_bits, circle, interrupt, small, watch_pools
from outercore import _core
from outercore.embedding import resume
from outercore.embedding.config import EmbedConfig
from outercore.embedding.gradients.models import build_model
from outercore.embedding.gradients.trainer import table_layout
from outercore.embedding.preparation import BucketCounter, plan_session
from outercore.embedding.run_directory import EmbedDirectory
from outercore.embedding.tables.partitions import PartitionStore
from outercore.embedding.tables.placement import (
    Placement,
    Size,
    decide,
    placement_changes,
    resolved,
)
from outercore.errors import BudgetError, InterruptError
from outercore.importing.build.triples import TripleOptions, import_triples

ENTITIES = 20_000
TOO_SMALL, ROOM = 54 << 20, 58 << 20
"""The least that fits is between them."""


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Triples whose ends are drawn by Zipf's law: the first two entities are half of them."""
    root = tmp_path_factory.mktemp("hubs")
    draws = np.random.default_rng(5)
    shares = np.arange(1, ENTITIES + 1) ** -1.4
    ends = draws.choice(ENTITIES, (200_000, 2), p=shares / shares.sum())
    ends[:ENTITIES, 0] = np.arange(ENTITIES)
    rows = [f"e{head}\tr\te{tail}\n" for head, tail in ends]
    (root / "train.tsv").write_text("".join(rows))
    import_triples(root / "train.tsv", root / "set", options=TripleOptions(memory="16MiB"))
    return root / "set"


def groups(**budget: Any) -> dict[str, Any]:
    return {
        "model": {"kind": "complex", "dim": 128},
        "negatives": {"count": 4},
        "optimiser": {"epochs": 1, "batch_size": 1000, "chunk_size": 100},
        "budget": {"threads": 1, **budget},
    }


class Noted(After):
    """Remembers what it is told."""

    def __init__(self, batches: int = 0, act: Any = None) -> None:
        super().__init__(batches, act)
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        if "validated" not in message and not message.startswith("warning: "):
            self.notes.append(message)


def bytes_named(error: BaseException) -> int:
    return int(str(error).partition("which is ")[2].split()[0])


def refused(data_set: Path, memory: int, out: Path, **budget: Any) -> int:
    """The least that the refusal of a run names; it leaves nothing."""
    with pytest.raises(BudgetError, match="need at least") as caught:
        oc.embed(data_set, groups(**budget), memory=memory, out=out)
    assert not out.exists()
    return bytes_named(caught.value)


def test_a_graph_with_hubs_is_trained_in_the_next_best_partitions(
    hubs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = watch_pools(monkeypatch)
    observer = Noted()
    result = oc.embed(hubs, groups(), memory=ROOM, out=tmp_path / "run", observer=observer)
    plan = result.record["plan"]
    assert sum(plan["parts"].values()) <= ROOM
    assert 0 < 32 * max(sizes) <= plan["parts"]["triples in training"]
    first = plan_session(oc.open(hubs), EmbedConfig.from_dict(groups(memory=str(ROOM)))).placement
    assert (first.partitions, first.slots) != (plan["partitions"], plan["slots"])
    [note] = observer.notes
    changed = "partitions" if plan["partitions"] != first.partitions else "slots"
    assert f"{plan[changed]} {changed} instead of {getattr(first, changed)}" in note
    assert note.endswith(": some buckets are larger than most")
    # What was chosen is written down, and gives the same where it is asked for.
    chosen = json.loads((tmp_path / "run/config.json").read_text())["config"]["budget"]
    for name in ("partitions", "slots", "sweeps", "group"):
        assert chosen[name] == plan[name]
    observer = Noted()
    oc.embed(hubs, groups(**chosen), out=tmp_path / "asked", observer=observer)
    assert observer.notes == []
    assert_same_bits(tmp_path / "run", tmp_path / "asked")


def test_the_least_memory_for_hubs_is_named_and_is_enough(hubs: Path, tmp_path: Path) -> None:
    least = refused(hubs, TOO_SMALL, tmp_path / "run")
    assert TOO_SMALL < least < ROOM
    assert refused(hubs, least - 1, tmp_path / "run") == least
    with pytest.raises(InterruptError):
        oc.embed(hubs, groups(), memory=least, out=tmp_path / "run", observer=After(1, interrupt))
    plan = json.loads((tmp_path / "run/record.json").read_text())["plan"]
    assert sum(plan["parts"].values()) <= least


def test_what_is_asked_for_stays_and_is_refused_with_its_least(hubs: Path, tmp_path: Path) -> None:
    asked = {"partitions": 24, "slots": 6, "swap": "in-place", "group": 1, "sweeps": 1}
    memory = 62 << 20
    least = refused(hubs, memory, tmp_path / "run", **asked)
    assert least > memory
    assert refused(hubs, least - 1, tmp_path / "run", **asked) == least
    # Of what is left open other values are taken, of the rest none.
    free = {name: asked[name] for name in ("partitions", "swap", "sweeps")}
    config = EmbedConfig.from_dict(groups(memory=str(memory), **free))
    observer = Noted(1, interrupt)
    with pytest.raises(InterruptError):
        oc.embed(hubs, config, out=tmp_path / "run", observer=observer)
    plan = json.loads((tmp_path / "run/record.json").read_text())["plan"]
    assert (plan["partitions"], plan["swap"], plan["sweeps"]) == (24, "in-place", 1)
    assert "slots instead of" in observer.notes[0]
    with pytest.raises(InterruptError):
        oc.embed(
            hubs,
            groups(**asked),
            memory=least,
            out=tmp_path / "asked",
            observer=After(1, interrupt),
        )


def test_a_run_that_has_begun_keeps_its_partitions(hubs: Path, tmp_path: Path) -> None:
    interrupted = Noted(20, interrupt)
    with pytest.raises(InterruptError):
        oc.embed(hubs, groups(), memory=ROOM, out=tmp_path / "run", observer=interrupted)
    before = json.loads((tmp_path / "run/table/journal.json").read_text())
    with pytest.raises(BudgetError, match="of a run stay as they are") as caught:
        resume(tmp_path / "run", memory=TOO_SMALL)
    assert json.loads((tmp_path / "run/table/journal.json").read_text()) == before
    least = bytes_named(caught.value)
    assert TOO_SMALL < least <= ROOM
    observer = Noted()
    resume(tmp_path / "run", memory=least, observer=observer)
    assert observer.notes == []
    oc.embed(hubs, groups(), memory=ROOM, out=tmp_path / "whole")
    assert_same_bits(tmp_path / "run", tmp_path / "whole")


def test_counting_that_is_stopped_leaves_nothing(
    hubs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sort, counted = _core.sort_triples, 0

    def interrupted(*arguments: Any) -> dict[str, Any]:
        nonlocal counted
        counted += 1
        if counted == 2:
            interrupt()
        return sort(*arguments)

    monkeypatch.setattr(_core, "sort_triples", interrupted)
    with pytest.raises(InterruptError, match="run the same command again"):
        oc.embed(hubs, groups(), memory=TOO_SMALL, out=tmp_path / "run")
    assert counted == 2
    assert not (tmp_path / "run").exists()


def test_a_run_killed_while_buckets_are_counted_begins_anew(
    hubs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    graph, out = oc.open(hubs), tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr("outercore.embedding.preparation.placement_changes", killed)
        with pytest.raises(KeyboardInterrupt):
            oc.embed(graph.root, groups(), memory=ROOM, out=out)
    assert (out / "table/buckets.bin").exists()
    assert not EmbedDirectory.open(out).begun
    observer = Noted(1, interrupt)
    with pytest.raises(InterruptError):
        resume(out, observer=observer)
    assert len(observer.notes) == 1


def test_until_there_is_a_table_a_run_may_be_given_another_budget(
    hubs: Path, tmp_path: Path
) -> None:
    class Stop(After):
        def preparing(self, what: str, done: int, total: int, unit: str) -> None:
            if what == "read triples":
                # As if it were killed: a run without a table is removed when it is stopped.
                shutil.copytree(out, tmp_path / "killed", dirs_exist_ok=True)
                interrupt()

    out, killed = tmp_path / "run", tmp_path / "killed"
    with pytest.raises(InterruptError):
        oc.embed(hubs, groups(), memory="1GiB", out=out, observer=Stop())
    assert json.loads((killed / "config.json").read_text())["config"]["budget"]["partitions"] == 1
    # Its directory may have been deleted, too.
    (killed / "table").rmdir()
    result = resume(killed, memory=ROOM)
    assert result.record["plan"]["partitions"] > 1
    oc.embed(hubs, groups(), memory=ROOM, out=tmp_path / "whole")
    assert_same_bits(killed, tmp_path / "whole")
    # From then on it keeps its partitions.
    assert EmbedDirectory.open(killed).config().budget.partitions > 1


WALKS: list[dict[str, Any]] = [
    {},
    {"sweeps": 3, "group": 4},
    {"sweeps": 2, "spread": False, "rename": False},
    {"swap": "spare-slot", "slots": 4},
    {"swap": "in-turn", "group": 2},
    {"sweeps": 1, "spread": False, "rename": False},
    {"sweeps": 1, "spread": False, "rename": False, "swap": "in-turn"},
    {"sweeps": 1, "spread": False, "rename": False, "swap": "spare-slot"},
]


@pytest.mark.parametrize("walks", WALKS)
def test_counted_buckets_give_the_pools_of_a_run_room(
    tmp_path: Path, walks: dict[str, Any]
) -> None:
    graph = oc.open(circle(tmp_path))
    config = EmbedConfig.from_dict(small(budget={"swap": "in-place", **IN_PARTITIONS, **walks}))
    planned = plan_session(graph, config)
    chosen = planned.config
    run = EmbedDirectory.create(tmp_path / "run", graph, chosen)
    layout = table_layout(chosen, build_model(chosen.model), planned.size.relations)
    store = planned.open_store(run, layout, torch.device("cpu"))
    assert isinstance(store, PartitionStore)
    most, _ = store.largest_pool()
    store.close()
    counter = BucketCounter(run, planned.data, planned.size, memory=1 << 20, seed=0)
    counted = decide(chosen, planned.size, counter).placement
    assert most <= counted.pool


def random_counts(seed: int, parts: int, triples: int) -> str:
    """Of parts of a table some of which have many more triples than others."""
    shares = np.random.default_rng([seed, parts]).pareto(0.7, parts) + 0.01
    shares /= shares.sum()
    counts = (triples * np.outer(shares, shares)).astype(np.int64)
    return {"counted": counts.reshape(-1).tolist()}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"slots": 4},
        {"partitions": 16},
        {"partitions": 16, "slots": 4, "swap": "in-place", "sweeps": 1},
        {"sweeps": 1, "group": 1},
    ],
)
def test_a_byte_below_the_least_for_counted_buckets_is_refused_and_the_least_is_not(
    seed: int, asked: dict[str, Any]
) -> None:
    size = Size(entities=400_000, relations=5, triples=8_000_000)

    def placed(memory: int) -> tuple[Placement, Placement]:
        budget = {"memory": str(memory), **asked}
        config = EmbedConfig.from_dict({"model": {"dim": 64}, "budget": budget})
        found = decide(config, size, lambda parts: random_counts(seed, parts, size.triples))
        return decide(config, size).placement, found.placement

    with pytest.raises(BudgetError) as caught:
        decide(
            EmbedConfig.from_dict({"model": {"dim": 64}, "budget": {"memory": "1", **asked}}), size
        )
    even = bytes_named(caught.value)
    with pytest.raises(BudgetError, match="need") as caught:
        placed(even)
    least = bytes_named(caught.value)
    with pytest.raises(BudgetError, match=f"which is {least} bytes"):
        placed(least - 1)
    first, found = placed(least)
    assert found.needed <= least, seed
    assert (placement_changes(found, first) is None) == (
        first == replace(found, pool=first.pool, parts=first.parts)
    )
    config = EmbedConfig.from_dict(
        {"model": {"dim": 64}, "budget": {"memory": str(least), **asked}}
    )
    again = decide(resolved(config, found), size).placement
    assert (again.partitions, again.slots, again.swap) == (
        found.partitions,
        found.slots,
        found.swap,
    )


def test_what_is_enough_is_said_where_the_least_would_take_a_search_for_orders() -> None:
    size = Size(entities=400_000, relations=5, triples=8_000_000)
    walks = {"sweeps": 1, "spread": False, "rename": False}

    def placed(memory: int) -> Placement:
        budget = {"memory": str(memory), "partitions": 16, **walks}
        config = EmbedConfig.from_dict({"model": {"dim": 64}, "budget": budget})
        return decide(config, size, lambda parts: random_counts(1, parts, size.triples)).placement

    with pytest.raises(
        BudgetError,
        match=r"one pool; [0-9.]+ MiB is enough for 16 partitions in \d slots, which is",
    ) as caught:
        placed(130 << 20)
    enough = bytes_named(caught.value)
    assert placed(enough).needed <= enough
