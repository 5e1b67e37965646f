"""Scores of held-out edges: embeddings of their ends, then the head over the pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.errors import InvalidError
from outercore.files.atomic import device_errors
from outercore.files.large_arrays import forget
from outercore.files.npy import NpyRows
from outercore.training.config import LinkMetric, TrainConfig
from outercore.training.inference import Inference, evaluating
from outercore.training.links.data import LinkData
from outercore.training.links.metrics import LinkScores, OwnNegatives, least_negatives
from outercore.training.links.model import LinkModel
from outercore.training.scoring import validates_fully

_PAIRS = 1 << 14
"""Pairs that are scored together."""
TABLE = "table.npy"

PairScores: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Scores float32 [n] of pairs of nodes int64 [n, 2]."""


def _require_ranked(metric: LinkMetric, part: str) -> None:
    if metric == "average_precision":
        raise InvalidError(
            f"metric `{metric}`: part `{part}` has negatives of its own for each edge, and no "
            "threshold for all\nhint: choose `mrr` by `--metric`"
        )


class LinkScoring:
    """Evaluates a model on the held-out edges of a run."""

    def __init__(
        self,
        data: LinkData,
        config: TrainConfig,
        model: LinkModel,
        metric: LinkMetric,
        inference: Inference,
        scratch: Path,
        device: torch.device,
    ) -> None:
        """`inference` runs the encoder over the graph of training edges; where the model has a
        table, it reads features from the file `TABLE` in `scratch`.

        Errors: `InvalidError` where a part has too few negatives for the metric.
        """
        self._data, self._config, self._model, self._metric = data, config, model, metric
        self._inference, self._scratch, self._device = inference, scratch, device
        for part in data.parts:
            if data.part(part).targets is not None:
                _require_ranked(metric, part)
                continue
            found = len(data.part(part).negatives)
            if found < least_negatives(metric):
                raise InvalidError(
                    f"metric `{metric}`: expected at least {least_negatives(metric)} negatives in "
                    f"part `{part}`, found {found}\nhint: choose another by `--metric`, or hold "
                    "out more"
                )

    def validation_kind(self) -> str:
        """How epochs are scored: `full`, `sampled`, or `none` without validation edges."""
        if "valid" not in self._data.parts:
            return "none"
        full = validates_fully(self._config.run.validation, self._data.graph.num_edges)
        return "full" if full else "sampled"

    def validation(self) -> float | None:
        """The score on the validation edges; `None` where there are none."""
        kind = self.validation_kind()
        return None if kind == "none" else self.scores("valid", sampled=kind == "sampled").value()

    def final(self) -> dict[str, LinkScores]:
        """Exact scores on all held-out parts."""
        return {part: self.scores(part) for part in self._data.parts}

    def scores(self, part: str, *, sampled: bool = False) -> LinkScores:
        """The scores of a held-out part, from all neighbours or from sampled ones.

        Cost: those of `Inference`; the embeddings of all ends lie on disk meanwhile.
        """
        pairs = self._data.part(part)
        nodes = np.unique(np.concatenate([pairs.edges.ravel(), pairs.negatives.ravel()]))
        if pairs.targets is None:
            with self.embedded(nodes, sampled=sampled) as scored:
                return LinkScores(self._metric, scored(pairs.edges), scored(pairs.negatives))
        count = pairs.targets.shape[1]
        some_edges = max(1, _PAIRS // count)
        for first in range(0, len(pairs.targets), some_edges):
            nodes = np.union1d(nodes, pairs.targets[first : first + some_edges])
        with self.embedded(nodes, sampled=sampled) as scored:
            found = OwnNegatives(self._metric, scored(pairs.edges))
            for first in range(0, len(pairs.targets), some_edges):
                targets = np.asarray(pairs.targets[first : first + some_edges])
                sources = pairs.edges[first : first + some_edges, :1].repeat(count, axis=1)
                made = np.stack([sources, targets], axis=-1).reshape(-1, 2)
                found.add(scored(made).reshape(-1, count))
        return found

    @contextmanager
    def embedded(self, nodes: NDArray[np.int64], *, sampled: bool = False) -> Iterator[PairScores]:
        """Scores of pairs of `nodes`, which ascend, as long as the block runs.

        Cost: those of `Inference`; the embeddings of all nodes lie on disk meanwhile.
        """
        with device_errors(f"embeddings `{self._scratch}`"):
            self._scratch.mkdir(parents=True, exist_ok=True)
        self._write_table()
        shape = (len(nodes), self._model.outputs)
        rows = NpyRows(self._scratch / "ends.npy", shape, durable=False)
        run = self._inference.sampled if sampled else self._inference.exact
        with rows:
            for prediction in run(nodes):
                rows.append(prediction.logits)
        embeddings = np.load(rows.path, mmap_mode="r")
        try:
            with evaluating(self._model.head):
                yield lambda pairs: self._of_pairs(embeddings, np.searchsorted(nodes, pairs))
        finally:
            rows.remove()

    def _write_table(self) -> None:
        if self._model.table is None:
            return
        weight = self._model.table.weight.detach().cpu().numpy()
        with NpyRows(self._scratch / TABLE, weight.shape, durable=False) as rows:
            rows.append(weight)

    @torch.no_grad()
    def _of_pairs(
        self, embeddings: NDArray[np.float32], places: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        scores = np.empty(len(places), np.float32)
        for start in range(0, len(places), _PAIRS):
            some = places[start : start + _PAIRS]
            first, second = (self._rows(embeddings, column) for column in some.T)
            scores[start : start + len(some)] = self._model.head(first, second).cpu().numpy()
            forget(embeddings)
        return scores

    def _rows(self, embeddings: NDArray[np.float32], places: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(embeddings[places]).to(self._device)
