"""Embeddings of graphs with several types: each edge type is a relation."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import outercore as oc
from embed_stores import links_of
from outercore.cli import app
from outercore.data.edge_types import edge_type_key
from outercore.data.node_names import NodeNumbers
from outercore.data.triples import PARTS
from outercore.embedding import add_features
from outercore.errors import InvalidError
from typed_fakes import COUNTS, EDGES, planted_types
from typed_files import edges_by_type

OPTIONS: dict[str, Any] = {"dim": 8, "epochs": 6, "threads": 1, "memory": "256MiB", "held_out": 0.2}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_types(tmp_path_factory.mktemp("typed") / "graph")


def triples_of(root: Path) -> list[list[int]]:
    """(source, place of the edge type, target), with nodes type after type, sorted."""
    graph, numbers = oc.open(root), NodeNumbers(COUNTS)
    by_type = edges_by_type(graph)
    return sorted(
        [numbers.of(edge_type[0], source), place, numbers.of(edge_type[2], target)]
        for place, edge_type in enumerate(graph.edge_types)
        for _, source, target in by_type[edge_type_key(edge_type)]
    )


def test_links_are_triples_with_their_edge_type_as_relation(planted: Path) -> None:
    expected = triples_of(planted)
    assert sorted(links_of(planted).read().tolist()) == expected
    parts = [links_of(planted, part, 0.2, 0.1, 7).read() for part in PARTS]
    assert all(len(part) for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == expected
    # Two nodes are in one part, whatever the relation and the direction between them.
    pairs = [{tuple(sorted(pair)) for pair in part[:, [0, 2]].tolist()} for part in parts]
    assert [len(one & other) for one, other in combinations(pairs, 2)] == [0, 0, 0]


@pytest.mark.parametrize("placement", [{}, {"partitions": 4, "slots": 2}])
def test_a_typed_graph_is_learnt_and_ranked(
    planted: Path, tmp_path: Path, placement: dict[str, int]
) -> None:
    result = oc.embed(planted, out=tmp_path / "run", model="distmult", **OPTIONS, **placement)
    embedding = oc.Embedding.open(tmp_path / "run")
    counts = (embedding.num_entities, embedding.num_relations)
    assert counts == (sum(COUNTS.values()), len(EDGES))
    # Twice what chance gives: the mean of 1 / rank among all entities.
    chance = (1 / np.arange(1, embedding.num_entities + 1)).mean()
    assert result.mrr is not None
    assert result.mrr > 2 * chance, f"{result.mrr} by chance {chance}"


def test_rows_are_saved_by_type(planted: Path, tmp_path: Path) -> None:
    oc.embed(planted, out=tmp_path / "run", model="distmult", **{**OPTIONS, "epochs": 1})
    embedding, graph = oc.Embedding.open(tmp_path / "run"), oc.open(planted)
    add_features(embedding, graph, "place")
    rows = [graph.array(f"nodes/{name}/place") for name in graph.node_types]
    np.testing.assert_array_equal(np.concatenate(rows), embedding.entities)
    with pytest.raises(InvalidError, match="`beside` and `map`"):
        add_features(embedding, graph, "other", beside="x")


def test_the_default_score_knows_relations(planted: Path, tmp_path: Path) -> None:
    oc.embed(planted, out=tmp_path / "run", **OPTIONS)
    embedding = oc.Embedding.open(tmp_path / "run")
    assert embedding.config is not None
    assert embedding.config.model.kind != "dot"
    assert embedding.relations.shape[0] == len(EDGES)


def test_entities_and_relations_are_called_by_their_types(planted: Path, tmp_path: Path) -> None:
    oc.embed(planted, out=tmp_path / "run", model="distmult", **{**OPTIONS, "epochs": 1})
    embedding = oc.Embedding.open(tmp_path / "run")
    ids = embedding.entity_ids(["author:0", "paper:3", "7"])
    assert ids.tolist() == [0, NodeNumbers(COUNTS).of("paper", 3), 7]
    assert embedding.entity_names(ids) == ["author:0", "paper:3", "author:7"]
    place = embedding.graph.edge_types.index(("paper", "cites", "paper"))
    assert embedding.relation_ids("paper,cites,paper").tolist() == [place]
    assert embedding.relation_names([place]) == ["paper,cites,paper"]
    with pytest.raises(InvalidError, match="`paper:90`: expected an id from 0 to 89"):
        embedding.entity_ids("paper:90")
    asked = ["--head", "author:3", "--relation", "author,writes,paper", "--k", "2"]
    arguments = ["embedding", "predict", str(tmp_path / "run"), *asked]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "author:3" in result.stdout
    assert "author,writes,paper" in result.stdout
