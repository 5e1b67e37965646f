"""A refusal of the operating system is one line for the user, not a traceback."""

from __future__ import annotations

import errno
import os

import pytest

from outercore import cli


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE), "a.csv"), "ulimit -n"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a.csv"), "`a.csv`: no space left"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "a.csv"), "permission denied"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "ulimit -v"),
        (ImportError("libx.so: failed to map segment from shared object"), "ulimit -v"),
        (RuntimeError("can't start new thread"), "ulimit -v"),
        (MemoryError("Unable to allocate 1.00 TiB"), "--memory"),
    ],
)
def test_what_the_system_refuses_is_one_error_with_status_1(
    error: Exception,
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


def test_an_error_that_the_user_cannot_mend_is_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(cli, "app", broken)
    assert cli.run(["info", "papers"]) == cli.OUR_ERROR
    assert "internal error" in capsys.readouterr().err
