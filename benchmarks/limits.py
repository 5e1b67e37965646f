"""Run a command under a memory limit that includes the page cache, and report its use.

    python benchmarks/limits.py --memory 1GiB -- python worker.py ...

The child runs in a new memory cgroup (version 1 or 2) if that is allowed. Anonymous memory, page
cache and kernel buffers together then stay below the limit, so reads through `mmap` cannot use the
rest of the machine's memory. If a cgroup cannot be created, the command runs without a limit, and
`enforced` is `none`. If a limit with `ready` cannot be set, the command is killed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

CGROUPS = Path("/sys/fs/cgroup")
UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
TIGHTENING_S = 60.0
"""Seconds to swap out memory above a new limit."""
READY_S = 900.0
"""Seconds for a child until it is ready."""
_numbers = itertools.count()


def parse_bytes(text: str) -> int:
    """`1GiB`, `512MiB`, `1000` to bytes."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].upper() not in UNITS:
        raise ValueError(f"memory `{text}`: expected a size like 512MiB or 1GiB")
    return int(float(match[1]) * UNITS[match[2].upper()])


@dataclass(frozen=True)
class Outcome:
    """The outcome of a limited run; bytes unless the name has another unit."""

    command: list[str]
    returncode: int
    wall_s: float
    enforced: str
    """`cgroup1`, `cgroup2` or `none`: how the limit was enforced."""
    limit: int | None
    peak: int | None
    """Highest charge of the cgroup, page cache included; None without a cgroup."""
    peak_resident: int
    """Highest resident set of a single process of the run."""
    bytes_read: int
    """Bytes that the child and its awaited descendants read from the device."""
    bytes_written: int
    limit_hits: int | None
    """How often the kernel reclaimed memory because of the limit."""
    stdout: str
    stderr: str

    def last_json(self) -> dict:
        """The last line of standard output that is a JSON object.

        Errors: `RuntimeError` with the end of standard error if the run failed or printed none.
        """
        if self.returncode == 0:
            for line in reversed(self.stdout.splitlines()):
                if line.startswith("{"):
                    return json.loads(line)
        raise self._failure()

    def check(self) -> Outcome:
        """Returns the outcome. Errors: `RuntimeError` if the run failed."""
        if self.returncode:
            raise self._failure()
        return self

    def _failure(self) -> RuntimeError:
        return RuntimeError(
            f"`{' '.join(self.command)}` ended with {self.returncode} after {self.wall_s:.1f} s"
            f" under {self.limit} bytes: {self.stderr[-1500:] or 'no message'}"
        )


class _Unlimited:
    kind = "none"

    def enter(self) -> None:
        """Called in the child before it starts the program."""

    def tighten(self, limit: int) -> bool:
        """Sets a lower limit, also below the memory in use; returns whether it succeeded."""
        return False

    def usage(self) -> tuple[int | None, int | None]:
        return None, None

    def close(self) -> None:
        """Does nothing: there is no cgroup to remove."""


class _Cgroup1:
    kind = "cgroup1"

    def __init__(self, limit: int, swap: bool) -> None:
        self.path = CGROUPS / "memory" / f"outercore-{os.getpid()}-{next(_numbers)}"
        self.path.mkdir()
        try:
            (self.path / "memory.limit_in_bytes").write_text(str(limit))
            both = self.path / "memory.memsw.limit_in_bytes"
            if both.exists() and not swap:
                both.write_text(str(limit))
        except OSError:
            self.path.rmdir()
            raise

    def enter(self) -> None:
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def tighten(self, limit: int) -> bool:
        # The kernel refuses until enough memory is swapped out.
        end = time.monotonic() + TIGHTENING_S
        while time.monotonic() < end:
            try:
                (self.path / "memory.limit_in_bytes").write_text(str(limit))
                return True
            except OSError:
                time.sleep(0.1)
        return False

    def usage(self) -> tuple[int | None, int | None]:
        peak = int((self.path / "memory.max_usage_in_bytes").read_text())
        return peak, int((self.path / "memory.failcnt").read_text())

    def close(self) -> None:
        """Removes the cgroup after its pages are released.

        Otherwise the pages would be charged to the parent, and the next run could use them for
        free.
        """
        for act in (lambda: (self.path / "memory.force_empty").write_text("0"), self.path.rmdir):
            for _ in range(20):
                try:
                    act()
                    break
                except OSError:
                    time.sleep(0.1)


class _Cgroup2:
    kind = "cgroup2"

    def __init__(self, limit: int, swap: bool) -> None:
        self.path = CGROUPS / f"outercore-{os.getpid()}-{next(_numbers)}"
        self.path.mkdir()
        try:
            (self.path / "memory.max").write_text(str(limit))
            most = self.path / "memory.swap.max"
            if most.exists() and not swap:
                most.write_text("0")
        except OSError:
            self.path.rmdir()
            raise

    def enter(self) -> None:
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def tighten(self, limit: int) -> bool:
        try:
            (self.path / "memory.max").write_text(str(limit))
        except OSError:
            return False
        return True

    def usage(self) -> tuple[int | None, int | None]:
        peak = self.path / "memory.peak"
        events = dict(
            line.split() for line in (self.path / "memory.events").read_text().splitlines()
        )
        return (int(peak.read_text()) if peak.exists() else None), int(events.get("max", 0))

    def close(self) -> None:
        for _ in range(20):
            try:
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.1)


def _remove_abandoned(parent: Path) -> None:
    """Remove the cgroups of killed drivers; the kernel refuses this for cgroups in use."""
    for path in parent.glob("outercore-*-*"):
        if not Path("/proc", path.name.split("-")[1]).exists():
            with contextlib.suppress(OSError):
                path.rmdir()


def _cage(limit: int | None, swap: bool) -> _Unlimited | _Cgroup1 | _Cgroup2:
    """The strongest limit that this machine allows.

    Without `limit`, an unlimited cgroup is created for its accounting.
    """
    bound = limit if limit is not None else (1 << 62)
    for kind, present in (
        (_Cgroup1, CGROUPS / "memory" / "memory.limit_in_bytes"),
        (_Cgroup2, CGROUPS / "cgroup.controllers"),
    ):
        if present.exists():
            _remove_abandoned(present.parent)
            try:
                return kind(bound, swap)
            except OSError:
                continue
    return _Unlimited()


def drop_cached(paths: Sequence[Path]) -> None:
    """Drop the cached pages of these files, or of all files below folders.

    Works without privileges: dirty pages are written first, then `POSIX_FADV_DONTNEED`.
    """
    for path in paths:
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        for file in files:
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def swap_file(path: Path, size: int) -> Iterator[bool]:
    """Swap space in a file while the block runs; False if that is not allowed."""
    path.unlink(missing_ok=True)
    try:
        with path.open("wb") as file:
            path.chmod(0o600)
            os.posix_fallocate(file.fileno(), 0, size)
        steps = (["mkswap", str(path)], ["swapon", str(path)])
        on = all(
            shutil.which(step[0]) is not None
            and subprocess.run(step, capture_output=True).returncode == 0
            for step in steps
        )
        try:
            yield on
        finally:
            if on:
                subprocess.run(["swapoff", str(path)], check=True)
    finally:
        path.unlink(missing_ok=True)


def run_limited(
    command: Sequence[str],
    memory: int | None = None,
    *,
    swap: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float | None = None,
    ready: Path | None = None,
    ready_s: float = READY_S,
) -> Outcome:
    """Run `command` under `memory` bytes; with `swap`, it may swap out more.

    With `ready`, the limit is set when the child has created this file, which is then removed. The
    time counts from this moment. A child that does not create the file within `ready_s`, or that
    cannot be limited, is killed with its process group, and `enforced` is `none`.

    After `timeout_s`, the child is killed with its process group, and the return code is negative.
    It is also killed if an exception, such as `KeyboardInterrupt`, ends the wait.
    """
    cage = _cage(memory if ready is None else None, swap)
    enforced = cage.kind
    try:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            started = time.perf_counter()
            child = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=None if env is None else {**os.environ, **env},
                cwd=cwd,
                start_new_session=True,
                preexec_fn=cage.enter,
            )
            try:
                if ready is not None and memory is not None:
                    if not (_wait_for(child, ready, ready_s) and cage.tighten(memory)):
                        enforced = "none"
                        # Not reaped yet: the process exists, at least as a zombie.
                        os.killpg(child.pid, signal.SIGKILL)
                    ready.unlink(missing_ok=True)
                    started = time.perf_counter()
                status, usage = _wait(child, timeout_s)
            except BaseException:
                # The child is in a separate session, which Ctrl-C does not reach.
                _end(child)
                raise
            wall = time.perf_counter() - started
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        peak, hits = cage.usage()
    finally:
        cage.close()
    return Outcome(
        command=[str(part) for part in command],
        returncode=status,
        wall_s=wall,
        enforced=enforced,
        limit=memory,
        peak=peak,
        peak_resident=usage.ru_maxrss * 1024,
        bytes_read=usage.ru_inblock * 512,
        bytes_written=usage.ru_oublock * 512,
        limit_hits=hits,
        stdout=texts[0],
        stderr=texts[1],
    )


@dataclass(frozen=True)
class Service:
    """A server under a memory limit."""

    process: subprocess.Popen
    enforced: str
    """As in `Outcome`."""
    cage: _Unlimited | _Cgroup1 | _Cgroup2
    errors: IO[bytes]

    def cpu_s(self) -> float:
        """Processor seconds of all processes of its session until now."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            # A process may end during the iteration.
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.process.pid:
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def peak(self) -> int | None:
        """Highest charge of the cgroup, page cache included; None without a cgroup."""
        return self.cage.usage()[0]

    def message(self) -> str:
        """The end of standard error."""
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")[-1500:] or "no message"

    def kill(self) -> None:
        """Sends SIGKILL to all its processes."""
        _end(self.process)


@contextlib.contextmanager
def started_limited(
    command: Sequence[str],
    memory: int | None = None,
    *,
    env: Mapping[str, str] | None = None,
) -> Iterator[Service]:
    """Run `command` under `memory` bytes while the block runs; its standard output is a pipe.

    At the end of the block it receives SIGTERM. After 30 seconds, its process group receives
    SIGKILL.
    """
    cage = _cage(memory, swap=False)
    try:
        with tempfile.TemporaryFile() as errors:
            child = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=None if env is None else {**os.environ, **env},
                start_new_session=True,
                preexec_fn=cage.enter,
            )
            try:
                yield Service(child, cage.kind, cage, errors)
            finally:
                if child.poll() is None:
                    child.terminate()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        child.wait(30)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                child.stdout.close()
    finally:
        cage.close()


def _end(child: subprocess.Popen) -> None:
    if child.returncode is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _wait_for(child: subprocess.Popen, ready: Path, limit_s: float) -> bool:
    """Waits for a file of the child, up to `limit_s`; whether it exists before the child ends."""
    end = time.monotonic() + limit_s
    while not ready.exists():
        ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if ended or time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def _wait(child: subprocess.Popen, timeout_s: float | None):
    """Reap the child and its resource usage; kill its process group after the time limit."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    pause, killed = 0.001, False
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode, usage
        if deadline is not None and not killed and time.monotonic() > deadline:
            os.killpg(child.pid, signal.SIGKILL)
            killed = True
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def main(arguments: list[str] | None = None) -> int:
    """Command line; prints the outcome as a JSON object and returns the command's code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memory", type=parse_bytes, help="limit, for instance 1GiB")
    parser.add_argument("--timeout", type=float, help="seconds")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("no command given; put it after `--`")
    outcome = run_limited(command, options.memory, timeout_s=options.timeout)
    print(json.dumps(asdict(outcome), indent=1))
    return outcome.returncode


if __name__ == "__main__":
    sys.exit(main())
