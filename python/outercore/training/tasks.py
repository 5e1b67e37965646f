"""Prediction tasks: kinds of labels with losses and metrics; splits of nodes and graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from outercore.base.likeness import closest
from outercore.data.how_to_add import how_to_add
from outercore.data.many_graphs import FIRST, Labelled
from outercore.data.schema import NODE
from outercore.data.split_names import find_split
from outercore.errors import CorruptError, InvalidError, NotFoundError
from outercore.files.large_arrays import blocks, mapped
from outercore.training.config import LinkMetric, SamplingConfig, TaskName
from outercore.training.metrics import Metric, build_metric

Kind = Literal["classes", "labels", "values", "links"]

TASKS: dict[Kind, TaskName] = {
    "classes": "classification",
    "labels": "multi-label",
    "values": "regression",
    "links": "link",
}
"""The names that users see for the kinds of labels."""

_METRICS: dict[Kind, tuple[str, ...]] = {
    "classes": ("accuracy", "roc_auc", "f1_micro", "f1_macro"),
    "labels": ("roc_auc", "f1_micro", "f1_macro"),
    "values": ("r2", "mse", "rmse", "mae"),
    "links": get_args(LinkMetric),
}
"""The metrics of each kind of labels. The default is the first one, or `roc_auc` for two classes.
"""

_ERRORS = ("mse", "rmse", "mae")
"""Metrics for which smaller is better."""

_MANY = 1 << 16
"""Number of classes that any data set may have. Large data sets may have as many as nodes."""


@dataclass(frozen=True)
class Task:
    """The loss and the metric of a prediction task, for the labels of N nodes or graphs."""

    kind: Kind
    """The kind of labels. `classes`: integers [N], negative for unlabelled. `labels`: 0 and 1 [N,
    outputs], NaN or -1 for unlabelled. `values`: numbers [N] or [N, outputs], NaN for unlabelled.
    `links`: edges, without labels."""
    outputs: int
    metric_name: str
    means: tuple[float, ...] = ()
    """For `values`: the mean of each column over the training split. The network learns values
    minus their mean, divided by their deviation. So the unit of the values does not matter."""
    deviations: tuple[float, ...] = ()

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean cross entropy of known labels, or the mean squared error of standardised values.

        It is never below 0. Without known labels it is 0, with a gradient.

        Errors: `CorruptError` for a class beyond the last, or a label that is neither 0 nor 1.
        """
        if self.kind == "values":
            wide = labels.double().reshape(logits.shape)
            means, deviations = (
                torch.as_tensor(of, dtype=torch.float64, device=wide.device) for of in self._units
            )
            labels = ((wide - means) / deviations).to(logits.dtype)
            known = ~torch.isnan(labels)
        else:
            # The comparison is also false for NaN.
            known = labels >= 0
        if not bool(known.any()):
            return logits.sum() * 0.0
        chosen = labels[known]
        if self.kind == "values":
            return functional.mse_loss(logits[known], chosen)
        self._require_range(float(chosen.min()), float(chosen.max()), chosen)
        if self.kind == "classes":
            return functional.cross_entropy(logits[known], chosen.long())
        return functional.binary_cross_entropy_with_logits(logits[known], chosen.to(logits.dtype))

    def _require_range(self, least: float, most: float, chosen: Tensor) -> None:
        if self.kind == "classes":
            if most >= self.outputs:
                raise CorruptError(
                    f"labels `y`: label {most:g}: expected classes 0 to {self.outputs - 1}\n"
                    "hint: run `outercore check` on the data set"
                )
        elif most > 1 or bool(((chosen != 0) & (chosen != 1)).any()):
            wrong = float(chosen[(chosen != 0) & (chosen != 1)][0])
            raise CorruptError(
                f"labels `y`: label {wrong:g}: expected 0, 1, or none (NaN, -1)\n"
                "hint: run `outercore check` on the data set"
            )

    def metric(self) -> Metric:
        """A new, empty metric of the task."""
        return build_metric(self.metric_name)

    def update(self, metric: Metric, logits: NDArray[np.float32], labels: NDArray) -> None:
        """Adds a batch to a metric.

        Errors: as `loss`.
        """
        if self.kind == "classes" and labels.dtype.kind == "f":
            labels = np.where(np.isnan(labels), -1, labels).astype(np.int64)
        if self.kind == "values":
            wide = np.asarray(labels, np.float64).reshape(logits.shape)
            metric.update(self.scores(logits), wide)
            return
        known = torch.from_numpy(np.ascontiguousarray(labels[labels >= 0]))
        if len(known):
            self._require_range(float(known.min()), float(known.max()), known)
        metric.update(logits, labels)

    def scores(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """The scores for a metric: the network's outputs; `values` in the unit of the labels."""
        if self.kind != "values":
            return logits
        means, deviations = (np.asarray(of) for of in self._units)
        return (logits * deviations + means).astype(np.float32)

    def probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """The probabilities of classes or labels, float32 [rows, outputs]."""
        wide = torch.from_numpy(logits)
        return (wide.softmax(dim=1) if self.kind == "classes" else wide.sigmoid()).numpy()

    @property
    def name(self) -> TaskName:
        """The name that users see for the task."""
        return TASKS[self.kind]

    @property
    def _units(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The means and deviations of `values`; 0 and 1 if they are not set."""
        return self.means or (0.0,) * self.outputs, self.deviations or (1.0,) * self.outputs

    def better(self, score: float | None, best: float | None) -> bool:
        """Whether a validation score is better than the best earlier score."""
        if best is None or score is None:
            return best is None
        return score < best if self.metric_name in _ERRORS else score > best

    def shape(self, rows: int) -> tuple[int, ...]:
        """The shape of the predictions for this number of rows."""
        single = self.kind == "classes" or (self.kind == "values" and self.outputs == 1)
        return (rows,) if single else (rows, self.outputs)

    @property
    def dtype(self) -> type[np.generic]:
        """The type of predictions."""
        kinds: dict[Kind, type[np.generic]] = {"classes": np.int64, "labels": np.uint8}
        return kinds.get(self.kind, np.float32)

    def predictions(self, logits: NDArray[np.float32]) -> NDArray:
        """Predicted classes int64 [rows], 0/1 labels uint8 [rows, outputs], or values float32."""
        if self.kind == "classes":
            return logits.argmax(axis=1)
        if self.kind == "labels":
            return (logits > 0).astype(np.uint8)
        return self.scores(logits).reshape(self.shape(len(logits)))


def array_key(graph: Labelled, name: str) -> str:
    """The manifest key of an array of the labelled type. `x` means its features, `y` its labels."""
    schema = graph.schema
    prefix = f"nodes/{schema.labelled_type or NODE}/"
    key = {"x": schema.features, "y": schema.labels}.get(name) or prefix + name
    if key not in schema.arrays:
        known = ", ".join(
            f"`{stored.removeprefix(prefix)}`"
            for stored in schema.arrays
            if stored.startswith(prefix)
        )
        raise NotFoundError(
            f"data set `{graph.root}`: no node array `{name}`; it has {known or 'none'}\n"
            f"hint: {how_to_add(graph.root, '--array', f'{name}=FILE')}"
        )
    return key


def link_task(metric: str, width: int) -> Task:
    """The task to predict edges by embeddings with `width` dimensions.

    Errors: `InvalidError` for a metric of another task.
    """
    names = _METRICS["links"]
    chosen = names[0] if metric == "auto" else metric
    if chosen not in names:
        raise InvalidError(
            f"metric `{metric}`: edges are scored by {', '.join(names)}\n"
            "hint: choose one of these by `--metric`"
        )
    return Task("links", width, chosen)


def detect_task(
    graph: Labelled,
    labels: str,
    metric: str = "auto",
    task: Literal["auto", "graph", TaskName] = "auto",
    nodes: NDArray[np.int64] | None = None,
) -> Task:
    """The task for an array of labels: the chosen `task`, or the task that the array implies.

    Integers [N] imply classes. Floats [N] imply classes if all of them are whole numbers from -1 on
    or NaN, else numbers to predict. Several columns imply labels of 0, 1, -1 and NaN; numbers to
    predict in several columns need a chosen `task`, unless they were imported as such. Means and
    deviations of numbers are computed over `nodes`.

    Cost: one pass over the array, except for imported classes.
    Errors: `NotFoundError` without labels; `InvalidError` with the first wrong value if the array
    does not fit the task.
    """
    array = _Labels(graph, labels)
    kind = next((kind for kind, name in TASKS.items() if name == task), None)
    if kind is None:
        kind = array.guess()
    outputs = {"classes": array.classes, "labels": array.columns, "values": array.numbers}[kind]()
    names = _METRICS[kind]
    if metric == "auto":
        metric = "roc_auc" if kind == "classes" and outputs == 2 else names[0]
    elif metric not in names:
        known = " or ".join(f"`--metric {name}`" for name in names)
        raise InvalidError(
            f"metric `{metric}`: labels `{labels}` are a {TASKS[kind]} target\nhint: use {known}"
        )
    if kind != "values" or nodes is None:
        return Task(kind, outputs, metric)
    return Task(kind, outputs, metric, *array.units(nodes))


class _Labels:
    """Inspects an array of labels, block by block."""

    def __init__(self, graph: Labelled, name: str) -> None:
        self._graph = graph
        self._name = name
        self._key = array_key(graph, name)
        entry = graph.schema.arrays[self._key]
        self._dtype, self._shape = entry["dtype"], entry["shape"]
        self._imported = name == "y"
        if len(self._shape) not in (1, 2):
            raise InvalidError(
                f"{self._what}: expected [nodes] or [nodes, labels], found {self._shape}"
            )

    @property
    def _what(self) -> str:
        return f"labels `{self._name}`"

    @property
    def _is_float(self) -> bool:
        return "float" in self._dtype

    def guess(self) -> Kind:
        """The kind of labels that type, shape and values of the array imply."""
        if len(self._shape) == 2:
            # The importer uses double precision only for numbers to predict.
            return "values" if self._imported and self._dtype == "float64" else "labels"
        if not self._is_float:
            return "classes"
        if self._imported:
            return "values"
        whole = all(_are_classes(block).all() for _, block in self._blocks())
        return "classes" if whole else "values"

    def classes(self) -> int:
        """The number of classes.

        Errors: `InvalidError` for a value that cannot be a class, fewer than two classes, or too
        many.
        """
        if len(self._shape) == 2:
            raise self._not("classification", f"{self._shape[1]} columns", "[nodes]", "multi-label")
        count = self._graph.num_classes if self._imported else None
        if not count:
            count = 0
            for first, block in self._blocks():
                if len(wrong := np.flatnonzero(~_are_classes(block))):
                    value = f"{block[wrong[0]]:g} in row {first + wrong[0]}"
                    whole = "whole numbers from 0 on, -1 or NaN for none"
                    raise self._not("classification", value, whole, "regression")
                most = np.nanmax(block) if (block >= 0).any() else -1
                count = max(count, int(most) + 1)
        if count < 2:
            raise InvalidError(f"{self._what}: expected two or more classes, found {count}")
        nodes = self._graph.schema.num_labelled
        if count > max(_MANY, nodes):
            raise InvalidError(
                f"{self._what}: the largest class is {count - 1:,}, expected at most "
                f"{max(_MANY, nodes) - 1:,} with {nodes:,} nodes\n"
                "hint: number the classes 0, 1, 2, ... and import them again; "
                "`--task regression` predicts numbers"
            )
        return int(count)

    def columns(self) -> int:
        """The number of labels of a node.

        Errors: `InvalidError` for a value other than 0, 1, -1 and NaN.
        """
        if len(self._shape) == 1:
            raise self._not("multi-label", "one column", "[nodes, labels]", "classification")
        for first, block in self._blocks():
            bad = ~(np.isin(block, (0, 1, -1)) | np.isnan(block.astype(np.float64)))
            if bad.any():
                row, column = (int(place) for place in np.argwhere(bad)[0])
                value = f"{block[row, column]:g} in row {first + row}, column {column}"
                raise self._not("multi-label", value, "0, 1, or none (NaN, -1)", "regression")
        return int(self._shape[1])

    def numbers(self) -> int:
        """The number of columns of numbers to predict.

        Errors: `InvalidError` for an infinite number.
        """
        for first, block in self._blocks() if self._is_float else ():
            if (wide := np.isinf(block.astype(np.float64))).any():
                row = first + int(np.argwhere(wide)[0][0])
                raise InvalidError(
                    f"{self._what}: expected finite numbers, found one in row {row} that is not"
                )
        return int(self._shape[1]) if len(self._shape) == 2 else 1

    def units(self, nodes: NDArray[np.int64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The means and deviations of columns over `nodes`; a column of equal numbers gets 1."""
        values = np.asarray(self._array()[nodes], np.float64).reshape(len(nodes), -1)
        known = ~np.isnan(values)
        count = np.maximum(known.sum(axis=0), 1)
        means = np.where(known, values, 0.0).sum(axis=0) / count
        spread = np.where(known, values - means, 0.0)
        deviations = np.sqrt((spread**2).sum(axis=0) / count)
        # Due to rounding, the deviation of equal numbers may be slightly above 0.
        deviations[deviations <= 1e-12 * np.abs(means)] = 1.0
        return tuple(means.tolist()), tuple(deviations.tolist())

    def _not(self, task: str, found: str, expected: str, other: str) -> InvalidError:
        return InvalidError(
            f"{self._what}: a {task} target has {expected}; found {found}\n"
            f"hint: `--task {other}`, or choose another array by `--labels`"
        )

    def _blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        if self._shape[0]:
            yield from blocks(self._array())

    def _array(self) -> NDArray[Any]:
        if self._dtype == "bfloat16":
            values: NDArray[Any] = self._graph.array(self._key)
            return values
        return mapped(Path(self._graph.root), self._graph.schema.arrays[self._key])


def _are_classes(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value is a class number, or -1 or NaN for unlabelled."""
    if values.dtype.kind != "f":
        found: NDArray[np.bool_] = np.asarray(values >= -1)
        return found
    wide = values.astype(np.float64)
    return np.isnan(wide) | ((wide >= -1) & (np.floor(wide) == wide) & np.isfinite(wide))


def with_splits(
    graph: Labelled, sampling: SamplingConfig, note: Callable[[str], None] = lambda _: None
) -> SamplingConfig:
    """Replaces the splits in a configuration by their names in the data set.

    `note` is called with missing splits, and with splits that a training does not use.

    Errors: `NotFoundError` without a split to train on, `InvalidError` for an empty split.
    """
    wanted = (sampling.train, sampling.valid, sampling.test)
    train, valid, test = (find_split(name, graph.splits) for name in wanted)
    if train is None:
        raise _missing(graph, sampling.train)
    used = [name for name in (train, valid, test) if name is not None]
    for name in used:
        nodes_of(graph, name)
    if valid is None:
        note(
            f"no split `{sampling.valid}`: nothing is validated, no epoch ends the training early, "
            "and the last one counts"
        )
    unused = [f"`{name}`" for name in graph.splits if name not in used]
    if unused:
        note(f"splits that training does not use: {', '.join(unused)}")
    return replace(sampling, train=train, valid=valid or sampling.valid, test=test or sampling.test)


def nodes_of(graph: Labelled, name: str) -> NDArray[np.int64]:
    """The nodes of a split.

    Errors: `NotFoundError` for an unknown split, `InvalidError` for an empty split.
    """
    split = find_split(name, graph.splits)
    if split is None:
        raise _missing(graph, name)
    nodes: NDArray[np.int64] = graph.split(split)
    if not len(nodes):
        raise InvalidError(
            f"data set `{graph.root}`: split `{split}` is empty, expected at least one node\n"
            "hint: import the data set again with nodes in it, or without this split"
        )
    return nodes


def _missing(graph: Labelled, name: str) -> NotFoundError:
    if FIRST in graph.schema.arrays:
        return NotFoundError(
            f"data set `{graph.root}`: no split `{name}` of nodes, its splits are those of graphs\n"
            "hint: `--task graph` learns from whole graphs"
        )
    known = ", ".join(f"`{split}`" for split in graph.splits) or "none"
    close = closest(name, graph.splits)
    adds = how_to_add(graph.root, "--split", f"{name}=FILE")
    return NotFoundError(
        f"data set `{graph.root}`: no split `{name}`; it has {known}\n"
        f"hint: {adds if close is None else f'did you mean `{close}`?'}"
    )
