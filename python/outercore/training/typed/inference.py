"""Predictions on typed graphs: with sampled neighbours, or exact, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from outercore.training.inference import LayerByLayer, Prediction, evaluating, prediction_of
from outercore.training.streamed.steps import Computation
from outercore.training.typed.streamed import of_typed_network


class TypedInference(LayerByLayer):
    """Over nodes of the labelled type."""

    def sampled(
        self, nodes: NDArray[np.int64] | None, what: str = "validation"
    ) -> Iterator[Prediction]:
        """As `LayerByLayer.sampled`."""
        labelled = self._model.schema.labelled
        with evaluating(self._model):
            for batch in self._passes.sampled(what, (labelled, nodes), self._loaders.features()):
                with torch.no_grad():
                    logits = self._model(batch)
                yield prediction_of(batch[labelled], logits)

    def _computation(self) -> Computation:
        features = self._loaders.features() or {}
        return of_typed_network(self._model, features, self._sampling.precision)

    def _labels(self, nodes: NDArray[np.int64]) -> NDArray:
        name, roles = self._sampling.labels, self._graph.manifest["roles"]
        own = f"nodes/{self._model.schema.labelled}/{name}"
        key = roles.get("labels") if name == "y" else own
        return np.empty(0) if key is None else self._graph.rows(key, nodes)
