"""Fixtures for several test files."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outercore.cli import run

# Without a GPU, Triton interprets its kernels. It reads this variable when it is first imported.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a parameter of bytes by its length.

    The bytes of a packed file contain the time, but all processes that share the tests must give
    them the same names.
    """
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> Iterator[None]:
    """Ctrl-C ends Python and the commands that tests start.

    Without this fixture, tests in the background of a shell ignore the signal.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def outcome(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Any:
    """Call the command line: exit code, standard output, standard error.

    It runs in a separate directory for each test, where run records are written.
    """
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def embedded_graph(tmp_path: Path) -> Any:
    """A data set of some hundred triples in two parts."""
    # Imported here because it imports PyTorch.
    from embedded import facts, random_triples

    train = random_triples(1)
    valid = [row for row in random_triples(2)[:40] if row not in train]
    return facts(tmp_path / "facts", train, valid)


@pytest.fixture
def embedding(tmp_path: Path, embedded_graph: Any) -> Any:
    """A finished embedding of `embedded_graph`."""
    from embedded import embed

    return embed(tmp_path / "run", embedded_graph)
