"""Features of every type of number: stored as they are; in batches floats are float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import outercore as oc
from outercore.importing.build.graph import import_graph
from outercore.importing.edge_arrays import EdgeChoice
from outercore.importing.inputs import Inputs
from outercore.importing.options import ImportOptions
from outercore.importing.plain_graph import open_inputs

TYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
TYPES += ["float16", "float32", "float64"]
NODES = 40


def imported(tmp_path: Path, features: NDArray | str, **options: str) -> oc.Graph:
    """A ring with these features; a text is the content of a CSV file."""
    nodes = np.arange(NODES)
    np.save(tmp_path / "edges.npy", np.stack([nodes, (nodes + 1) % NODES]))
    path = tmp_path / ("x.csv" if isinstance(features, str) else "x.npy")
    if isinstance(features, str):
        path.write_text(features)
    else:
        np.save(path, features)
    inputs = Inputs(edges=(str(tmp_path / "edges.npy"),), features=str(path))
    import_graph(open_inputs(inputs), tmp_path / "graph", ImportOptions(**options))
    return oc.open(tmp_path / "graph")


def batch(graph: oc.Graph, **options: object) -> oc.sampler.SampledSubgraph:
    sampler = oc.NeighborSampler(graph, [2], np.arange(5), batch_size=5, features="x", **options)
    return next(iter(sampler))


@pytest.mark.parametrize("dtype", TYPES)
def test_features_are_stored_in_their_type_and_reach_batches(tmp_path: Path, dtype: str) -> None:
    values = (np.arange(NODES * 3).reshape(NODES, 3) % 100).astype(dtype)
    graph = imported(tmp_path, values)
    stored = graph.rows("x", np.arange(NODES))
    assert stored.dtype == values.dtype
    np.testing.assert_array_equal(stored, values)
    found = batch(graph)
    assert found.x is not None
    expected = np.float32 if values.dtype.kind == "f" else values.dtype
    assert found.x.dtype == expected
    np.testing.assert_array_equal(found.x, values[found.n_id].astype(expected))


def test_digits_of_float64_are_kept_and_rounded_in_batches_alone(tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=(NODES, 4))
    graph = imported(tmp_path, values)
    np.testing.assert_array_equal(graph.rows("x", np.arange(NODES)), values)
    found = batch(graph)
    np.testing.assert_array_equal(found.x, values[found.n_id].astype(np.float32))


def test_a_type_that_is_asked_for_is_stored(tmp_path: Path) -> None:
    values = np.arange(NODES * 2, dtype=np.int64).reshape(NODES, 2)
    graph = imported(tmp_path, values, feature_dtype="float32")
    assert graph.rows("x", np.arange(3)).dtype == np.float32


def test_numbers_of_a_text_have_no_type_and_are_float32(tmp_path: Path) -> None:
    lines = [f"{node},{node / 8}" for node in range(NODES)]
    graph = imported(tmp_path, "a,b\n" + "\n".join(lines) + "\n")
    rows = graph.rows("x", np.arange(NODES))
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows[:, 1], np.arange(NODES) / 8)


@pytest.mark.parametrize(
    ("value", "said"), [(1e300, "1e300"), (1e-60, "1e-60"), (2**24 + 1, "16777217")]
)
def test_a_value_that_float32_cannot_hold_stops_the_batch_with_its_place(
    tmp_path: Path, value: float, said: str
) -> None:
    values = np.zeros((NODES, 3), np.int64 if isinstance(value, int) else np.float64)
    values[4, 2] = value
    graph = imported(tmp_path, values)
    assert graph.rows("x", np.array([4]))[0, 2] == value
    with pytest.raises(oc.InvalidError, match=f"node 4: column 2: {said} of type"):
        batch(graph)
    again = tmp_path / "again"
    again.mkdir()
    with pytest.raises(oc.InvalidError, match="float32"):
        imported(again, values, feature_dtype="float32")


def test_weights_of_files_of_two_types_are_refused_where_the_common_one_rounds(
    tmp_path: Path,
) -> None:
    paths = [tmp_path / "whole.csv", tmp_path / "fractions.csv"]
    paths[0].write_text(f"src,dst,w\n0,1,3\n1,2,{2**53 + 1}\n")
    paths[1].write_text("src,dst,w\n2,3,0.5\n")
    inputs = Inputs(edges=tuple(map(str, paths)), edge_values=EdgeChoice(weight="w"))
    with pytest.raises(oc.InvalidError, match=r"`w`: row 1: 9007199254740993 would change"):
        import_graph(open_inputs(inputs), tmp_path / "graph")
