"""Inference that reads its input once: bits that no budget changes, and what it moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fakes import FakeGraph, write_graph  # noqa: E402
from outercore.errors import BudgetError, CorruptError  # noqa: E402
from outercore.runs.progress import Observer  # noqa: E402
from outercore.runs.stop import StopRequest  # noqa: E402
from outercore.training.config import ModelConfig  # noqa: E402
from outercore.training.models import Hop, build_model  # noqa: E402
from outercore.training.streamed import exact as exactly  # noqa: E402
from outercore.training.streamed import layer  # noqa: E402
from outercore.training.streamed.exact import Exact  # noqa: E402
from outercore.training.streamed.layer import (  # noqa: E402
    Columns,
    Targets,
    needed_sources,
    parts_of,
)
from outercore.training.streamed.network import Input, network_steps  # noqa: E402
from outercore.training.streamed.rows import Moved  # noqa: E402
from outercore.training.work import in_degrees  # noqa: E402

torch.set_num_threads(1)
KINDS = ("sage", "gcn", "gin", "gat")
NODES, WIDTH = 3000, 24


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> FakeGraph:
    """Nodes of many arcs and of none, loops and duplicate arcs."""
    random = np.random.default_rng(4)
    source, target = (NODES * random.random(size=(2, 20_000)) ** 2.5).astype(np.int64)
    source[:500] = target[:500]
    source[500:600], target[500:600] = source[600:700], target[600:700]
    return FakeGraph(
        write_graph(
            tmp_path_factory.mktemp("data") / "graph",
            source,
            NODES - 1 - target,
            NODES,
            features=random.normal(size=(NODES, WIDTH)).astype(np.float32),
            labels=random.integers(4, size=NODES),
            splits={"train": np.arange(50)},
            classes=4,
        )
    )


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So little is done at once that a small graph takes several parts and blocks."""
    monkeypatch.setattr(exactly, "_STEP_NUMBERS", 64 * WIDTH)
    monkeypatch.setattr(layer, "_LEAST_BLOCK", 1 << 13)


def network(kind: str, **options: Any) -> Any:
    torch.manual_seed(7)
    config = ModelConfig(kind=kind, hidden=8, heads=2, **options)
    return build_model(config, 3, WIDTH, 4).eval()


def of_graph(graph: FakeGraph, model: Any, nodes: np.ndarray) -> Exact:
    degrees = None
    if model.needs_degrees:
        degrees = torch.from_numpy(in_degrees(graph, count_loops=model.counts_loops))
    quiet: dict[str, Any] = {"observer": Observer(), "stop": StopRequest()}
    computation = network_steps(model, Input(lambda x, _: x, "nodes/node/x"), degrees)
    return Exact(graph, computation, nodes, device=torch.device("cpu"), **quiet)  # type: ignore[arg-type]


def columns_into(graph: FakeGraph, targets: Targets) -> Columns:
    return Columns(graph, ("node", "edge", "node"), targets, Moved())  # type: ignore[arg-type]


def outputs(exact: Exact, memory: int, directory: Path) -> np.ndarray:
    exact.plan(memory)
    found = [logits.numpy() for _, logits in exact.outputs(directory)]
    assert not list(directory.iterdir())
    return np.concatenate(found)


def least(exact: Exact) -> int:
    with pytest.raises(BudgetError, match="needs") as refused:
        exact.plan(1 << 12)
    assert refused.value.needed is not None
    return refused.value.needed


def whole(graph: FakeGraph, model: Any) -> np.ndarray:
    """Each layer at once for all nodes."""
    targets = torch.from_numpy(np.repeat(np.arange(NODES), np.diff(graph.offsets)))
    degrees = None
    if model.needs_degrees:
        degrees = torch.from_numpy(in_degrees(graph, count_loops=model.counts_loops))
    arcs = torch.stack([torch.from_numpy(graph.sources), targets])
    hop = Hop(arcs, NODES, torch.arange(NODES), degrees)
    state, states = torch.from_numpy(graph.array("x")), []
    with torch.no_grad():
        for index in range(model.layers):
            state = model.layer(index, state, hop)
            states.append(state)
        return model.head(states).numpy()  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"residual": True, "norm": "layer", "jumping": "cat"}])
def test_outputs_have_the_same_bits_within_every_budget(
    kind: str, options: dict[str, Any], graph: FakeGraph, small_steps: None, tmp_path: Path
) -> None:
    model = network(kind, **options)
    everything = of_graph(graph, model, np.arange(NODES))
    expected = outputs(everything, 1 << 30, tmp_path)
    np.testing.assert_allclose(expected, whole(graph, model), rtol=2e-5, atol=2e-5)
    assert everything.moved.scratch_written == (2 * 4 * 8 * NODES if "jumping" in options else 0)
    smallest = least(of_graph(graph, model, np.arange(NODES)))
    for memory in (smallest, smallest * 5 // 4):
        exact = of_graph(graph, model, np.arange(NODES))
        assert np.array_equal(outputs(exact, memory, tmp_path), expected), memory
        assert exact.moved.features_read == 4 * WIDTH * NODES
        assert exact.moved.scratch_read >= exact.moved.scratch_written > 0


def test_chosen_nodes_get_the_outputs_that_they_have_among_all(
    graph: FakeGraph, small_steps: None, tmp_path: Path
) -> None:
    chosen = np.sort(np.random.default_rng(1).permutation(NODES)[:700])
    for kind in KINDS:
        model = network(kind, jumping="max")
        expected = whole(graph, model)[chosen]
        for memory in (least(of_graph(graph, model, chosen)), 1 << 30):
            exact = of_graph(graph, model, chosen)
            found = outputs(exact, memory, tmp_path)
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("at_once", [1, 50, 1 << 20])
def test_arcs_into_chosen_nodes_are_read_a_part_at_a_time(
    graph: FakeGraph, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer, "_ARCS_AT_ONCE", at_once)
    chosen = np.sort(np.random.default_rng(2).permutation(NODES)[:90])
    found = columns_into(graph, Targets(NODES, chosen)).incoming(3, 80)
    for place, node in enumerate(chosen[3:80]):
        own = found.sources[int(found.starts[place]) : int(found.ends[place])]
        expected = graph.sources[graph.offsets[node] : graph.offsets[node + 1]]
        assert own.tolist() == expected.tolist()


def test_any_budget_is_told_the_least(graph: FakeGraph) -> None:
    for memory in (0, 1, 1000):
        with pytest.raises(BudgetError, match="needs"):
            of_graph(graph, network("sage"), None).plan(memory)


def test_parts_hold_consecutive_targets_within_their_bytes(graph: FakeGraph) -> None:
    targets = Targets(NODES)
    columns = columns_into(graph, targets)
    parts, largest = parts_of(NODES, 64, 40_000, [columns], 32)
    assert len(parts) > 4
    assert [first for first, _ in parts] == [0, *(last for _, last in parts[:-1])]
    assert parts[-1][1] == NODES
    sizes = []
    for first, last in parts:
        arcs = int(graph.offsets[last] - graph.offsets[first])
        sizes.append(4 * arcs + 32 * (last - first))
        assert 4 * arcs + 32 * (last - first) <= 40_000 or last - first == 64
        incoming = columns.incoming(first, last)
        assert (incoming.sources == graph.sources[graph.offsets[first] :][:arcs]).all()
    assert max(sizes) == largest
    used = np.unpackbits(needed_sources(columns, targets, parts, NODES, loops=False), axis=1)
    for place, (first, last) in enumerate(parts):
        sources = graph.sources[graph.offsets[first] : graph.offsets[last]]
        assert (np.flatnonzero(used[place]) == np.unique(sources)).all()


def test_features_that_were_cut_short_are_told(graph: FakeGraph, tmp_path: Path) -> None:
    exact = of_graph(graph, network("sage"), np.arange(NODES))
    file = graph.root / graph.manifest["arrays"]["nodes/node/x"]["file"]
    complete = file.read_bytes()
    file.write_bytes(complete[: len(complete) // 2])
    try:
        with pytest.raises(CorruptError, match=r"x.npy`: ends at byte \d+, expected"):
            outputs(exact, 1 << 30, tmp_path)
    finally:
        file.write_bytes(complete)


@pytest.mark.parametrize("kind", KINDS)
def test_an_arc_from_beyond_the_last_node_is_told(
    kind: str, graph: FakeGraph, tmp_path: Path
) -> None:
    entry = graph.manifest["arrays"]["edges/edge/sources"]
    sources = np.memmap(graph.root / entry["file"], np.uint32, "r+", entry["data_offset"])
    last = graph.offsets[np.flatnonzero(np.diff(graph.offsets))[0] + 1] - 1
    before, sources[last] = int(sources[last]), NODES + 5
    try:
        exact = of_graph(graph, network(kind), np.arange(NODES))
        with pytest.raises(CorruptError, match=r"beyond the last of 3,000|expected less than 3000"):
            outputs(exact, 1 << 30, tmp_path)
    finally:
        sources[last] = before
