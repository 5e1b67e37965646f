"""Scores of later edges, each by the neighbourhoods that its ends have at its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.training.config import LinkMetric
from outercore.training.inference import Passes, Sizes, evaluating
from outercore.training.links.scoring import LinkScores, least_negatives
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
        passes: Passes,
    ) -> None:
        self._links, self._model, self._metric = links, model, metric
        self._loaders, self._passes = loaders, passes
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
        asked = self._loaders.of_links(part, NEGATIVES)
        # Negatives are a function of the batch: one of another size would have others.
        size = asked.pop("batch_size")
        with evaluating(self._model), torch.no_grad():
            for batch in self._passes.batches(part, Sizes(size, size), **asked):
                found = self._model(batch)
                positive.append(found[0].cpu().numpy())
                negative.append(found[1].flatten().cpu().numpy())
        return LinkScores(self._metric, np.concatenate(positive), np.concatenate(negative))
