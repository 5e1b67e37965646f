"""Learning edges, piece by piece: each part of it against its definition."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import outercore as oc  # noqa: E402
from multigraph import imported  # noqa: E402
from outercore.data.csc import Edges, pair_keys  # noqa: E402
from outercore.data.edge_types import PLAIN_EDGE  # noqa: E402
from outercore.errors import CorruptError, InterruptError, InvalidError, NotFoundError  # noqa: E402
from outercore.training.config import LinkConfig, RunConfig, TrainConfig  # noqa: E402
from outercore.training.links.batches import EpochOrder, Negatives  # noqa: E402
from outercore.training.links.data import EdgesFile, LinkData, open_links  # noqa: E402
from outercore.training.links.network import link_loss  # noqa: E402
from outercore.training.metrics import LinkScores  # noqa: E402

DATA = Path(os.environ.get("OUTERCORE_DATA") or Path(__file__).parents[3] / "shared" / "data")
DDI = DATA / "ogbl-ddi" / "ogbl_ddi.npz"


@pytest.fixture(scope="module", params=[False, True], ids=["directed", "undirected"])
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return imported(tmp_path_factory.mktemp("graph") / "multi", undirected=request.param)


def arcs(graph: oc.Graph) -> np.ndarray:
    """Source and target of every arc, [arcs, 2]."""
    offsets = graph.array("edges/edge/offsets").astype(np.int64)
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(offsets))
    return np.stack([graph.array("edges/edge/sources").astype(np.int64), targets], axis=1)


def unordered(pairs: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(pair) for pair in pairs.tolist()}


def prepared(graph: oc.Graph, root: Path, seed: int = 0, **link: Any) -> LinkData:
    return open_links(root, graph, TrainConfig(link=LinkConfig(**link), run=RunConfig(seed=seed)))


def test_every_edge_is_in_one_part_with_all_its_copies(graph: oc.Graph, tmp_path: Path) -> None:
    data = prepared(graph, tmp_path / "links", held_out=0.4)
    original = arcs(graph)
    original = original[original[:, 0] != original[:, 1]]
    if graph.manifest["edge_types"]["edge"]["undirected"]:
        original = original[original[:, 0] < original[:, 1]]
    parts = {"train": np.asarray(data.train(), np.int64)}
    parts |= {part: data.part(part).edges for part in data.parts}
    assert sorted(parts) == ["test", "train", "valid"]
    together = np.concatenate(list(parts.values()))
    assert Counter(map(tuple, together.tolist())) == Counter(map(tuple, original.tolist()))
    keys = [unordered(pairs) for pairs in parts.values()]
    assert sum(map(len, keys)) == len(set().union(*keys))
    assert abs(len(keys[0]) / len(unordered(original)) - 0.6) < 0.1


def test_message_passing_has_no_held_out_edge_in_either_direction(
    graph: oc.Graph, tmp_path: Path
) -> None:
    data = prepared(graph, tmp_path / "links", held_out=0.4)
    seen = arcs(data.graph)
    held_out = [unordered(data.part(part).edges) for part in data.parts]
    # Self-loops are no links to learn, and pass messages.
    loops = seen[:, 0] == seen[:, 1]
    assert loops.any()
    assert unordered(seen[~loops]) == unordered(np.asarray(data.train(), np.int64))
    assert not unordered(seen) & set().union(*held_out)
    both_ways = graph.manifest["edge_types"]["edge"]["undirected"]
    assert (~loops).sum() == len(data.train()) * (2 if both_ways else 1)


def test_parts_are_a_function_of_the_seed(graph: oc.Graph, tmp_path: Path) -> None:
    first, second, other = (
        prepared(graph, tmp_path / name, seed).part("test")
        for name, seed in (("first", 5), ("second", 5), ("other", 6))
    )
    assert np.array_equal(first.edges, second.edges)
    assert np.array_equal(first.negatives, second.negatives)
    assert not np.array_equal(first.edges, other.edges)


def test_half_prepared_edges_are_prepared_again(graph: oc.Graph, tmp_path: Path) -> None:
    whole = prepared(graph, tmp_path / "links")
    expected = np.array(whole.train())
    (tmp_path / "links" / "links.json").unlink()
    (tmp_path / "links" / "train.npy").write_bytes(b"half")
    assert np.array_equal(prepared(graph, tmp_path / "links").train(), expected)


def test_a_file_of_edges_that_was_cut_short_is_told(graph: oc.Graph, tmp_path: Path) -> None:
    prepared(graph, tmp_path / "links")
    file = tmp_path / "links" / "train.npy"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(CorruptError, match=r"train\.npy`: expected \d+ bytes"):
        prepared(graph, tmp_path / "links")
    (tmp_path / "links" / "test.npy").unlink()
    with pytest.raises(CorruptError, match="found no file"):
        prepared(graph, tmp_path / "links")


def test_a_flipped_bit_of_prepared_edges_is_told_and_they_are_prepared_again(
    graph: oc.Graph, tmp_path: Path
) -> None:
    root = tmp_path / "links"
    prepared(graph, root)
    files = {file.name: file.read_bytes() for file in sorted(root.iterdir()) if file.is_file()}
    assert len(files) == 6
    for name, data in files.items():
        (root / name).write_bytes(data[:-9] + bytes([data[-9] ^ 2]) + data[-8:])
        with pytest.raises(CorruptError, match=rf"{name}`: .*\nhint: remove `.*links`"):
            prepared(graph, root)
        shutil.rmtree(root)
        prepared(graph, root)
        found = {file.name: file.read_bytes() for file in sorted(root.iterdir()) if file.is_file()}
        assert found == files, name


def test_edges_are_not_prepared_of_damaged_ones(graph: oc.Graph, tmp_path: Path) -> None:
    for key in ("edges/edge/offsets", "edges/edge/sources"):
        copy = Path(shutil.copytree(graph.root, tmp_path / "copy"))
        file = copy / graph.arrays[key]["file"]
        data = file.read_bytes()
        file.write_bytes(data[:-8] + bytes([data[-8] ^ 1]) + data[-7:])
        with pytest.raises(CorruptError, match=f"array `{key}`"):
            prepared(oc.open(copy), tmp_path / "links")
        shutil.rmtree(copy)


def test_preparing_stops_when_asked_to(graph: oc.Graph, tmp_path: Path) -> None:
    def stop() -> None:
        raise InterruptError("stopped on request")

    with pytest.raises(InterruptError, match="stopped on request"):
        open_links(tmp_path / "links", graph, TrainConfig(), stop)
    assert len(prepared(graph, tmp_path / "links").train())


def test_negatives_of_held_out_edges_are_no_edges(graph: oc.Graph, tmp_path: Path) -> None:
    data = prepared(graph, tmp_path / "links", held_out=0.4)
    known = unordered(arcs(graph))
    for part in data.parts:
        pairs = data.part(part)
        assert len(pairs.negatives) == len(pairs.edges)
        assert not unordered(pairs.negatives) & known
        assert (pairs.negatives[:, 0] != pairs.negatives[:, 1]).all()


def test_given_edges_are_the_parts(graph: oc.Graph, tmp_path: Path) -> None:
    every = np.unique(np.sort(arcs(graph), axis=1), axis=0)
    every = every[every[:, 0] != every[:, 1]]
    given = {"valid": every[:50], "test": every[50:90, ::-1], "train": every[100:300]}
    given |= {"valid_neg": np.array([[0, 1], [2, 3]], np.uint16)}
    np.savez(tmp_path / "edges.npz", **given)
    data = prepared(graph, tmp_path / "links", edges=str(tmp_path / "edges.npz"))
    assert np.array_equal(data.part("valid").edges, given["valid"])
    assert np.array_equal(data.part("valid").negatives, given["valid_neg"])
    assert np.array_equal(data.train(), given["train"])
    assert not unordered(data.part("test").negatives) & unordered(arcs(graph))
    # What is neither trained on nor held out still passes messages.
    seen = arcs(data.graph)
    assert unordered(seen[seen[:, 0] != seen[:, 1]]) == unordered(every[90:])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"train": [[0, 1]]}, "an array `valid` or `test`"),
        ({"test": [[0, 1]], "dev": [[0, 2]]}, "unknown array `dev`"),
        ({"test": [[0, 1]], "valid_neg": [[0, 2]]}, "`valid_neg` without `valid`"),
        ({"test": [[0, 1, 2]]}, r"integers \[n, 2\], found int64 \[1, 3\]"),
        ({"test": [[0.0, 1.0]]}, "found float64"),
        ({"test": np.empty((0, 2), np.int64)}, "at least one pair"),
        ({"test": [[0, 1], [3, 9]]}, r"row 1: found nodes \[3, 9\], expected 0 to 8"),
        ({"test": [[-1, 1]]}, "row 0"),
        ({"test": [[4, 4]]}, "expected two nodes, found 4 twice"),
        ({"test": [[2, 5]], "train": [[0, 1], [5, 2]]}, "nodes 2 and 5 are joined in `train`"),
    ],
)
def test_wrong_edges_are_refused(arrays: Any, message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", **{name: np.array(value) for name, value in arrays.items()})
    with pytest.raises(InvalidError, match=message):
        EdgesFile.read(tmp_path / "e.npz", nodes=9)


def test_a_file_that_is_no_npz_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        EdgesFile.read(tmp_path / "absent.npz", 9)
    np.save(tmp_path / "one.npy", np.zeros((3, 2), np.int64))
    with pytest.raises(InvalidError, match="found another kind of file"):
        EdgesFile.read(tmp_path / "one.npy", 9)
    with zipfile.ZipFile(tmp_path / "cut.npz", "w") as archive:
        archive.writestr("test.npy", b"\x93NUMPY half of a header")
    with pytest.raises(CorruptError, match=r"expected an `\.npz` of arrays"):
        EdgesFile.read(tmp_path / "cut.npz", 9)


def test_training_edges_that_the_graph_lacks_are_refused(graph: oc.Graph, tmp_path: Path) -> None:
    known = {pair for pair in unordered(arcs(graph)) if len(pair) == 2}
    absent = next([0, node] for node in range(1, 200) if frozenset((0, node)) not in known)
    np.savez(tmp_path / "e.npz", train=[absent], test=[sorted(next(iter(known)))])
    with pytest.raises(InvalidError, match="array `train`: row 0"):
        prepared(graph, tmp_path / "links", edges=str(tmp_path / "e.npz"))


def test_joined_is_membership_among_the_arcs(graph: oc.Graph) -> None:
    known = unordered(arcs(graph))
    pairs = np.stack(np.meshgrid(np.arange(200), np.arange(200)), axis=-1).reshape(-1, 2)
    found = Edges(graph, PLAIN_EDGE).connect(pairs)
    assert found.tolist() == [frozenset(pair) in known for pair in pairs.tolist()]


@pytest.mark.parametrize("edges", [1, 1023, 1024, 5000])
def test_an_epoch_visits_every_edge_once(edges: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outercore.training.links.batches._POOL_ENDS", 4 * 3 * 500)
    order = EpochOrder(edges, 500, ends=4, seed=3)
    pools = [order.pool(0, number) for number in range(order.pools)]
    assert all(len(pool) == 1500 for pool in pools[:-1])
    assert sorted(np.concatenate(pools).tolist()) == list(range(edges))
    assert sum(-(-len(pool) // 500) for pool in pools) == order.batches
    if edges > 1:
        again = EpochOrder(edges, 500, ends=4, seed=3)
        assert np.array_equal(again.pool(1, 0), order.pool(1, 0))
        assert not np.array_equal(order.pool(1, 0), order.pool(0, 0))


@pytest.mark.parametrize("loss", ["binary", "triplet"])
@pytest.mark.parametrize("ends", ["uniform", "degree"])
def test_negatives_are_no_edges_and_a_function_of_their_place(
    graph: oc.Graph, loss: Any, ends: Any
) -> None:
    config = LinkConfig(loss=loss, negative_ends=ends, negatives=3)
    edges = arcs(graph)[:100]
    negatives = Negatives(config, 7, graph)
    drawn = negatives.draw(2, 5, edges)
    assert drawn.shape == (300, 2)
    assert negatives.ends == (6 if loss == "binary" else 3)
    assert not unordered(drawn) & unordered(arcs(graph))
    assert (drawn[:, 0] != drawn[:, 1]).all()
    assert loss == "binary" or np.array_equal(drawn[:, 0], np.repeat(edges[:, 0], 3))
    again = Negatives(config, 7, graph)
    assert np.array_equal(again.draw(2, 5, edges), drawn)
    assert not np.array_equal(again.draw(2, 6, edges), drawn)
    assert not np.array_equal(again.draw(3, 5, edges), drawn)


def test_ends_by_degree_are_as_likely_as_arcs_leave_the_node(graph: oc.Graph) -> None:
    draws = (np.arange(graph.num_edges) + 0.5) / graph.num_edges
    found = np.bincount(Edges(graph, PLAIN_EDGE).sources_at(draws), minlength=200)
    assert np.array_equal(found, np.bincount(arcs(graph)[:, 0], minlength=200))


def naive_metrics(edges: np.ndarray, negatives: np.ndarray) -> dict[str, float | None]:
    """The definitions, edge by edge."""
    beaten = [(edge > negatives).mean() + (edge == negatives).mean() / 2 for edge in edges]
    ranks = [1 + (negatives > edge).sum() + (negatives == edge).sum() / 2 for edge in edges]
    best = np.sort(negatives)[::-1]
    hits = {
        f"hits@{k}": float((edges > best[k - 1]).mean()) if k <= len(best) else None
        for k in (1, 10, 20, 50, 100)
    }
    return {"roc_auc": np.mean(beaten), "mrr": np.mean(1 / np.array(ranks)), **hits}


@pytest.mark.parametrize("counts", [(1, 1), (30, 12), (200, 300)])
@pytest.mark.parametrize("levels", [3, 10**6], ids=["ties", "no ties"])
def test_metrics_are_their_definitions(counts: tuple[int, int], levels: int) -> None:
    random = np.random.default_rng(levels + sum(counts))
    edges, negatives = (
        (random.integers(levels, size=count) / levels).astype(np.float32) for count in counts
    )
    found = LinkScores("mrr", edges + np.float32(0.1), negatives).values()
    expected = naive_metrics(edges + np.float32(0.1), negatives)
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_areas_agree_with_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    edges, negatives = random.integers(1, 40, 300), random.integers(0, 30, 500)
    found = LinkScores("roc_auc", edges.astype(np.float32), negatives.astype(np.float32))
    labels, scores = np.repeat([1, 0], [300, 500]), np.concatenate([edges, negatives])
    assert found.value() == pytest.approx(metrics.roc_auc_score(labels, scores))
    precision = found.values()["average_precision"]
    assert precision == pytest.approx(metrics.average_precision_score(labels, scores))


def test_a_score_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(InvalidError, match="negative 1 of the split"):
        LinkScores("mrr", np.ones(3, np.float32), np.array([0, np.nan], np.float32))


def test_losses_are_their_definitions() -> None:
    positive, negative = torch.randn(5), torch.randn(5, 3)
    binary = torch.nn.functional.binary_cross_entropy_with_logits
    expected = binary(positive, torch.ones(5)) + binary(negative, torch.zeros(5, 3))
    assert torch.allclose(link_loss("binary", positive, negative), expected)
    ahead = [positive[i] - negative[i, j] for i in range(5) for j in range(3)]
    steps = torch.stack([-torch.log(torch.sigmoid(by)) for by in ahead])
    assert torch.allclose(link_loss("triplet", positive, negative), steps.mean())


def test_pair_keys_are_the_same_in_either_order() -> None:
    pairs = np.array([[3, 1], [1, 3], [0, 2]])
    assert pair_keys(pairs, 10).tolist() == [13, 13, 2]


@pytest.mark.skipif(not DDI.exists(), reason="the data set is not here")
def test_the_published_edges_of_ogbl_ddi_are_read() -> None:
    given = EdgesFile.read(DDI, nodes=4267)
    sizes = {name: len(pairs) for name, pairs in given.arrays.items()}
    assert sizes == {
        "train": 1_067_911,
        "valid": 133_489,
        "test": 133_489,
        "valid_neg": 101_882,
        "test_neg": 95_599,
    }
