"""A refusal of the operating system is one line for the user, not a traceback."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fakes import planted
from outercore import cli


class PanicException(BaseException):
    """As the core's is called, which is no `Exception` either."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE), "a.csv"), "ulimit -n"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a.csv"), "`a.csv`: no space left"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "a.csv"), "permission denied"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "ulimit -v"),
        (ImportError("libx.so: failed to map segment from shared object"), "ulimit -v"),
        (RuntimeError("can't start new thread"), "ulimit -v"),
        (PanicException("failed to spawn thread: Os { code: 11 }"), "ulimit -v"),
        (MemoryError("Unable to allocate 1.00 TiB"), "--memory"),
    ],
)
def test_what_the_system_refuses_is_one_error_with_status_1(
    error: BaseException,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", refused)
    assert cli.run(["info", "papers"]) == cli.USER_ERROR
    err = capsys.readouterr().err
    assert expected in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "error", [OSError(errno.EBADF, os.strerror(errno.EBADF)), PanicException("index out of bounds")]
)
def test_an_error_that_the_user_cannot_mend_is_ours(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", broken)
    assert cli.run(["info", "papers"]) == cli.OUR_ERROR
    assert "internal error" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "mebibytes"),
    [
        ("import edges.csv --out new", 200),
        ("run pagerank graph --record none", 200),
        ("train graph --epochs 1 --out run", 500),
    ],
)
def test_too_little_address_space_is_one_error_with_status_1(
    command: str, mebibytes: int, tmp_path: Path
) -> None:
    planted(tmp_path / "graph")
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
    size = mebibytes << 20
    ended = subprocess.run(
        [sys.executable, "-m", "outercore", *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)),
    )
    assert ended.returncode in (0, 1), ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stderr.count("error: ") == ended.returncode, ended.stderr
