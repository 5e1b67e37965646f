"""Fixtures of several files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from outercore.cli import run

# Without a GPU Triton interprets its kernels; it asks for this when it is first imported.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture
def outcome(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Any:
    """Call the command line: exit code, standard output, standard error.

    It works in a directory of the test's own, where run records go.
    """
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call
