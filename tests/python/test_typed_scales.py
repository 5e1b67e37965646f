"""Features of typed graphs are standardised: columns of any scale can be learnt from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from outercore.training import typed_network as scales  # noqa: E402
from outercore.training.typed_network import FeatureMap, column_scales  # noqa: E402


class OneArray:
    """A graph of one array, and which of its rows were read."""

    def __init__(self, values: np.ndarray) -> None:
        self.arrays = {"x": {"shape": list(values.shape)}}
        self.values = values
        self.read: list[int] = []

    def rows(self, key: str, ids: np.ndarray) -> np.ndarray:
        self.read += ids.tolist()
        return self.values[ids]


def scales_of(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    graph: Any = OneArray(values)
    return column_scales(graph, "x")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
@pytest.mark.parametrize("rows", [1, 7, 3_000])
def test_dense_columns_get_mean_zero_and_deviation_one(dtype: str, rows: int) -> None:
    random = np.random.default_rng(0)
    values = random.integers(1, 200, size=(rows, 5)).astype(dtype)
    centre, scale = scales_of(values)
    exact = values.astype(np.float64)
    np.testing.assert_allclose(centre, exact.mean(axis=0), rtol=1e-6)
    if rows > 1:
        np.testing.assert_allclose(scale, exact.std(axis=0), rtol=1e-6)
    assert np.isfinite(scale).all()
    assert (scale > 0).all()


def test_years_keep_their_differences() -> None:
    years = np.random.default_rng(0).integers(2010, 2020, size=(5_000, 1)).astype(np.float32)
    features = FeatureMap(1, 1)
    features.standardise(*scales_of(years))
    with torch.no_grad():
        features.linear.weight.fill_(1)
        features.linear.bias.fill_(0)
        found = features(torch.from_numpy(years)).numpy()
    assert abs(found.mean()) < 1e-4
    assert abs(found.std() - 1) < 1e-4


def test_a_column_of_one_value_says_nothing() -> None:
    centre, scale = scales_of(np.full((400, 2), [0.1, 2015.0]))
    np.testing.assert_allclose(centre, [0.1, 2015.0], rtol=1e-6)
    assert scale.tolist() == [1, 1]


def test_columns_that_are_mostly_zero_keep_their_zeros() -> None:
    values = np.zeros((1_000, 3), np.float32)
    values[:400, 0] = 1
    values[:300, 1] = 0.25
    values[:100, 2] = 5_000
    centre, scale = scales_of(values)
    assert centre.tolist() == [0, 0, 0]
    # Words and shares stay as they are; counts come down to 1.
    assert scale.tolist() == [1, 1, 5_000]


def test_values_that_are_no_numbers_leave_a_column_as_it_is() -> None:
    values = np.ones((10, 2), np.float32)
    values[3, 0] = np.nan
    centre, scale = scales_of(values)
    assert (centre[0], scale[0]) == (0, 1)
    assert (centre[1], scale[1]) == (1, 1)


@pytest.mark.parametrize("rows", [65_536, 65_537, 1_000_003])
def test_evenly_spaced_rows_are_read_once_and_in_order(rows: int) -> None:
    graph: Any = OneArray(np.ones((rows, 1), np.int8))
    column_scales(graph, "x")
    assert len(graph.read) == 65_536
    assert (graph.read[0], graph.read[-1]) == (0, rows - 1)
    assert (np.diff(graph.read) > 0).all()


def test_the_size_of_the_pieces_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(1e4, 1, size=(1_000, 4))
    whole = scales_of(values)
    monkeypatch.setattr(scales, "_PIECE", 12)
    for one, other in zip(whole, scales_of(values), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_type_without_nodes_has_scales(tmp_path: Path) -> None:
    centre, scale = scales_of(np.zeros((0, 3), np.float32))
    assert (centre.tolist(), scale.tolist()) == ([0, 0, 0], [1, 1, 1])
