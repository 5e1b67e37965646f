"""Budgets below the state of the nodes, and checkpoints, from Python and the command line."""

from __future__ import annotations

import contextlib
import itertools
import json
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc
from outercore import analytics
from outercore.base.sizes import format_size, parse_size
from outercore.cli import run as command

RANKS = {"max_iterations": 6, "tolerance": 0.0}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph whose state is larger than the buffers of a run."""
    root = tmp_path_factory.mktemp("spill") / "graph"
    nodes = 600_000
    generator = np.random.default_rng(0)
    edges = generator.integers(0, nodes, (1_200_000, 2))
    np.save(root.parent / "edges.npy", edges)
    assert command(["import", str(root.parent / "edges.npy"), "--out", str(root)]) == 0
    oc.grid(root, partition_log2=13)
    return root


def little(algorithm: str, graph: Path, **options: object) -> int:
    """A tenth more than the least budget that works, by the message of one that does not.

    With the least itself state is read several times as often, which takes a busy machine minutes.
    """
    with pytest.raises(oc.BudgetError, match="the least that works is") as caught:
        analytics.plan(algorithm, graph, memory=1, threads=2, **options)
    least = parse_size(str(caught.value).split("works is ")[1].split("\n")[0])
    assert analytics.plan(algorithm, graph, memory=least, threads=2, **options)["spill"]
    return least + least // 10


@pytest.mark.parametrize(
    ("algorithm", "options"), [("pagerank", RANKS), ("sssp", {"source": 3}), ("wcc", {})]
)
def test_values_below_the_state_are_those_in_memory(
    large: Path, algorithm: str, options: dict[str, object]
) -> None:
    expected = analytics.run(algorithm, large, **options)
    memory = little(algorithm, large, **options)
    before = sorted(large.iterdir())
    done = analytics.run(algorithm, large, memory=memory, threads=2, **options)
    assert done.plan["spill"]["groups"] > 1
    assert isinstance(done.values, np.memmap)
    assert done.values.tobytes() == expected.values.tobytes()
    assert done.facts == expected.facts
    assert sorted(large.iterdir()) == before


def test_a_mapped_result_does_not_name_a_file_that_may_be_another_one(large: Path) -> None:
    memory = little("pagerank", large, **RANKS)
    values = analytics.run("pagerank", large, memory=memory, threads=2, **RANKS).values
    assert isinstance(values, np.memmap)
    for array in (values, values[3:], values[::2]):
        assert array.filename is None
        again = pickle.loads(pickle.dumps(array))
        assert again.tobytes() == array.tobytes()


def test_a_refused_run_leaves_no_directory(
    large: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "kept" / "here"
    arguments = ["run", "pagerank", str(large), "--record", str(directory)]
    assert command([*arguments, "--memory", "1KiB"]) == 1
    assert "the least that works is" in capsys.readouterr().err
    assert not directory.exists()


def test_a_result_without_room_is_saved_and_shown(
    large: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = str(little("pagerank", large, **RANKS))
    out = tmp_path / "ranks.npy"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    arguments = ["run", "pagerank", str(large), "--max-iterations", "6", "--tolerance", "0"]
    arguments += ["--memory", memory, "--threads", "2", "--out", str(out), "--save", "rank"]
    arguments += ["--set", f"scratch={scratch}", "--record", "none"]
    assert command([*arguments, "--plan"]) == 0
    assert "passes over the sources" in capsys.readouterr().out
    assert command(arguments) == 0
    assert "state in scratch files" in capsys.readouterr().out
    expected = oc.pagerank(large, **RANKS)
    assert np.load(out).tobytes() == expected.tobytes()
    assert oc.open(large).array("rank")[:].tobytes() == expected.tobytes()
    assert not list(scratch.iterdir())


def test_the_plan_of_the_command_line_is_that_of_the_run(
    large: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = np.zeros(600_000)
    weights[::3] = 2.0
    np.save(tmp_path / "teleport.npy", weights)
    own = ["run", "pagerank", str(large), "--max-iterations", "4", "--tolerance", "0"]
    own += ["--threads", "2", "--json", "--top", "0"]
    teleport = ["--personalization", str(tmp_path / "teleport.npy")]
    kept = ["--set", "checkpoint_every=0"]
    places = (str(tmp_path / f"run-{number}") for number in itertools.count())

    def said(*more: str) -> dict[str, Any]:
        assert command([*own, *more]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    plain = said("--plan", "--record", "none")
    # 16 bytes for each entry, and its part of the vector.
    alone = said(*teleport, "--plan", "--record", "none")
    assert alone["state"] - plain["state"] == 16 * 200_000 + 8 * (plain["state"] // 20)
    assert said(*kept, "--plan")["state"] - plain["state"] == 256 << 10
    for memory in (said(*teleport, *kept, "--plan")["least"], 1 << 30):
        options = [*teleport, *kept, "--memory", str(memory)]
        planned = said(*options, "--plan")
        done = said(*options, "--record", next(places))
        counters = done["counters"]
        assert done["plan"] == planned
        assert counters["peak_state"] == planned["state"]
        assert counters["checkpoints"] == 4
        assert counters["checkpoint_bytes"] == 4 * planned["checkpoint"]["bytes"]
        spilled = planned["spill"]
        assert (spilled is None) == (memory == 1 << 30)
        for number, one in enumerate(counters["by_pass"]):
            first = number == 0
            assert one["bytes"] == planned["bytes_first_pass" if first else "bytes_per_pass"]
            assert one.get("spill_read", 0) == (spilled or {}).get("read_per_pass", 0)
            assert one.get("spill_written", 0) == (spilled or {}).get("written_per_pass", 0)
        if spilled:
            assert counters["spill"]["most"] == planned["disk"]


def test_a_scratch_disk_without_room_is_refused_before_the_run(large: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("no file system of one's own")
    try:
        phases: list[str] = []
        memory = little("pagerank", large, **RANKS)
        wanted = analytics.plan("pagerank", large, memory=memory, threads=2, **RANKS)["disk"]
        with pytest.raises(oc.DeviceError, match="are free, the run writes up to") as caught:
            analytics.run(
                "pagerank",
                large,
                memory=memory,
                threads=2,
                scratch=disk,
                progress=lambda phase, *_: phases.append(phase),
                **RANKS,
            )
        assert format_size(wanted) in str(caught.value)
        assert "another directory by `scratch`" in str(caught.value)
        assert not phases
        assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_killed_run_leaves_no_scratch_files(large: Path, tmp_path: Path) -> None:
    before = sorted(large.iterdir())
    scratch = tmp_path / "scratch"
    memory = str(little("pagerank", large, **RANKS))
    for place in (scratch, large):
        where = ["--set", f"scratch={place}"] if place == scratch else []
        out = tmp_path / f"said-{place.name}"
        arguments = ["run", "pagerank", str(large), "--max-iterations", "200", "--tolerance", "0"]
        arguments += ["--record", "none", "--memory", memory, "--threads", "2", *where]
        child = subprocess.Popen(
            [sys.executable, "-m", "outercore", *arguments], stdout=out.open("w")
        )
        descriptors = Path(f"/proc/{child.pid}/fd")

        def held(descriptors: Path = descriptors, place: Path = place) -> list[str]:
            names = []
            for one in descriptors.iterdir():
                with contextlib.suppress(OSError):
                    names.append(str(one.readlink()))
            return [name for name in names if name.startswith(str(place)) and "(deleted)" in name]

        end = time.monotonic() + 120
        while not held():
            assert child.poll() is None
            assert time.monotonic() < end, "no scratch files"
            time.sleep(0.02)
        child.kill()
        child.wait()
        assert sorted(large.iterdir()) == before
    assert not list(scratch.iterdir())


def _started(large: Path, where: Path, *words: str) -> subprocess.Popen[str]:
    arguments = words or (
        "run", "pagerank", str(large), "--max-iterations", "120", "--tolerance", "0",
        "--record", "run", "--out", "ranks.npy", "--set", "checkpoint_every=0",
    )  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "outercore", *arguments],
        cwd=where,
        text=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def _iterations(checkpoint: str) -> int:
    return int(json.loads(checkpoint)["record"]["at"]["iterations"])


def _wait_for(path: Path, wanted: Callable[[str], bool] = bool) -> None:
    end = time.monotonic() + 120
    while not (path.exists() and wanted(path.read_text())):
        assert time.monotonic() < end, f"{path} does not come"
        time.sleep(0.01)


def test_a_killed_run_goes_on_and_ctrl_c_says_how(large: Path, tmp_path: Path) -> None:
    record = tmp_path / "run/checkpoint/checkpoint.json"
    killed = _started(large, tmp_path)
    _wait_for(record)
    killed.kill()
    killed.communicate()
    first = _iterations(record.read_text())

    again = _started(large, tmp_path)
    _, said = again.communicate(timeout=60)
    assert again.returncode == 1
    assert "run `run` exists already\nhint: `outercore run --resume run`" in said

    # From another directory, too.
    (tmp_path / "other").mkdir()
    stopped = _started(large, tmp_path / "other", "run", "--resume", "../run")
    _wait_for(record, lambda text: _iterations(text) > first)
    stopped.send_signal(signal.SIGINT)
    _, said = stopped.communicate(timeout=120)
    assert stopped.returncode == 130, said
    assert "a checkpoint is in `../run`\nhint: resume: outercore run --resume ../run" in said
    second = _iterations(record.read_text())
    assert second > first

    ends = ["run", "--resume", "run", "--json", "--memory", "2GiB"]
    done = subprocess.run(
        [sys.executable, "-m", "outercore", *ends],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["counters"]["passes"] == 120 - second
    left = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert left == ["config.json", "record.json"]
    expected = oc.pagerank(large, max_iterations=120, tolerance=0.0)
    assert np.load(tmp_path / "ranks.npy").tobytes() == expected.tobytes()
    with pytest.raises(oc.InvalidError, match="it has ended"):
        oc.resume(tmp_path / "run")


def stopped_run(graph: Path, at: Path, passes: int, **options: Any) -> None:
    """A run that is stopped after some passes, with a checkpoint of each."""

    def stop(phase: str, done: int, _total: int, _unit: str) -> None:
        if phase == "iteration" and done >= passes:
            raise KeyboardInterrupt

    with pytest.raises(oc.InterruptError, match="outercore run --resume"):
        analytics.run(
            "pagerank", graph, record=at, checkpoint_every=0, progress=stop, **RANKS, **options
        )


def test_a_run_is_resumed_from_python_to_the_same_bits(large: Path, tmp_path: Path) -> None:
    graph = tmp_path / "graph"
    shutil.copytree(large, graph)
    teleports = {3: 2.0, 17: 1.0}
    stopped_run(graph, tmp_path / "run", 3, personalization=teleports, save="personal")
    # Arrays that the run does not read may come and go.
    oc.wcc(graph, save="component")
    done = oc.resume(tmp_path / "run", threads=1)
    expected = oc.pagerank(large, personalization=teleports, **RANKS)
    assert done.values.tobytes() == expected.tobytes()
    assert done.counters["passes"] < 6
    assert oc.open(graph).array("personal")[:].tobytes() == expected.tobytes()
    assert json.loads((tmp_path / "run/record.json").read_text())["status"] == "finished"


def test_a_run_keeps_its_options_and_its_edges(large: Path, tmp_path: Path) -> None:
    graph = tmp_path / "graph"
    shutil.copytree(large, graph)
    stopped_run(graph, tmp_path / "run", 2)
    with pytest.raises(oc.InvalidError, match="damping: a run is resumed with its own options"):
        oc.resume(tmp_path / "run", damping=0.5)
    with pytest.raises(oc.InvalidError, match="dampin: no such option"):
        oc.resume(tmp_path / "run", dampin=0.5)
    with pytest.raises(oc.InvalidError, match="buffering: a run is resumed with its own options"):
        oc.resume(tmp_path / "run", buffering=False)
    np.save(tmp_path / "other.npy", np.random.default_rng(1).integers(0, 600_000, (1_200_000, 2)))
    words = ["import", str(tmp_path / "other.npy"), "--out", str(graph), "--overwrite"]
    assert command(words) == 0
    with pytest.raises(oc.InvalidError, match="array `edges/edge/sources` was changed"):
        oc.resume(tmp_path / "run")


def test_a_run_that_was_cut_off_goes_on_with_more_iterations(large: Path, tmp_path: Path) -> None:
    words = ["run", "pagerank", str(large), "--record", str(tmp_path / "run")]
    words += ["--out", str(tmp_path / "ranks.npy"), "--tolerance", "1e-9"]
    end = ["--max-iterations", "4", "--set", "checkpoint_every=0"]
    assert command([*words, *end]) == 1
    assert not (tmp_path / "run/record.json").exists()
    for wrong in ("many", -1, 4.5):
        with pytest.raises(oc.InvalidError, match="max_iterations"):
            oc.resume(tmp_path / "run", max_iterations=wrong)
    resumed = ["run", "--resume", str(tmp_path / "run")]
    # The options that it goes on with are those of the run from now on.
    assert command([*resumed, "--max-iterations", "5"]) == 1
    assert command(resumed) == 1
    with pytest.raises(oc.InvalidError, match="resume the run with a higher max_iterations"):
        oc.resume(tmp_path / "run")
    assert command([*resumed, "--max-iterations", "100"]) == 0
    expected = oc.pagerank(large, tolerance=1e-9)
    assert np.load(tmp_path / "ranks.npy").tobytes() == expected.tobytes()
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert record["config"]["pagerank"]["max_iterations"] == 100


def test_an_algorithm_of_few_passes_has_a_record_and_no_checkpoints(
    large: Path, tmp_path: Path
) -> None:
    done = analytics.run("degrees", large, record=tmp_path / "run", checkpoint_every=0)
    assert done.counters["checkpoints"] == 0
    assert (tmp_path / "run/record.json").exists()
    assert not (tmp_path / "run/checkpoint").exists()
