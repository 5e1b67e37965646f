"""What the command line prints fits a terminal, and is whole where it is piped."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from outercore.cli import console

SENTENCE = (
    "the cache is emptied for each validation, which takes all of the memory; "
    "`outercore train papers --fanout 15,10 --memory 512MiB --epochs 30` gives it some of its own"
)


def printed(monkeypatch: pytest.MonkeyPatch, stream: str, *, terminal: bool) -> io.StringIO:
    out = io.StringIO()
    shown = Console(file=out, width=120, force_terminal=terminal, color_system=None, soft_wrap=True)
    monkeypatch.setattr(console, stream, shown)
    return out


def test_sentences_are_broken_on_a_terminal_but_not_in_a_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = printed(monkeypatch, "_stderr", terminal=True)
    console.note(SENTENCE)
    console.error(f"expected more\nhint: {SENTENCE}")
    lines = out.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert " ".join(lines[:3]) == SENTENCE
    assert "`outercore train papers --fanout 15,10 --memory 512MiB --epochs 30`" in lines[1]
    assert lines[3] == "error: expected more"
    assert " ".join(lines[4:]) == f"hint: {SENTENCE}"


def test_what_is_piped_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    out = printed(monkeypatch, "_stderr", terminal=False)
    console.note(SENTENCE)
    console.error(SENTENCE)
    assert out.getvalue() == f"{SENTENCE}\nerror: {SENTENCE}\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_long_values_continue_below_each_other_on_a_terminal(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = printed(monkeypatch, "_stdout", terminal=terminal)
    parts = [f"Hits@{place} 0.1234" for place in range(7)]
    console.table("figures", [("raw", "  ".join(parts)), ("made by", "a " * 60 + "b")])
    told = out.getvalue()
    assert ("  raw      " + "  ".join(parts) in told) != terminal
    if terminal:
        assert told.splitlines()[2] == "           Hits@4 0.1234  Hits@5 0.1234  Hits@6 0.1234"
    # A command without backticks has single spaces.
    assert "a " * 60 + "b" in told


def test_names_in_columns_are_whole_where_they_are_piped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    names = [{"name": "n" * 70, "other": "o" * 300}]
    console.columns(names, console.cells_of(["name", "other"]))
    told = capsys.readouterr().out
    assert "n" * 70 in told
    assert "o" * 300 in told
    assert max(map(len, told.splitlines())) < 400
