"""Commands of ours in processes of their own, bound to cores."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from outercore.errors import DeviceError
from outercore.runs.places import ERRORS, OUTPUT

GRACE_S = 10.0
"""How long a child may take to end when it is asked to."""

_PR_SET_PDEATHSIG = 1


class Child:
    """`outercore ARGUMENTS`, running; its output goes to files in `directory`.

    It does not get the terminal's Ctrl-C, and ends when this process does, however that ends.
    """

    def __init__(self, arguments: Sequence[str], cores: Sequence[int], directory: Path) -> None:
        """Starts it with nothing but `cores` to run on.

        Errors: `DeviceError` where the system starts no process or `directory` takes no files.
        """
        self.output, self.errors = directory / OUTPUT, directory / ERRORS
        self.started = time.monotonic()
        numbers = ",".join(str(core) for core in cores)
        me = str(os.getpid())
        command = [
            sys.executable,
            "-m",
            "outercore.analytics.scheduling.children",
            me,
            numbers,
            *arguments,
        ]
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with (
                self.output.open("wb") as out,
                self.errors.open("wb") as errors,
                _interrupts_held(),
            ):
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=errors,
                    start_new_session=True,
                )
        except OSError as error:
            raise DeviceError(f"`outercore {' '.join(arguments)}`: {error}") from error
        # Becomes readable when the process ends: what a selector can wait for.
        self._ended = os.pidfd_open(self._process.pid)

    def fileno(self) -> int:
        """A descriptor that is readable when the process has ended."""
        return self._ended

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; `None` while it runs."""
        return self._process.poll()

    @property
    def resident(self) -> int:
        """Bytes that it has in memory now, 0 where it has ended."""
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def wait(self, seconds: float) -> int:
        """Its exit code when it has ended; ends it after `seconds`.

        Errors: `TimeoutError` where it had to be ended.
        """
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            stop_all([self])
            raise TimeoutError(f"took longer than {seconds:g} s") from None

    def ask_to_stop(self) -> None:
        """Like Ctrl-C: it ends soon, and cleanly."""
        self._process.send_signal(signal.SIGINT)

    def end(self, grace_s: float) -> int:
        """Kills it where it does not end by itself; returns its exit code."""
        try:
            return self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def close(self) -> None:
        """Gives the descriptor back; ends the process where it still runs."""
        if self.code is None:
            stop_all([self])
        if self._ended >= 0:
            os.close(self._ended)
            self._ended = -1

    def last_error(self) -> str:
        """What it says went wrong; its exit code where it says nothing."""
        lines = self.errors.read_text(errors="replace").splitlines() if self.errors.exists() else []
        named = [line for line in lines if line.startswith(("error: ", "stopped: "))]
        said = named[-1:] or [line for line in lines if line.strip()][-1:]
        return said[0].removeprefix("error: ") if said else f"ended with code {self.code}"


def stop_all(children: Sequence[Child]) -> None:
    """Asks all to stop at once, then waits for each."""
    for child in children:
        child.ask_to_stop()
    end = time.monotonic() + GRACE_S
    for child in children:
        # Asked again, one that is about to end would end by the signal.
        child.end(max(end - time.monotonic(), 0.1))


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Within the block Ctrl-C waits, here and in processes that are started, until they let it.

    A process that is interrupted while it imports ends in whatever way the import fails.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _main() -> None:
    """The child's side: its cores before anything starts a thread, then the command."""
    parent, cores, *arguments = sys.argv[1:]
    # A parent that is killed cannot end its children.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        sys.exit("the parent has ended")
    # A parent in the background may have left it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    sys.argv = ["outercore", *arguments]
    try:
        # The command line is above this room, and this is another process.
        command_line = import_module("outercore.cli")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        command_line.main()
    except KeyboardInterrupt:
        # Asked to stop before there was a command.
        sys.exit(130)


if __name__ == "__main__":
    _main()
