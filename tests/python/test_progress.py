"""Progress fits the terminal, and says how much is done, how fast, and how long it will take."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress, SpinnerColumn

from outercore.cli import console
from outercore.cli.console import ProgressLine, fitted
from outercore.cli.watch import TrainWatch
from outercore.training.record import EpochReport


def shown(
    name: str, done: int, total: int, unit: str, status: Sequence[str] = (), *, width: int = 80
) -> str:
    """The line of a task that began ten seconds ago, and has reported its progress twice."""
    now = [0.0]
    terminal = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    line = ProgressLine(terminal)
    progress = Progress(SpinnerColumn(), line, console=terminal, get_time=lambda: now[0])
    bars = console.Bars(progress)
    for now[0], part in ((0.0, 1), (5.0, done // 2), (10.0, done)):
        bars(name, part, total, unit, status)
    with terminal.capture() as captured:
        terminal.print(progress.get_renderable())
    [text] = captured.get().splitlines()
    return text


CASES = [
    ("epoch 12", 1234, 12345, "batches", ["loss 0.1234", "hits 99%", "read 1.5 GiB", "far 12%"]),
    ("epoch 3", 123_456_789_012, 345_678_901_234, "triples", ["loss 6.8971"]),
    ("reading edges of /data/very/long/names/of/directories/graph", 1 << 39, 1 << 40, "bytes", []),
    (
        "Zeilen der Tabelle 作者 一覧表一覧表一覧表一覧表一覧表一覧表一覧表",
        10,
        2000,
        "rows",
        ["x" * 90],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0][:12])
def test_a_line_fits_80_columns_with_count_rate_and_time_left(
    case: tuple[str, int, int, str, list[str]],
) -> None:
    text = shown(*case)
    assert cell_len(text) <= 80
    assert re.search(r"\S+( \w+)? / \S+( \w+)?  .*/s  [0-9:]+ left", text)
    assert text[2:].startswith(case[0][:6])


def test_figures_of_a_known_speed() -> None:
    text = shown("sorting", 1000, 4000, "edges")
    # 500 edges in five seconds; the first reports only say where it began.
    assert "1,000 / 4,000 edges  100/s  0:30 left" in text


def test_a_task_without_an_end_says_how_long_it_has_taken() -> None:
    text = shown("reading", 1 << 20, 0, "bytes", width=40)
    assert text.rstrip().endswith("reading 1.0 MiB  102.4 KiB/s  0:10")


def test_a_narrow_terminal_loses_status_and_bar_before_the_figures() -> None:
    figures = "1,234 / 12,345 batches  12/s  15:12 left"
    assert fitted("epoch 12", figures, ["loss 1"], 80) == ("epoch 12", 22, f"{figures}  loss 1")
    assert fitted("epoch 12", figures, ["loss 1"], 60) == ("epoch 12", 10, figures)
    assert fitted("epoch 12", figures, ["loss 1"], 50) == ("epoch 12", 0, figures)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_line_of_an_epoch_fits_a_terminal_and_is_whole_in_a_file(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    stderr = Console(file=out, width=80, force_terminal=terminal, color_system=None)
    monkeypatch.setattr(console, "_stderr", stderr)
    counters = {
        "cache": {"accesses": 1000, "misses": 12},
        "feature_reads": {"bytes": 123 << 30},
        "far": {"far_bytes": 1, "disk_bytes": 3},
    }
    report = EpochReport(
        epoch=99,
        loss=12.3456,
        score=0.9876,
        metric="average_precision",
        best=True,
        seconds=1234.5,
        seeds=123_456_789,
        validation_seconds=234.5,
        counters=counters,
    )
    with TrainWatch() as watch:
        watch.epoch_done(report)
    [line] = [line for line in out.getvalue().splitlines() if "epoch" in line]
    line = line.removeprefix("\x1b[2K")
    start, took = "epoch 100  loss 12.3456  average_precision 0.9876 *", "  1234.5 + 234.5 s"
    assert line.startswith(start)
    assert line.endswith(took)
    moved = "  100,005 seeds/s  hits 99%  read 123.0 GiB  far 25%"
    assert moved.startswith(line.removeprefix(start).removesuffix(took))
    assert (moved in line) == (not terminal)
    if terminal:
        assert len(line) <= 80


@pytest.mark.parametrize("validation", ["full", "sampled", "none"])
def test_the_lines_before_a_training_fit_a_terminal(
    validation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    described = {
        "run": "runs/ogbn-papers100M-sage-12",
        "model": "sage",
        "parameters": 123_456_789,
        "task": "graph classification",
        "task_guessed": True,
        "metric": "average_precision",
        "of_graphs": False,
        "validation": validation,
        "device": "cuda:0",
    }
    with TrainWatch() as watch:
        watch.started(described)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("run runs/ogbn-papers100M-sage-12: sage, 123,456,789 parameters")
    judged = "none" if validation == "none" else f"average_precision, {validation} neighbourhoods"
    assert lines[1:] == [
        "  task        graph classification, guessed from the labels",
        f"  validation  {judged}",
    ]
    assert max(map(len, lines)) <= 80
