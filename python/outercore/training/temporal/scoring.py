"""Scores of later edges, each by the neighbourhoods that its ends have at its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.runs.progress import Observer
from outercore.runs.stop import StopRequest
from outercore.training.config import LinkMetric
from outercore.training.links.metrics import LinkScores, least_negatives
from outercore.training.temporal.links import NEGATIVES, TimedLinks
from outercore.training.temporal.network import TemporalLinkModel

if TYPE_CHECKING:
    from outercore.training.temporal.work import TemporalLoaders


class TemporalScoring:
    """Evaluates a model on the edges that come after those it was trained on.

    Errors: `InvalidError` where a part has too few negatives for the metric.
    """

    def __init__(
        self,
        links: TimedLinks,
        model: TemporalLinkModel,
        metric: LinkMetric,
        loaders: TemporalLoaders,
        device: torch.device,
        observer: Observer,
        stop: StopRequest,
    ) -> None:
        self._links, self._model, self._metric = links, model, metric
        self._loaders, self._device = loaders, device
        self._observer, self._stop = observer, stop
        for part in links.parts:
            if links.count(part) * NEGATIVES < least_negatives(metric):
                raise InvalidError(
                    f"metric `{metric}`: expected at least {least_negatives(metric)} negatives in "
                    f"part `{part}`, found {links.count(part)}\n"
                    "hint: choose another by `--metric`, or hold out more"
                )

    def validation_kind(self) -> str:
        """How epochs are scored: `sampled`, or `none` without later edges."""
        return "sampled" if "valid" in self._links.parts else "none"

    def validation(self) -> float | None:
        """The score on the validation edges; `None` where there are none."""
        return self.scores("valid").value() if "valid" in self._links.parts else None

    def final(self) -> dict[str, LinkScores]:
        """Scores on all held-out parts."""
        return {part: self.scores(part) for part in self._links.parts}

    def scores(self, part: str, *, sampled: bool = True) -> LinkScores:
        """The scores of a held-out part, from sampled neighbours; the same at every call."""
        assert sampled, "what sees the past alone has no states that all share"
        positive: list[NDArray[np.float32]] = []
        negative: list[NDArray[np.float32]] = []
        training = self._model.training
        self._model.eval()
        try:
            with self._loaders.evaluation(**self._loaders.of_links(part, NEGATIVES)) as loader:
                self._observer.evaluation_started(part, len(loader), 0)
                for batch in loader:
                    self._stop.check()
                    self._observer.evaluation_advanced(1)
                    for scores, found in zip(
                        (positive, negative), self._of_batch(batch), strict=True
                    ):
                        scores.append(found)
        finally:
            self._model.train(training)
        return LinkScores(self._metric, np.concatenate(positive), np.concatenate(negative))

    @torch.no_grad()
    def _of_batch(self, batch: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        positive, negative = self._model(batch.to(self._device))
        return positive.cpu().numpy(), negative.flatten().cpu().numpy()
