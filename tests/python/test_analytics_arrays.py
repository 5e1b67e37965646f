"""Arrays added to a data set: values of nodes, weights of edges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naive
import outercore as oc
from outercore import _core
from outercore.analytics import AnalysisConfig, recorded_run
from outercore.errors import InvalidError


def test_arrays_are_added_with_their_type_and_shape(tmp_path: Path) -> None:
    graph, _ = naive.write(tmp_path / "graph", 5, [0, 1], [1, 2])
    for dtype in ("float32", "float64", "int8", "uint64", "bool", "float16"):
        graph.add_edge_array(dtype, np.array([0, 1], dtype))
        assert graph.array(dtype).dtype == dtype
        assert graph.arrays[f"edges/edge/{dtype}"]["shape"] == [2]
    graph.add_node_array("wide", np.arange(10.0).reshape(5, 2), origin="a test")
    np.testing.assert_array_equal(
        oc.open(graph.root).array("wide"), [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    )
    assert graph.manifest["provenance"]["options"]["nodes/node/wide"] == "a test"
    assert _core.check(str(graph.root), None)["sound"]


def test_features_and_labels_are_not_written_over(tiny_dataset_path: Path) -> None:
    graph = oc.open(tiny_dataset_path)
    with pytest.raises(InvalidError, match="node array `x` has the features"):
        graph.add_node_array("x", np.ones(graph.num_nodes), overwrite=True)
    with pytest.raises(InvalidError, match="node array `y` has the labels"):
        graph.add_node_array("y", np.ones(graph.num_nodes))


def test_edge_arrays_have_a_value_an_imported_row(tmp_path: Path) -> None:
    graph, _ = naive.write(tmp_path / "graph", 5, [0, 1], [1, 2], undirected=True)
    assert (graph.num_edges, graph.num_edge_rows) == (4, 2)
    for values, message in (
        (np.ones(4), "expected 2 rows: edges imported"),
        (np.float64(1), "expected 2 rows"),
        (np.array(["a", "b"]), "expected numbers"),
    ):
        with pytest.raises(InvalidError, match=message):
            graph.add_edge_array("w", values)
    with pytest.raises(InvalidError, match="is the topology"):
        graph.add_edge_array("sources", np.ones(2))
    with pytest.raises(InvalidError):
        graph.add_edge_array("../w", np.ones(2))
    with pytest.raises(oc.NotFoundError, match="there is no edge type `a,b,c`"):
        graph.add_edge_array("w", np.ones(2), edge_type=("a", "b", "c"))
    graph.add_edge_array("w", np.array([3.0, 4.0]), edge_type=graph.edge_types[0])
    assert graph.array("edges/edge/w").tolist() == [3, 4]


def test_edge_weights_are_imported_with_the_edges(tmp_path: Path, outcome: Any) -> None:
    np.save(tmp_path / "edges.npy", np.array([[0, 1], [1, 2], [0, 2]]))
    np.save(tmp_path / "weights.npy", np.array([1.5, 2.0, 9.0]))
    command = ["import", tmp_path / "edges.npy", "--undirected", "--out", tmp_path / "graph"]
    code, _, err = outcome(*command, "--weight", tmp_path / "weights.npy", "--json")
    assert code == 0, err
    graph = oc.open(tmp_path / "graph")
    np.testing.assert_array_equal(graph.array("weight"), [1.5, 2.0, 9.0])
    np.save(tmp_path / "short.npy", np.array([1.5]))
    np.save(tmp_path / "wide.npy", np.ones((3, 2)))
    np.save(tmp_path / "holes.npy", np.array([1.0, np.nan, np.inf]))
    for name, message in (
        ("holes", "1 NaN and 1 infinite values among 3, the first at row 1"),
        ("short", "1 rows, but the edge lists have 3 edges"),
        ("wide", "holds 2 columns, expected one"),
        ("none", "neither a column of the edges nor a file"),
    ):
        path = tmp_path / f"{name}.npy"
        code, _, err = outcome(*command, "--overwrite", "--weight", path)
        assert code == 1
        assert message in err


def test_a_result_that_is_saved_already_is_neither_read_into_memory_nor_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, _ = naive.write(tmp_path / "graph", 50, np.arange(49), np.arange(1, 50))
    done = oc.run("degrees", graph, save="degree")

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the array was read or written")

    monkeypatch.setattr(oc.Graph, "array", refuse)
    monkeypatch.setattr(oc.Graph, "add_node_array", refuse)
    config = AnalysisConfig("degrees", {}, save="degree")
    recorded_run._write_results(config, graph, done)
    changed = replace(done, values=done.values + 1)
    with pytest.raises(AssertionError):
        recorded_run._write_results(config, graph, changed)
