"""Learning from whole graphs: batches are what they are defined to be, runs resume to the bit."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import outercore as oc  # noqa: E402
from fakes import seal  # noqa: E402
from observers import StopAfter, terminate  # noqa: E402
from outercore import _core  # noqa: E402
from outercore.base import native  # noqa: E402
from outercore.data.far import FarOptions  # noqa: E402
from outercore.data.many_graphs import ManyGraphs  # noqa: E402
from outercore.errors import BudgetError, CorruptError, InterruptError, InvalidError, NotFoundError  # noqa: E402
from outercore.importing.build.graph import import_graph  # noqa: E402
from outercore.importing.inputs import Inputs  # noqa: E402
from outercore.importing.plain_graph import open_inputs  # noqa: E402
from outercore.importing.splits import SplitChoice  # noqa: E402
from outercore.runs.progress import Observer  # noqa: E402
from outercore.training.config import (  # noqa: E402
    BudgetConfig,
    GraphConfig,
    ModelConfig,
    OptimiserConfig,
    RunConfig,
    SamplingConfig,
    TrainConfig,
)
from outercore.training.export import export_model  # noqa: E402
from outercore.training.graph_batches import (  # noqa: E402  # noqa: E402
    GraphBatch,
    GraphLoader,
    GraphReader,
    NodeInputs,
    input_name,
    node_inputs,
    shuffled,
)
from outercore.training.metrics import build_metric  # noqa: E402
from outercore.training.model_files import load_model  # noqa: E402
from outercore.training.models import GraphNetwork, pooled  # noqa: E402
from outercore.training.run import resume, train  # noqa: E402
from outercore.training.trained_model import evaluate  # noqa: E402

torch.set_num_threads(1)
KINDS = ("sage", "gcn", "gat", "gin", "mlp")
DATA = Path(os.environ.get("OUTERCORE_DATA") or Path(__file__).parents[3] / "shared/data")
SPLITS = {"train": range(40), "valid": range(40, 50), "test": range(50, 60)}


def text_of(graphs: list[tuple[int, list[int], list[tuple[int, int]]]]) -> str:
    """Graphs of (label, tags, edges in both directions) in the form of GIN."""
    found = [str(len(graphs))]
    for label, tags, edges in graphs:
        found.append(f"{len(tags)} {label}")
        for node, tag in enumerate(tags):
            others = [v for u, v in edges if u == node] + [u for u, v in edges if v == node]
            found.append(" ".join(map(str, [tag, len(others), *others])))
    return "\n".join(found) + "\n"


def rings_and_stars(count: int) -> list[tuple[int, list[int], list[Any]]]:
    """Rings are class 0, stars class 1; tags are random."""
    random = np.random.default_rng(0)
    graphs = []
    for number in range(count):
        size = int(random.integers(3, 9))
        ring = [(node, (node + 1) % size) for node in range(size)]
        star = [(0, node) for node in range(1, size)]
        tags = random.integers(0, 3, size).tolist()
        graphs.append((number % 2, tags, [ring, star][number % 2]))
    return graphs


def imported(directory: Path, name: str, text: str, splits: dict[str, Any]) -> Path:
    source, single = directory / f"{name}.txt", []
    source.write_text(text)
    for split, ids in splits.items():
        np.save(directory / f"{name}-{split}.npy", np.asarray(ids, np.int64))
        single.append(f"{split}={directory / f'{name}-{split}.npy'}")
    inputs = Inputs(edges=(str(source),), splits=SplitChoice.parse(single))
    import_graph(open_inputs(inputs), directory / name)
    return directory / name


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = text_of(rings_and_stars(60))
    return imported(tmp_path_factory.mktemp("graphs"), "shapes", text, SPLITS)


@pytest.fixture
def copied(data_set: Path, tmp_path: Path) -> Path:
    shutil.copytree(data_set, tmp_path / "copy")
    return tmp_path / "copy"


def config(kind: str = "gin", epochs: int = 3, **more: Any) -> TrainConfig:
    sampling = {name: more.pop(name) for name in ("features", "labels") if name in more}
    return TrainConfig(
        model=ModelConfig(kind=kind, hidden=16, heads=2, dropout=0.2),
        sampling=SamplingConfig(batch_size=8, **sampling),
        optimiser=OptimiserConfig(learning_rate=0.01, epochs=epochs, patience=0),
        budget=BudgetConfig(memory=more.pop("memory", "64MiB")),
        graph=GraphConfig(layers=2, readout=more.pop("readout", "mean")),
        run=RunConfig(task="graph", metric=more.pop("metric", "accuracy"), **more),
    )


def weights(run: Path) -> dict[str, Any]:
    return load_model(run / "model").model.state_dict()


def defined(graph: Any, ids: list[int], inputs: NodeInputs) -> GraphBatch:
    """A batch from arrays in memory, arc by arc."""
    first = [*graph.array("graphs/first").tolist(), graph.num_nodes]
    offsets = graph.array("edges/edge/offsets").tolist()
    sources = graph.array("edges/edge/sources").tolist()
    tags = graph.array("tag")
    x, arcs, place = [], [], []
    for number, one in enumerate(ids):
        shift = len(x) - first[one]
        for node in range(first[one], first[one + 1]):
            column = range(offsets[node], offsets[node + 1])
            x.append([int(tags[node]) if inputs.key else len(column)])
            place.append(number)
            arcs += [(sources[arc] + shift, node + shift) for arc in column]
    return GraphBatch(
        x=torch.tensor(x),
        edge_index=torch.tensor(arcs).T.reshape(2, -1),
        graph=torch.tensor(place),
        n_id=torch.tensor(ids),
        y=torch.tensor(graph.array("graphs/y")[ids]),
    )


def same(found: GraphBatch, expected: GraphBatch) -> None:
    for name, value in vars(expected).items():
        assert torch.equal(getattr(found, name), value), name


def reader_of(data_set: Path, name: str, memory: int) -> GraphReader:
    graph = oc.open(data_set)
    inputs = node_inputs(graph, name)
    return GraphReader(ManyGraphs(graph), inputs, "y", memory=memory, batch_size=7)


def least(data_set: Path, name: str) -> int:
    """The smallest budget."""
    with pytest.raises(BudgetError, match="largest graphs") as error:
        reader_of(data_set, name, 2000)
    assert error.value.needed is not None
    return int(error.value.needed)


@pytest.mark.parametrize("name", ["tag", "degree"])
@pytest.mark.parametrize("is_resident", [True, False])
def test_batches_are_what_they_are_defined_to_be_whatever_the_budget(
    name: str, is_resident: bool, data_set: Path
) -> None:
    graph = oc.open(data_set)
    reader = reader_of(data_set, name, 1 << 20 if is_resident else least(data_set, name))
    assert bool(reader.plan["resident_bytes"]) == is_resident
    loader = GraphLoader(reader, np.arange(60), 7, shuffle=True, seed=3)
    loader.set_epoch(2)
    order = shuffled(60, 3, 2)
    assert sorted(order.tolist()) == list(range(60))
    count = 0
    for batch in loader:
        ids = order[7 * count : 7 * count + 7].tolist()
        same(batch, defined(graph, ids, node_inputs(graph, name)))
        count += 1
    assert count == len(loader) == 9
    assert loader.counters()["counters"]["topology_reads"]["bytes"] > 0


def test_an_epoch_resumes_at_any_batch_and_each_has_an_order_of_its_own(data_set: Path) -> None:
    reader = reader_of(data_set, "tag", 1 << 20)
    loader = GraphLoader(reader, np.arange(60), 7, shuffle=True)
    loader.set_epoch(1)
    whole = list(loader)
    loader.set_epoch(1)
    loader.seek(5)
    for found, expected in zip(loader, whole[5:], strict=True):
        same(found, expected)
    loader.set_epoch(0)
    assert not torch.equal(next(iter(loader)).n_id, whole[0].n_id)


def test_too_small_a_budget_is_refused_with_the_least_that_does(data_set: Path) -> None:
    needed = least(data_set, "tag")
    reader_of(data_set, "tag", needed)
    with pytest.raises(BudgetError):
        reader_of(data_set, "tag", needed - 1)


def test_a_batch_takes_no_more_memory_than_planned(tmp_path: Path) -> None:
    pairs = [(u, v) for u in range(60) for v in range(u)]
    dense = [(number % 2, list(range(60)), pairs) for number in range(3)]
    path = imported(tmp_path, "dense", text_of(dense), {})
    reader = reader_of(path, "tag", least(path, "tag"))
    reader.batch(np.arange(3))
    tracemalloc.start()
    reader.batch(np.arange(3))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < reader.plan["batch_bytes"]


def test_an_arc_from_another_graph_is_an_error(copied: Path) -> None:
    with (copied / "edges/edge/sources.npy").open("rb+") as file:
        file.seek(4096)
        file.write(np.uint32(200).tobytes())
    seal(copied, "edges/edge/sources")
    with pytest.raises(CorruptError, match="an arc of graph 0 begins at node 200, expected 0 to"):
        reader_of(copied, "tag", 1 << 20).batch(np.array([0]))


def test_what_is_learnt_from_is_features_then_tags_that_differ_then_degrees(
    data_set: Path, tmp_path: Path
) -> None:
    graph = oc.open(data_set)
    assert input_name(graph, "x") == "tag"
    assert node_inputs(graph, "tag").categories == (3,)
    alike = [(label, [5] * len(tags), edges) for label, tags, edges in rings_and_stars(2)]
    assert input_name(oc.open(imported(tmp_path, "alike", text_of(alike), {})), "x") == "degree"
    with pytest.raises(NotFoundError, match="no node array `colour`"):
        node_inputs(graph, "colour")
    with pytest.raises(InvalidError, match="node 4, column 0: category 3, expected 0 to 2"):
        node_inputs(graph, "tag").tensor(np.array([0, 3]), np.array([3, 4]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_has_the_same_outputs_in_every_batch(kind: str, data_set: Path) -> None:
    torch.manual_seed(1)
    model = GraphNetwork(ModelConfig(kind=kind, hidden=8, heads=2), 2, 1, 2, categories=(3,)).eval()
    reader = reader_of(data_set, "tag", 1 << 20)
    with torch.no_grad():
        together = model(reader.batch(np.array([4, 9, 2])))
        alone = torch.cat([model(reader.batch(np.array([one]))) for one in (4, 9, 2)])
    torch.testing.assert_close(together, alone)


def test_columns_of_categories_enter_by_the_sum_of_their_embeddings() -> None:
    torch.manual_seed(2)
    model = GraphNetwork(ModelConfig(kind="mlp", hidden=4), 1, 2, 3, categories=(5, 2)).eval()
    x = torch.tensor([[4, 1], [0, 0], [3, 1]])
    batch = GraphBatch(x, x[:0].T, torch.tensor([0, 0, 1]), torch.tensor([0, 1]), x[:0])
    first, second = (table.weight for table in model.embeddings)
    summed = first[x[:, 0]] + second[x[:, 1]]
    states = model.nodes.linears[0](summed)
    expected = model.head(torch.stack([states[:2].mean(0), states[2]]))
    torch.testing.assert_close(model(batch), expected)


def test_floats_are_taken_as_float32_or_refused() -> None:
    inputs, ids = NodeInputs("nodes/node/x", 2), np.array([7, 8])
    for dtype in (np.float16, np.float32, np.float64):
        values = np.array([[0.5, 1], [np.inf, -2]], dtype)
        assert inputs.tensor(values, ids).tolist() == [[0.5, 1.0], [float("inf"), -2.0]]
    with pytest.raises(InvalidError, match=r"node 8, column 0: 1e\+300 does not fit float32"):
        inputs.tensor(np.array([[0.5, 1], [1e300, -2]]), ids)


def test_readouts_are_sums_means_and_largest_values() -> None:
    states = torch.tensor([[1.0, -2.0], [3.0, -4.0], [5.0, 6.0]])
    batch = GraphBatch(
        states, states[:0], torch.tensor([0, 0, 1]), torch.tensor([7, 8]), states[:0]
    )
    assert pooled(states, batch, "sum").tolist() == [[4.0, -6.0], [5.0, 6.0]]
    assert pooled(states, batch, "mean").tolist() == [[2.0, -3.0], [5.0, 6.0]]
    assert pooled(states, batch, "max").tolist() == [[3.0, -2.0], [5.0, 6.0]]


@pytest.mark.parametrize("kind", KINDS)
def test_every_model_trains_on_graphs(kind: str, data_set: Path, tmp_path: Path) -> None:
    record = train(data_set, config(kind, epochs=1), out=tmp_path / "run")
    assert record["description"]["task"] == "graph classification"
    assert record["data_set"]["graphs"] == 60
    assert set(record["result"]["scores"]) == {"valid", "test"}


def test_shapes_are_learnt_and_scored_again(data_set: Path, tmp_path: Path) -> None:
    record = train(data_set, config(epochs=12, features="degree"), out=tmp_path / "run")
    assert record["result"]["scores"]["test"] == 1.0
    again = evaluate(tmp_path / "run", predictions=tmp_path / "p.csv", logits=tmp_path / "l.npy")
    assert (again["graphs"], again["score"]) == (10, 1.0)
    expected = [f"{graph},{graph % 2}" for graph in range(50, 60)]
    assert (tmp_path / "p.csv").read_text().splitlines() == ["id,value", *expected]
    assert np.load(tmp_path / "l.npy").shape == (10, 2)
    assert evaluate(tmp_path / "run", split="all")["graphs"] == 60
    with pytest.raises(InvalidError, match="samples none"):
        evaluate(tmp_path / "run", validation="sampled")
    with pytest.raises(InvalidError, match="far memory"):
        evaluate(tmp_path / "run", far=FarOptions("localhost:1"))
    assert (export_model(tmp_path / "run") / "model.json").exists()


def test_weights_are_a_function_of_the_seed_and_not_of_the_budget(
    data_set: Path, tmp_path: Path
) -> None:
    record = train(data_set, config(epochs=1), out=tmp_path / "large")
    small = train(data_set, config(epochs=1, memory="22KiB"), out=tmp_path / "small")
    assert record["plan"]["resident_bytes"] > small["plan"]["resident_bytes"] == 0
    train(data_set, config(epochs=1, seed=1), out=tmp_path / "other")
    one, two, other = (weights(tmp_path / name) for name in ("large", "small", "other"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def whole(data_set: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing stopped."""
    run = tmp_path_factory.mktemp("whole") / "run"
    train(data_set, config(epochs=2), out=run)
    return run


@pytest.mark.parametrize("batches", [3, 5, 8])
def test_a_stopped_run_ends_with_the_bits_of_one_that_was_not(
    batches: int, data_set: Path, whole: Path, tmp_path: Path
) -> None:
    with pytest.raises(InterruptError, match="--resume"):
        train(
            data_set, config(epochs=2), out=tmp_path / "run", observer=StopAfter(batches, terminate)
        )
    record = resume(tmp_path / "run")
    assert record["result"] == json.loads((whole / "record.json").read_text())["result"]
    expected, found = weights(whole), weights(tmp_path / "run")
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_run_is_not_resumed_on_other_labels(copied: Path, tmp_path: Path) -> None:
    with pytest.raises(InterruptError):
        train(copied, config(), out=tmp_path / "run", observer=StopAfter(2, terminate))
    labels = oc.open(copied).array("graphs/y")
    native.add_array(copied, "graphs/other", labels, "")
    resume(tmp_path / "run", observer=Observer())
    with pytest.raises(InterruptError):
        train(copied, config(), out=tmp_path / "again", observer=StopAfter(2, terminate))
    native.add_array(copied, "graphs/y", 1 - labels, "")
    with pytest.raises(InvalidError, match="changed since the run began"):
        resume(tmp_path / "again")


def test_missing_labels_count_neither_in_the_loss_nor_in_the_score(
    copied: Path, tmp_path: Path
) -> None:
    classes = oc.open(copied).array("graphs/y").astype(np.float32)
    labels = np.stack([classes, np.full(60, np.nan, np.float32), 1 - classes], axis=1)
    labels[::5, 0] = np.nan
    native.add_array(copied, "graphs/y", labels, "")
    settings = config(epochs=12, metric="auto", features="degree")
    record = train(copied, settings, out=tmp_path / "run")
    assert record["description"]["task"] == "graph multi-label"
    assert record["result"]["metric"] == "roc_auc"
    assert record["result"]["scores"]["test"] == 1.0


def test_numbers_are_learnt_in_their_unit(copied: Path, tmp_path: Path) -> None:
    sizes = np.diff(ManyGraphs(oc.open(copied)).starts)
    native.add_array(copied, "graphs/size", sizes * 100.0 + 1000.5, "")
    settings = config(epochs=15, metric="rmse", features="degree", labels="size", readout="sum")
    settings = replace(settings, model=replace(settings.model, dropout=0.0))
    record = train(copied, settings, out=tmp_path / "run")
    assert record["description"]["task"] == "graph regression"
    assert record["result"]["scores"]["test"] < 120
    errors = record["result"]["errors"]["test"]
    assert errors["rmse"] == pytest.approx(np.sqrt(errors["mse"]))


def test_rmse_is_the_mean_over_columns_of_the_root_of_their_mean_square() -> None:
    metric: Any = build_metric("rmse")
    scores = np.array([[1.0, 0.0], [3.0, 0.0]], np.float32)
    metric.update(scores, np.array([[0.0, 4.0], [0.0, np.nan]]))
    assert metric.value() == pytest.approx((np.sqrt(5.0) + 4.0) / 2)


def test_a_data_set_of_one_graph_and_one_without_splits_say_so(
    data_set: Path, tmp_path: Path
) -> None:
    shape = {"nodes": 50, "degree": 4, "features": 4, "classes": 2, "seed": 1}
    _core.generate_planted(tmp_path / "tiny", shape, lambda *_: None)
    with pytest.raises(NotFoundError, match="expected many graphs, found one"):
        train(tmp_path / "tiny", config(), out=tmp_path / "one")
    with pytest.raises(NotFoundError, match="task='graph'"):
        train(data_set, TrainConfig(), out=tmp_path / "nodes")
    with pytest.raises(NotFoundError, match="no labels `z` of graphs; it has `y`"):
        train(data_set, config(labels="z"), out=tmp_path / "labels")
    plain = imported(tmp_path, "plain", text_of(rings_and_stars(4)), {})
    with pytest.raises(NotFoundError, match="no split `train`"):
        train(plain, config(), out=tmp_path / "none")


def test_an_import_that_was_killed_before_the_graphs_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "g.txt").write_text(text_of(rings_and_stars(4)))
    source = open_inputs(Inputs(edges=(str(tmp_path / "g.txt"),)))

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(native, "add_array", killed)
        with pytest.raises(KeyboardInterrupt):
            import_graph(source, tmp_path / "out")
    with pytest.raises(NotFoundError, match="found one"):
        ManyGraphs(oc.open(tmp_path / "out"))
    assert import_graph(source, tmp_path / "out")["graphs"] == 4
    assert ManyGraphs(oc.open(tmp_path / "out")).num_nodes == 4
    with pytest.raises(InvalidError, match="overwrite"):
        import_graph(source, tmp_path / "out")


def test_the_command_line_imports_trains_and_scores(outcome: Any, tmp_path: Path) -> None:
    (tmp_path / "g.txt").write_text(text_of(rings_and_stars(24)))
    np.savez(tmp_path / "s.npz", train=np.arange(16), test=np.arange(16, 24))
    code, _, told = outcome("import", "g.txt", "--split", "s.npz", "--out", "shapes")
    assert code == 0, told
    assert "test, train" in outcome("info", "shapes")[1]
    few = (
        "--set",
        "graph.layers=2",
        "--set",
        "graph.readout=max",
        "--hidden",
        8,
        "--epochs",
        2,
        "--metric",
        "accuracy",
    )
    code, shown, told = outcome(
        "train", "shapes", "--task", "graph", *few, "--out", "run", "--json"
    )
    assert code == 0, told
    assert json.loads(shown)["config"]["graph"] == {"layers": 2, "readout": "max"}
    assert json.loads(shown)["config"]["sampling"]["batch_size"] == 64
    code, shown, told = outcome("evaluate", "run", "--json")
    assert (code, json.loads(shown)["graphs"]) == (0, 8), told
    for wrong, why in (
        (("--task", "graph", "--fanout", "5"), "--fanout (sampling.fanout): no effect with task"),
        (("--set", "graph.readout=sum"), "graph.readout: no effect without task `graph`"),
        (("--task", "graph", "--set", "graph.readout=all"), "graph.readout: expected one of"),
    ):
        code, _, told = outcome("train", "shapes", *wrong)
        assert code == 1
        assert why in told


@pytest.mark.skipif(not (DATA / "mutag").is_dir(), reason="the data library is not here")
def test_mutag_and_esol_are_better_than_guessing(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(188)
    for name, ids in (("train", order[:150]), ("test", order[150:])):
        np.save(tmp_path / f"{name}.npy", ids)
    splits = SplitChoice.parse([f"{name}={tmp_path / name}.npy" for name in ("train", "test")])
    mutag = Inputs(edges=(str(DATA / "mutag/MUTAG.txt.xz"),), splits=splits)
    import_graph(open_inputs(mutag), tmp_path / "mutag")
    record = train(tmp_path / "mutag", config(epochs=20, readout="sum"), out=tmp_path / "one")
    assert record["result"]["scores"]["test"] > 0.7
    esol = Inputs(edges=(str(DATA / "mol-esol/graphs.npz"),))
    import_graph(open_inputs(esol), tmp_path / "esol")
    record = train(tmp_path / "esol", config(epochs=2, metric="r2"), out=tmp_path / "two")
    assert record["result"]["scores"]["valid"] > 0.1
