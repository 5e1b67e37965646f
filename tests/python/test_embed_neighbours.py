"""Nearest neighbours: the best few, exact ones, and those by an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import outercore as oc
from embedded import (
    ENTITIES,
    clustered,
    embed,
    plain,
)
from outercore import embedding as embeddings
from outercore.embedding.config import ModelName
from outercore.embedding.use.embedding import Embedding
from outercore.embedding.use.neighbours import TopK, neighbours, neighbours_of_all
from outercore.embedding.use.predict import predict
from outercore.errors import (
    InvalidError,
    NotFoundError,
    UnsupportedError,
)
from outercore.files.atomic import Storage


def test_the_best_few_do_not_depend_on_the_blocks() -> None:
    draws = np.random.default_rng(1)
    # Few values, so that many are equal, also around the last place.
    scores = torch.from_numpy(draws.integers(0, 6, (20, 97)).astype(np.float32))
    scores[3] = -torch.inf
    scores[4, 5:] = -torch.inf
    for k in (1, 4, 10, 97, 120):
        for step in (1, 3, 10, 97):
            best = TopK(20, k)
            for first in range(0, 97, step):
                best.offer(first, scores[:, first : first + step])
            ids, values = best.best()
            for row in range(20):
                places = sorted(range(97), key=lambda place: (-scores[row, place], place))
                expected = [p for p in places[:k] if scores[row, p] > -torch.inf]
                rest = k - len(expected)
                assert ids[row].tolist() == expected + [-1] * rest, (k, step, row)
                assert values[row].tolist() == scores[row, expected].tolist() + [-np.inf] * rest


def test_the_best_of_many_columns_are_the_first_of_equal_ones() -> None:
    draws = np.random.default_rng(2)
    # Wide enough to be looked at by groups, with a rest that fills none.
    scores = torch.from_numpy(draws.integers(0, 40, (9, 2000)).astype(np.float32))
    scores[1] = -torch.inf
    scores[2, :1990] = -torch.inf
    for k in (1, 3, 7):
        best = TopK(9, k)
        best.offer(0, scores[:, :1100])
        best.offer(1100, scores[:, 1100:])
        ids, _ = best.best()
        for row in range(9):
            places = sorted(range(2000), key=lambda place: (-scores[row, place], place))
            expected = [place for place in places[:k] if scores[row, place] > -torch.inf]
            assert ids[row].tolist() == expected + [-1] * (k - len(expected)), (k, row)


def naive_scores(metric: str, query: NDArray[Any], table: NDArray[Any]) -> NDArray[np.float64]:
    query, table = query.astype(np.float64), table.astype(np.float64)
    difference = query - table
    half = table.shape[1] // 2
    match metric:
        case "inner":
            return table @ query
        case "cosine":
            return table @ query / np.linalg.norm(table, axis=1) / np.linalg.norm(query)
        case "euclidean":
            return -np.sqrt((difference**2).sum(1))
        case "manhattan":
            return -np.abs(difference).sum(1)
        case "modulus":
            return -np.hypot(difference[:, :half], difference[:, half:]).sum(1)
    raise AssertionError(metric)


METRICS = ("inner", "cosine", "euclidean", "manhattan", "modulus")


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("itself", [False, True])
def test_exact_neighbours_are_those_of_the_definition(
    embedding: Embedding, metric: Any, itself: bool
) -> None:
    table = np.asarray(embedding.entities)
    found = neighbours(embedding, [4, 11], 5, metric=metric, by_id=True, itself=itself)
    for row, entity in enumerate([4, 11]):
        scores = naive_scores(metric, table[entity], table)
        if not itself:
            scores[entity] = -np.inf
        expected = np.argsort(-scores, kind="stable")[:5]
        assert found.ids[row].tolist() == expected.tolist()
        assert found.scores[row] == pytest.approx(scores[expected], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "norm", "metric"),
    [
        ("dot", 1, "inner"),
        ("complex", 1, "inner"),
        ("simple", 1, "inner"),
        ("distmult", 1, "inner"),
        ("transe", 1, "manhattan"),
        ("transe", 2, "euclidean"),
        ("rotate", 1, "modulus"),
    ],
)
def test_the_metric_is_that_of_the_model(
    tmp_path: Path, embedded_graph: oc.Graph, kind: ModelName, norm: int, metric: str
) -> None:
    embedding = embed(tmp_path / "run", embedded_graph, kind, norm=norm)
    assert neighbours(embedding, "n3").metric == metric


def test_neighbours_of_rows_and_of_names_agree(embedding: Embedding) -> None:
    by_name = embeddings.neighbours(embedding, ["n3", "n40"], k=4, itself=True)
    rows = embedding.rows(embedding.entity_ids(["n3", "n40"]))
    by_row = embeddings.neighbours(embedding, rows, k=4)
    assert np.array_equal(by_name.ids, by_row.ids)
    assert np.array_equal(by_name.scores, by_row.scores)


def test_neighbours_of_all_are_those_of_each(
    embedding: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outercore.embedding.use.neighbours.GROUP", 16)
    whole = neighbours(embedding, np.arange(ENTITIES), 3, by_id=True)
    parts = list(neighbours_of_all(embedding, 3))
    assert [first for first, _ in parts] == [0, 16, 32, 48]
    assert np.array_equal(np.concatenate([found.ids for _, found in parts]), whole.ids)


def test_fewer_neighbours_than_were_asked_for_are_fewer_and_none_is_nobody(
    embedding: Embedding,
) -> None:
    found = neighbours(embedding, [0], ENTITIES + 2, by_id=True)
    assert found.ids.shape == found.scores.shape == (1, ENTITIES - 1)
    assert (found.ids >= 0).all()
    found = predict(embedding, head=0, relation=0, k=ENTITIES + 2, by_id=True)
    assert found.ids.shape == (1, ENTITIES)
    assert (found.ids >= 0).all()


def test_candidates_are_looked_among_and_nobody_else(embedding: Embedding) -> None:
    some = [3, 41, 7, 20]
    everyone = neighbours(embedding, [3, 9], ENTITIES, by_id=True)
    found = neighbours(embedding, [3, 9], 10, by_id=True, candidates=some)
    for place, expected in enumerate(([41, 7, 20], some)):
        real = found.ids[place][found.ids[place] >= 0]
        ranked = [one for one in everyone.ids[place] if one in expected]
        assert real.tolist() == ranked
    everyone = predict(embedding, head=[1, 2], relation=0, k=ENTITIES, by_id=True)
    found = predict(embedding, head=[1, 2], relation=0, k=3, by_id=True, candidates=some)
    for place in range(2):
        ranked = [one for one in everyone.ids[place] if one in some]
        assert found.ids[place].tolist() == ranked[:3]
    with pytest.raises(InvalidError, match="expected at least one entity"):
        neighbours(embedding, [3], by_id=True, candidates=[])
    with pytest.raises(InvalidError, match="candidates are entities, and a relation is asked"):
        predict(embedding, head=1, tail=2, by_id=True, candidates=some)


def test_a_row_that_is_no_number_is_refused(tmp_path: Path, embedded_graph: oc.Graph) -> None:
    embedding = embed(tmp_path / "run", embedded_graph)
    table = np.array(embedding.entities)
    table[33, 2] = np.nan
    np.save(embedding.root / "entities.npy", table)
    broken = Embedding.open(embedding.root)
    with pytest.raises(InvalidError, match="entity 33: its embedding is not finite"):
        neighbours(broken, "n1")
    with pytest.raises(InvalidError, match="entity 33: its embedding is not finite"):
        predict(broken, head="n1", relation="r0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"of": [99], "by_id": True}, "entity 99: expected 0 to 59"),
        ({"of": ["x"], "by_id": True}, "entity: expected an id, found `x`"),
        ({"of": np.zeros((2, 3), np.float32)}, r"rows of shape \[2, 3\], expected \[n, 8\]"),
        ({"of": "n1", "metric": "hamming"}, "metric: expected one of model, inner"),
        ({"of": "n1", "k": 0}, "k: expected at least 1"),
    ],
)
def test_a_wrong_question_for_neighbours_is_refused(
    embedding: Embedding, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidError, match=message):
        neighbours(embedding, **arguments)


@pytest.mark.parametrize(
    ("kind", "metric"),
    [("dot", "model"), ("dot", "cosine"), ("transe", "model"), ("rotate", "model")],
)
def test_an_index_finds_nearly_all_and_says_how_many(
    tmp_path: Path, kind: ModelName, metric: Any
) -> None:
    pytest.importorskip("faiss")
    from outercore.embedding.use.neighbours import Index, recall_of

    graph = plain(tmp_path / "plain", [(i, i + 1) for i in range(2999)])
    embedding = clustered(tmp_path / "run", graph, kind)
    # A budget for about a third of it: several pieces.
    built = Index.build(embedding, metric=metric, memory=50_000)
    index = Index.open(embedding, metric=metric, recall=0.95)
    assert len(list(index.root.glob("piece-*.faiss"))) > 1
    assert [vars(found) for found in index.recalls] == [vars(found) for found in built.recalls]
    ids = np.arange(0, 3000, 13)
    truth = neighbours(embedding, ids, 10, metric=metric, by_id=True)
    found = neighbours(embedding, ids, 10, metric=metric, by_id=True, index=index)
    assert recall_of(found.ids, truth.ids) > 0.9
    assert index.probes < index.lists
    # Where an entity is found, its score is the exact one.
    same = found.ids == truth.ids
    assert np.array_equal(found.scores[same], truth.scores[same])
    index.probes = index.lists
    whole = neighbours(embedding, ids, 10, metric=metric, by_id=True, index=index)
    assert recall_of(whole.ids, truth.ids) > 0.99


def test_an_index_is_named_once_its_pieces_are_on_the_device(
    tmp_path: Path, embedding: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    from outercore.embedding.use import neighbours as approximate

    done: list[str] = []

    class Watched(Storage):
        def sync(self, path: Path) -> None:
            super().sync(path)
            done.append(path.name)

        def sync_directory(self, path: Path) -> None:
            super().sync_directory(path)
            done.append(f"{path.name}/")

        def rename(self, old: Path, new: Path) -> None:
            super().rename(old, new)
            done.append(new.name)

    monkeypatch.setattr(approximate, "Storage", Watched)
    index = approximate.Index.build(embedding, memory=1000)
    pieces = sorted(path.name for path in index.root.glob("piece-*.faiss"))
    assert len(pieces) > 1
    assert done[: len(pieces)] == pieces
    new, root = f"{index.root.name}.new", index.root.name
    described = [f"{new}/", "index.json", f"{new}/"]
    assert done[len(pieces) :] == [*described, root, f"{index.root.parent.name}/"]


def test_an_index_stays_until_there_is_another(tmp_path: Path, embedding: Embedding) -> None:
    pytest.importorskip("faiss")
    from outercore.embedding.use.neighbours import Index

    first = Index.build(embedding, lists=4)

    def interrupted(phase: str, done: int, total: int, unit: str) -> None:
        if phase == "adding entities":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Index.build(embedding, lists=8, progress=interrupted)
    assert Index.open(embedding).lists == first.lists == 4
    assert Index.build(embedding, lists=8).lists == 8
    assert [path.name for path in embedding.root.glob("index-*")] == [first.root.name]


def test_centres_are_found_from_rows_within_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    from outercore.embedding.use.neighbours import Index

    graph = plain(tmp_path / "plain", [(i, i + 1) for i in range(2999)])
    embedding = clustered(tmp_path / "run", graph, "dot")
    rows, counts = Embedding.rows, []

    def counted(self: Embedding, entities: Any) -> Any:
        counts.append(len(entities))
        return rows(self, entities)

    monkeypatch.setattr(Embedding, "rows", counted)
    # Of 16 numbers of 4 bytes, with a copy; never fewer than there are lists.
    for memory, lists, expected in ((50_000, 0, 390), (50_000, 500, 500), ("1GiB", 20, 1280)):
        counts.clear()
        Index.build(embedding, metric="cosine", memory=memory, lists=lists)
        assert counts[0] == expected


def test_an_index_of_another_table_or_metric_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    from outercore.embedding.use.neighbours import Index

    graph = plain(tmp_path / "plain", [(i, i + 1) for i in range(2999)])
    embedding = clustered(tmp_path / "run", graph, "dot")
    with pytest.raises(NotFoundError, match="outercore embedding index"):
        Index.open(embedding)
    index = Index.build(embedding)
    with pytest.raises(InvalidError, match="it is for `inner`, not for `cosine`"):
        neighbours(embedding, [1], metric="cosine", by_id=True, index=index)
    np.save(embedding.root / "entities.npy", np.asarray(embedding.entities) + 1)
    with pytest.raises(InvalidError, match="the table changed since it was built"):
        Index.open(Embedding.open(embedding.root))


def test_predictions_by_an_index_are_the_exact_ones_where_it_looks_everywhere(
    tmp_path: Path,
) -> None:
    pytest.importorskip("faiss")
    from outercore.embedding.use.neighbours import Index

    graph = plain(tmp_path / "plain", [(i, i + 1) for i in range(2999)])
    embedding = clustered(tmp_path / "run", graph, "dot")
    index = Index.build(embedding)
    index.probes = index.lists
    heads = np.arange(0, 3000, 101)
    exact = predict(embedding, head=heads, k=5, leave_out_known=True)
    found = predict(embedding, head=heads, k=5, leave_out_known=True, index=index)
    assert (exact.ids == found.ids).mean() > 0.99


def test_without_faiss_the_error_says_what_to_install(
    embedding: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outercore.embedding.use import neighbours as approximate

    monkeypatch.setattr(approximate, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"needs FAISS.*\n.*outercore\[ann\]"):
        approximate.Index.build(embedding)
