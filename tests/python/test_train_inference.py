"""Exact layer-wise inference equals the whole graph in memory, and PyG's own models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fakes import FakeGraph, FakeLoader, write_graph  # noqa: E402
from outercore.runs.progress import Observer  # noqa: E402
from outercore.runs.stop import StopRequest  # noqa: E402
from outercore.training.config import (  # noqa: E402
    BudgetConfig,
    ModelConfig,
    SamplingConfig,
    TrainConfig,
)
from outercore.training.inference import Context, Inference  # noqa: E402
from outercore.training.loaders import Loaders  # noqa: E402
from outercore.training.models import Network, build_model  # noqa: E402
from outercore.training.work import in_degrees  # noqa: E402

torch.set_num_threads(1)
KINDS = ("sage", "gcn", "gat", "gin")
VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm": "layer", "residual": True},
    {"norm": "batch", "jumping": "cat"},
    {"jumping": "max"},
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> FakeGraph:
    """Self-loops, duplicate arcs and nodes without any arc among them."""
    root = tmp_path_factory.mktemp("data") / "graph"
    random = np.random.default_rng(3)
    nodes = 150
    source, target = random.integers(nodes - 10, size=(2, 700))
    source[:40] = target[:40]
    source[40:60], target[40:60] = source[60:80], target[60:80]
    return FakeGraph(
        write_graph(
            root,
            source,
            target,
            nodes,
            features=random.normal(size=(nodes, 6)).astype(np.float32),
            labels=random.integers(4, size=nodes),
            splits={"train": np.arange(50), "valid": random.permutation(nodes)[:40]},
            classes=4,
        )
    )


def network(kind: str, graph: FakeGraph, layers: int = 3, **options: Any) -> Any:
    torch.manual_seed(7)
    config = ModelConfig(kind=kind, hidden=8, heads=2, dropout=0.5, **options)
    model = build_model(config, layers, graph.num_features, 4)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    return model


def inference(graph: FakeGraph, model: Any, scratch: Path, fanout: tuple[int, ...]) -> Inference:
    config = TrainConfig(
        model=model.config,
        sampling=SamplingConfig(fanout=fanout, batch_size=16),
        budget=BudgetConfig(memory="64MiB"),
    )
    degrees = None
    if model.needs_degrees:
        degrees = torch.from_numpy(in_degrees(graph, count_loops=model.counts_loops))
    return Inference(
        graph,
        model,
        config.sampling,
        Loaders(graph, config, open_loader=FakeLoader),
        Context(scratch, torch.device("cpu"), Observer(), StopRequest()),
        degrees=degrees,
    )


def gathered(predictions: Any) -> tuple[np.ndarray, np.ndarray]:
    parts = list(predictions)
    return (
        np.concatenate([part.nodes for part in parts]),
        np.concatenate([part.logits for part in parts]),
    )


def whole_graph(graph: FakeGraph, model: Network) -> np.ndarray:
    """PyG's own forward over the whole graph, with PyG's own GCN normalisation."""
    target = np.repeat(np.arange(graph.num_nodes), np.diff(graph.offsets))
    edge_index = torch.from_numpy(np.stack([graph.sources, target]))
    x = torch.from_numpy(graph.array("x"))
    model.eval()
    gnn = model.gnn
    if model.config.kind == "gcn":
        for conv in gnn.convs:
            conv.normalize = conv.add_self_loops = True
    try:
        with torch.no_grad():
            return gnn(x, edge_index).numpy()
    finally:
        if model.config.kind == "gcn":
            for conv in gnn.convs:
                conv.normalize = conv.add_self_loops = False


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"norm": "batch"}, {"norm": "layer"}, {"jumping": "cat"}])
def test_exact_inference_equals_pyg_in_memory(
    kind: str, options: dict[str, Any], graph: FakeGraph, tmp_path: Path
) -> None:
    model = network(kind, graph, **options)
    nodes, logits = gathered(
        inference(graph, model, tmp_path, (2, 2, 2)).exact(np.arange(graph.num_nodes))
    )
    assert (nodes == np.arange(graph.num_nodes)).all()
    np.testing.assert_allclose(logits, whole_graph(graph, model), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", [*KINDS, "mlp"])
@pytest.mark.parametrize("options", VARIANTS)
def test_sampling_all_neighbours_equals_exact_inference(
    kind: str, options: dict[str, Any], graph: FakeGraph, tmp_path: Path
) -> None:
    model = network(kind, graph, **options)
    chosen = graph.split("valid")
    runner = inference(graph, model, tmp_path, (-1, -1, -1))
    sampled_nodes, sampled = gathered(runner.sampled(chosen))
    exact_nodes, exact = gathered(runner.exact(chosen))
    assert (sampled_nodes == chosen).all()
    assert (exact_nodes == chosen).all()
    np.testing.assert_allclose(sampled, exact, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", ["gcn", "gin"])
def test_one_sampled_layer_is_right_on_average(kind: str, graph: FakeGraph) -> None:
    """One linear layer: the mean over many samples approaches the full sum."""
    model = network(kind, graph, layers=1)
    model.eval()
    if kind == "gin":
        model.gnn.convs[0].nn = torch.nn.Linear(6, 4)
    degrees = torch.from_numpy(in_degrees(graph, count_loops=model.counts_loops))
    seeds = np.argsort(-np.diff(graph.offsets))[:8]

    def outputs(fanout: int, seed: int) -> torch.Tensor:
        loader = FakeLoader(graph, [fanout], seeds, batch_size=8, seed=seed)
        batch = next(iter(loader))
        with torch.no_grad():
            return model(batch, degrees[batch.n_id])

    samples = torch.stack([outputs(3, seed) for seed in range(300)])
    error = samples.std(dim=0) / len(samples) ** 0.5
    distance = (samples.mean(dim=0) - outputs(-1, 0)).abs()
    assert (distance < 4.5 * error + 1e-6).all(), (distance / error).max()


def test_layer_states_are_removed_also_when_nobody_reads_on(
    graph: FakeGraph, tmp_path: Path
) -> None:
    model = network("sage", graph)
    predictions = inference(graph, model, tmp_path, (2, 2, 2)).exact(np.arange(100))
    next(iter(predictions))
    assert list(tmp_path.iterdir())
    predictions.close()
    assert not list(tmp_path.iterdir())


def test_gradients_stay_on_for_whoever_consumes_predictions(
    graph: FakeGraph, tmp_path: Path
) -> None:
    model = network("gcn", graph)
    for _ in inference(graph, model, tmp_path, (2, 2, 2)).sampled(np.arange(40)):
        assert torch.is_grad_enabled()


def test_in_degrees_count_arcs_with_and_without_self_loops(graph: FakeGraph) -> None:
    target = np.repeat(np.arange(graph.num_nodes), np.diff(graph.offsets))
    counted = np.bincount(target, minlength=graph.num_nodes)
    assert (in_degrees(graph, count_loops=True) == counted).all()
    loops = np.bincount(target[graph.sources == target], minlength=graph.num_nodes)
    assert loops.sum() >= 40
    assert (in_degrees(graph, count_loops=False) == counted - loops).all()


def test_weights_load_into_pyg(graph: FakeGraph) -> None:
    from torch_geometric.nn.models import GraphSAGE

    model = network("sage", graph)
    theirs = GraphSAGE(6, 8, 3, 4)
    theirs.load_state_dict(model.gnn.state_dict())


def test_a_seed_that_occurs_twice_gets_the_same_output_twice(graph: FakeGraph) -> None:
    for kind in KINDS:
        model = network(kind, graph, layers=2).eval()
        degrees = torch.from_numpy(in_degrees(graph, count_loops=model.counts_loops))
        loader = FakeLoader(graph, [-1, -1], np.array([5, 9, 5, 3]), batch_size=4)
        batch = next(iter(loader))
        with torch.no_grad():
            logits = model(batch, degrees[batch.n_id])
        torch.testing.assert_close(logits[0], logits[2])
