"""Edges that are scored against negatives of their own, as ogbl-citation2 has them."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch")

import outercore as oc  # noqa: E402
from multigraph import rows  # noqa: E402
from outercore.errors import InvalidError  # noqa: E402
from outercore.training.config import LinkConfig, TrainConfig  # noqa: E402
from outercore.training.links.data import EdgesFile, open_links  # noqa: E402
from outercore.training.metrics import LinkScores, SeparateNegatives  # noqa: E402

NODES, CANDIDATES = 200, 30


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    root = tmp_path_factory.mktemp("links")
    pairs = rows(NODES, 2000)
    return oc.from_scipy(adjacency(pairs), root / "graph")


def adjacency(pairs: np.ndarray) -> Any:
    sparse = pytest.importorskip("scipy.sparse")
    one = np.ones(len(pairs))
    return sparse.coo_matrix((one, (pairs[:, 0], pairs[:, 1])), (NODES, NODES))


def links(graph: oc.Graph) -> np.ndarray:
    """Edges between two nodes, each once, int64 [n, 2]."""
    offsets = graph.array("edges/edge/offsets").astype(np.int64)
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(offsets))
    pairs = np.stack([graph.array("edges/edge/sources").astype(np.int64), targets], axis=1)
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    return np.random.default_rng(0).permutation(pairs)


def layout(graph: oc.Graph, seed: int) -> dict[str, dict[str, np.ndarray]]:
    """`valid` and `test` as OGB has them, by part."""
    pairs, draws = links(graph), np.random.default_rng(seed)
    found = {}
    for part, some in (("valid", pairs[:40]), ("test", pairs[40:90])):
        negatives = draws.integers(0, NODES, (len(some), CANDIDATES))
        ends = {"source_node": some[:, 0], "target_node": some[:, 1]}
        found[part] = {**ends, "target_node_neg": negatives}
    return found


def folder(path: Path, parts: dict[str, dict[str, np.ndarray]]) -> Path:
    path.mkdir()
    for part, arrays in parts.items():
        torch.save({k: torch.from_numpy(v) for k, v in arrays.items()}, path / f"{part}.pt")
    return path


def archive(path: Path, parts: dict[str, dict[str, np.ndarray]]) -> Path:
    arrays = {}
    for part, one in parts.items():
        arrays[part] = np.stack([one["source_node"], one["target_node"]], axis=1)
        arrays[f"{part}_target_neg"] = one["target_node_neg"]
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("levels", [4, 10**6], ids=["ties", "no ties"])
@pytest.mark.parametrize("block", [1, 7, 50])
def test_metrics_are_those_of_each_edge_among_its_own_negatives(levels: int, block: int) -> None:
    draws = np.random.default_rng(levels)
    edges = (draws.integers(levels, size=50) / levels).astype(np.float32)
    negatives = (draws.integers(levels, size=(50, CANDIDATES)) / levels).astype(np.float32)
    scores = SeparateNegatives("mrr", edges)
    for first in range(0, 50, block):
        scores.add(negatives[first : first + block])
    found = scores.values()
    # As the evaluator of OGB has it: the mean of the optimistic and the pessimistic rank.
    optimistic = 1 + (negatives > edges[:, None]).sum(axis=1)
    pessimistic = 1 + (negatives >= edges[:, None]).sum(axis=1)
    ranks = (optimistic + pessimistic) / 2
    assert found["mrr"] == pytest.approx((1 / ranks).mean())
    assert found["mrr_optimistic"] == pytest.approx((1 / optimistic).mean())
    assert found["mrr_pessimistic"] == pytest.approx((1 / pessimistic).mean())
    for k in (1, 10, 20):
        assert found[f"hits@{k}"] == pytest.approx((ranks <= k).mean())
    assert found["adjusted_mean_rank"] == pytest.approx(ranks.mean() / ((CANDIDATES + 2) / 2))
    index = 1 - (ranks.mean() - 1) / (CANDIDATES / 2)
    assert found["adjusted_mean_rank_index"] == pytest.approx(index)
    assert found["candidates"] == CANDIDATES + 1
    assert found["average_precision"] is None


def test_edges_among_shared_negatives_have_adjusted_ranks_too() -> None:
    edges, negatives = np.array([3, 1], np.float32), np.array([2, 1, 0], np.float32)
    found = LinkScores("mrr", edges, negatives).values()
    # Ranks 1 and 2.5 among 4.
    assert found["mean_rank"] == 1.75
    assert found["adjusted_mean_rank"] == pytest.approx(1.75 / 2.5)
    assert found["adjusted_mean_rank_index"] == pytest.approx(1 - 0.75 / 1.5)
    assert (found["mrr_optimistic"], found["mrr_pessimistic"]) == (0.75, pytest.approx(2 / 3))


def test_a_folder_of_ogb_and_an_archive_give_the_same_edges(
    graph: oc.Graph, tmp_path: Path
) -> None:
    parts = layout(graph, 1)
    files = folder(tmp_path / "time", parts), archive(tmp_path / "edges.npz", parts)
    for place, file in enumerate(files):
        config = TrainConfig(link=LinkConfig(edges=str(file)))
        data = open_links(tmp_path / f"links{place}", graph, config)
        for part, one in parts.items():
            pairs = data.part(part)
            np.testing.assert_array_equal(pairs.edges[:, 0], one["source_node"])
            np.testing.assert_array_equal(pairs.targets, one["target_node_neg"])
            assert data.sizes(part) == (len(pairs.edges), pairs.targets.size)


def test_pairs_of_ogb_are_negatives_of_all_edges(graph: oc.Graph, tmp_path: Path) -> None:
    pairs = links(graph)
    parts = {"test": {"edge": pairs[:30], "edge_neg": np.array([[0, 1], [2, 3]])}}
    given = EdgesFile.read(folder(tmp_path / "target", parts), NODES)
    np.testing.assert_array_equal(given.arrays["test_neg"], [[0, 1], [2, 3]])


def test_a_run_scores_each_edge_among_its_own_negatives(
    graph: oc.Graph, tmp_path: Path, outcome: Any
) -> None:
    parts = layout(graph, 2)
    edges = folder(tmp_path / "time", parts)
    options = {
        "task": "link",
        "held_out_edges": str(edges),
        "epochs": 1,
        "hidden": 8,
        "fanout": [3, 3],
    }
    result = oc.train(graph, out=tmp_path / "run", metric="mrr", memory="128MiB", **options)
    found = result["result"]["links"]["test"]
    assert found["candidates"] == CANDIDATES + 1
    assert found["mrr_optimistic"] >= found["mrr"] >= found["mrr_pessimistic"]
    code, out, err = outcome("evaluate", tmp_path / "run", "--json")
    assert code == 0, err
    again = json.loads(out)
    assert again["mrr"] == pytest.approx(found["mrr"])
    assert (again["edges"], again["negatives"]) == (50, 50 * CANDIDATES)
    # By hand, from the scores that `predict` gives for each pair.
    test = parts["test"]
    targets = np.concatenate([test["target_node"][:, None], test["target_node_neg"]], axis=1)
    sources = test["source_node"][:, None].repeat(CANDIDATES + 1, axis=1)
    np.save(tmp_path / "pairs.npy", np.stack([sources, targets], axis=-1).reshape(-1, 2))
    command = (
        "predict",
        graph.root,
        "--model",
        tmp_path / "run",
        "--edges",
        tmp_path / "pairs.npy",
    )
    code, _, err = outcome(*command, "--out", tmp_path / "scores.parquet")
    assert code == 0, err
    scores = pq.read_table(tmp_path / "scores.parquet")["score"].to_numpy()
    scores = scores.reshape(-1, CANDIDATES + 1)
    own, others = scores[:, :1], scores[:, 1:]
    ranks = 1 + ((others > own).sum(axis=1) + (others >= own).sum(axis=1)) / 2
    assert found["mrr"] == pytest.approx((1 / ranks).mean(), rel=1e-4)


WRONG = [
    ("target_node_neg", lambda array: array[1:], "a row for each of the 40 edges"),
    ("target_node_neg", lambda array: array + NODES, "expected 0 to 199"),
    ("target_node_neg", lambda array: array / 2, "integers [n, k]"),
]


@pytest.mark.parametrize(("name", "changed", "message"), WRONG)
def test_negatives_of_other_edges_are_refused(
    name: str, changed: Any, message: str, graph: oc.Graph, tmp_path: Path
) -> None:
    parts = layout(graph, 3)
    parts["valid"][name] = changed(parts["valid"][name])
    with pytest.raises(InvalidError) as error:
        EdgesFile.read(folder(tmp_path / "time", parts), NODES)
    assert message in str(error.value)


def test_a_metric_by_a_shared_threshold_is_refused(graph: oc.Graph, tmp_path: Path) -> None:
    edges = archive(tmp_path / "edges.npz", layout(graph, 4))
    options = {
        "task": "link",
        "held_out_edges": str(edges),
        "metric": "average_precision",
        "epochs": 1,
    }
    with pytest.raises(InvalidError, match="negatives of its own for each edge"):
        oc.train(graph, out=tmp_path / "run", memory="128MiB", **options)


def test_a_data_set_of_ogb_is_imported_and_trained_by_its_split(
    tmp_path: Path, outcome: Any
) -> None:
    root, draws = tmp_path / "ogbl_citation2", np.random.default_rng(5)
    (root / "raw").mkdir(parents=True)
    pairs = np.unique(np.sort(draws.integers(0, NODES, (1500, 2)), axis=1), axis=0)
    pairs = draws.permutation(pairs[pairs[:, 0] != pairs[:, 1]])
    lines = "".join(f"{source},{target}\n" for source, target in pairs[60:].tolist())
    (root / "raw" / "edge.csv.gz").write_bytes(gzip.compress(lines.encode()))
    (root / "raw" / "num-node-list.csv.gz").write_bytes(gzip.compress(f"{NODES}\n".encode()))
    parts = {}
    for part, some in (("train", pairs[60:]), ("valid", pairs[:30]), ("test", pairs[30:60])):
        parts[part] = {"source_node": some[:, 0], "target_node": some[:, 1]}
        if part != "train":
            parts[part]["target_node_neg"] = draws.integers(0, NODES, (30, CANDIDATES))
    (root / "split").mkdir()
    folder(root / "split" / "time", parts)
    code, _, err = outcome("import", root, "--out", tmp_path / "graph")
    assert code == 0, err
    (option,) = re.findall(r"`--set (link\.edges=[^`]+)`", err)
    command = ["train", tmp_path / "graph", "--task", "link", "--metric", "mrr", "--epochs", 1]
    code, out, err = outcome(*command, "--set", option, "--out", tmp_path / "run", "--json")
    assert code == 0, err
    assert json.loads(out)["result"]["links"]["test"]["candidates"] == CANDIDATES + 1
