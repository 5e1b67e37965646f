"""Runs and training through a memory server: the same results, whatever becomes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc
from far_server import FarServer
from outercore import _core, analytics
from outercore.data import far
from outercore.errors import DeviceError, InvalidError, NotFoundError
from outercore.training.config import BudgetConfig, SamplingConfig, TrainConfig

TRANSPORTS = ["tcp", "unix"]
RUNS: dict[str, dict[str, Any]] = {
    "bfs": {"source": 3},
    "pagerank": {"max_iterations": 8, "tolerance": 0.0},
}
EVERY: dict[str, dict[str, Any]] = {
    **RUNS,
    "sssp": {"source": 3},
    "wcc": {},
    "scc": {},
    "radii": {"sources": 8},
    "betweenness": {"samples": 4},
    "kcore": {},
    "label_propagation": {"max_iterations": 5},
    "triangles": {},
    "degrees": {},
}
"""Each algorithm once; degrees reads node arrays alone."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarServer]:
    with FarServer(tmp_path_factory.mktemp("far")) as server:
        yield server


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "planted"
    shape = {"nodes": 8000, "degree": 10, "features": 128, "classes": 4, "seed": 1}
    _core.generate_planted(root, shape, lambda *_: None)
    oc.grid(root)
    return root


@pytest.fixture(scope="module")
def expected(data_set: Path) -> dict[str, np.ndarray]:
    return {name: oc.run(name, data_set, **options).values for name, options in RUNS.items()}


def batches(data_set: Path, far_options: Any = None, **options: Any) -> list[Any]:
    """Two epochs of batches, as bytes, and the counters."""
    chosen: dict[str, Any] = {"batch_size": 64, "shuffle": True, "memory": "5MiB", **options}
    found = []
    with oc.NeighborLoader(oc.open(data_set), [5, 3], "train", far=far_options, **chosen) as loader:
        for _ in range(2):
            for batch in loader:
                parts = (batch.x, batch.y, batch.edge_index, batch.n_id, batch.e_id)
                found.append(tuple(part.numpy().tobytes() for part in parts))
        counters = loader.counters()["counters"]
    return [found, counters]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0, None])
@pytest.mark.parametrize("algorithm", RUNS)
def test_results_are_the_same_at_every_far_ratio(
    algorithm: str,
    ratio: float | None,
    transport: str,
    data_set: Path,
    server: FarServer,
    expected: dict[str, np.ndarray],
) -> None:
    there = server.options(transport)
    done = oc.run(algorithm, data_set, far=there, far_ratio=ratio, **RUNS[algorithm])
    np.testing.assert_array_equal(done.values, expected[algorithm])
    counters = done.counters["far"]
    assert counters["lost"] is None
    if ratio == 1.0:
        assert done.plan["far_ratio"] == 1.0
        assert counters["far_bytes"] > 0
        assert counters["placed_bytes"] > 0


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("algorithm", EVERY)
def test_every_algorithm_gives_what_it_gives_locally(
    algorithm: str, transport: str, data_set: Path, server: FarServer
) -> None:
    options = EVERY[algorithm]
    local = oc.run(algorithm, data_set, **options)
    done = oc.run(algorithm, data_set, far=server.options(transport), far_ratio=1.0, **options)
    assert done.values.dtype == local.values.dtype
    np.testing.assert_array_equal(done.values, local.values)
    assert done.facts == local.facts
    assert done.counters["far"]["lost"] is None
    if algorithm != "degrees":
        assert done.counters["far"]["far_bytes"] > 0


def test_the_server_gets_its_memory_back_after_a_run(data_set: Path, tmp_path: Path) -> None:
    with FarServer(tmp_path) as server:
        oc.bfs(data_set, 3, far=server.options(), far_ratio=1.0)
        with far.build_connection(server.options()) as connection:
            assert connection.status()["used"] == 0


def test_a_run_finds_what_was_put_there(data_set: Path, tmp_path: Path) -> None:
    with FarServer(tmp_path) as server:
        far.put(data_set, server.options())
        done = oc.run("bfs", data_set, source=3, far=server.options("unix"), far_ratio=1.0)
        counters = done.counters["far"]
        assert counters["placed_bytes"] == 0
        assert counters["found_bytes"] > 0
        assert counters["disk_bytes"] == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_is_dropped_under_a_run_is_read_from_the_disk(
    transport: str, data_set: Path, tmp_path: Path, expected: dict[str, np.ndarray]
) -> None:
    with FarServer(tmp_path) as server:

        def drop(phase: str, *_: object) -> None:
            if phase != "iteration":
                return
            with far.build_connection(server.options()) as other:
                for array in far.arrays(data_set):
                    for name in array["names"]:
                        region = other.find(name)
                        if region is not None:
                            other.free(region)

        def run(fallback: bool) -> oc.Run:
            far.put(data_set, server.options(), what=["grid"])
            there = server.options(transport, fallback=fallback)
            options = RUNS["pagerank"]
            return oc.run("pagerank", data_set, far=there, far_ratio=1.0, progress=drop, **options)

        done = run(fallback=True)
        np.testing.assert_array_equal(done.values, expected["pagerank"])
        assert done.counters["far"]["lost"] is None
        with pytest.raises(NotFoundError, match=r"blocks\.npy.*no such region"):
            run(fallback=False)


def test_without_buffering_results_stay(
    data_set: Path, server: FarServer, expected: dict[str, np.ndarray]
) -> None:
    there, options = server.options(), {**RUNS["bfs"], "far_ratio": 1.0}
    done = oc.run("bfs", data_set, far=there, buffering=False, **options)
    np.testing.assert_array_equal(done.values, expected["bfs"])


def test_an_edge_stream_takes_far_memory(data_set: Path, server: FarServer) -> None:
    graph = oc.open(data_set)
    degree = np.zeros(graph.num_nodes, np.int64)

    def count(block: oc.EdgeStream) -> None:
        np.add.at(degree, block.target, 1)  # type: ignore[attr-defined]

    oc.EdgeStream(graph, memory="64MiB", far=server.options()).each(count)
    np.testing.assert_array_equal(degree, oc.degrees(graph))


def test_a_far_ratio_needs_a_server_and_a_share(data_set: Path, server: FarServer) -> None:
    with pytest.raises(InvalidError, match="without far memory"):
        oc.bfs(data_set, 3, far_ratio=0.5)
    with pytest.raises(InvalidError, match="far_ratio: expected 0 to 1"):
        oc.bfs(data_set, 3, far=server.options(), far_ratio=1.5)
    planned = analytics.plan("bfs", data_set, source=3, far=server.options(), far_ratio=1.0)
    assert planned["far_ratio"] == 1.0


def killing(server: FarServer, phase: str) -> Callable[[str, int, int, str], None]:
    """A progress callback that kills the server when a phase begins."""

    def progress(name: str, *_: object) -> None:
        if name == phase and server.process.poll() is None:
            server.kill()

    return progress


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("phase", ["far", "iteration"])
def test_a_run_goes_on_from_the_disk_when_its_server_is_killed(
    phase: str,
    transport: str,
    data_set: Path,
    tmp_path: Path,
    expected: dict[str, np.ndarray],
) -> None:
    with FarServer(tmp_path) as server:
        done = oc.run(
            "pagerank",
            data_set,
            far=server.options(transport),
            far_ratio=1.0,
            progress=killing(server, phase),
            **RUNS["pagerank"],
        )
        assert server.process.poll() is not None
    np.testing.assert_array_equal(done.values, expected["pagerank"])
    counters = done.counters["far"]
    assert server.addresses[transport] in counters["lost"]
    assert counters["disk_bytes"] > 0


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("phase", ["far", "iteration"])
def test_without_fallback_a_killed_server_ends_the_run_with_its_name(
    phase: str, transport: str, data_set: Path, tmp_path: Path
) -> None:
    with FarServer(tmp_path) as server, pytest.raises(DeviceError) as caught:
        oc.run(
            "pagerank",
            data_set,
            far=server.options(transport, fallback=False),
            far_ratio=1.0,
            progress=killing(server, phase),
            **RUNS["pagerank"],
        )
    assert server.addresses[transport] in str(caught.value)


def test_a_server_that_stands_still_counts_as_gone(
    data_set: Path, tmp_path: Path, expected: dict[str, np.ndarray]
) -> None:
    with FarServer(tmp_path) as server:

        def stop(phase: str, *_: object) -> None:
            if phase == "iteration":
                server.freeze()

        there = server.options(timeout_s=0.5)
        options = RUNS["pagerank"]
        done = oc.run("pagerank", data_set, far=there, far_ratio=1.0, progress=stop, **options)
    np.testing.assert_array_equal(done.values, expected["pagerank"])
    assert server.addresses["tcp"] in done.counters["far"]["lost"]


def test_a_full_server_leaves_the_rest_to_the_disk(
    data_set: Path, tmp_path: Path, expected: dict[str, np.ndarray]
) -> None:
    with FarServer(tmp_path, size="64KiB") as server:
        done = oc.run("pagerank", data_set, far=server.options(), far_ratio=1.0, **RUNS["pagerank"])
    np.testing.assert_array_equal(done.values, expected["pagerank"])
    counters = done.counters["far"]
    assert counters["lost"] is None
    assert 0 < counters["placed_bytes"] <= 64 << 10
    assert counters["disk_bytes"] > 0


def test_a_wrong_token_and_a_silent_address_are_errors_with_fallback_too(
    data_set: Path, server: FarServer, tmp_path: Path
) -> None:
    wrong = far.new_token(tmp_path / "wrong")
    with pytest.raises(InvalidError, match="token"):
        oc.bfs(data_set, 3, far=server.options(token_file=str(wrong)))
    nobody = far.FarOptions(f"unix:{tmp_path}/nobody", token_file=str(wrong))
    with pytest.raises(DeviceError, match="nobody"):
        oc.bfs(data_set, 3, far=nobody)


class TestLoader:
    """Batches of `NeighborLoader`; needs PyTorch."""

    @pytest.fixture(autouse=True)
    def torch(self) -> None:
        pytest.importorskip("torch_geometric")

    @pytest.mark.parametrize("transport", TRANSPORTS)
    @pytest.mark.parametrize("topology", ["resident", "paged"])
    def test_batches_are_the_same(
        self, topology: str, transport: str, data_set: Path, server: FarServer
    ) -> None:
        local, _ = batches(data_set, topology=topology)
        distant, counters = batches(data_set, server.options(transport), topology=topology)
        assert distant == local
        assert counters["far"]["far_bytes"] > 0

    def test_batches_are_the_same_when_the_server_is_killed(
        self, data_set: Path, tmp_path: Path
    ) -> None:
        local, _ = batches(data_set)
        with FarServer(tmp_path) as server:
            found = []
            with oc.NeighborLoader(
                oc.open(data_set),
                [5, 3],
                "train",
                batch_size=64,
                shuffle=True,
                memory="5MiB",
                far=server.options(),
            ) as loader:
                for _ in range(2):
                    for batch in loader:
                        if len(found) == 3:
                            server.kill()
                        parts = (batch.x, batch.y, batch.edge_index, batch.n_id, batch.e_id)
                        found.append(tuple(part.numpy().tobytes() for part in parts))
                counters = loader.counters()["counters"]
        assert found == local
        assert server.addresses["tcp"] in counters["far"]["lost"]

    def test_without_fallback_a_killed_server_ends_the_epoch(
        self, data_set: Path, tmp_path: Path
    ) -> None:
        with FarServer(tmp_path) as server:
            loader = oc.NeighborLoader(
                oc.open(data_set),
                [5, 3],
                "train",
                batch_size=64,
                memory="5MiB",
                far=server.options(fallback=False),
            )
            loader.plan()
            server.kill()
            with pytest.raises(DeviceError) as caught:
                list(loader)
            loader.close()
        assert server.addresses["tcp"] in str(caught.value)


class TestTraining:
    """`train` over far memory; needs PyTorch."""

    @pytest.fixture(autouse=True)
    def torch(self) -> None:
        pytest.importorskip("torch_geometric")

    @pytest.mark.parametrize("transport", TRANSPORTS)
    def test_training_ends_with_the_same_losses(
        self, transport: str, data_set: Path, server: FarServer, tmp_path: Path, outcome: Any
    ) -> None:
        flags = ["--fanout", "4,3", "--hidden", "8", "--epochs", "1", "--memory", "32MiB", "--json"]
        code, out, err = outcome("train", data_set, *flags, "--out", tmp_path / "near")
        assert code == 0, err
        near = json.loads(out)
        there = server.settings(transport)
        code, out, err = outcome("train", data_set, *flags, *there, "--out", tmp_path / "distant")
        assert code == 0, err
        distant = json.loads(out)
        assert distant["result"]["scores"] == near["result"]["scores"]
        assert [epoch["loss"] for epoch in distant["epochs"]] == [
            epoch["loss"] for epoch in near["epochs"]
        ]
        assert distant["config"]["budget"]["far"]["address"] == server.addresses[transport]

    def test_loaders_that_are_opened_again_do_without_a_server_that_died(
        self, data_set: Path, tmp_path: Path
    ) -> None:
        from outercore.training import loaders

        def opened(server: FarServer, **options: Any) -> tuple[Any, list[str]]:
            notes: list[str] = []
            config = TrainConfig(
                sampling=SamplingConfig(fanout=(3,)),
                budget=BudgetConfig(
                    memory="8MiB", validation_share=0.0, far=server.options(**options)
                ),
            )
            return loaders.Loaders(oc.open(data_set), config, note=notes.append), notes

        def epoch(loader: Any) -> list[bytes]:
            return [batch.x.numpy().tobytes() for batch in loader]

        def validate(both: Any) -> int:
            with both.evaluation(num_neighbors=[3], input_nodes="valid", batch_size=64) as loader:
                return len(list(loader))

        with FarServer(tmp_path / "first") as server:
            both, notes = opened(server)
            epoch(both.training())
            assert validate(both) > 0
            server.kill()
            assert validate(both) > 0
            assert epoch(both.training())
            assert len(notes) == 1
            assert server.addresses["tcp"] in notes[0]
            assert "from the disk" in notes[0]
            validate(both)
            both.training()
            assert len(notes) == 1
            both.close()
            # Nobody there to begin with is a mistake.
            both, notes = opened(server)
            with pytest.raises(DeviceError):
                both.training()
            assert notes == []
        with FarServer(tmp_path / "second") as server:
            both, _ = opened(server, fallback=False)
            both.training()
            validate(both)
            server.kill()
            with pytest.raises(DeviceError):
                both.training()

    def test_evaluation_goes_on_when_the_server_dies_as_it_is_opened(
        self, data_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from outercore.training import loaders

        notes: list[str] = []
        with FarServer(tmp_path) as server:
            config = TrainConfig(
                sampling=SamplingConfig(fanout=(3,)),
                budget=BudgetConfig(memory="8MiB", validation_share=0.0, far=server.options()),
            )

            def holds(*_: object) -> bool:
                server.kill()
                return True

            monkeypatch.setattr(loaders, "holds", holds)
            both = loaders.Loaders(oc.open(data_set), config, note=notes.append)
            with both.evaluation(num_neighbors=[3], input_nodes="valid", batch_size=64) as loader:
                assert list(loader)
        assert server.addresses["tcp"] in notes[0]

    def test_a_run_goes_on_with_another_server_or_none(
        self, data_set: Path, tmp_path: Path, outcome: Any
    ) -> None:
        flags = ["--fanout", "3", "--hidden", "8", "--epochs", "1", "--memory", "32MiB", "--json"]
        run = tmp_path / "run"
        with FarServer(tmp_path / "first") as first:
            code, out, err = outcome("train", data_set, *flags, *first.settings(), "--out", run)
            assert code == 0, err
            record = json.loads(out)
            scores = record["result"]["scores"]
        # As if it had been stopped in its final scores: a finished run would not read at all.
        (run / "record.json").write_text(json.dumps({**record, "status": "running"}))
        code, out, err = outcome("train", "--resume", run, "--far", "none", "--json")
        assert code == 0, err
        assert json.loads(out)["result"]["scores"] == scores
        with FarServer(tmp_path / "second") as second:
            far.put(data_set, second.options(), what=["features", "topology"])
            assert far.holds(data_set, second.options())
            command = ["evaluate", run, "--split", "test", "--json"]
            code, out, err = outcome(*command, *second.settings(path="far"))
            assert code == 0, err
            assert json.loads(out)["score"] == scores["test"]
            assert second.process.poll() is None
        assert not far.holds(data_set, second.options())
        code, out, _ = outcome(*command)
        assert (code, json.loads(out)["score"]) == (0, scores["test"])
