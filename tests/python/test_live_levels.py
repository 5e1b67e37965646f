"""Edges and whole graphs of a served graph that changes: answers are those of the network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from outercore.server import Server
from outercore.train import ModelConfig
from outercore.train.config import LinkConfig
from test_live import CONFIG, Model, random_model, update
from test_serve import ask, outputs
from test_serve_heads import expected_scores, infer, learn


def pairs_of(model: Model, random: np.random.Generator) -> np.ndarray:
    """Pairs of nodes that are there, a node with itself among them."""
    there = [node for node in range(len(model.x)) if node not in model.removed]
    pairs = random.choice(there, size=(12, 2))
    pairs[-1] = pairs[-1, 0]
    return pairs


@pytest.mark.parametrize(
    ("score", "kind", "undirected", "has_features"),
    [
        ("dot", "sage", True, True),
        ("diagonal", "gcn", False, True),
        ("mlp", "gin", True, True),
        ("dot", "gat", False, False),
        ("mlp", "gcn", True, False),
    ],
)
def test_scores_of_edges_are_those_of_the_graph_as_updates_make_it(
    score: str, kind: str, undirected: bool, has_features: bool, tmp_path: Path
) -> None:
    model = random_model(11, undirected=undirected, has_features=has_features)
    graph = model.write(tmp_path / "graph")
    run = learn(
        graph,
        tmp_path / "run",
        "link",
        model=ModelConfig(hidden=8, kind=kind),  # type: ignore[arg-type]
        link=LinkConfig(head=score),  # type: ignore[arg-type]
    )
    random = np.random.default_rng(5)
    lsn = 0
    with Server(graph.root, run, CONFIG) as server:
        for step in range(60):
            drawn = model.draw(random)
            status, answer = update(server, drawn)
            assert (status == 200) == model.apply(drawn), (drawn, answer)
            lsn += status == 200
            if step % 12 != 11:
                continue
            pairs = pairs_of(model, random)
            answer = infer(server, "edge_ids", pairs, seed=step, min_lsn=lsn)
            assert answer["parameters"] == {"seed": step, "lsn": lsn}
            written = model.write(tmp_path / f"written-{step}")
            wanted = expected_scores(written, run, pairs, seed=step)
            found = outputs(answer)
            np.testing.assert_allclose(found["score"], wanted.numpy(), rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(
                found["probability"], torch.sigmoid(wanted).numpy(), rtol=0, atol=1e-5
            )
            if step == 35:
                assert ask(server, "/graph/compact", {}) == (200, {"lsn": lsn})
                assert infer(server, "edge_ids", pairs, seed=step) == answer
        assert model.removed
        gone = min(model.removed)
        tensor = {"name": "edge_ids", "datatype": "INT64", "shape": [1, 2], "data": [0, gone]}
        status, refused = ask(server, "/v2/models/run/infer", {"inputs": [tensor]})
        assert (status, refused["error"]) == (404, f"node {gone} was removed")
        assert ask(server, "/graph")[1]["compacted_lsn"] < lsn
    # From the log, and from the arrays into which it is folded.
    with Server(graph.root, run, CONFIG) as server:
        assert infer(server, "edge_ids", pairs, seed=step) == answer
        assert ask(server, "/graph/compact", {}) == (200, {"lsn": lsn})
    with Server(graph.root, run, CONFIG) as server:
        assert ask(server, "/graph")[1]["compacted_lsn"] == lsn
        assert infer(server, "edge_ids", pairs, seed=step) == answer
