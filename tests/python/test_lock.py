"""Who holds a file, and who lets go of it."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from outercore.errors import DeviceError, InvalidError
from outercore.runs.places import Lock, hold


@contextmanager
def forked(lock: Lock) -> Iterator[None]:
    """Beside the block a forked copy of this process, which has closed its `lock`, but still has
    the file open."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup(lock._file.fileno())
            lock.close()
            os.write(told, b"1")
            signal.pause()
        finally:
            os._exit(1)
    os.close(told)
    try:
        assert os.read(ready, 1) == b"1"
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)


def test_it_is_one_holders_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    with closing(hold(path)) as lock:
        with pytest.raises(InvalidError, match="another process holds it"):
            hold(path)
        with forked(lock), pytest.raises(InvalidError, match="another process holds it"):
            hold(path)
    lock.close()
    hold(path).close()


def test_a_forked_copy_keeps_no_lock(tmp_path: Path) -> None:
    lock = hold(tmp_path / "lock")
    with forked(lock):
        lock.close()
        hold(tmp_path / "lock").close()


def test_a_place_where_no_file_can_be_is_refused_at_once() -> None:
    with pytest.raises(DeviceError, match="/proc/nothing"):
        hold(Path("/proc/nothing/lock"))


def test_a_lock_that_is_removed_is_nobody_elses_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = hold(path)
    # Somebody else has opened the file, and gets it once it has no name any more.
    with path.open("w"):
        first.remove()
    assert not path.exists()
    second = hold(path)
    with pytest.raises(InvalidError, match="another process holds it"):
        hold(path)
    second.close()
