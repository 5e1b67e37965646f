"""First-layer states that a server keeps: no answer shows whether they were kept."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from outercore.serving.server import Server
from test_live import CONFIG, random_model, trained, update
from test_serve import ask, infer
from test_serve_metrics import scrape

COLUMNS = 80
"""So wide that the rows of one neighbour take more memory than a state."""
NEEDED, KEPT = "outercore_states_total", "outercore_states_in_memory_total"


@pytest.mark.parametrize(("kind", "undirected"), [("sage", False), ("gcn", True), ("gat", False)])
def test_kept_states_change_no_bit_of_an_answer_while_the_graph_changes(
    kind: str, undirected: bool, tmp_path: Path
) -> None:
    model = random_model(11, undirected=undirected, columns=COLUMNS)
    run = trained(model.write(tmp_path / "with"), kind, tmp_path / kind)
    shutil.copytree(tmp_path / "with", tmp_path / "without")
    random = np.random.default_rng(5)
    with (
        Server(tmp_path / "with", run, CONFIG) as server,
        Server(tmp_path / "without", run, replace(CONFIG, states=0)) as other,
    ):
        for step in range(60):
            drawn = model.draw(random)
            answers = [update(one, drawn) for one in (server, other)]
            assert answers[0] == answers[1]
            model.apply(drawn)
            if step == 40:
                for one in (server, other):
                    ask(one, "/graph/compact", {})
            there = [node for node in range(len(model.x)) if node not in model.removed]
            for node in random.choice(there, size=6):
                assert infer(server, [int(node)]) == infer(other, [int(node)])
        counts = scrape(server)
        assert 0 < counts[KEPT] < counts[NEEDED]
        assert scrape(other)[KEPT] == 0


def test_requests_of_one_seed_share_states_and_others_do_not(tmp_path: Path) -> None:
    model = random_model(2, undirected=True, columns=COLUMNS)
    run = trained(model.write(tmp_path / "graph"), "sage", tmp_path / "sage")
    with Server(tmp_path / "graph", run, replace(CONFIG, updates=False)) as server:
        before = infer(server, [1, 2, 3])
        assert scrape(server)[KEPT] == 0
        assert infer(server, [1, 2, 3]) == before
        counts = scrape(server)
        # Each node of the first hop was needed twice, and had a state the second time.
        assert counts[NEEDED] == 2 * counts[KEPT] > 0
        infer(server, [1, 2, 3], seed=1)
        assert scrape(server)[KEPT] == counts[KEPT]
