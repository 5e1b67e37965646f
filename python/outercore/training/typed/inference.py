"""Predictions on typed graphs: with sampled neighbours, or exact, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.runs.files import NpyRows
from outercore.runs.progress import Observer
from outercore.runs.stop import StopRequest
from outercore.training.config import SamplingConfig
from outercore.training.degrees import largest_window
from outercore.training.inference import (
    Passes,
    Prediction,
    evaluating,
    layer_directory,
    prediction_of,
)
from outercore.training.loaders import Loaders
from outercore.training.typed.convolutions import TypedHop
from outercore.training.typed.models import TypedNetwork

if TYPE_CHECKING:
    from outercore.graph import Graph


class TypedInference:
    """Runs a network over chosen nodes of the labelled type; a `Predictor`."""

    def __init__(
        self,
        graph: Graph,
        model: TypedNetwork,
        sampling: SamplingConfig,
        loaders: Loaders,
        *,
        scratch: Path,
        device: torch.device,
        observer: Observer,
        stop: StopRequest,
    ) -> None:
        self._graph = graph
        self._model = model
        self._sampling = sampling
        self._features: Mapping[str, str] = loaders.features() or {}
        self._scratch = scratch
        self._device = device
        self._passes = Passes(loaders, sampling, device, observer, stop)
        self._labelled = model.schema.labelled

    def sampled(
        self, nodes: NDArray[np.int64] | None, what: str = "validation"
    ) -> Iterator[Prediction]:
        """Predictions from neighbours sampled with the training fan-outs.

        Cost: reads what a training epoch over `nodes` reads.
        """
        features = self._features or None
        with evaluating(self._model):
            for batch in self._passes.sampled(what, (self._labelled, nodes), features):
                with torch.no_grad():
                    logits = self._model(batch)
                yield prediction_of(batch[self._labelled], logits)

    def exact(self, nodes: NDArray[np.int64] | None) -> Iterator[Prediction]:
        """Predictions from all neighbours, each layer computed once for each node that needs it.

        The encoded nodes and the states between the layers lie on disk and are removed at the end;
        the last layer is computed for `nodes` only.

        Cost: reads the features once and the topology once a layer, and each state about once for
        each arc that no cache absorbs; writes 4 bytes x width for each node and layer.
        Errors: `NoSpaceError` where the states do not fit on the run's device.
        """
        if nodes is None:
            nodes = np.arange(self._graph.node_types[self._labelled])
        with evaluating(self._model), layer_directory(self._scratch) as directory:
            yield from self._layer_by_layer(nodes, directory)

    def _layer_by_layer(self, nodes: NDArray[np.int64], directory: Path) -> Iterator[Prediction]:
        model, labelled = self._model, self._labelled
        states = self._encoded(directory)
        kept: list[NpyRows] = []
        for index in range(model.layers - 1):
            after = {
                name: self._layer_file(index, name, states, directory)
                for name in model.schema.targets(index)
                if self._graph.node_types[name]
            }
            for state in states.values():
                if state not in kept:
                    state.remove()
            states = after
            if model.jumping:
                kept.append(states[labelled])
        last = model.layers - 1
        for batch in self._neighbours(last, labelled, states, nodes):
            state_here = self._layer(last, labelled, batch, states)
            seeds = batch[labelled].n_id[: batch[labelled].batch_size].cpu().numpy()
            earlier = [torch.from_numpy(state.rows(seeds)).to(self._device) for state in kept]
            with torch.no_grad():
                logits = model.head([*earlier, state_here])
            yield prediction_of(batch[labelled], logits)

    def _encoded(self, directory: Path) -> dict[str, NpyRows]:
        """The states before the first layer of the types with features, in files.

        Those of other types are in memory, where the network has them.
        """
        files = {}
        for name in self._model.schema.sources(0):
            width = self._model.schema.inputs[name].features
            if not width:
                continue
            batches = self._passes.alone(
                f"encoding `{name}`",
                width,
                input_nodes=(name, None),
                features={name: self._features[name]},
                labels=None,
            )
            files[name] = state = self._file(directory / f"encoded-{name}.npy", name)
            with state:
                for batch in batches:
                    with torch.no_grad():
                        encoded = self._model.encode(batch, [name])[name]
                    state.append(encoded[: batch[name].batch_size].cpu().numpy())
        return files

    def _layer_file(
        self, index: int, target: str, states: Mapping[str, NpyRows], directory: Path
    ) -> NpyRows:
        """The states of all nodes of a type after layer `index`."""
        file = self._file(directory / f"layer-{index + 1}-{target}.npy", target)
        with file:
            for batch in self._neighbours(index, target, states, None):
                file.append(self._layer(index, target, batch, states).cpu().numpy())
        return file

    def _file(self, path: Path, node_type: str) -> NpyRows:
        shape = (self._graph.node_types[node_type], self._model.config.hidden)
        return NpyRows(path, shape)

    def _neighbours(
        self,
        layer: int,
        target: str,
        states: Mapping[str, NpyRows],
        nodes: NDArray[np.int64] | None,
    ) -> Iterator[Any]:
        """All in-neighbours of `nodes` of a type, or of all of them in order, batch by batch."""
        features = {name: str(states[name].path) for name in self._read(target) if name in states}
        return self._passes.neighbours(
            f"layer {layer + 1} of {self._model.layers}, `{target}`",
            self._model.arc_width,
            lambda rows: self._most_arcs(target, rows),
            input_nodes=(target, nodes),
            features=features or None,
            labels=None if nodes is None else self._sampling.labels,
        )

    @torch.no_grad()
    def _layer(self, index: int, target: str, batch: Any, states: Mapping[str, NpyRows]) -> Tensor:
        x = {
            name: batch[name].x.float()
            if name in states
            else self._model.encoder(name, batch[name])
            for name in self._read(target)
        }
        edges = {one: batch[one].edge_index for one in self._model.schema.into(target)}
        hop = TypedHop(edges, {target: int(batch[target].batch_size)})
        return self._model.layer(index, x, hop)[target]

    def _read(self, target: str) -> list[str]:
        """The node types that a layer reads to compute `target`."""
        into = self._model.schema.into(target)
        return list(dict.fromkeys([target, *(source for source, _, _ in into)]))

    def _most_arcs(self, target: str, rows: int) -> int:
        """At least the most arcs into `rows` consecutive nodes of a type, by all edge types."""
        most = first = 0
        for edge_type in self._graph.edge_types:
            count = self._graph.node_types[edge_type[2]]
            if edge_type[2] == target:
                most += largest_window(self._graph, rows, range(first, first + count))
            first += count
        return most
