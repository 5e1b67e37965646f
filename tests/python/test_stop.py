"""What asks a command to end lets it save its state and remove its temporary files first."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import outercore as oc
from outercore import _core
from outercore.cli import main
from outercore.files.atomic import scratch_directory
from outercore.runs.stop import StopRequest, stop_on_signals, terminate_like_interrupt

ENDING = (signal.SIGTERM, signal.SIGHUP)
PATIENCE = 240.0

HELD = """
import sys, time
from pathlib import Path
from outercore.files.atomic import scratch_directory
with scratch_directory(Path(sys.argv[1]), "layers-") as path:
    (path / "rows.npy").write_bytes(b"some")
    print(path.name, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, *ENDING])
def test_a_signal_is_a_request_to_stop(number: signal.Signals) -> None:
    stop, before = StopRequest(), signal.getsignal(number)
    with stop_on_signals(stop):
        os.kill(os.getpid(), number)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", ENDING)
def test_a_command_that_is_asked_to_end_ends_as_by_ctrl_c(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(*_: object, **__: object) -> None:
        os.kill(os.getpid(), number)

    monkeypatch.setattr("outercore.cli.app", asked)
    with pytest.raises(SystemExit, match="130"):
        main()
    assert "stopped: " in capsys.readouterr().err


def test_a_command_under_nohup_does_not_hear_of_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop = StopRequest()
    try:
        with stop_on_signals(stop), terminate_like_interrupt():
            os.kill(os.getpid(), signal.SIGHUP)
        assert not stop.requested
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("verb", ["train", "embed", "run"])
def test_a_terminal_that_is_closed_leaves_a_run_to_resume(verb: str, tmp_path: Path) -> None:
    """Nothing else would: no checkpoint is due before the run is asked to stop."""
    shape = {"nodes": 3000, "degree": 8, "features": 4, "classes": 3, "seed": 1}
    _core.generate_planted(tmp_path / "graph", {**shape, "memory": 64 << 20}, lambda *_: None)
    command = {
        "train": "train graph --model sage --hidden 2 --fanout 2 --epochs 100000 --out run",
        "embed": "embed graph --model dot --dim 4 --epochs 100000 --out run",
        "run": "run pagerank graph --max-iterations 100000000 --tolerance 0 --record run",
    }[verb]
    shown = {"train": b"epoch", "embed": b"epoch", "run": b"iteration"}[verb]
    terminal, side = os.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "outercore", *command.split()],
        cwd=tmp_path,
        stdin=side,
        stdout=side,
        stderr=side,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(side)
    said = b""
    while shown not in said:
        said += os.read(terminal, 4096)
    os.close(terminal)
    assert child.wait(PATIENCE) == 130, said.decode()
    state = {"train": "checkpoints/latest", "embed": "table", "run": "checkpoint/checkpoint.json"}
    assert (tmp_path / "run" / state[verb]).exists()
    assert oc.open(tmp_path / "graph").num_nodes == 3000


def test_the_scratch_files_of_a_killed_process_are_removed_by_the_next(tmp_path: Path) -> None:
    holders = [
        subprocess.Popen([sys.executable, "-c", HELD, tmp_path], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    killed, alive = holders
    names = []
    for holder in holders:
        assert holder.stdout is not None
        names.append(holder.stdout.readline().strip())
    killed.kill()
    killed.wait()
    try:
        with scratch_directory(tmp_path, "layers-") as own:
            assert sorted(one.name for one in tmp_path.iterdir()) == sorted([names[1], own.name])
        assert (tmp_path / names[1] / "rows.npy").exists()
    finally:
        alive.kill()
        for holder in holders:
            holder.communicate()
