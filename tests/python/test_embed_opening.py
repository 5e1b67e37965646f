"""Opening a finished embedding."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc
from embedded import (
    ENTITIES,
    RELATIONS,
    WIDTH,
    embed,
    facts,
    random_triples,
)
from outercore import embedding as embeddings
from outercore.embedding.run_directory import EmbedDirectory
from outercore.embedding.use.embedding import Embedding
from outercore.errors import (
    CorruptError,
    InvalidError,
    NotFoundError,
    VersionError,
)
from outercore.files.checked_json import checked_json_bytes, parse_checked_json


def test_an_embedding_is_opened_by_its_run_and_knows_names(
    embedding: Embedding, embedded_graph: oc.Graph
) -> None:
    assert (embedding.num_entities, embedding.num_relations) == (ENTITIES, RELATIONS)
    assert embedding.entity_names([0, 1]) == embedded_graph.entity_names([0, 1])
    assert embedding.entity_ids("n7").tolist() == [embedded_graph.entity_id("n7")]
    assert embedding.entity_ids([3, 4], by_id=True).tolist() == [3, 4]
    assert embedding.relation_ids(["r2", "r0"]).tolist() == [
        embedded_graph.relation_id("r2"),
        embedded_graph.relation_id("r0"),
    ]
    assert np.array_equal(embedding.rows([9, 2]), np.asarray(embedding.entities)[[9, 2]])


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("99999999999999999999", "99999999999999999999: expected 0 to"),
        (-(2**70), "-1180591620717411303424: expected 0 to"),
        ("60", "60: expected 0 to"),
        ("²", "expected an id, found `²`"),
        ("n7", "expected an id, found `n7`"),
    ],
)
def test_an_id_that_is_none_is_refused(embedding: Embedding, item: str | int, message: str) -> None:
    for kind, ids in (("entity", embedding.entity_ids), ("relation", embedding.relation_ids)):
        with pytest.raises(InvalidError, match=f"{kind}.? {message}"):
            ids([3, item], by_id=True)


def test_blocks_are_the_table_in_order(embedding: Embedding) -> None:
    table = np.asarray(embedding.entities)
    for rows in (1, 7, ENTITIES, 1000):
        blocks = [(first, block.copy()) for first, block in embedding.blocks(rows)]
        assert np.array_equal(np.concatenate([block for _, block in blocks]), table)
        assert [first for first, _ in blocks] == list(range(0, ENTITIES, rows))


def test_where_training_triples_have_another_name_nothing_says_what_was_seen(
    embedding: Embedding,
) -> None:
    embedding.graph.arrays["triples/facts"] = embedding.graph.arrays.pop("triples/train")
    assert embedding.seen is None


def test_a_run_without_an_embedding_is_told_from_one_with(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no `embedding\.json` there\nhint: give the run"):
        Embedding.open(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(NotFoundError, match=r"no `embedding\.json` there\nhint: .*--resume"):
        Embedding.open(tmp_path)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"version": 3}, VersionError, "expected version 2, found 3"),
        ({"entities": 61}, CorruptError, r"expected float32 \[61, 8\], found float32 \[60, 8\]"),
        ({"width": 9}, CorruptError, r"expected float32 \[60, 9\]"),
        ({"model": {"kind": "wonder"}}, CorruptError, "model.kind"),
    ],
)
def test_a_description_that_does_not_fit_is_an_error(
    embedding: Embedding, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    path = embedding.root / "embedding.json"
    changed = {**parse_checked_json(path.read_bytes(), "embedding"), **change}
    path.write_bytes(checked_json_bytes(changed))
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
    with pytest.raises(NotFoundError, match=r"is gone.*\n.*`data`"):
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
    described = parse_checked_json(path.read_bytes(), "embedding")
    described["fingerprint"] = EmbedDirectory.identity_of(graph).digest
    path.write_bytes(checked_json_bytes(described))
    graph.add_node_array("rank", np.arange(ENTITIES))
    assert Embedding.open(embedding.root).entity_names([0]) == ["n0"]
    shutil.rmtree(graph.root)
    facts(graph.root, random_triples(1)[::-1])
    with pytest.raises(InvalidError, match=r"other triples, links or names now\n.*`data`"):
        embeddings.neighbours(Embedding.open(embedding.root), "n0")
