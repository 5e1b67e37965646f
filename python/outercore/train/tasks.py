"""What a network is asked: one class a node, or several labels a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from outercore.errors import InvalidError, NotFoundError
from outercore.train.metrics import Metric, build_metric

if TYPE_CHECKING:
    from outercore.graph import Graph


@dataclass(frozen=True)
class Task:
    """Loss and metric of a node prediction task."""

    kind: Literal["classes", "labels"]
    """`classes`: int64 [N], negative for none. `labels`: float32 [N, outputs] of 0, 1, NaN."""
    outputs: int
    metric_name: str

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean cross entropy over the labelled rows; zero (with a gradient) where none is."""
        if self.kind == "classes":
            known = labels >= 0
            if not bool(known.any()):
                return logits.sum() * 0.0
            return functional.cross_entropy(logits[known], labels[known].long())
        known = ~torch.isnan(labels)
        if not bool(known.any()):
            return logits.sum() * 0.0
        return functional.binary_cross_entropy_with_logits(logits[known], labels[known].float())

    def metric(self) -> Metric:
        """A fresh accumulator of the task's metric."""
        return build_metric(self.metric_name)

    def predictions(self, logits: NDArray[np.float32]) -> NDArray:
        """Class numbers int64 [rows], or 0/1 uint8 [rows, outputs]."""
        if self.kind == "classes":
            return logits.argmax(axis=1)
        return (logits > 0).astype(np.uint8)


def array_key(graph: Graph, name: str) -> str:
    """The manifest key of the node array that users call `name`."""
    manifest: dict[str, Any] = graph.manifest
    roles = manifest.get("roles", {})
    key = {"x": roles.get("features"), "y": roles.get("labels")}.get(name) or f"nodes/node/{name}"
    if key not in manifest["arrays"]:
        known = ", ".join(
            f"`{stored.removeprefix('nodes/node/')}`"
            for stored in manifest["arrays"]
            if stored.startswith("nodes/")
        )
        raise NotFoundError(
            f"data set `{graph.root}`: no node array `{name}`; it has {known or 'none'}\n"
            f"hint: import it with `--features`, `--labels` or `--array {name}=FILE`"
        )
    return key


def detect_task(graph: Graph, labels: str, metric: str = "auto") -> Task:
    """The task that the dtype and shape of the label array imply.

    Errors: `NotFoundError` where there are no labels, `InvalidError` for a shape that is none of
    the two.
    """
    described = graph.manifest["arrays"][array_key(graph, labels)]
    dtype, shape = described["dtype"], described["shape"]
    if len(shape) == 1 and "int" in dtype:
        outputs = graph.num_classes if labels == "y" else None
        if not outputs:
            outputs = int(graph.array(labels).max()) + 1
        if outputs < 2:
            raise InvalidError(f"labels `{labels}`: expected two or more classes, found {outputs}")
        name = "roc_auc" if outputs == 2 else "accuracy"
        return Task("classes", outputs, name if metric == "auto" else metric)
    if len(shape) == 2 and "float" in dtype:
        name = "roc_auc" if metric == "auto" else metric
        if name == "accuracy":
            raise InvalidError(
                "metric `accuracy`: expected one class a node, found several labels\n"
                "hint: use `--metric roc_auc` or `--metric f1_micro`"
            )
        return Task("labels", shape[1], name)
    raise InvalidError(
        f"labels `{labels}`: expected int64 [nodes] or float32 [nodes, labels], "
        f"found {dtype} {shape}"
    )
