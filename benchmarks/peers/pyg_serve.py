"""Predictions by NumPy sampling, mapped features and PyG, behind FastAPI and uvicorn.

    python benchmarks/peers/pyg_serve.py DATA_SET X.npy MODEL_DIR --name NAME [--workers N]

This is the usual way to serve a GNN from one machine: topology and features are mapped, NumPy draws
neighbours, rows are gathered into a tensor, and PyG computes. It reads the arrays of the data set
and the trained weights (`model.safetensors`), and has the API of `outercore serve`. When all
workers are ready, it prints a line of JSON with `url`.
"""

from __future__ import annotations

import argparse
import json
import mmap
import multiprocessing
import os
import signal
import socket
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import torch
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import Response
from safetensors.torch import load_file
from torch_geometric.nn import SAGEConv

FANOUT = (15, 10)
NARROW = 4
"""Up to this multiple of the fan-out, neighbours are drawn by sorting random numbers."""


class Sampler:
    """Draws in-neighbours without replacement from mapped arrays."""

    def __init__(self, edges: Path, seed: int) -> None:
        self._offsets = np.load(edges / "offsets.npy", mmap_mode="r")
        self._sources = np.load(edges / "sources.npy", mmap_mode="r")
        self._random = np.random.default_rng(seed)
        self.nodes = len(self._offsets) - 1

    def sample(self, seeds: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Nodes (seeds first, each node once), and arcs [2, n] of local ids, an array per hop."""
        nodes, frontier, arcs = seeds, seeds, []
        begin = 0
        for most in FANOUT:
            sources, targets = self._neighbours(frontier, most)
            # Known nodes keep their local ids; new nodes are appended.
            known = np.argsort(nodes, kind="stable")
            new = np.setdiff1d(sources, nodes)
            everything = np.concatenate([nodes, new])
            order = np.concatenate([known, np.arange(len(nodes), len(everything))])
            order = order[np.argsort(everything[order], kind="stable")]
            local = order[np.searchsorted(everything, sources, sorter=order)]
            arcs.append(np.stack([local, targets + begin]))
            begin, nodes, frontier = len(nodes), everything, new
        return nodes, arcs

    def _neighbours(self, nodes: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Sources, and the indices in `nodes` of their targets."""
        first = self._offsets[nodes].astype(np.int64)
        degree = self._offsets[nodes + 1].astype(np.int64) - first
        place, picked = [], []
        few = np.flatnonzero(degree <= most)
        counts = degree[few]
        place.append(np.repeat(few, counts))
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        picked.append(np.repeat(first[few], counts) + within)
        some = np.flatnonzero((degree > most) & (degree <= NARROW * most))
        if len(some):
            keys = self._random.random((len(some), NARROW * most))
            keys[np.arange(NARROW * most) >= degree[some, None]] = 2.0
            drawn = np.argpartition(keys, most, axis=1)[:, :most]
            place.append(np.repeat(some, most))
            picked.append((first[some, None] + drawn).ravel())
        many = np.flatnonzero(degree > NARROW * most)
        if len(many):
            drawn = self._distinct(degree[many], most)
            place.append(np.repeat(many, most))
            picked.append((first[many, None] + drawn).ravel())
        return self._sources[np.concatenate(picked)].astype(np.int64), np.concatenate(place)

    def _distinct(self, degree: np.ndarray, most: int) -> np.ndarray:
        drawn = self._random.integers(degree[:, None], size=(len(degree), most))
        while True:
            ordered = np.sort(drawn, axis=1)
            again = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
            if not len(again):
                return drawn
            drawn[again] = self._random.integers(degree[again, None], size=(len(again), most))


class Predictor:
    """A SAGE network of two layers over mapped features."""

    def __init__(self, data_set: Path, features: Path, model: Path) -> None:
        self._sampler = Sampler(data_set / "edges" / "edge", seed=os.getpid())
        self._x = np.load(features, mmap_mode="r")
        # Without this advice, each read of a row would also read ahead.
        self._x._mmap.madvise(mmap.MADV_RANDOM)
        weights = load_file(model / "model.safetensors")
        self._convs = []
        for layer in range(2):
            prefix = f"gnn.convs.{layer}."
            part = {key[len(prefix) :]: weight for key, weight in weights.items() if prefix in key}
            width, inputs = part["lin_l.weight"].shape
            conv = SAGEConv(inputs, width)
            conv.load_state_dict(part)
            self._convs.append(conv.eval())

    @torch.inference_mode()
    def predict(self, seeds: np.ndarray) -> np.ndarray:
        """Probabilities [seeds, classes]."""
        if len(seeds) and not 0 <= seeds.min() <= seeds.max() < self._sampler.nodes:
            raise ValueError("no such node")
        distinct, back = np.unique(seeds, return_inverse=True)
        nodes, (near, far) = self._sampler.sample(distinct)
        x = torch.from_numpy(self._x[nodes])
        inner = int(near.max(initial=len(distinct) - 1)) + 1
        arcs = torch.from_numpy(np.concatenate([near, far], axis=1))
        hidden = self._convs[0]((x, x[:inner]), arcs).relu()
        own = hidden[: len(distinct)]
        out = self._convs[1]((hidden, own), torch.from_numpy(near))
        return torch.softmax(out, dim=1).numpy()[back]


def application(options: argparse.Namespace) -> FastAPI:
    """The HTTP application of one worker."""
    torch.set_num_threads(1)
    predictor = Predictor(options.data_set, options.features, options.model)
    app = FastAPI()

    # Not in a thread pool: the work is on the processor, and each worker has one core.
    @app.post("/v2/models/{name}/infer")
    async def infer(name: str, request: Request) -> Response:
        if name != options.name:
            raise HTTPException(404, f"no model {name}")
        body = await request.json()
        try:
            (ids,) = (tensor for tensor in body["inputs"] if tensor["name"] == "node_ids")
            probabilities = predictor.predict(np.array(ids["data"], np.int64))
        except (KeyError, ValueError) as failure:
            raise HTTPException(400, str(failure)) from failure
        answer: dict[str, Any] = {
            "model_name": name,
            "outputs": [
                {
                    "name": "prediction",
                    "datatype": "INT64",
                    "shape": [len(probabilities)],
                    "data": probabilities.argmax(axis=1).tolist(),
                },
                {
                    "name": "probability",
                    "datatype": "FP32",
                    "shape": list(probabilities.shape),
                    "data": probabilities.ravel().tolist(),
                },
            ],
        }
        return Response(json.dumps(answer), media_type="application/json")

    return app


def work(options: argparse.Namespace, listener: socket.socket) -> None:
    """A worker that accepts connections from the shared socket."""
    config = uvicorn.Config(application(options), log_level="error", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data_set", type=Path)
    parser.add_argument("features", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    sockets = []
    for _ in range(options.workers):
        # A socket per worker on the same port: the kernel distributes the connections evenly.
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(("127.0.0.1", sockets[0].getsockname()[1] if sockets else 0))
        bound.listen(1024)
        sockets.append(bound)
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=work, args=(options, bound)) for bound in sockets]
    for worker in workers:
        worker.start()
    # Only the workers accept connections.
    address = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    for bound in sockets:
        bound.close()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        for _ in range(8 * len(workers)):
            _ask(f"{address}/v2/models/{options.name}/infer")
        print(json.dumps({"url": address, "model": options.name}), flush=True)
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            worker.terminate()


def _ask(url: str) -> None:
    body = json.dumps({"inputs": [{"name": "node_ids", "data": [0]}]}).encode()
    for _ in range(600):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60) as answer:
                answer.read()
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("a worker does not answer")


if __name__ == "__main__":
    main()
