"""Metrics batch by batch equal scikit-learn's over everything at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outercore.errors import InvalidError
from outercore.training.metrics import Metric, build_metric

sklearn = pytest.importorskip("sklearn.metrics")


def in_batches(name: str, scores: np.ndarray, labels: np.ndarray) -> float | None:
    metric: Metric = build_metric(name)
    for first in range(0, len(scores), 7):
        metric.update(scores[first : first + 7], labels[first : first + 7])
    return metric.value()


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(5, 60), st.integers(2, 4))
def test_single_label_metrics_equal_sklearn(seed: int, rows: int, classes: int) -> None:
    random = np.random.default_rng(seed)
    # Rounded, so that ties occur.
    scores = random.normal(size=(rows, classes)).round(1).astype(np.float32)
    labels = random.integers(-1, classes, size=rows)
    labels[0] = 0
    known = labels >= 0
    actual, predicted = labels[known], scores[known].argmax(axis=1)
    assert in_batches("accuracy", scores, labels) == pytest.approx((actual == predicted).mean())
    for average in ("micro", "macro"):
        expected = sklearn.f1_score(actual, predicted, average=average)
        assert in_batches(f"f1_{average}", scores, labels) == pytest.approx(expected)
    if classes == 2:
        area = in_batches("roc_auc", scores, labels)
        if len(set(actual)) == 1:
            assert area is None
        else:
            margin = scores[known, 1] - scores[known, 0]
            assert area == pytest.approx(sklearn.roc_auc_score(actual, margin))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(8, 60))
def test_multi_label_metrics_skip_unknown_labels(seed: int, rows: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.normal(size=(rows, 3)).round(1).astype(np.float32)
    labels = random.integers(0, 2, size=(rows, 3)).astype(np.float32)
    labels[random.random(labels.shape) < 0.2] = np.nan
    labels[:2] = [[0, 0, 0], [1, 1, 1]]
    areas = []
    for column in range(3):
        known = ~np.isnan(labels[:, column])
        areas.append(sklearn.roc_auc_score(labels[known, column], scores[known, column]))
    assert in_batches("roc_auc", scores, labels) == pytest.approx(np.mean(areas))
    known = ~np.isnan(labels)
    expected = sklearn.f1_score(labels[known], scores[known] > 0)
    assert in_batches("f1_micro", scores, labels) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["accuracy", "roc_auc", "f1_micro"])
def test_a_metric_without_labels_has_no_value(name: str) -> None:
    assert build_metric(name).value() is None
    assert in_batches(name, np.zeros((3, 2), np.float32), np.full(3, -1)) is None


def test_unknown_and_unfitting_metrics_are_refused() -> None:
    with pytest.raises(InvalidError, match="expected accuracy"):
        build_metric("auc")
    with pytest.raises(InvalidError, match="expected two classes, found 3"):
        in_batches("roc_auc", np.zeros((3, 3), np.float32), np.zeros(3, np.int64))
