"""Reading a data set while another process changes it: a reader keeps what it has opened."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import outercore as oc
from fakes import planted
from outercore import _core, analytics
from outercore.errors import NotFoundError
from outercore.loading.sampler import NeighborSampler
from outercore.serving.client import Client
from outercore.serving.server import Server, ServerConfig
from outercore.training import ModelConfig, OptimiserConfig, SamplingConfig, TrainConfig, train


@pytest.fixture
def data_set(tmp_path: Path) -> Path:
    root = planted(tmp_path / "data")
    oc.grid(root)
    return root


def test_a_file_that_is_missing_is_told_at_once(data_set: Path) -> None:
    with pytest.raises(NotFoundError):
        oc.open(data_set / "nowhere")


@pytest.mark.slow
def test_plans_are_made_while_grids_come_and_go(data_set: Path) -> None:
    done = threading.Event()

    def build() -> None:
        while not done.is_set():
            oc.grid(data_set, overwrite=True, memory="64MiB")

    builder = threading.Thread(target=build)
    builder.start()
    try:
        for _ in range(1000):
            assert analytics.plan("wcc", data_set)["budget"] == 1 << 30
    finally:
        done.set()
        builder.join()


def generated(root: Path) -> Path:
    """A data set that takes updates: the same each time."""
    described = {"nodes": 240, "degree": 6, "features": 8, "classes": 3, "seed": 1}
    _core.generate_planted(root, described, lambda *_: None)
    return root


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that can be served over any copy of its data set."""
    home = tmp_path_factory.mktemp("generations")
    config = TrainConfig(
        model=ModelConfig(kind="sage", hidden=4),
        sampling=SamplingConfig(fanout=(3, 3)),
        optimiser=OptimiserConfig(epochs=1),
    )
    train(generated(home / "data"), config, out=home / "run")
    return home / "run"


@contextmanager
def served(root: Path, run: Path) -> Iterator[Client]:
    config = ServerConfig(port=0, memory="64MiB", deadline_ms=60_000, updates=True)
    with Server(root, run, config) as server:
        yield Client(server.url, server.name)


def add_edge(client: Client) -> int:
    return client.add_edge(1, 2).lsn


def degrees_in(place: str, generation: str) -> np.ndarray:
    """What another process finds of an opened graph."""
    graph = oc.Graph.__new__(oc.Graph)
    graph.__dict__.update(root=Path(place), _place=place, _generation=generation)
    return np.diff(graph.array("edges/edge/offsets"))


def batches(graph: oc.Graph) -> list[tuple[np.ndarray, np.ndarray]]:
    sampler = NeighborSampler(graph, [-1], input_nodes=np.arange(10), batch_size=5)
    return [(batch.n_id, batch.x) for batch in sampler]


def test_a_graph_is_what_it_was_when_it_was_opened_in_every_process(
    tmp_path: Path, trained: Path
) -> None:
    root = generated(tmp_path / "data")
    graph = oc.open(root)
    before = np.diff(graph.array("edges/edge/offsets"))
    drawn = batches(graph)
    with served(root, trained) as client:
        client.update_node(0, {"x": np.full(8, 9.0)})
        for _ in range(3):
            add_edge(client)
            client.compact()
        # Arrays are opened only now, after three folds.
        np.testing.assert_array_equal(np.diff(graph.array("edges/edge/offsets")), before)
        for found, expected in zip(batches(graph), drawn, strict=True):
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)
        state = graph.__getstate__()
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            there = pool.apply(degrees_in, (state["_place"], state["_generation"]))
        np.testing.assert_array_equal(there, before)
        newest = oc.open(root)
        assert np.diff(newest.array("edges/edge/offsets")).sum() == before.sum() + 2 * 3
        assert newest.array("x")[0].tolist() == [9.0] * 8
    del graph, newest
    # The next writer removes what only the old graph needed.
    oc.grid(root, overwrite=True)
    manifest = oc.open(root).arrays
    named = {root / entry["file"] for entry in manifest.values()}
    assert set(root.rglob("*.npy")) == named
    assert not (root / ".generations").exists()


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "outercore", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=100)


def test_commands_beside_a_server_are_right_for_the_graph_that_they_opened(
    tmp_path: Path, trained: Path
) -> None:
    root = generated(tmp_path / "data")
    edges = oc.open(root).num_edges
    done, written = threading.Event(), [0]
    with served(root, trained) as client:

        def write() -> None:
            while not done.is_set():
                # Each adds an edge, which is two arcs.
                written[0] = add_edge(client)
                if written[0] % 50 == 0:
                    client.compact()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for attempt in range(3):
                least = written[0]
                out = tmp_path / f"degrees-{attempt}.npy"
                run = command("run", "degrees", root, "--memory", "64MiB", "--out", out)
                assert run.returncode == 0, run.stderr
                counted = (int(np.load(out).sum()) - edges) // 2
                assert least <= counted <= written[0] + 1, (least, counted, written)
                options = ["--model", "sage", "--fanout", "3,3", "--hidden", "4", "--epochs", "2"]
                options += ["--memory", "64MiB", "--out", tmp_path / f"run-{attempt}"]
                run = command("train", root, *options)
                assert run.returncode == 0, run.stderr
        finally:
            done.set()
            writer.join()
    assert written[0] > 100
    assert not list(root.glob(".linked-*"))
