"""Embeddings as features of a data set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import outercore as oc
from embedded import (
    ENTITIES,
    WIDTH,
    facts,
    plain,
)
from outercore.embedding.use.embedding import Embedding
from outercore.embedding.use.features import add_features
from outercore.errors import (
    InvalidError,
)


def test_rows_become_a_node_array(embedding: Embedding, embedded_graph: oc.Graph) -> None:
    written = add_features(embedding, embedded_graph, "place")
    assert (written.nodes, written.width, written.missing) == (ENTITIES, WIDTH, 0)
    again = oc.open(embedded_graph.root)
    assert np.array_equal(again.array("place"), embedding.entities)
    # The data set is still the embedding's own.
    assert Embedding.open(embedding.root).entity_names([0]) == ["n0"]
    with pytest.raises(InvalidError, match="is in the data set already"):
        add_features(embedding, again, "place")


def test_nodes_of_another_data_set_are_found_by_name(
    embedding: Embedding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outercore.embedding.data.warm_start._BLOCK", 7)
    monkeypatch.setattr("outercore.embedding.use.features._BLOCK_BYTES", 100)
    rows = [("n7", "r", "new one"), ("n55", "r", "n3"), ("Zürich", "r", "n7")]
    other = facts(tmp_path / "other", rows)
    with pytest.raises(InvalidError, match=r"2 of 5 nodes have no .*\n.*`missing='zeros'`"):
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
    with pytest.raises(InvalidError, match=r"3 nodes, .*60 entities.*\n.*`map="):
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
