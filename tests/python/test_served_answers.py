"""`serve`, `outercore predict` and PyG say the same of the same neighbours, by every protocol.

Models have random weights: what they compute matters here, not what they have learnt.
`OUTERCORE_ANSWERS=all` tries every combination, and real data sets with every kind of network.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import outercore as oc
from multigraph import imported, rows
from outercore.data.many_graphs import ManyGraphs
from outercore.errors import InvalidError
from outercore.importing.build.graph import import_graph
from outercore.importing.inputs import Inputs
from outercore.importing.options import ImportOptions
from outercore.importing.plain_graph import open_inputs
from outercore.serving.server import Server, ServerConfig
from outercore.training import (
    BudgetConfig,
    ModelConfig,
    OptimiserConfig,
    RunConfig,
    SamplingConfig,
    TrainConfig,
    train,
)
from outercore.training.config import GraphConfig, LinkConfig
from outercore.training.graph_batches import input_name, node_inputs
from outercore.training.model_files import load_model
from outercore.training.models import build_model
from outercore.training.tasks import Task
from outercore.training.work import graph_network, in_degrees
from served_models import (
    answers,
    arcs_of,
    outputs_of,
    predicted,
    pyg_graphs,
    pyg_nodes,
    pyg_pairs,
    pyg_states,
    randomised,
    require_close,
    require_consistent,
    saved_run,
)

torch.set_num_threads(1)

ALL = os.environ.get("OUTERCORE_ANSWERS") == "all"
DATA = Path(os.environ.get("OUTERCORE_DATA") or Path(__file__).parents[3] / "shared" / "data")
CONFIG = ServerConfig(port=0, grpc_port=0, memory="64MiB", deadline_ms=60_000, most_nodes=1024)
KINDS = ("sage", "gcn", "gin", "gat", "mlp")
NODES, WIDTH = 60, 4
TASKS = {
    "classes": Task("classes", 3, "accuracy"),
    "labels": Task("labels", 2, "roc_auc"),
    "values": Task("values", 2, "r2", means=(3.0, -40.0), deviations=(0.5, 20.0)),
    "value": Task("values", 1, "r2", means=(7.0,), deviations=(2.0,)),
}
NODE_SETS: dict[str, dict[str, Any]] = {
    "directed": {},
    "undirected": {"undirected": True},
    "loops added": {"undirected": True, "self_loops": "add"},
    "loops dropped": {"self_loops": "drop"},
}
NODE_CASES = [
    ("sage", "classes", "undirected", {}),
    ("sage", "labels", "loops added", {"norm": "batch", "jumping": "cat"}),
    ("gcn", "value", "undirected", {"norm": "layer"}),
    ("gcn", "labels", "directed", {"residual": True}),
    ("gin", "values", "loops added", {"jumping": "max"}),
    ("gin", "classes", "directed", {"norm": "batch", "residual": True}),
    ("gat", "classes", "undirected", {"norm": "layer", "jumping": "max", "residual": True}),
    ("gat", "values", "loops dropped", {}),
    ("mlp", "classes", "undirected", {"norm": "batch", "residual": True}),
]
if ALL:
    NODE_CASES = [
        (kind, task, name, {"norm": norm, "jumping": jumping, "residual": residual})
        for kind, task, name, norm, jumping, residual in itertools.product(
            KINDS, TASKS, NODE_SETS, ("none", "batch", "layer"), ("none", "cat", "max"), (0, 1)
        )
    ]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("answers")


@pytest.fixture(scope="module")
def node_sets(home: Path) -> dict[str, oc.Graph]:
    return {
        name: imported(home / name.replace(" ", "-"), nodes=NODES, edges=250, **options)
        for name, options in NODE_SETS.items()
    }


def model_config(kind: str, **more: Any) -> ModelConfig:
    more = {"residual": False, **more}
    return ModelConfig(kind=kind, hidden=8, heads=2, **{**more, "residual": bool(more["residual"])})


def node_run(place: Path, kind: str, task: str, seed: int, width: int = WIDTH, **more: Any) -> Path:
    fanout, replace = more.pop("fanout", (-1, -1)), more.pop("replace", False)
    config = TrainConfig(
        model=model_config(kind, **more),
        sampling=SamplingConfig(fanout=fanout, replace=replace),
    )
    model = build_model(config.model, len(fanout), width, TASKS[task].outputs)
    return saved_run(place, randomised(model, seed), TASKS[task], config)


def new_nodes(graph: oc.Graph, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features of inline nodes, and edges with one of them at an end; parallel ones and loops."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(3, WIDTH)).astype(np.float32)
    new, count = graph.num_nodes + random.integers(3, size=14), graph.num_nodes
    other = np.where(random.random(14) < 0.3, count + random.integers(3, size=14), 0)
    other = np.where(other > 0, other, random.integers(count, size=14))
    edges = np.stack([new, other])
    edges[:, 10:] = edges[:, 6:10]
    edges[:, 13] = count + 1
    return x, edges


def mirrored(edges: np.ndarray) -> np.ndarray:
    """Both directions of each edge, and loops once, as PyG lists them."""
    return np.concatenate([edges, edges[::-1, edges[0] != edges[1]]], axis=1)


def inline(edges: np.ndarray, count: int) -> np.ndarray:
    """Edges whose ends from `count` on are inline nodes."""
    return np.where(edges >= count, ~(edges - count), edges)


def is_undirected(graph: oc.Graph) -> bool:
    return bool(graph.manifest["edge_types"]["edge"].get("undirected"))


def ways(graph: oc.Graph, arcs: np.ndarray) -> list[tuple[np.ndarray, dict[str, Any]]]:
    """How the edges of these arcs can be listed in a request: as PyG does, and each once."""
    if not is_undirected(graph):
        return [(arcs, {})]
    once = arcs[:, arcs[0] <= arcs[1]]
    loops = np.unique(arcs[0, arcs[0] == arcs[1]], return_counts=True)[1]
    if len(loops) and not (loops % 2).any():
        # Who lists each edge in both directions may list a loop twice: that is refused.
        return [(once, {"edge_directions": "one"})]
    return [(arcs, {"edge_directions": "both"}), (once, {"edge_directions": "one"})]


@pytest.mark.parametrize(("kind", "task", "name", "more"), NODE_CASES)
def test_nodes_are_answered_as_predicted_and_as_by_pyg(
    kind: str,
    task: str,
    name: str,
    more: dict[str, Any],
    node_sets: dict[str, oc.Graph],
    tmp_path: Path,
) -> None:
    graph, seed = node_sets[name], len(kind) + len(name)
    run = node_run(tmp_path / "run", kind, task, seed, **more)
    saved = load_model(run / "model")
    x, arcs = torch.from_numpy(graph.array("x")), arcs_of(graph)
    wanted = outputs_of(saved.task, pyg_nodes(saved.model, x, arcs))
    written = predicted(graph.root, run, saved.task, tmp_path / "all.parquet")
    require_close(written, wanted, "predict and PyG")
    ids = np.array([5, 9, 5, *range(NODES)])
    with Server(graph.root, run, CONFIG) as server:
        found = answers(server, {"node_ids": ids}, seed=3)
        require_consistent(saved.task, found)
        require_close(found, {name: of[ids] for name, of in wanted.items()}, "serve and PyG")
        require_close(found, {name: of[ids] for name, of in written.items()}, "serve and predict")
        # The same of nodes that the data set does not have, and of their neighbours.
        new, edges = new_nodes(graph, seed)
        listed = mirrored(edges) if is_undirected(graph) else edges
        logits = pyg_nodes(
            saved.model,
            torch.cat([x, torch.from_numpy(new)]),
            torch.cat([arcs, torch.from_numpy(listed)], dim=1),
        )
        ids = np.array([NODES, 3, NODES + 2, NODES + 1, *edges[1, :5]])
        asked = {"node_ids": inline(ids, NODES), "x": new}
        for one, parameters in ways(graph, listed):
            tensors = {**asked, "edge_index": inline(one, NODES)}
            found = answers(server, tensors, seed=3, **parameters)
            expected = {name: of[ids] for name, of in outputs_of(saved.task, logits).items()}
            require_close(found, expected, f"inline nodes and PyG, {parameters}")


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sampled_neighbours_are_answered_as_by_the_network_on_the_same_sample(
    kind: str, replace: bool, node_sets: dict[str, oc.Graph], tmp_path: Path
) -> None:
    graph = node_sets["undirected"]
    run = node_run(tmp_path / "run", kind, "classes", 1, fanout=(3, 2), replace=replace)
    saved = load_model(run / "model")
    ids = np.array([5, 9, 5, 11, 40])
    with Server(graph.root, run, CONFIG) as server:
        found = answers(server, {"node_ids": ids}, seed=7)
    fanout = [] if kind == "mlp" else [3, 2]
    options = {"batch_size": len(ids), "seed": 7, "replace": saved.config.sampling.replace}
    (batch,) = oc.NeighborLoader(graph, fanout, ids, **options)
    degrees = None
    if saved.model.needs_degrees:
        table = in_degrees(graph, count_loops=saved.model.counts_loops)
        degrees = torch.from_numpy(table)[batch.n_id]
    with torch.no_grad():
        logits = saved.model(batch, degrees)
        if kind in ("sage", "gat"):
            # Means and softmax need no degrees: PyG's own layers take the sample as a graph.
            own = pyg_states(saved.model, batch.x, batch.edge_index)[: len(ids)]
            require_close(outputs_of(saved.task, own), outputs_of(saved.task, logits), "PyG")
    require_close(found, outputs_of(saved.task, logits), "serve and the network")


LINK_CASES = [
    ("sage", "dot", "undirected", True, 0.0),
    ("gcn", "diagonal", "undirected", True, 0.2),
    ("gin", "mlp", "directed", True, 0.0),
    ("gat", "mlp", "directed", False, 0.2),
    ("mlp", "diagonal", "directed", True, 0.2),
]
if ALL:
    LINK_CASES = [
        case
        for case in itertools.product(
            *(KINDS, ("dot", "diagonal", "mlp"), ("directed", "undirected"), (True, False)),
            (0.0, 0.2),
        )
        if case[0] != "mlp" or case[3]
    ]


@pytest.mark.parametrize(("kind", "head", "name", "has_features", "held_out"), LINK_CASES)
def test_edges_are_answered_as_predicted_and_as_by_pyg(
    kind: str, head: str, name: str, has_features: bool, held_out: float, tmp_path: Path
) -> None:
    """A server passes messages along all edges, `predict` along those that were not held out."""
    undirected = name == "undirected"
    loops = np.array([[3, 3], [7, 7], [7, 7]])
    np.save(tmp_path / "edges.npy", np.concatenate([rows(NODES, 250, seed=2), loops]))
    x = np.random.default_rng(1).normal(size=(NODES, WIDTH)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    features = str(tmp_path / "x.npy") if has_features else None
    inputs = Inputs(edges=(str(tmp_path / "edges.npy"),), features=features, nodes=NODES)
    import_graph(open_inputs(inputs), tmp_path / "graph", ImportOptions(undirected=undirected))
    graph = oc.open(tmp_path / "graph")
    config = TrainConfig(
        model=model_config(kind),
        sampling=SamplingConfig(fanout=(-1, -1), batch_size=64),
        optimiser=OptimiserConfig(epochs=1),
        budget=BudgetConfig(memory="32MiB", threads=1),
        run=RunConfig(task="link"),
        link=LinkConfig(head=head, held_out=held_out),  # type: ignore[arg-type]
    )
    train(graph.root, config, out=tmp_path / "run")
    saved = load_model(tmp_path / "run" / "model")
    arcs, nodes = arcs_of(graph), torch.from_numpy(x) if has_features else None
    pairs = np.array([[3, 7], [7, 3], [3, 3], [59, 7], [12, 25]])
    wanted = outputs_of(saved.task, pyg_pairs(saved.model, nodes, arcs, pairs))
    written = predicted(graph.root, tmp_path / "run", saved.task, tmp_path / "e.parquet", pairs)
    with Server(graph.root, tmp_path / "run", CONFIG) as server:
        found = answers(server, {"edge_ids": pairs}, seed=1)
        require_close(found, wanted, "serve and PyG")
        kept = arcs_of(oc.open(tmp_path / "run" / "links" / "graph"))
        assert (kept.shape == arcs.shape) == (held_out == 0)
        wanted = outputs_of(saved.task, pyg_pairs(saved.model, nodes, kept, pairs))
        require_close(written, wanted, "predict and PyG")
        if held_out == 0:
            require_close(found, written, "serve and predict")
        if nodes is None:
            return
        new, edges = new_nodes(graph, seed=4)
        listed = mirrored(edges) if undirected else edges
        pairs = np.array([[NODES, 7], [9, NODES + 1], [7, 9], [NODES, NODES + 2]])
        scores = pyg_pairs(
            saved.model,
            torch.cat([nodes, torch.from_numpy(new)]),
            torch.cat([arcs, torch.from_numpy(listed)], dim=1),
            pairs,
        )
        for one, parameters in ways(graph, listed):
            tensors = {"edge_ids": inline(pairs, NODES), "x": new, "edge_index": inline(one, NODES)}
            found = answers(server, tensors, seed=1, **parameters)
            require_close(found, outputs_of(saved.task, scores), f"inline edges, {parameters}")


GRAPH_CASES = [
    ("sage", "classes", "floats", True, "max"),
    ("gcn", "labels", "categories", True, "mean"),
    ("gin", "classes", "categories", True, "sum"),
    ("gin", "values", "none", False, "mean"),
    ("gat", "value", "floats", False, "sum"),
    ("mlp", "classes", "floats", True, "mean"),
]
if ALL:
    GRAPH_CASES = list(
        itertools.product(
            KINDS, TASKS, ("floats", "categories", "none"), (True, False), ("sum", "mean", "max")
        )
    )


def graph_set(place: Path, features: str, *, undirected: bool) -> oc.Graph:
    """Small multigraphs with loops and isolated nodes, the last node of some among them."""
    random = np.random.default_rng(8)
    sizes = random.integers(1, 8, size=12)
    first = np.concatenate([[0], np.cumsum(sizes)])
    edges = [
        at + random.integers(size, size=(2, int(random.integers(9))))
        for at, size in zip(first[:-1], sizes, strict=True)
    ]
    pairs = np.concatenate(edges, axis=1).T
    # Two edges between the same nodes, as import keeps them.
    pairs = np.concatenate([pairs, pairs[:6], pairs[3:6, ::-1]])
    place.mkdir(parents=True)
    files = {
        "edges": pairs.astype(np.int64),
        "graphs": np.repeat(np.arange(12), sizes),
        "y": np.arange(12) % 2,
    }
    if features == "categories":
        files["x"] = random.integers(4, size=(first[-1], 3))
    elif features == "floats":
        files["x"] = random.normal(size=(first[-1], WIDTH)).astype(np.float32)
    for name, array in files.items():
        np.save(place / f"{name}.npy", array)
    inputs = Inputs(
        edges=(str(place / "edges.npy"),),
        graph_ids=str(place / "graphs.npy"),
        labels=str(place / "y.npy"),
        features=str(place / "x.npy") if "x" in files else None,
    )
    import_graph(open_inputs(inputs), place / "graph", ImportOptions(undirected=undirected))
    return oc.open(place / "graph")


def graph_run(place: Path, graph: oc.Graph, kind: str, task: str, readout: str) -> Path:
    name = input_name(graph, "x")
    config = TrainConfig(
        model=model_config(kind, norm="batch"),
        sampling=SamplingConfig(features=name),
        run=RunConfig(task="graph"),
        graph=GraphConfig(layers=2, readout=readout),  # type: ignore[arg-type]
    )
    model = graph_network(config, node_inputs(graph, name), TASKS[task].outputs)
    return saved_run(place, randomised(model, 5), TASKS[task], config)


def pyg_data(graph: oc.Graph, features: str) -> list[dict[str, Tensor]]:
    """Each graph as PyG's `Data` has it; `features` is the array that the model reads."""
    many, found = ManyGraphs(graph), []
    arcs = arcs_of(graph)
    bounds = torch.searchsorted(arcs[1].contiguous(), torch.from_numpy(many.starts)).tolist()
    x = None if features == "degree" else torch.from_numpy(graph.array(features))
    for one in range(many.num_nodes):
        begin, end = int(many.starts[one]), int(many.starts[one + 1])
        own = arcs[:, bounds[one] : bounds[one + 1]] - begin
        data = {"edge_index": own, "batch": torch.zeros(end - begin, dtype=torch.int64)}
        if x is not None:
            data["x"] = x[begin:end].reshape(end - begin, -1)
        found.append(data)
    return found


def compare_graphs(graph: oc.Graph, run: Path, out: Path, asked: list[int]) -> None:
    """Graphs by their ids, and sent as PyG has them."""
    saved = load_model(run / "model")
    data = pyg_data(graph, saved.config.sampling.features)
    logits = torch.cat(
        [pyg_graphs(saved.model, one.get("x"), one["edge_index"], one["batch"]) for one in data]
    )
    wanted = outputs_of(saved.task, logits)
    written = predicted(graph.root, run, saved.task, out)
    require_close(written, wanted, "predict and PyG")
    with Server(graph.root, run, CONFIG) as server:
        for first in range(0, len(asked), 8):
            ids = np.array(asked[first : first + 8])
            found = answers(server, {"graph_ids": ids})
            require_consistent(saved.task, found)
            require_close(found, {name: of[ids] for name, of in wanted.items()}, "serve and PyG")
        for number in asked:
            tensors = {name: values.numpy() for name, values in data[number].items()}
            expected = {name: of[number] for name, of in written.items()}
            for one, parameters in ways(graph, tensors["edge_index"]):
                found = answers(server, {**tensors, "edge_index": one}, **parameters)
                require_close(found, expected, f"inline graph {number} and predict, {parameters}")
        together = joined([data[number] for number in asked[:8]])
        for one, parameters in ways(graph, together["edge_index"]):
            found = answers(server, {**together, "edge_index": one}, **parameters)
            expected = {name: of[asked[:8]] for name, of in written.items()}
            require_close(found, expected, f"inline graphs and predict, {parameters}")
        ambiguous = next(
            (one for one in data if (one["edge_index"][0] != one["edge_index"][1]).any()), None
        )
        if is_undirected(graph) and ambiguous is not None:
            tensors = {name: values.numpy() for name, values in ambiguous.items()}
            with pytest.raises(InvalidError, match="edge_directions: `both`"):
                answers(server, tensors)


def joined(data: list[dict[str, Tensor]]) -> dict[str, np.ndarray]:
    """Several graphs as PyG's `Batch` has them."""
    sizes = [len(one["batch"]) for one in data]
    first = np.concatenate([[0], np.cumsum(sizes)])
    found = {
        "edge_index": torch.cat(
            [one["edge_index"] + int(at) for one, at in zip(data, first[:-1], strict=True)], dim=1
        ),
        "batch": torch.repeat_interleave(torch.arange(len(data)), torch.tensor(sizes)),
    }
    if "x" in data[0]:
        found["x"] = torch.cat([one["x"] for one in data])
    return {name: values.numpy() for name, values in found.items()}


@pytest.mark.parametrize(("kind", "task", "features", "undirected", "readout"), GRAPH_CASES)
def test_graphs_are_answered_as_predicted_and_as_by_pyg(
    kind: str, task: str, features: str, undirected: bool, readout: str, tmp_path: Path
) -> None:
    graph = graph_set(tmp_path / "files", features, undirected=undirected)
    run = graph_run(tmp_path / "run", graph, kind, task, readout)
    compare_graphs(graph, run, tmp_path / "all.parquet", list(range(12)))


REAL_GRAPHS = {
    "mol-bbbp/graphs.npz": ("gin", "classes", "sum"),
    "mol-esol/graphs.npz": ("gcn", "value", "mean"),
    "mutag/MUTAG.txt.xz": ("sage", "classes", "max"),
}


@pytest.mark.parametrize("kind", KINDS if ALL else [""])
@pytest.mark.parametrize("file", REAL_GRAPHS)
def test_real_graphs_are_answered_as_predicted_and_as_by_pyg(
    file: str, kind: str, tmp_path: Path
) -> None:
    if not (DATA / file).exists():
        pytest.skip("the data library is not here")
    import_graph(open_inputs(Inputs(edges=(str(DATA / file),))), tmp_path / "graph")
    graph = oc.open(tmp_path / "graph")
    usual, task, readout = REAL_GRAPHS[file]
    run = graph_run(tmp_path / "run", graph, kind or usual, task, readout)
    count = ManyGraphs(graph).num_nodes
    asked = list(range(0, count, 1 if ALL else count // 24))
    compare_graphs(graph, run, tmp_path / "all.parquet", asked)


@pytest.mark.parametrize("kind", KINDS if ALL else ["gcn"])
def test_nodes_of_cora_are_answered_as_predicted_and_as_by_pyg(kind: str, tmp_path: Path) -> None:
    if not (DATA / "cora").is_dir():
        pytest.skip("the data library is not here")
    stored = np.load(DATA / "cora" / "data.npz")
    dense = np.zeros(stored["feat_shape"], np.float32)
    rows_of = np.repeat(np.arange(len(dense)), np.diff(stored["feat_indptr"]))
    dense[rows_of, stored["feat_indices"]] = stored["feat_data"]
    edges = torch.from_numpy(stored["edges"].T.astype(np.int64))
    data = Data(x=torch.from_numpy(dense), edge_index=torch.cat([edges, edges.flip(0)], dim=1))
    graph = oc.from_pyg(data, tmp_path / "graph")
    run = node_run(tmp_path / "run", kind, "classes", 3, width=dense.shape[1])
    saved = load_model(run / "model")
    wanted = outputs_of(saved.task, pyg_nodes(saved.model, data.x, data.edge_index))
    written = predicted(graph.root, run, saved.task, tmp_path / "all.parquet")
    require_close(written, wanted, "predict and PyG")
    with Server(graph.root, run, CONFIG) as server:
        for first in range(0, len(dense), 200 if ALL else 900):
            ids = np.arange(first, min(first + 20, len(dense)))
            found = answers(server, {"node_ids": ids})
            require_close(found, {name: of[ids] for name, of in wanted.items()}, "serve and PyG")
        # A node sent as PyG has it is the node itself; the data set has every arc as it is.
        arcs = data.edge_index
        own = arcs[:, (arcs == 5).any(0)].numpy()
        tensors = {"x": dense[5:6], "edge_index": np.where(own == 5, ~0, own)}
        found = answers(server, tensors)
    doubled = torch.cat([arcs, torch.from_numpy(np.where(own == 5, len(dense), own))], dim=1)
    logits = pyg_nodes(saved.model, torch.cat([data.x, data.x[5:6]]), doubled)
    require_close(found, outputs_of(saved.task, logits[-1:]), "an inline node and PyG")
