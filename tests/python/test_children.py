"""Commands in processes of their own: where they run, how they end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import naive
from outercore.analytics.scheduling.children import Child, stop_all
from outercore.errors import DeviceError
from outercore.runs.stop import terminate_like_interrupt

CORE = min(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(4)
    root = tmp_path_factory.mktemp("children") / "graph"
    source, target = random.integers(0, 2000, (2, 20_000))
    naive.write(root, 2000, source, target)
    return root


@pytest.fixture
def endless(data_set: Path, tmp_path: Path) -> Iterator[list[Child]]:
    """Children that would take very long."""
    arguments = ["run", "betweenness", str(data_set), "--record", "none"]
    started = [Child(arguments, [CORE], tmp_path / name) for name in "ab"]
    yield started
    for child in started:
        child.close()


def test_a_child_runs_on_its_cores_and_leaves_its_output(data_set: Path, tmp_path: Path) -> None:
    arguments = ["run", "wcc", str(data_set), "--record", "none", "--json"]
    child = Child(arguments, [CORE], tmp_path / "child")
    # Readable when it has ended, and not before.
    assert select.select([child], [], [], 60)[0] == [child]
    assert child.wait(1) == child.code == 0
    assert json.loads(child.output.read_text())["algorithm"] == "wcc"
    assert child.resident == 0
    child.close()
    child.close()


def test_a_child_has_one_core_from_its_first_thread_on(tmp_path: Path) -> None:
    script = (
        "import sys; sys.argv = ['x', str(__import__('os').getppid()), sys.argv[1], '--version']\n"
        "import outercore.analytics.scheduling.children as children, outercore.cli as cli, os\n"
        "cli.main = lambda: print(sys.argv, os.sched_getaffinity(0))\n"
        "children._main()"
    )
    command = [sys.executable, "-c", script, str(CORE)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert printed.stdout == f"['outercore', '--version'] {{{CORE}}}\n"


def test_a_child_says_what_went_wrong(tmp_path: Path) -> None:
    child = Child(["run", "wcc", "nowhere"], [CORE], tmp_path / "child")
    assert child.wait(60) == 1
    assert child.last_error().startswith("data set `")
    child.close()


def test_children_end_cleanly_when_they_are_asked_to(endless: list[Child]) -> None:
    started(endless[0])
    stop_all(endless)
    assert all(ended_cleanly(child) for child in endless)


@pytest.mark.parametrize("after", [0.0, 0.05, 0.1, 0.2, 0.4])
def test_children_end_cleanly_while_they_start(endless: list[Child], after: float) -> None:
    time.sleep(after)
    stop_all(endless)
    assert all(ended_cleanly(child) for child in endless)


def test_a_child_that_takes_too_long_is_ended(endless: list[Child]) -> None:
    with pytest.raises(TimeoutError, match=r"took longer than 0\.1 s"):
        endless[0].wait(0.1)
    assert endless[0].code is not None


def test_a_child_that_does_not_listen_is_killed(endless: list[Child]) -> None:
    child = endless[0]
    started(child)
    os.kill(child._process.pid, signal.SIGSTOP)
    child.ask_to_stop()
    assert child.end(0.1) == -signal.SIGKILL


def test_a_child_ends_when_its_parent_is_killed(data_set: Path, tmp_path: Path) -> None:
    script = (
        "import sys, signal\nfrom pathlib import Path\n"
        "from outercore.analytics.scheduling.children import Child\n"
        f"child = Child(['run', 'betweenness', sys.argv[1], '--record none'], [{CORE}], "
        "Path(sys.argv[2]))\n"
        "print(child._process.pid, flush=True)\nsignal.pause()\n"
    )
    command = [sys.executable, "-c", script, str(data_set), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        descriptor = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            assert select.select([descriptor], [], [], 60)[0] == [descriptor]
        finally:
            os.close(descriptor)


def test_a_directory_that_takes_no_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeviceError, match=r"`outercore run wcc x`: .*file"):
        Child(["run", "wcc", "x"], [CORE], tmp_path / "file")


def test_sigterm_is_like_ctrl_c_within_the_block_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminate_like_interrupt():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def ended_cleanly(child: Child) -> bool:
    """Whether it says nothing but that it was stopped, if it came so far."""
    said = child.last_error().startswith(("stopped: ", "ended with code "))
    return said and child.code in (130, -signal.SIGINT)


def started(child: Child) -> None:
    """Waits until a child has come as far as its command."""
    descriptor = os.pidfd_open(child._process.pid)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                maps = Path(f"/proc/{child._process.pid}/maps").read_text()
                if "_core.abi3.so" in maps:
                    break
            assert not select.select([descriptor], [], [], 0.1)[0], child.last_error()
    finally:
        os.close(descriptor)
