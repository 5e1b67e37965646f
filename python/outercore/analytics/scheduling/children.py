"""`outercore` commands in child processes, bound to cores."""

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
"""Seconds for a child to end after SIGINT, before it is killed."""

_PR_SET_PDEATHSIG = 1


class Child:
    """A running `outercore ARGUMENTS`, with its output in files in `directory`.

    It does not receive the terminal's Ctrl-C. It ends when this process ends for any reason.
    """

    def __init__(self, arguments: Sequence[str], cores: Sequence[int], directory: Path) -> None:
        """Starts the process, bound to `cores`.

        Errors: `DeviceError` if the process cannot start or `directory` is not writable.
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
                _interrupts_blocked(),
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
        # A selector can wait for this descriptor: it is readable when the process has ended.
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
        """Resident bytes of the process; 0 if it has ended."""
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def wait(self, seconds: float) -> int:
        """Waits for the process and returns its exit code; stops it after `seconds`.

        Errors: `TimeoutError` if it was stopped.
        """
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            stop_all([self])
            raise TimeoutError(f"took longer than {seconds:g} s") from None

    def ask_to_stop(self) -> None:
        """Sends SIGINT, as Ctrl-C does: the process ends soon, and cleanly."""
        self._process.send_signal(signal.SIGINT)

    def end(self, grace_s: float) -> int:
        """Waits up to `grace_s` seconds, then kills the process; returns its exit code."""
        try:
            return self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def close(self) -> None:
        """Closes the descriptor; ends the process if it still runs."""
        if self.code is None:
            stop_all([self])
        if self._ended >= 0:
            os.close(self._ended)
            self._ended = -1

    def last_error(self) -> str:
        """The error message of the process, or its exit code if it printed none."""
        lines = self.errors.read_text(errors="replace").splitlines() if self.errors.exists() else []
        named = [line for line in lines if line.startswith(("error: ", "stopped: "))]
        last = named[-1:] or [line for line in lines if line.strip()][-1:]
        return last[0].removeprefix("error: ") if last else f"ended with code {self.code}"


def stop_all(children: Sequence[Child]) -> None:
    """Sends SIGINT to all processes, then waits for each, and kills those that do not end."""
    for child in children:
        child.ask_to_stop()
    end = time.monotonic() + GRACE_S
    for child in children:
        # Not a second SIGINT: it would kill a process that is about to end cleanly.
        child.end(max(end - time.monotonic(), 0.1))


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Blocks SIGINT within the block, here and in started processes until they unblock it.

    An interrupt during an import would end a process with an arbitrary error of the import.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _main() -> None:
    """Entry point of the child: binds it to its cores before any thread starts, then runs it."""
    parent, cores, *arguments = sys.argv[1:]
    # Let the kernel end the child with its parent, because a killed parent cannot end the child.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        sys.exit("the parent has ended")
    # If the parent runs in the background, SIGINT may be ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    sys.argv = ["outercore", *arguments]
    try:
        # A late import, because `cli` is above this package; this is a separate process.
        command_line = import_module("outercore.cli")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        command_line.main()
    except KeyboardInterrupt:
        # Interrupted before the command handles SIGINT.
        sys.exit(130)


if __name__ == "__main__":
    _main()
