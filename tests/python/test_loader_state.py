"""A loader resumes where a checkpoint was written, and takes values of the right type alone."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import outercore as oc
from fakes import planted
from outercore import _core
from outercore.errors import from_core
from outercore.training.config import TrainConfig

KINDS = (oc.NeighborLoader, oc.LinkNeighborLoader, oc.NeighborSampler)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    return oc.open(planted(tmp_path_factory.mktemp("state") / "graph", nodes=300, degree=4))


def loader(kind: Callable[..., Any], graph: oc.Graph, **options: Any) -> Any:
    if kind is not oc.LinkNeighborLoader:
        options = {"input_nodes": "train", **options}
    given = {"batch_size": 48, "shuffle": True, "seed": 5, "memory": "32MiB", **options}
    return kind(graph, [4, 3], **given)


def nodes(batches: Any) -> list[list[int]]:
    return [batch.n_id.tolist() for batch in batches]


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_resumes_the_epoch_and_then_the_next(kind, graph: oc.Graph) -> None:
    whole = loader(kind, graph)
    epochs = [nodes(whole) for _ in range(3)]
    count = len(whole)
    for taken in {0, 1, count - 1, count}:
        first = loader(kind, graph)
        first.set_epoch(1)
        iterator = iter(first)
        assert nodes(islice(iterator, taken)) == epochs[1][:taken]
        state = pickle.loads(pickle.dumps(first.state_dict()))
        place = {"epoch": 1, "batch": taken} if taken < count else {"epoch": 2, "batch": 0}
        assert state == {**place, "batches": count, "seed": 5}
        resumed = loader(kind, graph)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        rest = [epochs[1][taken:], epochs[2]] if taken < count else [epochs[2]]
        for expected in rest:
            assert nodes(resumed) == expected
        # The iteration that gave the state is not disturbed.
        assert nodes(iterator) == epochs[1][taken:]
        assert (first.state_dict()["epoch"], first.state_dict()["batch"]) == (2, 0)


def test_a_state_is_that_of_a_loop_left_by_break(graph: oc.Graph) -> None:
    batches = loader(oc.NeighborLoader, graph)
    for number, _ in enumerate(batches):
        if number == 1:
            break
    assert (batches.state_dict()["epoch"], batches.state_dict()["batch"]) == (0, 2)
    # A copy has the next epoch of the original, as any of its iterations.
    assert copy.copy(batches).state_dict()["epoch"] == 1
    batches.set_epoch(7)
    batches.seek(np.int64(3))
    assert (batches.state_dict()["epoch"], batches.state_dict()["batch"]) == (7, 3)


def test_all_ranks_resume_by_the_state_of_one(graph: oc.Graph) -> None:
    ranks = [loader(oc.NeighborLoader, graph, rank=rank, world_size=2) for rank in range(2)]
    whole = [nodes(one) for one in ranks]
    for one in ranks:
        one.set_epoch(0)
    assert nodes(islice(ranks[0], 1)) == whole[0][:1]
    state = ranks[0].state_dict()
    for one, expected in zip(ranks, whole, strict=True):
        one.load_state_dict(state)
        assert nodes(one) == expected[1:]


def test_a_state_of_another_loader_is_refused(graph: oc.Graph) -> None:
    batches = loader(oc.NeighborLoader, graph)
    state = batches.state_dict()
    for wrong, text in [
        ({**state, "seed": 6}, "of a loader with seed=6, this one has 5"),
        ({**state, "batches": 99}, "of a loader with batches=99, this one has"),
        ({**state, "batch": 99}, "batch: expected 0 to"),
        ({**state, "epoch": "1"}, "epoch: expected a whole number, found '1'"),
        ({"epoch": 1}, "state: expected epoch, batch, batches, seed; found"),
        (None, "state: expected epoch, batch, batches, seed; found None"),
    ]:
        with pytest.raises(oc.InvalidError, match=text):
            batches.load_state_dict(wrong)


def test_numbers_of_numpy_and_pytorch_are_numbers(graph: oc.Graph, tmp_path: Path) -> None:
    plain = {"batch_size": 48, "seed": 5, "threads": 2, "look_ahead": 1, "memory": 1 << 25}
    kinds = [np.int64, np.int32, np.uint16, lambda value: np.array(value), torch.tensor]
    for kind in KINDS:
        expected = nodes(loader(kind, graph, **plain, drop_last=True, constant_share=0.5))
        for number in kinds:
            given = {
                name: number(value) if value < 1000 else np.int64(value)
                for name, value in plain.items()
            }
            same = loader(kind, graph, **given, drop_last=np.True_, constant_share=np.float32(0.5))
            same.set_epoch(number(0))
            assert nodes(same) == expected
    config = TrainConfig.from_dict({"model": {"hidden": np.int64(3), "dropout": np.float32(0.5)}})
    assert config.model.hidden == 3
    assert '"hidden": 3' in config.to_json()
    values = oc.pagerank(graph, damping=np.float64(0.5), max_iterations=np.int32(5), tolerance=0)
    assert np.array_equal(values, oc.pagerank(graph, damping=0.5, max_iterations=5, tolerance=0.0))
    assert oc.grid(graph, overwrite=np.True_, partition_log2=np.int64(8))["nodes"] == 300
    out = oc.from_pyg(
        _as_pyg(graph), tmp_path / "copy", options=_import_options(overwrite=np.False_)
    )
    assert out.num_nodes == 300


def _as_pyg(graph: oc.Graph) -> Any:
    from torch_geometric.data import Data

    return Data(x=torch.from_numpy(graph.array("x")), edge_index=torch.tensor([[0, 1], [1, 2]]))


def _import_options(**given: Any) -> Any:
    from outercore.importing.options import ImportOptions

    return ImportOptions(**given)


WRONG = {
    "batch_size": [-1, 0, 256.0, "x", (1,), None, True, 2**40],
    "seed": [-1, 1.5, "x", 2**64],
    "threads": [0, 2.0, "4"],
    "look_ahead": [-1, 0.5],
    "group": [0, -1, 1.5],
    "constant_share": [-0.5, 2, "x"],
    "shuffle": ["x", 3],
    "drop_last": [None, "no"],
    "replace": ["x", 1.0],
    "backend": ["x", 3, ["auto"]],
    "topology": [None, "x"],
    "precision": [8],
    "policy": ["fifo"],
    "rank": [0.5, "a", -1, 2],
    "world_size": [0, 1.5],
    "memory": [None, -5, "12 fortnights"],
    "hotness": [3, None],
    "labels": [5],
    "features": [5, ["x"]],
    "arrays": [5, "x"],
    "far": [5],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("argument", WRONG)
def test_a_wrong_value_is_named_in_words_about_the_value(
    kind, argument: str, graph: oc.Graph
) -> None:
    for value in WRONG[argument]:
        given = {argument: value}
        if argument in ("rank", "world_size"):
            given = {"rank": 0, "world_size": 2, **given}
        if kind is oc.LinkNeighborLoader and argument == "replace":
            continue
        with pytest.raises(oc.OutercoreError) as refused:
            len(loader(kind, graph, **given))
        text = str(refused.value)
        assert re_words(argument) in text, (value, text)
        assert not any(word in text for word in ("line 1", "u32", "u64", "f64", "invalid type"))


def re_words(argument: str) -> str:
    """What a message calls the argument."""
    return {"hotness": "array", "labels": "array", "world_size": "", "memory": "memory"}.get(
        argument, argument
    )


def test_options_of_algorithms_are_checked_before_the_core_reads_them(graph: oc.Graph) -> None:
    for call, text in [
        (
            lambda: oc.pagerank(graph, damping="x"),
            "pagerank: damping: expected a number, found 'x'",
        ),
        (
            lambda: oc.pagerank(graph, max_iterations=2.5),
            "pagerank: max_iterations: expected a whole number, found 2.5",
        ),
        (
            lambda: oc.pagerank(graph, max_iterations=2**40),
            "pagerank: max_iterations: expected 0 to 4294967295",
        ),
        (lambda: oc.bfs(graph, source=0.5), "bfs: source: expected node ids, found 0.5"),
        (lambda: oc.closeness(graph, nodes=["a"]), "node `a`: the nodes have no names"),
        (
            lambda: oc.pagerank(graph, personalization={"a": 1.0}),
            "node `a`: the nodes have no names",
        ),
        (
            lambda: oc.NeighborLoader(graph, [2], ["a"]),
            "input_nodes: found the name `a`, but nodes",
        ),
        (lambda: oc.NeighborLoader(graph, [2], arrays=[3]), "expected a list of names, found 3"),
        (lambda: oc.NeighborLoader(graph, [2], [[1], [2, 3]]), "input_nodes: expected integers"),
        (lambda: oc.NeighborLoader("", [2]), "expected its directory, found an empty text"),
        (lambda: oc.NeighborLoader(graph, [2], memory=10**30), "expected less than 8,388,608 TiB"),
        (lambda: oc.pagerank(graph, memory=10**30), "expected less than 8,388,608 TiB"),
        (
            lambda: oc.NeighborLoader(graph, [2], rank=0, world_size=10**30),
            "world_size: expected 1 to 4294967295",
        ),
        (
            lambda: oc.NeighborLoader(graph, [2], rank=0, world_size=-1),
            "world_size: expected 1 to 4294967295, found -1",
        ),
        (lambda: oc.NeighborLoader(graph, [10**30]), "fan-out 10+ is out of range, expected -1 to"),
        (
            lambda: oc.LinkNeighborLoader(graph, [2], (("node", "edge", "node"), [[1], [2]])),
            "the graph has one type\nhint: `edge_label_index=edge_label_index.1.`",
        ),
        (
            lambda: oc.LinkNeighborLoader(graph, [2], [[1], [2, 3]]),
            "edge_label_index: expected whole numbers .2, links., found",
        ),
        (lambda: oc.NeighborSampler(graph, [2], batchsize=2), r"did you mean `batch_size`\?"),
        (lambda: oc.NeighborSampler(graph, [2], disjoint=True), "`oc.NeighborLoader` takes it"),
        (lambda: oc.predict(graph, object(), "scores.csv"), "directory of a run, found object"),
        (lambda: oc.train(graph, lr=0.1), "unknown option `lr`\nhint: .*`learning_rate`"),
        (lambda: oc.train(graph, num_neighbors=[2]), "hint: it is called `fanout` here"),
        (lambda: oc.embed(graph, hidden_channels=8), "hint: it is called `dim` here"),
        (lambda: oc.degrees(graph, which=3), "degrees: which: expected one of in, out, total"),
        (lambda: oc.grid(graph, partition_log2="x"), "partition_log2: expected a whole number"),
        (
            lambda: oc.grid(graph, relation=3),
            "relation of .*: expected .source type, name, target type., found 3",
        ),
        (lambda: oc.far.FarOptions(5), "far.address: expected a text, found 5"),
        (lambda: _core.partition_order({"kind": object()}), "expected a text, a number or a list"),
    ]:
        with pytest.raises(oc.InvalidError, match=text):
            call()


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "grid: invalid type: floating point `2.5`, expected u32",
            "grid: expected a whole number, 0 or more, found `2.5`",
        ),
        (
            'run: invalid type: string "x", expected f64',
            'run: expected a number, found "x"',
        ),
        (
            "run: invalid value: integer `-1`, expected u64",
            "run: expected a whole number, 0 or more, found `-1`",
        ),
        (
            "far: invalid type: sequence, expected i64",
            "far: expected a whole number, found a list",
        ),
        (
            "far: unknown variant `x`, expected `a` or `b`\nhint: b",
            "far: expected `a` or `b`, found `x`\nhint: b",
        ),
        ("far: missing field `a`", "far: missing field `a`"),
        ("`x.txt`: an id at line 3 column 5", "`x.txt`: an id at line 3 column 5"),
    ],
)
def test_what_the_core_says_of_a_value_has_no_text_of_its_format(message, expected) -> None:
    assert str(from_core("Invalid", message)) == expected
    assert str(from_core("Corrupt", message)) == message
