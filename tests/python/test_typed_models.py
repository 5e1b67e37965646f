"""Networks of typed graphs: exact inference, sampled inference and PyG agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from outercore.errors import BudgetError, CorruptError  # noqa: E402
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
from outercore.training.streamed import exact as exact_module  # noqa: E402
from outercore.training.streamed import layer as layer_module  # noqa: E402
from outercore.training.streamed.exact import Exact  # noqa: E402
from outercore.training.streamed.network import typed_network_steps  # noqa: E402
from outercore.training.typed_network import (  # noqa: E402
    TypedNetwork,
    TypedSchema,
    feature_keys,
    schema_of,
)
from typed_fakes import TypedGraph, TypedLoader, planted_types  # noqa: E402

torch.set_num_threads(1)
KINDS = ("rgcn", "sage", "gat", "hgt")
VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm": "layer", "residual": True},
    {"norm": "batch", "jumping": "cat"},
    {"jumping": "max"},
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return TypedGraph(planted_types(tmp_path_factory.mktemp("data") / "typed"))


def network(kind: str, graph: TypedGraph, layers: int = 3, **options: Any) -> TypedNetwork:
    torch.manual_seed(7)
    config = TrainConfig(
        model=ModelConfig(kind=kind, hidden=8, heads=2, dropout=0.5, **options),
        sampling=SamplingConfig(fanout=(2,) * layers),
        # Embeddings of authors do not fit, those of institutions do.
        budget=BudgetConfig(memory=f"{4 * 13 * 8 * 4 * 40}B"),
    )
    schema = schema_of(graph, ("paper",), config, feature_keys(graph, "x"), lambda _: None)
    model = TypedNetwork(config.model, schema, 3)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    return model


def inference(
    graph: TypedGraph,
    model: TypedNetwork,
    scratch: Path,
    fanout: tuple[int, ...],
    open_loader: Any = TypedLoader,
) -> Inference:
    config = TrainConfig(
        model=model.config,
        sampling=SamplingConfig(fanout=fanout, batch_size=16),
        budget=BudgetConfig(memory="64MiB"),
    )
    keys = feature_keys(graph, "x")
    features = {name: keys[name] for name, of in model.schema.inputs.items() if of.features}
    loaders = Loaders(
        graph,
        config,
        features=features,
        open_loader=open_loader,
        note=lambda _: None,
    )
    return Inference(
        graph,
        model,
        config.sampling,
        loaders,
        Context(scratch, torch.device("cpu"), Observer(), StopRequest()),
    )


def gathered(predictions: Any) -> tuple[np.ndarray, np.ndarray]:
    parts = list(predictions)
    return (
        np.concatenate([part.nodes for part in parts]),
        np.concatenate([part.logits for part in parts]),
    )


def pyg_transformer(layer: Any, edge_types: list[Any], types: list[str], width: int) -> Any:
    """PyG's `HGTConv` with the weights of a layer."""
    from torch_geometric.nn import HGTConv

    heads = layer._heads
    theirs = HGTConv(width, width, (types, edge_types), heads)
    with torch.no_grad():
        for name in types:
            lin = theirs.kqv_lin.lins[name]
            keys, queries, values = (slice(i * width, (i + 1) * width) for i in range(3))
            if name in layer.keys_and_values:
                ours = layer.keys_and_values[name]
                for place, part in ((keys, slice(0, width)), (values, slice(width, 2 * width))):
                    lin.weight[place], lin.bias[place] = ours.weight[part], ours.bias[part]
            if name in layer.targets:
                target = layer.targets[name]
                lin.weight[queries], lin.bias[queries] = target.query.weight, target.query.bias
                theirs.out_lin.lins[name].load_state_dict(target.out.state_dict())
                theirs.skip[name].copy_(target.skip)
        for number, edge_type in enumerate(edge_types):
            relation = layer.relations[edge_type]
            theirs.p_rel["__".join(edge_type)].copy_(relation.prior.view(1, -1))
            for head in range(heads):
                place = head * len(edge_types) + number
                theirs.k_rel.weight[place] = relation.attention[head]
                theirs.v_rel.weight[place] = relation.message[head]
    return theirs


def convolved(model: TypedNetwork, index: int, x: dict[str, Any], arcs: Any) -> dict[str, Any]:
    """What PyG makes of all nodes in a layer."""
    from torch_geometric.nn import HeteroConv

    schema, layer = model.schema, model.convolutions[index]
    edge_types = [one for one in schema.edge_types if one[2] in schema.targets(index)]
    if model.config.kind == "hgt":
        theirs = pyg_transformer(layer, edge_types, list(x), model.config.hidden)
        found = theirs(x, {one: arcs[one] for one in edge_types})
        return {name: found.get(name, x[name]) for name in schema.targets(index)}
    convolutions = {one: layer.relations[one] for one in edge_types}
    found = HeteroConv(convolutions, aggr="sum")(x, {one: arcs[one] for one in edge_types})
    for name in layer.own.keys():  # noqa: SIM118 - PyG's dictionary has its own
        found[name] = layer.own[name](x[name]) + found.get(name, 0)
    return found


def whole_graph(graph: TypedGraph, model: TypedNetwork) -> np.ndarray:
    """Logits of all labelled nodes from PyG's layers over the whole graph."""
    schema = model.schema
    arcs = {one: torch.from_numpy(graph.arcs(one)) for one in graph.edge_types}
    model.eval()
    with torch.no_grad():
        x: dict[str, Any] = {}
        for name, given in schema.inputs.items():
            if given.features:
                x[name] = model.encoder.maps[name](torch.from_numpy(graph.array(f"nodes/{name}/x")))
            elif given.rows:
                x[name] = model.encoder.tables[name].weight
            else:
                weight = model.encoder.vectors[name].weight
                x[name] = weight.repeat(graph.node_types[name], 1)
        states = []
        for index in range(model.layers):
            after = convolved(model, index, x, arcs)
            for name in after:
                if model.config.residual:
                    after[name] = after[name] + model.skips[index][name](x[name])
                after[name] = model.norms[index][name](after[name])
                if model.config.kind != "hgt":
                    after[name] = functional.relu(after[name])
            x = after
            states.append(x["paper"])
        return model.head(states).numpy()


def test_the_embeddings_that_fit_are_those_of_the_smaller_types(graph: TypedGraph) -> None:
    inputs = network("rgcn", graph).schema.inputs
    assert list(inputs) == ["author", "institution", "paper", "topic"]
    assert (inputs["author"].features, inputs["author"].rows) == (0, 0)
    assert (inputs["institution"].features, inputs["institution"].rows) == (0, 9)
    assert (inputs["paper"].features, inputs["topic"].features) == (8, 5)


def test_a_layer_computes_only_the_types_that_later_layers_need(graph: TypedGraph) -> None:
    schema = network("rgcn", graph).schema
    everything = ["author", "institution", "paper", "topic"]
    assert [schema.targets(layer) for layer in range(3)] == [
        everything,
        ["author", "paper", "topic"],
        ["paper"],
    ]
    assert schema.sources(0) == everything


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", VARIANTS)
def test_exact_inference_equals_pyg_over_the_whole_graph(
    kind: str, options: dict[str, Any], graph: TypedGraph, tmp_path: Path
) -> None:
    model = network(kind, graph, **options)
    papers = np.arange(graph.node_types["paper"])
    nodes, logits = gathered(inference(graph, model, tmp_path, (2, 2, 2)).exact(papers))
    assert (nodes == papers).all()
    np.testing.assert_allclose(logits, whole_graph(graph, model), rtol=2e-5, atol=2e-5)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", VARIANTS)
def test_sampling_all_neighbours_of_all_types_equals_exact_inference(
    kind: str, options: dict[str, Any], graph: TypedGraph, tmp_path: Path
) -> None:
    model = network(kind, graph, **options)
    chosen = graph.split("valid")
    runner = inference(graph, model, tmp_path, (-1, -1, -1))
    sampled_nodes, sampled = gathered(runner.sampled(chosen))
    exact_nodes, exact = gathered(runner.exact(chosen))
    assert (sampled_nodes == chosen).all()
    assert (exact_nodes == chosen).all()
    np.testing.assert_allclose(sampled, exact, rtol=2e-5, atol=2e-5)


def exactly(graph: TypedGraph, model: TypedNetwork, nodes: np.ndarray | None) -> Exact:
    features = {name: f"nodes/{name}/x" for name in ("paper", "topic")}
    quiet: dict[str, Any] = {"observer": Observer(), "stop": StopRequest()}
    computation = typed_network_steps(model.eval(), features)
    return Exact(graph, computation, nodes, device=torch.device("cpu"), **quiet)


def outputs(exact: Exact, memory: int, directory: Path) -> np.ndarray:
    exact.plan(memory)
    found = [logits.numpy() for _, logits in exact.outputs(directory)]
    assert not list(directory.iterdir())
    return np.concatenate(found)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So little is done at once that a small graph takes several parts and blocks."""
    monkeypatch.setattr(exact_module, "_LEAST_STEP", 8)
    monkeypatch.setattr(layer_module, "_LEAST_BLOCK", 1 << 9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", VARIANTS)
def test_typed_outputs_have_the_same_bits_within_every_budget(
    kind: str,
    options: dict[str, Any],
    graph: TypedGraph,
    small_steps: None,
    tmp_path: Path,
) -> None:
    model = network(kind, graph, **options)
    expected = outputs(exactly(graph, model, None), 1 << 30, tmp_path)
    np.testing.assert_allclose(expected, whole_graph(graph, model), rtol=2e-5, atol=2e-5)
    with pytest.raises(BudgetError, match="needs") as refused:
        exactly(graph, model, None).plan(1 << 10)
    assert refused.value.needed is not None
    for memory in (refused.value.needed, refused.value.needed * 5 // 4):
        exact = exactly(graph, model, None)
        assert np.array_equal(outputs(exact, memory, tmp_path), expected), memory
        # Papers have 8 numbers and topics 5; the features of venues are not needed.
        assert exact.moved.features_read == 4 * (90 * 8 + 12 * 5)
        assert exact.moved.scratch_read >= exact.moved.scratch_written > 0


def test_typed_outputs_of_chosen_nodes_are_those_among_all(
    graph: TypedGraph, small_steps: None, tmp_path: Path
) -> None:
    chosen = np.array([3, 4, 17, 60, 88])
    for kind in KINDS:
        model = network(kind, graph, jumping="max")
        with pytest.raises(BudgetError) as refused:
            exactly(graph, model, chosen).plan(1 << 10)
        for memory in (refused.value.needed or 0, 1 << 30):
            found = outputs(exactly(graph, model, chosen), memory, tmp_path)
            expected = whole_graph(graph, model)[chosen]
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_a_source_beyond_the_last_node_of_its_type_is_told(
    tmp_path: Path, small_steps: None
) -> None:
    graph = TypedGraph(planted_types(tmp_path / "typed"))
    bounds = graph.offsets[graph.first_column["author", "writes", "paper"] :]
    place = int(bounds[np.flatnonzero(np.diff(bounds))[0] + 1]) - 1
    entry = graph.arrays["edges/edge/sources"]
    with (graph.root / entry["file"]).open("r+b") as file:
        # The last author of a paper is now an institution.
        file.seek(entry["data_offset"] + np.dtype(entry["dtype"]).itemsize * place)
        file.write(np.array(graph.first["institution"] + 2, entry["dtype"]).tobytes())
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for kind in ("rgcn", "hgt"):
        with pytest.raises(CorruptError, match=r"author,writes,paper`: a source is beyond .* 60"):
            outputs(exactly(graph, network(kind, graph), None), 1 << 30, scratch)
        waiting = exactly(graph, network(kind, graph), None)
        with pytest.raises(BudgetError) as refused:
            waiting.plan(1 << 10)
        with pytest.raises(CorruptError, match=r"author,writes,paper`: a source is beyond .* 60"):
            outputs(waiting, refused.value.needed or 0, scratch)


def test_one_layer_needs_no_state_between_layers(graph: TypedGraph, tmp_path: Path) -> None:
    model = network("hgt", graph, layers=1)
    papers = np.arange(graph.node_types["paper"])
    _, logits = gathered(inference(graph, model, tmp_path, (2,)).exact(papers))
    np.testing.assert_allclose(logits, whole_graph(graph, model), rtol=2e-5, atol=2e-5)


def test_typed_layer_states_are_removed_also_when_nobody_reads_on(
    graph: TypedGraph, tmp_path: Path
) -> None:
    model = network("sage", graph, jumping="cat")
    predictions = inference(graph, model, tmp_path, (2, 2, 2)).exact(np.arange(90))
    next(iter(predictions))
    (directory,) = tmp_path.iterdir()
    assert {file.name for file in directory.iterdir()} == {"kept-1", "kept-2"}
    predictions.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_of_a_typed_network_gets_a_gradient(kind: str, graph: TypedGraph) -> None:
    model = network(kind, graph, residual=True, norm="layer")
    papers = ("paper", np.arange(90))
    features = {name: f"nodes/{name}/x" for name in ("paper", "topic")}
    loader = TypedLoader(graph, [-1, -1, -1], papers, batch_size=90, features=features)
    model(next(iter(loader))).square().sum().backward()
    assert [name for name, value in model.named_parameters() if value.grad is None] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_without_any_edge_has_logits(kind: str, graph: TypedGraph) -> None:
    model = network(kind, graph, norm="batch").train()
    features = {name: f"nodes/{name}/x" for name in ("paper", "topic")}
    lonely = ("paper", np.array([88, 89]))
    loader = TypedLoader(graph, [3, 3, 3], lonely, batch_size=2, features=features)
    batch = next(iter(loader))
    assert sum(len(batch[one].edge_index[0]) for one in graph.edge_types) == 0
    assert torch.isfinite(model(batch)).all()


def test_a_schema_is_read_as_it_was_written(graph: TypedGraph) -> None:
    schema = network("rgcn", graph).schema
    assert TypedSchema.from_dict(schema.to_dict(), 3) == schema


def test_embeddings_are_as_long_as_features_and_short_where_there_are_none(
    graph: TypedGraph,
) -> None:
    def lengths(keys: dict[str, str]) -> list[float]:
        torch.manual_seed(1)
        config = TrainConfig(model=ModelConfig(kind="rgcn", hidden=64))
        schema = schema_of(graph, ("paper",), config, keys, lambda _: None)
        tables = TypedNetwork(config.model, schema, 3).encoder.tables.values()
        return [float(table.weight.detach().norm(dim=1).mean()) for table in tables]

    assert lengths(feature_keys(graph, "x")) == pytest.approx([1.0] * 2, rel=0.1)
    assert lengths({}) == pytest.approx([0.008] * 4, rel=0.1)
