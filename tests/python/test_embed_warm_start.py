"""Going on with the rows of another run."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import outercore as oc
from embedded import (
    RELATIONS,
    WIDTH,
    embed,
    facts,
    plain,
    random_triples,
    write_run,
)
from outercore.embedding.config import ModelConfig, configuration
from outercore.embedding.data.warm_start import match_names, warm_start
from outercore.embedding.preparation import plan_session
from outercore.embedding.use.embedding import Embedding
from outercore.errors import (
    InvalidError,
)


def test_names_are_matched_whatever_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = np.random.default_rng(3)
    words = [f"{'ä' * int(draws.integers(1, 5))}{draws.integers(0, 500)}" for _ in range(800)]
    rows = [(words[i], "r", words[i + 1]) for i in range(799)]
    old, new = facts(tmp_path / "old", rows[:500]), facts(tmp_path / "new", rows[300:])
    names = {name: number for number, name in enumerate(old.entity_names())}
    expected = [names.get(name, -1) for name in new.entity_names()]
    assert {-1} < set(expected)
    for block in (3, 50, 1 << 16):
        monkeypatch.setattr("outercore.embedding.data.warm_start._BLOCK", block)
        assert match_names(old.entities, new.entities).tolist() == expected


@pytest.mark.parametrize(
    ("before", "now"), [(False, False), (True, True), (True, False), (False, True)]
)
def test_a_warm_start_gives_old_rows_by_name(tmp_path: Path, before: bool, now: bool) -> None:
    old = facts(tmp_path / "old", random_triples(1))
    train = [*random_triples(4, entities=40), ("newcomer", "r9", "n1"), ("n2", "r0", "other")]
    new = facts(tmp_path / "new", train)
    embedding = embed(tmp_path / "run", old, reciprocal=before)
    start = warm_start(embedding.root, new, ModelConfig("complex", WIDTH, reciprocal=now))
    ids = np.random.default_rng(1).permutation(42)
    rows = start(torch.from_numpy(ids))
    for row, name in zip(rows, new.entity_names(ids), strict=True):
        if name.startswith("n") and name != "newcomer":
            assert np.array_equal(row, embedding.rows(old.entity_id(name))[0])
        else:
            assert np.isnan(row).all()
    assert start.relations.shape == ((RELATIONS + 1) * (2 if now else 1), WIDTH)
    for half in range(2 if now else 1):
        for number, name in enumerate(new.relation_names()):
            row = start.relations[half * (RELATIONS + 1) + number]
            if name == "r9" or half > int(before):
                assert np.isnan(row).all()
            else:
                place = half * RELATIONS + old.relation_id(name)
                assert np.array_equal(row, embedding.relations[place])


def test_what_tells_the_old_rows_is_in_the_budget(tmp_path: Path) -> None:
    old = facts(tmp_path / "old", random_triples(1))
    new = facts(tmp_path / "new", [*random_triples(4, entities=40), ("newcomer", "r9", "n1")])
    embedding = embed(tmp_path / "run", old)
    config = configuration(model="complex", dim=WIDTH, memory="64MiB")
    start = warm_start(embedding.root, new, config.model)
    cold, warm = (plan_session(new, config, warm=given).placement for given in (None, start))
    # A place for each of 41 entities, and rows of one relation more.
    held = 8 * 41 + 4 * WIDTH * (RELATIONS + 1)
    assert held == start.memory == warm.parts["another run's rows"]
    assert "another run's rows" not in cold.parts
    assert warm.needed > cold.needed


def test_of_plain_graphs_ids_stay(tmp_path: Path) -> None:
    graph = plain(tmp_path / "plain", [(i, i + 1) for i in range(9)])
    more = plain(tmp_path / "more", [(i, i + 1) for i in range(12)])
    entities = np.random.default_rng(1).standard_normal((10, 4), np.float32)
    model = ModelConfig("dot", 4)
    nothing = np.empty((1, 0), np.float32)
    embedding = write_run(tmp_path / "run", graph.root, entities, nothing, model, 1)
    start = warm_start(embedding.root, more, model)
    rows = start(np.arange(13))
    assert np.array_equal(rows[:10], entities)
    assert np.isnan(rows[10:]).all()
    assert start.relations.shape == (1, 0)


def test_first_rows_are_copied_once(tmp_path: Path) -> None:
    nodes, width = 3000, 64
    path = [(i, i + 1) for i in range(nodes - 1)]
    graph, more = plain(tmp_path / "plain", path[:-10]), plain(tmp_path / "more", path)
    entities = np.random.default_rng(1).standard_normal((nodes - 10, width), np.float32)
    model = ModelConfig("dot", width)
    nothing = np.empty((1, 0), np.float32)
    embedding = write_run(tmp_path / "run", graph.root, entities, nothing, model, 1)
    start = warm_start(embedding.root, more, model)
    ids = np.arange(nodes)
    start(ids[:1])
    tracemalloc.start()
    rows = start(ids)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.array_equal(rows[:-10], entities)
    assert np.isnan(rows[-10:]).all()
    assert peak < 1.5 * rows.nbytes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda model: dataclasses.replace(model, dim=10),
            "model.dim is 8, that of the new run 10",
        ),
        (lambda model: dataclasses.replace(model, kind="rotate"), "model.kind is complex"),
    ],
)
def test_another_model_does_not_go_on(
    embedding: Embedding,
    embedded_graph: oc.Graph,
    change: Callable[[ModelConfig], ModelConfig],
    message: str,
) -> None:
    with pytest.raises(InvalidError, match=message):
        warm_start(embedding.root, embedded_graph, change(embedding.model))


def test_data_sets_with_nothing_in_common_do_not_go_on(
    embedding: Embedding, tmp_path: Path
) -> None:
    other = facts(tmp_path / "other", [("a", "r0", "b")])
    with pytest.raises(InvalidError, match="has none of its 60 entities"):
        warm_start(embedding.root, other, embedding.model)
    nameless = plain(tmp_path / "plain", [(0, 1)])
    with pytest.raises(InvalidError, match="old data set has names, the new one has not"):
        warm_start(embedding.root, nameless, embedding.model)
