"""Fixtures of several files."""

from __future__ import annotations

from typing import Any

import pytest

from outercore.cli import run


@pytest.fixture
def outcome(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call the command line: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: object) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call
