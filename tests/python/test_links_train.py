"""Training on edges: what a batch sees, that a run is a function of its seed, what it learns."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import outercore as oc  # noqa: E402
from multigraph import imported, rows  # noqa: E402
from observers import StopAfter  # noqa: E402
from outercore.cli import run  # noqa: E402
from outercore.errors import (  # noqa: E402
    BudgetError,
    InterruptError,
    InvalidError,
    NotFoundError,
    UnsupportedError,
)
from outercore.runs.stop import StopRequest  # noqa: E402
from outercore.training import evaluate, resume, train  # noqa: E402
from outercore.training.config import (  # noqa: E402
    BudgetConfig,
    LinkConfig,
    ModelConfig,
    OptimiserConfig,
    RunConfig,
    SamplingConfig,
    TrainConfig,
)
from outercore.training.links.batches import (  # noqa: E402
    EpochOrder,
    LinkLoader,
    Negatives,
    padded,
)
from outercore.training.links.data import open_links  # noqa: E402
from outercore.training.loop import Trainer  # noqa: E402
from outercore.training.model_files import load_model  # noqa: E402
from outercore.training.models import Hop, Network, build_model  # noqa: E402
from outercore.training.run_directory import TrainDirectory  # noqa: E402
from outercore.training.work import in_degrees  # noqa: E402

torch.set_num_threads(1)  # Tiny tensors: more threads only wait for each other.
DIRECTIONS = pytest.mark.parametrize("undirected", [False, True], ids=["directed", "undirected"])


def settings(**groups: Any) -> TrainConfig:
    chosen: dict[str, Any] = {
        "model": ModelConfig(hidden=16, dropout=0.2),
        "sampling": SamplingConfig(fanout=(4, 3), batch_size=128),
        "optimiser": OptimiserConfig(learning_rate=0.01, epochs=2, patience=0),
        "budget": BudgetConfig(memory="128MiB"),
        "run": RunConfig(task="link"),
    }
    return TrainConfig(**{**chosen, **groups})


def bare(root: Path, *, undirected: bool = True) -> Path:
    """A data set with neither features nor labels nor splits."""
    root.parent.mkdir(parents=True, exist_ok=True)
    np.save(root.with_suffix(".npy"), rows(200, 2000))
    arguments = ["import", root.with_suffix(".npy"), "--nodes", 200, "--out", root]
    assert run([str(part) for part in [*arguments, *(["--undirected"] if undirected else [])]]) == 0
    return root


def link_batches(graph: oc.Graph, fanout: list[int]) -> Any:
    """Batches with the links taken out, and the same as the neighbour loader gives them."""
    offsets = graph.array("edges/edge/offsets").astype(np.int64)
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(offsets))
    edges = np.stack([graph.array("edges/edge/sources").astype(np.int64), targets], axis=1)
    edges = edges[edges[:, 0] != edges[:, 1]]
    negatives = Negatives(LinkConfig(), 0, graph)
    order = EpochOrder(len(edges), 40, 2 + negatives.ends, 0)
    opened = []

    def open_pool(seeds: np.ndarray, size: int) -> Any:
        opened.append((seeds, size))
        options: dict[str, Any] = {"batch_size": size, "memory": "64MiB", "labels": None}
        return oc.NeighborLoader(graph, fanout, seeds, **options)

    links = list(LinkLoader(edges, order, negatives, open_pool))
    plain = list(open_pool(*opened[0]))
    return edges, links, plain


@DIRECTIONS
def test_no_edge_of_a_batch_passes_messages_in_it(undirected: bool, tmp_path: Path) -> None:
    graph = imported(tmp_path / "multi", undirected=undirected, self_loops="drop")
    edges, links, plain = link_batches(graph, [5, 4])
    assert len(links) == len(plain) == -(-len(edges) // 40)
    taken_out, trained = 0, Counter[Any]()
    for batch, whole in zip(links, plain, strict=True):
        asked = {frozenset(pair) for pair in batch.n_id[batch.edges].T.tolist()}
        trained.update(map(tuple, batch.n_id[batch.edges].T.tolist()))
        kept = whole.n_id[whole.edge_index].T.tolist()
        stays = [frozenset(arc) not in asked for arc in kept]
        assert batch.edge_index.T.tolist() == whole.edge_index[:, stays].T.tolist()
        first, second = whole.num_sampled_edges
        assert batch.num_sampled_edges == [sum(stays[:first]), sum(stays[first:])]
        assert batch.num_sampled_nodes == whole.num_sampled_nodes
        assert second >= 0
        taken_out += len(stays) - sum(stays)
        assert len(batch.negatives[0]) == len(batch.edges[0])
    assert taken_out > 50
    assert trained == Counter(map(tuple, edges.tolist()))


@DIRECTIONS
@pytest.mark.parametrize("kind", ["sage", "gcn", "gin"])
def test_a_batch_is_embedded_as_if_its_edges_were_not_in_the_graph(
    undirected: bool, kind: Any, tmp_path: Path
) -> None:
    graph = imported(tmp_path / "multi", undirected=undirected, self_loops="drop")
    _, links, _ = link_batches(graph, [-1, -1])
    torch.manual_seed(0)
    model = build_model(ModelConfig(kind=kind, hidden=8, dropout=0.0), 2, 4, 8).eval()
    assert isinstance(model, Network)
    degrees = torch.from_numpy(in_degrees(graph, count_loops=model.counts_loops))
    offsets = torch.from_numpy(graph.array("edges/edge/offsets").astype(np.int64))
    targets = torch.arange(200).repeat_interleave(offsets.diff())
    arcs = torch.stack(
        [torch.from_numpy(graph.array("edges/edge/sources").astype(np.int64)), targets]
    )
    for batch in links[:3]:
        found = model(batch, degrees[batch.n_id] * batch.kept)
        asked = {frozenset(pair) for pair in batch.n_id[batch.edges].T.tolist()}
        stays = torch.tensor([frozenset(arc) not in asked for arc in arcs.T.tolist()])
        # The definition: all layers over the whole graph, without the batch's edges.
        left = arcs[:, stays]
        degrees_left = torch.bincount(left[1], minlength=200).float()
        state = torch.from_numpy(graph.array("x"))
        for index in range(2):
            state = model.layer(index, state, Hop(left, 200, torch.arange(200), degrees_left))
        assert torch.allclose(found, state[batch.n_id[: batch.batch_size]], atol=1e-4)


def test_batches_with_fewer_nodes_repeat_their_first_one() -> None:
    nodes = ([3, 5, 9], [2, 4], [1])
    assert padded([np.array(some) for some in nodes], 3).tolist() == [3, 5, 9, 2, 4, 2, 1]


def weights(run_directory: Path) -> dict[str, Any]:
    return load_model(run_directory / "model").model.state_dict()


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("loss", ["binary", "triplet"])
def test_a_resumed_run_has_the_bits_of_one_that_was_not_stopped(
    loss: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several pools an epoch, and a stop within the second one.
    monkeypatch.setattr("outercore.training.links.batches._POOL_ENDS", 4 * 128 * 5)
    data_set = bare(tmp_path / "bare")
    config = settings(link=LinkConfig(loss=loss, negatives=2))
    whole = train(data_set, config, out=tmp_path / "whole")
    graph = oc.open(data_set)
    stopped = TrainDirectory.create(tmp_path / "stopped", graph, config)
    stop = StopRequest()
    trainer = Trainer(graph, config, stopped, observer=StopAfter(7, stop.request), stop=stop)
    with pytest.raises(InterruptError, match="--resume"):
        trainer.fit()
    record = resume(tmp_path / "stopped")
    assert record["result"] == whole["result"]
    assert same(weights(tmp_path / "stopped"), weights(tmp_path / "whole"))


def test_budget_and_back_end_change_no_bit(tmp_path: Path) -> None:
    graph = imported(tmp_path / "multi", undirected=True)
    budgets = (
        BudgetConfig(memory="128MiB"),
        BudgetConfig(memory="24MiB", backend="threads", threads=1, topology="paged", policy="lru"),
    )
    for number, budget in enumerate(budgets):
        train(graph.root, settings(budget=budget), out=tmp_path / f"run{number}")
    assert same(weights(tmp_path / "run0"), weights(tmp_path / "run1"))


@pytest.mark.parametrize(
    ("kind", "head"),
    [("sage", "mlp"), ("gcn", "dot"), ("gat", "diagonal"), ("gin", "mlp"), ("mlp", "diagonal")],
)
def test_every_encoder_and_head_trains_and_is_scored_again(
    kind: Any, head: Any, tmp_path: Path
) -> None:
    data_set = bare(tmp_path / "bare", undirected=kind != "gcn")
    config = settings(
        model=ModelConfig(kind=kind, hidden=16),
        sampling=SamplingConfig(fanout=(4, 3), batch_size=512),
        optimiser=OptimiserConfig(epochs=1),
        link=LinkConfig(head=head),
    )
    record = train(data_set, config, out=tmp_path / "run")
    again = evaluate(tmp_path / "run")
    assert again["score"] == record["result"]["scores"]["test"]
    assert again["hits@10"] == record["result"]["links"]["test"]["hits@10"]
    sampled = evaluate(tmp_path / "run", split="val", validation="sampled")
    assert (sampled["split"], sampled["neighbours"]) == ("valid", "sampled")
    with pytest.raises(InvalidError, match="expected one of full, sampled; found 'sample'"):
        evaluate(tmp_path / "run", validation="sample")
    assert not list((tmp_path / "run").glob("**/scratch"))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_features_of_every_type_are_learnt_from(dtype: str, tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", rows(200, 2000))
    x = np.random.default_rng(0).integers(-8, 8, (200, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    arguments = ["import", tmp_path / "edges.npy", "--features", tmp_path / "x.npy"]
    arguments += ["--feature-dtype", dtype, "--out", tmp_path / "data"]
    assert run([str(part) for part in arguments]) == 0
    data = open_links(tmp_path / "links", oc.open(tmp_path / "data"), settings())
    assert data.features is not None
    loader = oc.NeighborLoader(data.graph, [2], batch_size=200, features=data.features)
    batch = next(iter(loader))
    assert np.array_equal(batch.x.numpy(), x[batch.n_id.numpy()])


def test_labels_of_nodes_do_not_matter_to_edges(tmp_path: Path) -> None:
    data_set, sampling = bare(tmp_path / "bare"), {"fanout": (4, 3), "batch_size": 512}
    records = [
        train(
            data_set,
            settings(
                sampling=SamplingConfig(**sampling, **labels),
                optimiser=OptimiserConfig(epochs=1),
            ),
            out=tmp_path / f"run-{number}",
        )
        for number, labels in enumerate(({}, {"labels": "venue"}))
    ]
    assert records[0]["result"] == records[1]["result"]


def test_mistakes_are_told(tmp_path: Path) -> None:
    data_set = bare(tmp_path / "bare")
    for error, message, groups in (
        (BudgetError, "learned table with 4096 values", {"model": ModelConfig(hidden=4096)}),
        (
            InvalidError,
            "at least 100 negatives",
            {"run": RunConfig(task="link", metric="hits@100")},
        ),
        (InvalidError, "edges are scored by", {"run": RunConfig(task="link", metric="r2")}),
        (NotFoundError, "no such file", {"link": LinkConfig(edges=str(tmp_path / "none.npz"))}),
        (NotFoundError, "no node array `z`", {"sampling": SamplingConfig(features="z")}),
    ):
        if "learned" in message:
            groups["budget"] = BudgetConfig(memory="32MiB")
        if "negatives" in message:
            groups["link"] = LinkConfig(held_out=0.02)
        with pytest.raises(error, match=message):
            train(data_set, settings(**groups), out=tmp_path / "refused")
        assert not (tmp_path / "refused").exists()


def test_a_knowledge_graph_is_sent_to_embed(embedded_graph: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="outercore embed"):
        train(embedded_graph.root, settings(), out=tmp_path / "run")


def test_an_edge_model_is_no_node_model(tmp_path: Path) -> None:
    data_set = bare(tmp_path / "bare")
    other = bare(tmp_path / "other" / "bare")
    train(data_set, settings(optimiser=OptimiserConfig(epochs=1)), out=tmp_path / "run")
    with pytest.raises(UnsupportedError, match="no predictions of nodes"):
        evaluate(tmp_path / "run", predictions=tmp_path / "p.npy")
    with pytest.raises(InvalidError, match="give that one"):
        evaluate(tmp_path / "run", other)
    with pytest.raises(NotFoundError, match="no held-out edges `all`"):
        evaluate(tmp_path / "run", split="all")


def test_without_held_out_edges_the_last_epoch_counts(tmp_path: Path) -> None:
    data_set = bare(tmp_path / "bare")
    record = train(data_set, settings(link=LinkConfig(held_out=0.0)), out=tmp_path / "run")
    assert record["description"]["validation"] == "none"
    assert record["result"]["scores"] == {}


def test_the_command_line_learns_edges_well_above_chance(outcome: Any, tmp_path: Path) -> None:
    generated = ["generate", "planted", "--nodes", 1500, "--degree", 16, "--classes", 12]
    assert outcome(*generated, "--features", 16, "--homophily", 0.95, "--out", "graph")[0] == 0
    options = ["--task", "link", "--hidden", 32, "--fanout", "8,4", "--batch-size", 256]
    options += ["--set", "model.dropout=0", "--epochs", 6, "--lr", 0.01, "--memory", "128MiB"]
    options += ["--set", "link.head=dot"]
    code, out, _ = outcome("train", "graph", *options, "--out", "run", "--json")
    assert code == 0
    record = json.loads(out)
    scores = record["result"]["links"]["test"]
    assert scores["roc_auc"] > 0.8
    assert scores["average_precision"] > 0.8
    assert record["data_set"]["links"]["test"] > 300
    code, out, _ = outcome("evaluate", "run", "--json")
    assert json.loads(out)["score"] == scores["roc_auc"]
    code, _, err = outcome("train", "graph", "--task", "link", "--set", "link.held_out=0.95")
    assert (code, "link.held_out: expected 0 to 0.9" in err) == (1, True)
    code, _, err = outcome("train", "graph", "--set", "link.head=dot")
    assert (code, "link.head: no effect without task `link`\nhint: add `--task link`" in err) == (
        1,
        True,
    )
    assert outcome("report", "run", "--out", "report.html")[0] == 0
