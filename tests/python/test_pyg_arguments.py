"""What every argument of PyG's loaders and of PyTorch's `DataLoader` does, as the guide says it."""

from __future__ import annotations

import inspect
import re
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.loader as pyg
from torch.utils.data import DataLoader
from torch_geometric.data import Data
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.utils import coalesce, k_hop_subgraph, subgraph

import outercore as oc
from multigraph import imported
from outercore.data.sample_rules import SampleRules
from outercore.loading.loader_arguments import ARGUMENTS
from outercore.loading.options import LoaderOptions

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "pyg.md"
LOADERS = {
    "NeighborLoader": (oc.NeighborLoader, (pyg.NeighborLoader, pyg.NodeLoader)),
    "HGTLoader": (oc.HGTLoader, (pyg.HGTLoader, pyg.NodeLoader)),
    "LinkNeighborLoader": (oc.LinkNeighborLoader, (pyg.LinkNeighborLoader, pyg.LinkLoader)),
}
WRITES = ("author", "writes", "paper")
INNER = {"self", "kwargs", "node_sampler", "link_sampler"}
"""No arguments of the loaders that a script calls."""


def table() -> dict[str, tuple[str, str]]:
    """What the guide says of each argument: whether it is the same, and what happens."""
    rows = re.findall(
        r"^\| (`.*?) \| (same|no effect|refused) \| ?(.*?) ?\|$", GUIDE.read_text(), re.M
    )
    return {
        name: (what, text) for names, what, text in rows for name in re.findall(r"`(\w+)`", names)
    }


def arguments_of(*functions: Any) -> dict[str, Any]:
    """Arguments with their defaults."""
    return {
        name: one.default
        for function in functions
        for name, one in inspect.signature(function).parameters.items()
        if name not in INNER
    }


THEIRS = {
    name: {**arguments_of(DataLoader), **arguments_of(*theirs)}
    for name, (_, theirs) in LOADERS.items()
}
CASES = [(name, argument) for name, theirs in THEIRS.items() for argument in theirs]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    root = tmp_path_factory.mktemp("arguments") / "graph"
    graph = imported(root, nodes=80, edges=400)
    graph.add_edge_array("weight", np.arange(graph.num_edge_rows) + 1.0)
    graph.add_node_array("time", np.arange(graph.num_nodes))
    return graph


@pytest.fixture(scope="module")
def in_memory(graph: oc.Graph) -> Data:
    """The same graph as PyG has it, edges in the order of the import."""
    offsets, sources, ids = (
        graph.array(f"edges/edge/{name}") for name in ("offsets", "sources", "ids")
    )
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(offsets.astype(np.int64)))
    edges = np.empty((2, len(ids)), np.int64)
    edges[:, ids] = np.stack([sources, targets])
    return Data(
        x=torch.from_numpy(graph.array("x")),
        y=torch.from_numpy(graph.array("y")).long(),
        time=torch.from_numpy(graph.array("time")),
        edge_index=torch.from_numpy(edges),
        edge_weight=torch.from_numpy(graph.array("edges/edge/weight")),
    )


def loader(name: str, graph: oc.Graph, **options: Any) -> Any:
    numbers = {"num_samples" if name == "HGTLoader" else "num_neighbors": [4, 3]}
    return LOADERS[name][0](graph, **{**numbers, "batch_size": 16, **options})


def test_the_guide_has_a_row_for_every_argument() -> None:
    every = {argument for theirs in THEIRS.values() for argument in theirs}
    assert set(table()) == every


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_every_argument_is_taken_at_its_default(name: str, argument: str, graph: oc.Graph) -> None:
    default = THEIRS[name][argument]
    if default is inspect.Parameter.empty:
        default = {"dataset": None, "num_neighbors": [4, 3], "num_samples": [4, 3]}.get(argument)
    if argument in ("data", "input_nodes", "edge_label_index"):
        return  # Every other case gives them.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = loader(name, graph, **{argument: default})
    assert len(found) > 0
    if argument in ARGUMENTS:
        expected = THEIRS[name][argument]
        assert ARGUMENTS[argument].default == (None if argument == "dataset" else expected)


@pytest.mark.parametrize("name", LOADERS)
def test_what_the_guide_calls_the_same_is_an_argument_with_the_same_default(name: str) -> None:
    own = {**arguments_of(oc.NeighborLoader), **arguments_of(LOADERS[name][0])}
    for argument, default in THEIRS[name].items():
        what, _ = table()[argument]
        assert (what == "same") == (argument in own), argument
        # No shuffling is `None` in PyTorch. HGT's nodes may be those of every type here.
        if what == "same" and argument not in ("shuffle", "input_nodes"):
            assert own[argument] == default, argument


@pytest.mark.parametrize("name", ["NeighborLoader", "LinkNeighborLoader"])
def test_arguments_have_the_places_that_pyg_gives_them(name: str) -> None:
    own, theirs = (
        list(inspect.signature(one).parameters) for one in (LOADERS[name][0], LOADERS[name][1][0])
    )
    end = theirs.index("transform") + 1
    assert own[:end] == theirs[:end]


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("argument", [name for name, one in ARGUMENTS.items() if one.because])
def test_an_argument_without_effect_is_told_and_changes_nothing(
    name: str, argument: str, graph: oc.Graph
) -> None:
    what, text = table()[argument]
    assert (what, text) == ("no effect", ARGUMENTS[argument].because)
    default = ARGUMENTS[argument].default
    other = (not default) if isinstance(default, bool) else "spawn"
    with pytest.warns(UserWarning, match="no effect") as told:
        found = loader(name, graph, **{argument: other})
    assert [str(one.message) for one in told] == [f"`{argument}`: no effect, {text}"]
    expected = loader(name, graph)
    for batch, same in zip(found, expected, strict=True):
        assert torch.equal(batch.n_id, same.n_id)


def test_a_warning_is_shown_once(graph: oc.Graph) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.resetwarnings()
        for _ in range(3):
            loader("NeighborLoader", graph, num_workers=np.int64(2), persistent_workers=True)
            loader("NeighborLoader", graph, num_workers=np.int64(0), timeout=0.0)
    text = "`num_workers`, `persistent_workers`: no effect, the core has threads of its own"
    assert [str(one.message).partition(", see")[0] for one in told] == [text]


class Replay(BaseSampler):
    """Gives PyG's own loader what a batch of ours has sampled."""

    def __init__(self, batches: Any) -> None:
        self.batches = iter(batches)

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> SamplerOutput:
        batch = next(self.batches)
        return SamplerOutput(
            batch.n_id,
            *batch.edge_index,
            batch.e_id,
            batch.get("batch"),
            batch.num_sampled_nodes,
            batch.num_sampled_edges,
            metadata=(index.input_id, index.time),
        )

    def sample_from_edges(self, index: EdgeSamplerInput, **_: Any) -> SamplerOutput:
        batch = next(self.batches)
        metadata = (index.input_id, batch.edge_label_index, index.label, index.time)
        return SamplerOutput(batch.n_id, *batch.edge_index, batch.e_id, metadata=metadata)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"drop_last": True},
        {"batch_size": 7, "input_nodes": torch.tensor([9, 3, 3, 50])},
        {"input_nodes": torch.arange(80) % 3 == 0},
        {"disjoint": True},
        {"subgraph_type": "induced"},
        {"weight_attr": "edge_weight", "transform": lambda batch: batch.update({"more": 1})},
        {
            "input_nodes": torch.arange(70, 80),
            "time_attr": "time",
            "input_time": torch.arange(80, 90),
        },
    ],
    ids=lambda options: ",".join(options) or "plain",
)
def test_batches_have_what_pygs_own_loader_makes_of_the_samples(
    options: dict[str, Any], graph: oc.Graph, in_memory: Data
) -> None:
    nodes = {"input_nodes": None, "batch_size": 16, **options}
    own = list(oc.NeighborLoader(graph, [4, 3], **nodes))
    shared = ("input_nodes", "input_time", "batch_size", "drop_last", "transform")
    theirs = pyg.NodeLoader(
        in_memory, Replay(own), **{name: nodes[name] for name in shared if name in nodes}
    )
    assert len(theirs) == len(own) == len(oc.NeighborLoader(graph, [4, 3], **nodes))
    assert len(theirs.dataset) == len(oc.NeighborLoader(graph, [4, 3], **nodes).dataset)
    for batch, other in zip(own, theirs, strict=True):
        # PyG names what is not there, too.
        expected = {name: value for name, value in other.to_dict().items() if value is not None}
        expected.pop("num_nodes", None)
        assert set(batch.keys()) - {"num_nodes"} == set(expected)
        for name, value in expected.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(batch[name], value), name
                assert batch[name].dtype == value.dtype, name
            else:
                assert batch[name] == value, name


def test_all_neighbours_are_those_of_pyg(graph: oc.Graph, in_memory: Data) -> None:
    options = {"batch_size": 4, "input_nodes": [5, 17, 40, 41]}
    seeds = torch.tensor(options["input_nodes"])
    nodes, *_ = k_hop_subgraph(seeds, 2, in_memory.edge_index, num_nodes=80)
    near, *_ = k_hop_subgraph(seeds, 1, in_memory.edge_index, num_nodes=80)
    batch = next(iter(oc.NeighborLoader(graph, [-1, -1], **options)))
    assert sorted(batch.n_id.tolist()) == nodes.tolist()
    reached = torch.isin(in_memory.edge_index[1], near).nonzero().flatten()
    assert sorted(batch.e_id.tolist()) == reached.tolist()
    for induced in ("induced", SubgraphType.induced):
        batch = next(iter(oc.NeighborLoader(graph, [-1, -1], subgraph_type=induced, **options)))
        rows = torch.arange(in_memory.num_edges)
        _, between = subgraph(nodes, in_memory.edge_index, rows, num_nodes=80)
        assert sorted(batch.e_id.tolist()) == between.tolist()


def test_a_disjoint_batch_has_the_neighbourhood_of_each_seed(
    graph: oc.Graph, in_memory: Data
) -> None:
    seeds = [5, 17, 40, 41]
    batch = next(iter(oc.NeighborLoader(graph, [-1, -1], seeds, disjoint=True, batch_size=4)))
    for place, seed in enumerate(seeds):
        nodes, *_ = k_hop_subgraph(seed, 2, in_memory.edge_index, num_nodes=80)
        assert sorted(batch.n_id[batch.batch == place].tolist()) == nodes.tolist()


def test_a_bidirectional_batch_is_what_pyg_makes_of_the_samples(graph: oc.Graph) -> None:
    options = {"input_nodes": None, "batch_size": 16, "arrays": []}
    sampled = oc.NeighborLoader(graph, [4, 3], **options)
    both = oc.NeighborLoader(graph, [4, 3], subgraph_type=SubgraphType.bidirectional, **options)
    for batch, one in zip(both, sampled, strict=True):
        output = SamplerOutput(one.n_id, *one.edge_index, None, None, [], [])
        expected = output.to_bidirectional()
        ends = coalesce(torch.stack([expected.row, expected.col]))
        assert torch.equal(coalesce(batch.edge_index), ends)
        assert batch.num_edges == ends.shape[1]


def refusal(name: str, argument: str, data: Any, **seeds: Any) -> str:
    """The hint of the message that refuses the argument."""
    other = False if argument == "directed" else [0]
    with pytest.raises(oc.UnsupportedError, match=f"^`{argument}` is not supported") as refused:
        loader(name, data, **{argument: other}, **seeds)
    return str(refused.value).partition("\nhint: ")[2]


def replacement(name: str, argument: str, graph: oc.Graph) -> str:
    """The code of that hint for seeds that are a tensor, which the guide has."""
    seeds = {"input_nodes": torch.arange(30, 50)}
    if name == "LinkNeighborLoader":
        seeds = {"edge_label_index": torch.zeros(2, 50, dtype=torch.int64)}
    hint = refusal(name, argument, graph, **seeds)
    what, text = table()[argument]
    assert what == "refused"
    assert hint in text
    return hint.split("`")[1]


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("argument", [name for name, one in ARGUMENTS.items() if one.instead])
def test_what_is_refused_names_an_alternative_that_works_when_pasted(
    name: str, argument: str, graph: oc.Graph, in_memory: Data
) -> None:
    code = replacement(name, argument, graph)
    of_links = name == "LinkNeighborLoader"
    generator = torch.Generator().manual_seed(7)
    known = {
        "torch_geometric": __import__("torch_geometric"),
        "graph": graph,
        "generator": generator,
        "neighbor_sampler": Replay(loader(name, graph, batch_size=1)),
        "custom_cls": type("Mine", (Data,), {}),
        "batch": next(iter(loader(name, graph))),
        "input_id": torch.arange(1000) * 10,
        "input_nodes": torch.arange(30, 50),
        "edge_label_index": in_memory.edge_index,
        "sampler": [7, 3, 3],
        "batch_sampler": [[7, 3], [3, 1]],
    }
    if not re.match(r"\w+=", code):
        found = eval(code, known)
        if argument == "input_id":
            assert torch.equal(found, known["batch"].input_id * 10)
        else:
            assert next(iter(found)).x.shape[1] == graph.num_features
        return
    chosen = eval(f"dict({code})", known)
    if (name, argument) == ("HGTLoader", "directed"):
        chosen = {}  # Its batches have all edges between their nodes.
    made = loader(name, graph, **{"batch_size": 2, **chosen})
    batch = next(iter(made))
    if argument == "custom_cls":
        assert type(batch) is known["custom_cls"]
    if argument == "generator":
        assert made.config["seed"] == 7
    if argument in ("sampler", "batch_sampler"):
        ends = batch.n_id[batch.edge_label_index] if of_links else batch.n_id[: batch.batch_size]
        first = in_memory.edge_index[:, [7, 3]] if of_links else torch.tensor([37, 33])
        assert torch.equal(ends, first)


def test_attributes_of_pygs_objects_are_there_or_say_what_to_use(graph: oc.Graph) -> None:
    made = oc.NeighborLoader(graph, [4, 3], "train", drop_last=True)
    assert made.data.root == graph.root
    assert (made.num_neighbors, made.input_nodes) == ([4, 3], "train")
    assert (made.drop_last, made.num_workers) == (True, 0)
    assert graph.num_node_features == graph.num_features
    assert graph.metadata() == (["node"], [("node", "edge", "node")])
    links = oc.LinkNeighborLoader(graph, [4], drop_last=True)
    assert links.drop_last
    for owner, name, hint in [
        (graph, "x", r'`graph.array\("x"\)`'),
        (graph, "time", r'`graph.array\("time"\)`'),
        (graph, "edge_weight", r'`graph.array\("edges/edge/weight"\)`'),
        (graph, "train_mask", r'`graph.split\("train"\)`'),
        (graph, "edge_index", r"`graph.pyg\(\)\[1\].coo\(\)`"),
        (graph, "num_node", r"did you mean `num_nodes`\?"),
        (made, "timeout", "the core has threads of its own"),
        (made, "num_neighbours", r"did you mean `num_neighbors`\?"),
        (links, "input_nodes", "`edge_label_index` are the links"),
    ]:
        assert not hasattr(owner, name)
        with pytest.raises(AttributeError, match=f"no attribute `{name}`\nhint: {hint}"):
            getattr(owner, name)
    with pytest.raises(oc.UnsupportedError, match=r"`batch_size=len\(seeds\)`"):
        made([1, 2])


def test_a_mistyped_argument_is_named_with_the_likely_one(graph: oc.Graph) -> None:
    for wrong, right in [
        ("batchsize", "batch_size"),
        ("num_worker", "num_workers"),
        ("seeds", "seed"),
    ]:
        with pytest.raises(oc.InvalidError, match=rf"`{wrong}`\nhint: did you mean `{right}`\?"):
            loader("NeighborLoader", graph, **{wrong: 3})
    for name, argument, instead in [
        ("LinkNeighborLoader", "input_nodes", "`edge_label_index`"),
        ("LinkNeighborLoader", "input_time", "`edge_label_time`"),
        ("HGTLoader", "method", "`NeighborLoader`"),
    ]:
        with pytest.raises(oc.InvalidError, match=f"{argument}`\nhint: {instead}"):
            loader(name, graph, **{argument: "labor"})
    with pytest.raises(oc.InvalidError, match=r"found Data\nhint: `oc.from_pyg\(data, DATASET\)`"):
        oc.NeighborLoader(Data(edge_index=torch.zeros(2, 0, dtype=torch.int64)), [4])
    with pytest.raises(oc.InvalidError, match="the graph has one type of nodes"):
        oc.NeighborLoader(graph, [4], ("paper", [1]))


def test_the_seed_decides_batches_and_pytorchs_does_not(graph: oc.Graph) -> None:
    def first(**options: Any) -> list[int]:
        return next(iter(loader("NeighborLoader", graph, shuffle=True, **options))).n_id.tolist()

    torch.manual_seed(1)
    before = first()
    torch.manual_seed(2)
    assert first() == before
    assert first(seed=torch.initial_seed()) == first(seed=np.uint64(2)) != before


def test_signatures_show_every_option_with_its_default() -> None:
    options = arguments_of(LoaderOptions)
    shown = {kind: arguments_of(kind) for kind in (oc.NeighborLoader, oc.LinkNeighborLoader)}
    shown |= {kind: arguments_of(kind) for kind in (oc.HGTLoader, oc.NeighborSampler)}
    own = shown[oc.NeighborLoader]
    assert {name: own[name] for name in options} == options
    rules = {field.name for field in fields(SampleRules)}
    lacking = {
        oc.NeighborLoader: set(),
        oc.LinkNeighborLoader: {"input_time"},
        oc.HGTLoader: {"method"},
        oc.NeighborSampler: {*rules, "input_time", "transform", "pin_memory"},
    }
    for kind, arguments in shown.items():
        assert set(options) - set(arguments) == lacking[kind]
        assert arguments["memory"] == "1GiB"
