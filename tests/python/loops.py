"""Commands with a fault at a chosen change of a file: the process is killed, or the disk is full.

The kernel notifies this process before the command changes a file, from Python or Rust (seccomp
with user notification, which needs no privileges). So the moment of a fault is a number of changes,
not a time.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import json
import os
import platform
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

_CALLS = {
    "x86_64": {
        "write": 1,
        "pwrite64": 18,
        "writev": 20,
        "fsync": 74,
        "fdatasync": 75,
        "truncate": 76,
        "ftruncate": 77,
        "rename": 82,
        "mkdir": 83,
        "rmdir": 84,
        "link": 86,
        "unlink": 87,
        "symlink": 88,
        "openat": 257,
        "mkdirat": 258,
        "unlinkat": 263,
        "renameat": 264,
        "linkat": 265,
        "symlinkat": 266,
        "fallocate": 285,
        "pwritev": 296,
        "renameat2": 316,
        "seccomp": 317,
        "copy_file_range": 326,
    },
    "aarch64": {
        "mkdirat": 34,
        "unlinkat": 35,
        "symlinkat": 36,
        "linkat": 37,
        "renameat": 38,
        "truncate": 45,
        "ftruncate": 46,
        "fallocate": 47,
        "openat": 56,
        "write": 64,
        "writev": 66,
        "pwrite64": 68,
        "pwritev": 70,
        "fsync": 82,
        "fdatasync": 83,
        "renameat2": 276,
        "seccomp": 277,
        "copy_file_range": 285,
    },
}.get(platform.machine(), {})
_BY_DESCRIPTOR = {"write", "pwrite64", "writev", "pwritev", "ftruncate", "fallocate"}
_BY_DESCRIPTOR |= {"fsync", "fdatasync", "copy_file_range"}
_PLACE = {"copy_file_range": 2, "symlink": 1, "linkat": 2, "symlinkat": 1}
"""Index of the argument with the changed file or its directory; 0 for all other calls."""
_TAKES_ROOM = {"write", "pwrite64", "writev", "pwritev", "ftruncate", "fallocate", "openat"}
_TAKES_ROOM |= {"mkdir", "mkdirat", "link", "linkat", "symlink", "symlinkat", "copy_file_range"}
_HERE = -100
_CONTINUE = 1
_RECEIVE, _SEND = 0xC0502100, 0xC0182101


@dataclass(frozen=True)
class Change:
    """A system call that changes a file below the command's directory."""

    call: str
    path: str


@dataclass(frozen=True)
class Fault:
    """The process is killed before change number `at`, or the disk is full from this change on."""

    kind: Literal["kill", "full"]
    at: int


@dataclass
class Ended:
    """The end of a command: its status (negative for a signal), outputs and changes."""

    status: int
    out: str
    err: str
    changes: list[Change] = field(default_factory=list)


class Commands:
    """Runs `outercore` in forked processes with all modules imported."""

    def __init__(self, modules: list[str]) -> None:
        ours, theirs = socket.socketpair()
        here = str(Path(__file__).parent)
        paths = os.pathsep.join([here, *(path for path in sys.path if path)])
        self._server = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, str(theirs.fileno()), *modules],
            pass_fds=[theirs.fileno()],
            cwd="/",
            env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
        )
        theirs.close()
        self._socket = ours

    def run(self, arguments: list[str], where: Path, fault: Fault | None = None) -> Ended:
        """Runs `outercore ARGUMENTS` in the directory `where`; faults apply to files below it.

        `MODULE:FUNCTION` in place of a command calls the function of a module in this directory.
        """
        where = where.resolve()
        with tempfile.TemporaryDirectory() as output:
            request = {"arguments": arguments, "where": str(where), "told": output}
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            answer, descriptors, _, _ = socket.recv_fds(self._socket, 64, 1)
            if not descriptors:
                raise OSError(answer.decode())
            pid, listener = int(answer), descriptors[0]
            try:
                changes = _supervise(listener, pid, str(where), fault)
            finally:
                os.close(listener)
            status = int(self._socket.recv(64))
            out, err = (Path(output, name).read_text() for name in ("out", "err"))
        return Ended(status, out, err, changes)

    def close(self) -> None:
        """Ends the server process."""
        self._socket.close()
        self._server.wait()


@contextmanager
def commands(*modules: str) -> Iterator[Commands]:
    """`Commands` within the block; `modules` are imported once."""
    started = Commands(["outercore.cli", *modules])
    try:
        yield started
    finally:
        started.close()


def available() -> bool:
    """Whether this kernel allows a process to watch the calls of its child."""
    if not _CALLS:
        return False
    child = os.fork()
    if child == 0:
        with suppress(OSError):
            _listener()
            os._exit(0)
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def flip(file: Path, bit: int) -> None:
    """Flips a bit; the bits of a byte count from the lowest."""
    with file.open("r+b") as opened:
        opened.seek(bit // 8)
        byte = opened.read(1)
        opened.seek(bit // 8)
        opened.write(bytes([byte[0] ^ 1 << bit % 8]))


def _supervise(listener: int, pid: int, root: str, fault: Fault | None) -> list[Change]:
    """Answers each notification until the process has ended, and returns its changes."""
    changes: list[Change] = []
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    full = False
    while True:
        [(_, event)] = poll.poll()
        if not event & select.POLLIN:
            return changes
        notification = bytearray(80)
        try:
            fcntl.ioctl(listener, _RECEIVE, notification)
        except OSError as error:
            # The process has ended.
            if error.errno in (errno.ENOENT, errno.EINTR):
                continue
            raise
        number, thread, _, call, _, _, *arguments = struct.unpack("=QIIiIQ6Q", notification)
        change = _change(thread, call, arguments, root)
        refused = 0
        if change is not None:
            if fault is not None and len(changes) >= fault.at:
                if fault.kind == "kill":
                    os.kill(pid, signal.SIGKILL)
                    return changes
                full = True
            changes.append(change)
            refused = errno.ENOSPC if full and change.call in _TAKES_ROOM else 0
        answer = struct.pack("=QqiI", number, 0, -refused, 0 if refused else _CONTINUE)
        with suppress(FileNotFoundError):
            fcntl.ioctl(listener, _SEND, answer)


def _change(thread: int, call: int, arguments: list[int], root: str) -> Change | None:
    name = next(name for name, number in _CALLS.items() if number == call)
    process, place = Path(f"/proc/{thread}"), Path(root)
    meant = arguments[_PLACE.get(name, 0) :]
    try:
        if name in _BY_DESCRIPTOR:
            place = (process / "fd" / str(meant[0])).readlink()
        elif name.endswith(("at", "at2")):
            directory = ctypes.c_int(meant[0] & 0xFFFFFFFF).value
            where = process / ("cwd" if directory == _HERE else f"fd/{directory}")
            place = where.readlink() / _text(thread, meant[1])
        else:
            place /= _text(thread, meant[0])
    except OSError:
        return None
    return Change(name, str(place.relative_to(root))) if place.is_relative_to(root) else None


def _text(thread: int, address: int) -> str:
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        text = b""
        while b"\0" not in text:
            # Not beyond the page: the next page may not be mapped.
            text += memory.read(4096 - (address + len(text)) % 4096)
    return os.fsdecode(text.partition(b"\0")[0])


def _listener() -> int:
    """A descriptor that receives a notification for each watched call of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    notify, allow = 0x7FC00000, 0x7FFF0000
    load, equal, bits, give = 0x20, 0x15, 0x45, 0x06
    watched = [number for name, number in _CALLS.items() if name not in ("openat", "seccomp")]
    program = [(load, 0, 0, 0), (equal, 0, 3, _CALLS["openat"])]
    # Opening a file is a change only if it can create the file.
    program += [(load, 0, 0, 32), (bits, len(watched) + 2, 0, os.O_CREAT), (give, 0, 0, allow)]
    program += [(equal, len(watched) - place, 0, number) for place, number in enumerate(watched)]
    program += [(give, 0, 0, allow), (give, 0, 0, notify)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program))
    described = struct.pack("@HP", len(program), ctypes.addressof(code))
    if libc.prctl(38, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    descriptor = libc.syscall(_CALLS["seccomp"], 1, 1 << 3, described)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return int(descriptor)


def _serve(connection: socket.socket, modules: list[str]) -> None:
    """Forks for each requested command."""
    for module in modules:
        __import__(module)
    # Objects of this process are never collected: the collector would copy their memory into each
    # child.
    gc.freeze()
    for line in connection.makefile():
        child = os.fork()
        if child == 0:
            _obey(connection, json.loads(line))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(str(code).encode())


def _obey(connection: socket.socket, request: dict[str, Any]) -> None:
    code = 99
    try:
        os.chdir(request["where"])
        for descriptor, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{request['told']}/{name}", os.O_CREAT | os.O_WRONLY), descriptor)
        listener = _listener()
        socket.send_fds(connection, [str(os.getpid()).encode()], [listener])
        os.close(listener)
        connection.close()
        arguments = request["arguments"]
        if ":" in arguments[0]:
            code = _call(arguments[0], arguments[1:])
        else:
            from outercore.cli import run

            sys.argv = ["outercore", *arguments]
            code = run(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _call(place: str, arguments: list[str]) -> int:
    from outercore.errors import OutercoreError

    module, _, function = place.partition(":")
    try:
        return int(getattr(import_module(module), function)(*arguments))
    except OutercoreError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
