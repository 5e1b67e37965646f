"""What is done with a finished embedding: export, neighbours, predictions, features."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray

import outercore as oc
from outercore._native import Importer
from outercore.embed.config import ModelConfig, ModelName
from outercore.embed.embedding import Embedding
from outercore.embed.export import export
from outercore.embed.features import add_features
from outercore.embed.matching import match_names
from outercore.embed.models import build_model
from outercore.embed.neighbours import neighbours, neighbours_of_all
from outercore.embed.predict import predict
from outercore.embed.run_directory import EmbedDirectory
from outercore.embed.topk import TopK
from outercore.embed.warm_start import warm_start
from outercore.errors import (
    CorruptError,
    InvalidError,
    NotFoundError,
    UnsupportedError,
    VersionError,
)
from outercore.sources.triples import TripleOptions, import_triples

Rows = list[tuple[str, str, str]]
ENTITIES, RELATIONS, WIDTH = 60, 4, 8


def random_triples(seed: int, entities: int = ENTITIES, count: int = 300) -> Rows:
    """Triples in which every entity and relation comes."""
    draws = np.random.default_rng(seed)
    ids = draws.integers(0, entities, (count, 2))
    ids[:entities, 0] = np.arange(entities)
    relations = draws.integers(0, RELATIONS, count)
    relations[:RELATIONS] = np.arange(RELATIONS)
    return [(f"n{h}", f"r{r}", f"n{t}") for (h, t), r in zip(ids, relations, strict=True)]


def facts(path: Path, train: Rows, valid: Rows | None = None) -> oc.Graph:
    files = {}
    for part, rows in (("train", train), ("valid", valid)):
        if rows:
            files[part] = path.with_name(f"{path.name}-{part}.tsv")
            files[part].write_text("".join("\t".join(row) + "\n" for row in rows))
    import_triples(files["train"], path, valid=files.get("valid"), options=TripleOptions())
    return oc.open(path)


def write_run(
    path: Path,
    data_set: Path,
    entities: NDArray[np.float32],
    relations: NDArray[np.float32],
    model: ModelConfig,
    relation_count: int,
) -> Embedding:
    """A run directory as `outercore embed` leaves it."""
    path.mkdir(parents=True, exist_ok=True)
    np.save(path / "entities.npy", entities)
    np.save(path / "relations.npy", relations)
    described = {
        "version": 1,
        "model": dataclasses.asdict(model),
        "entities": len(entities),
        "relations": relation_count,
        "width": entities.shape[1],
        "data_set": str(data_set),
        "fingerprint": "",
        "metrics": [],
    }
    (path / "embedding.json").write_text(json.dumps(described))
    return Embedding.open(path)


def embed(
    path: Path,
    graph: oc.Graph,
    kind: ModelName = "complex",
    *,
    reciprocal: bool = False,
    seed: int = 5,
    norm: Any = 1,
) -> Embedding:
    """A run with random tables."""
    draws = np.random.default_rng(seed)
    model = ModelConfig(kind, WIDTH, norm, reciprocal)
    rows = len(graph.relations) * (2 if reciprocal else 1)
    entities = draws.standard_normal((graph.num_nodes, WIDTH), np.float32)
    width = build_model(model).relation_width(WIDTH)
    relations = draws.standard_normal((rows, width), np.float32)
    return write_run(path, graph.root, entities, relations, model, len(graph.relations))


@pytest.fixture
def graph(tmp_path: Path) -> oc.Graph:
    train = random_triples(1)
    valid = [row for row in random_triples(2)[:40] if row not in train]
    return facts(tmp_path / "facts", train, valid)


@pytest.fixture
def embedding(tmp_path: Path, graph: oc.Graph) -> Embedding:
    return embed(tmp_path / "run", graph)


def plain(path: Path, edges: list[tuple[int, int]], *, undirected: bool = False) -> oc.Graph:
    """A data set of a plain graph."""
    options = {"memory": 1 << 26, "undirected": undirected}
    importer = Importer(path, options, lambda *_: None)
    ids = np.array(edges, np.int64)
    importer.push_edges(ids[:, 0], ids[:, 1])
    importer.finish()
    return oc.open(path)


# Opening


def test_an_embedding_is_opened_by_its_run_and_knows_names(
    embedding: Embedding, graph: oc.Graph
) -> None:
    assert (embedding.num_entities, embedding.num_relations) == (ENTITIES, RELATIONS)
    assert embedding.entity_names([0, 1]) == graph.entity_names([0, 1])
    assert embedding.entity_ids("n7").tolist() == [graph.entity_id("n7")]
    assert embedding.entity_ids([3, 4], by_id=True).tolist() == [3, 4]
    assert embedding.relation_ids(["r2", "r0"]).tolist() == [
        graph.relation_id("r2"),
        graph.relation_id("r0"),
    ]
    assert np.array_equal(embedding.rows([9, 2]), np.asarray(embedding.entities)[[9, 2]])


def test_blocks_are_the_table_in_order(embedding: Embedding) -> None:
    table = np.asarray(embedding.entities)
    for rows in (1, 7, ENTITIES, 1000):
        blocks = [(first, block.copy()) for first, block in embedding.blocks(rows)]
        assert np.array_equal(np.concatenate([block for _, block in blocks]), table)
        assert [first for first, _ in blocks] == list(range(0, ENTITIES, rows))


def test_a_run_without_an_embedding_is_told_from_one_with(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no `embedding\.json` there\nhint: .*--resume"):
        Embedding.open(tmp_path)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"version": 2}, VersionError, "expected version 1, found 2"),
        ({"entities": 61}, CorruptError, r"expected float32 \[61, 8\], found float32 \[60, 8\]"),
        ({"width": 9}, CorruptError, r"expected float32 \[60, 9\]"),
        ({"model": {"kind": "wonder"}}, CorruptError, "model.kind"),
    ],
)
def test_a_description_that_does_not_fit_is_an_error(
    embedding: Embedding, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    path = embedding.root / "embedding.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(error, match=message):
        Embedding.open(embedding.root)


def test_a_table_that_was_cut_short_is_an_error(embedding: Embedding) -> None:
    assert embedding.entities.shape == (ENTITIES, WIDTH)
    path = embedding.root / "entities.npy"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CorruptError, match=r"entities\.npy"):
        Embedding.open(embedding.root)
    with pytest.raises(CorruptError, match="ends too early"):
        list(embedding.blocks())


def test_a_data_set_that_moved_can_be_named(embedding: Embedding, tmp_path: Path) -> None:
    moved = embedding.data_set.rename(tmp_path / "elsewhere")
    with pytest.raises(NotFoundError, match=r"is gone.*\n.*--data"):
        Embedding.open(embedding.root).entity_names([0])
    assert Embedding.open(embedding.root, data_set=moved).entity_names([0]) == ["n0"]


def test_another_data_set_than_the_embedded_one_is_refused(
    embedding: Embedding, tmp_path: Path
) -> None:
    other = facts(tmp_path / "other", random_triples(3, entities=50))
    with pytest.raises(InvalidError, match="50 entities now, the embedding 60"):
        assert Embedding.open(embedding.root, data_set=other.root).named


def test_a_data_set_that_was_imported_anew_is_refused(tmp_path: Path) -> None:
    graph = facts(tmp_path / "facts", random_triples(1))
    embedding = embed(tmp_path / "run", graph)
    path = embedding.root / "embedding.json"
    described = json.loads(path.read_text())
    described["fingerprint"] = EmbedDirectory.identity_of(graph)
    path.write_text(json.dumps(described))
    graph.add_node_array("rank", np.arange(ENTITIES))
    assert Embedding.open(embedding.root).entity_names([0]) == ["n0"]
    shutil.rmtree(graph.root)
    facts(graph.root, random_triples(1)[::-1])
    with pytest.raises(InvalidError, match=r"other triples, links or names now\n.*--data"):
        Embedding.open(embedding.root).neighbours("n0")


# Top k


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


# Neighbours


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
    tmp_path: Path, graph: oc.Graph, kind: ModelName, norm: int, metric: str
) -> None:
    embedding = embed(tmp_path / "run", graph, kind, norm=norm)
    assert neighbours(embedding, "n3").metric == metric


def test_neighbours_of_rows_and_of_names_agree(embedding: Embedding) -> None:
    by_name = embedding.neighbours(["n3", "n40"], k=4, itself=True)
    rows = embedding.rows(embedding.entity_ids(["n3", "n40"]))
    by_row = embedding.neighbours(rows, k=4)
    assert np.array_equal(by_name.ids, by_row.ids)
    assert np.array_equal(by_name.scores, by_row.scores)


def test_neighbours_of_all_are_those_of_each(
    embedding: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outercore.embed.neighbours.GROUP", 16)
    whole = neighbours(embedding, np.arange(ENTITIES), 3, by_id=True)
    parts = list(neighbours_of_all(embedding, 3))
    assert [first for first, _ in parts] == [0, 16, 32, 48]
    assert np.array_equal(np.concatenate([found.ids for _, found in parts]), whole.ids)


def test_more_neighbours_than_entities_end_with_none(embedding: Embedding) -> None:
    found = neighbours(embedding, [0], ENTITIES + 2, by_id=True)
    assert (found.ids[0] >= 0).sum() == ENTITIES - 1
    assert found.ids[0, -3:].tolist() == [-1, -1, -1]


def test_a_row_that_is_no_number_is_refused(tmp_path: Path, graph: oc.Graph) -> None:
    embedding = embed(tmp_path / "run", graph)
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


# Approximate search


def clustered(path: Path, graph: oc.Graph, kind: ModelName, count: int = 3000) -> Embedding:
    draws = np.random.default_rng(7)
    centres = draws.standard_normal((30, 16), np.float32)
    rows = centres[draws.integers(0, 30, count)] + 0.4 * draws.standard_normal((count, 16))
    width = build_model(ModelConfig(kind, 16)).relation_width(16)
    relations = draws.standard_normal((1, width), np.float32)
    return write_run(path, graph.root, rows.astype(np.float32), relations, ModelConfig(kind, 16), 1)


@pytest.mark.parametrize(
    ("kind", "metric"),
    [("dot", "model"), ("dot", "cosine"), ("transe", "model"), ("rotate", "model")],
)
def test_an_index_finds_nearly_all_and_says_how_many(
    tmp_path: Path, kind: ModelName, metric: Any
) -> None:
    pytest.importorskip("faiss")
    from outercore.embed.approximate import Index, recall_of

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


def test_an_index_of_another_table_or_metric_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    from outercore.embed.approximate import Index

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
    from outercore.embed.approximate import Index

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
    from outercore.embed import approximate

    monkeypatch.setattr(approximate, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"needs FAISS.*\n.*outercore\[ann\]"):
        approximate.Index.build(embedding)


# Predictions


def naive_predictions(
    embedding: Embedding, part: str, question: tuple[int, int, int], hidden: set[int]
) -> tuple[list[int], dict[int, float]]:
    """All answers in order, by the definition: the score of each triple by itself."""
    model = build_model(embedding.model)
    entities = torch.from_numpy(np.array(embedding.entities)).double()
    relations = torch.from_numpy(embedding.relations).double()
    count = embedding.num_relations if part == "relation" else embedding.num_entities
    scores = {}
    for answer in range(count):
        h, r, t = (
            answer if name == part else value
            for name, value in zip(("head", "relation", "tail"), question, strict=True)
        )
        if part == "head" and embedding.reciprocal:
            triple = (
                "tail",
                entities[[t]],
                relations[[r + embedding.num_relations]],
                entities[[h]],
            )
        else:
            triple = ("tail", entities[[h]], relations[[r]], entities[[t]])
        scores[answer] = float(model.paired(*triple))  # type: ignore[arg-type]
    order = sorted((a for a in scores if a not in hidden), key=lambda a: -scores[a])
    return order, scores


KINDS: tuple[ModelName, ...] = ("distmult", "complex", "transe", "rotate", "simple")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("part", ["head", "relation", "tail"])
def test_predictions_are_those_of_the_definition(
    tmp_path: Path, graph: oc.Graph, kind: ModelName, reciprocal: bool, part: str
) -> None:
    embedding = embed(tmp_path / "run", graph, kind, reciprocal=reciprocal)
    asked = {"head": [3, 9, 3], "relation": [0, 2, 1], "tail": [5, 5, 40]}
    given = {name: ids for name, ids in asked.items() if name != part}
    found = predict(embedding, **given, k=4, by_id=True)  # type: ignore[arg-type]
    assert found.part == part
    for row in range(3):
        question = (asked["head"][row], asked["relation"][row], asked["tail"][row])
        order, scores = naive_predictions(embedding, part, question, set())
        assert found.ids[row].tolist() == order[:4]
        expected = [scores[answer] for answer in order[:4]]
        assert found.scores[row] == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("part", ["head", "relation", "tail"])
def test_known_triples_are_left_out_on_request(
    embedding: Embedding, graph: oc.Graph, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outercore.embed.predict.GROUP", 7)
    monkeypatch.setattr("outercore.embed.answers._CHUNK", 50)
    every = np.concatenate([graph.array("triples/train"), graph.array("triples/valid")])
    column = {"head": 0, "relation": 1, "tail": 2}[part]
    # Questions that have answers, and one that has none; one twice.
    triples = np.concatenate([every[::11], every[:1], [[59, 3, 58]]])
    names = ("head", "relation", "tail")
    given = {name: triples[:, i] for i, name in enumerate(names) if name != part}
    found = predict(embedding, **given, k=200, by_id=True, leave_out_known=True)  # type: ignore[arg-type]
    rest = [i for i in range(3) if i != column]
    some_hidden = 0
    for row, triple in enumerate(triples):
        hidden = set(every[(every[:, rest] == triple[rest]).all(axis=1)][:, column].tolist())
        some_hidden += bool(hidden)
        count = RELATIONS if part == "relation" else ENTITIES
        answers = found.ids[row][found.ids[row] >= 0].tolist()
        assert sorted(answers) == sorted(set(range(count)) - hidden)
    assert some_hidden >= len(triples) - 1


def test_one_relation_goes_with_many_heads_by_name(embedding: Embedding) -> None:
    many = predict(embedding, head=["n1", "n2"], relation="r1", k=3)
    for row, name in enumerate(["n1", "n2"]):
        one = predict(embedding, head=name, relation="r1", k=3)
        assert one.ids[0].tolist() == many.ids[row].tolist()
    assert many.questions[:, 2].tolist() == [-1, -1]


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("part", ["head", "tail"])
def test_of_a_plain_graph_its_links_are_known(
    tmp_path: Path, undirected: bool, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outercore.embed.answers._CHUNK", 3)
    edges = [(0, 1), (0, 5), (2, 0), (3, 3), (4, 5), (1, 4)]
    graph = plain(tmp_path / "plain", edges, undirected=undirected)
    draws = np.random.default_rng(1)
    entities = draws.standard_normal((graph.num_nodes, 4), np.float32)
    model = ModelConfig("dot", 4)
    nothing = np.empty((1, 0), np.float32)
    embedding = write_run(tmp_path / "run", graph.root, entities, nothing, model, 1)
    arcs = set(edges) | ({(v, u) for u, v in edges} if undirected else set())
    asked: dict[str, Any] = {"tail" if part == "head" else "head": list(range(6))}
    found = predict(embedding, **asked, k=10, leave_out_known=True)
    for node in range(6):
        linked = {u for u, v in arcs if v == node} if part == "head" else set()
        linked = {v for u, v in arcs if u == node} if part == "tail" else linked
        answers = found.ids[node][found.ids[node] >= 0].tolist()
        assert sorted(answers) == sorted(set(range(6)) - linked - {node})
        scores = entities[answers] @ entities[node]
        assert answers == [answers[place] for place in np.argsort(-scores, kind="stable")]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"head": "n1"}, "expected two of head, relation and tail, found head"),
        ({}, "found nothing"),
        ({"head": "n1", "relation": "r1", "tail": "n2"}, "found head, relation, tail"),
        ({"head": ["n1", "n2"], "relation": ["r1", "r2", "r3"]}, "lists of 2, 3"),
    ],
)
def test_a_wrong_question_for_predictions_is_refused(
    embedding: Embedding, question: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidError, match=message):
        predict(embedding, **question)


def test_an_unknown_name_is_not_found(embedding: Embedding) -> None:
    with pytest.raises(NotFoundError, match="entity `Atlantis` is not in the data set"):
        predict(embedding, head="Atlantis", relation="r1")


# Export


def test_parquet_has_ids_names_and_rows(embedding: Embedding, tmp_path: Path) -> None:
    path = tmp_path / "vectors.parquet"
    assert export(embedding, path) == ENTITIES
    table = pq.read_table(path)
    assert table.column_names == ["id", "name", "embedding"]
    assert table["id"].to_pylist() == list(range(ENTITIES))
    assert table["name"].to_pylist() == embedding.entity_names(np.arange(ENTITIES))
    rows = np.array(table["embedding"].to_pylist(), np.float32)
    assert np.array_equal(rows, embedding.entities)


def test_text_brings_every_number_back(embedding: Embedding, tmp_path: Path) -> None:
    path = tmp_path / "vectors.tsv"
    export(embedding, path)
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    assert [line[0] for line in lines] == embedding.entity_names(np.arange(ENTITIES))
    numbers = np.array([line[1:] for line in lines], np.float32)
    assert np.array_equal(numbers, embedding.entities)


def test_npy_has_names_beside_it(embedding: Embedding, tmp_path: Path) -> None:
    path = tmp_path / "vectors.npy"
    export(embedding, path)
    assert np.array_equal(np.load(path), embedding.entities)
    names = (tmp_path / "vectors.names.txt").read_text().splitlines()
    assert names == embedding.entity_names(np.arange(ENTITIES))


def test_an_export_in_blocks_is_the_export_at_once(
    embedding: Embedding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for suffix in ("npy", "tsv", "parquet"):
        export(embedding, tmp_path / f"whole.{suffix}")
    monkeypatch.setattr("outercore.embed.embedding.BLOCK_BYTES", 5 * WIDTH * 4)
    for suffix in ("npy", "tsv", "parquet"):
        export(embedding, tmp_path / f"blocks.{suffix}")
    for suffix in ("npy", "tsv"):
        blocks = (tmp_path / f"blocks.{suffix}").read_bytes()
        assert blocks == (tmp_path / f"whole.{suffix}").read_bytes()
    assert pq.read_table(tmp_path / "blocks.parquet") == pq.read_table(tmp_path / "whole.parquet")


def anonymous_memory() -> int:
    """Bytes of this process that are no file's."""
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("suffix", ["npy", "parquet", "tsv"])
def test_an_export_holds_no_table_in_memory(tmp_path: Path, graph: oc.Graph, suffix: str) -> None:
    rows = np.lib.format.open_memmap(tmp_path / "rows.npy", "w+", np.float32, (600_000, 64))
    model = ModelConfig("dot", 64)
    nothing = np.empty((1, 0), np.float32)
    embedding = write_run(tmp_path / "run", graph.root, rows, nothing, model, 1)
    most = 0

    def watch(phase: str, done: int, total: int, unit: str) -> None:
        nonlocal most
        most = max(most, anonymous_memory())

    before = anonymous_memory()
    path = tmp_path / f"vectors.{suffix}"
    assert export(embedding, path, by_id=True, progress=watch) == 600_000
    # 146 MiB of rows.
    assert most - before < 80 << 20
    path.unlink()


def test_reverse_relations_are_named_as_such(tmp_path: Path, graph: oc.Graph) -> None:
    embedding = embed(tmp_path / "run", graph, reciprocal=True)
    export(embedding, tmp_path / "relations.parquet", what="relations")
    table = pq.read_table(tmp_path / "relations.parquet")
    names = [f"r{number}" for number in range(RELATIONS)]
    assert table["name"].to_pylist() == [*names, *(f"{name} (reverse)" for name in names)]
    rows = np.array(table["embedding"].to_pylist(), np.float32)
    assert np.array_equal(rows, embedding.relations)


def test_ids_stand_for_names_on_request(embedding: Embedding, tmp_path: Path) -> None:
    export(embedding, tmp_path / "a.tsv", by_id=True)
    firsts = [line.split("\t")[0] for line in (tmp_path / "a.tsv").read_text().splitlines()]
    assert firsts == [str(number) for number in range(ENTITIES)]
    export(embedding, tmp_path / "a.parquet", by_id=True)
    assert pq.read_table(tmp_path / "a.parquet").column_names == ["id", "embedding"]


def test_an_export_replaces_nothing_unasked(embedding: Embedding, tmp_path: Path) -> None:
    path = tmp_path / "vectors.tsv"
    path.write_text("mine")
    with pytest.raises(InvalidError, match="exists already"):
        export(embedding, path)
    assert path.read_text() == "mine"
    export(embedding, path, overwrite=True)
    assert path.read_text().startswith("n0\t")


def test_a_failed_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"h": ["a\tb", "c"], "r": ["r", "r"], "t": ["c", "d"]}
    pq.write_table(pa.table(columns), tmp_path / "train.parquet")
    import_triples(tmp_path / "train.parquet", tmp_path / "tabs")
    embedding = embed(tmp_path / "run", oc.open(tmp_path / "tabs"))
    with pytest.raises(InvalidError, match=r"'a\\tb' has a tab.*\n.*Parquet"):
        export(embedding, tmp_path / "vectors.tsv")
    assert not [file.name for file in tmp_path.iterdir() if "vectors" in file.name]
    assert export(embedding, tmp_path / "vectors.parquet") == 3


def test_a_name_without_a_format_is_refused(embedding: Embedding, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"ends in one of \.npy, \.parquet, \.tsv, \.txt"):
        export(embedding, tmp_path / "vectors.doc")
    assert export(embedding, tmp_path / "vectors.doc", format="tsv") == ENTITIES


# Features


def test_rows_become_a_node_array(embedding: Embedding, graph: oc.Graph) -> None:
    written = add_features(embedding, graph, "place")
    assert (written.nodes, written.width, written.missing) == (ENTITIES, WIDTH, 0)
    again = oc.open(graph.root)
    assert np.array_equal(again.array("place"), embedding.entities)
    # The data set is still the embedding's own.
    assert Embedding.open(embedding.root).entity_names([0]) == ["n0"]
    with pytest.raises(InvalidError, match="is in the data set already"):
        add_features(embedding, again, "place")


def test_nodes_of_another_data_set_are_found_by_name(
    embedding: Embedding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outercore.embed.matching._BLOCK", 7)
    monkeypatch.setattr("outercore.embed.features._BLOCK_BYTES", 100)
    rows = [("n7", "r", "new one"), ("n55", "r", "n3"), ("Zürich", "r", "n7")]
    other = facts(tmp_path / "other", rows)
    with pytest.raises(InvalidError, match=r"2 of 5 nodes have no embedding.*\n.*--missing zeros"):
        add_features(embedding, other, "place")
    written = add_features(embedding, other, "place", missing="zeros")
    assert written.missing == 2
    for node, name in enumerate(other.entity_names()):
        row = oc.open(other.root).array("place")[node]
        if name.startswith("n") and name != "new one":
            assert np.array_equal(row, embedding.rows(embedding.entity_ids(name))[0])
        else:
            assert not row.any()


def test_features_stand_beside_others_and_by_a_map(embedding: Embedding, tmp_path: Path) -> None:
    other = plain(tmp_path / "plain", [(0, 1), (1, 2)])
    other.add_node_array("age", np.array([7, 8, 9], np.int64))
    with pytest.raises(InvalidError, match=r"3 nodes, .*60 entities.*\n.*--map"):
        add_features(embedding, other, "both")
    entities = np.array([40, -1, 2])
    written = add_features(
        embedding, other, "both", beside="age", entities=entities, missing="zeros"
    )
    assert (written.width, written.missing) == (1 + WIDTH, 1)
    rows = oc.open(other.root).array("both")
    assert rows[:, 0].tolist() == [7, 8, 9]
    assert np.array_equal(rows[[0, 2], 1:], embedding.rows([40, 2]))
    assert not rows[1, 1:].any()
    assert not list(other.root.glob(".features-*"))


# Going on


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
        monkeypatch.setattr("outercore.embed.matching._BLOCK", block)
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
    assert (start.entities.known, start.entities.new) == (40, 2)
    assert start.entities.left == 20
    assert (start.matched_relations.known, start.matched_relations.new) == (RELATIONS, 1)
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
    graph: oc.Graph,
    change: Callable[[ModelConfig], ModelConfig],
    message: str,
) -> None:
    with pytest.raises(InvalidError, match=message):
        warm_start(embedding.root, graph, change(embedding.model))


def test_data_sets_with_nothing_in_common_do_not_go_on(
    embedding: Embedding, tmp_path: Path
) -> None:
    other = facts(tmp_path / "other", [("a", "r0", "b")])
    with pytest.raises(InvalidError, match="has none of its 60 entities"):
        warm_start(embedding.root, other, embedding.model)
    nameless = plain(tmp_path / "plain", [(0, 1)])
    with pytest.raises(InvalidError, match="old data set has names, the new one has not"):
        warm_start(embedding.root, nameless, embedding.model)
