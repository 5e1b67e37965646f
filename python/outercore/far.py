"""Far memory: the memory of another process or machine as one more tier (Fargraph+).

`FarOptions` says where a memory server is and how to use it; algorithms, `NeighborLoader` and
training take it as ``far=``. `build_connection` is the low-level interface: regions of far memory,
written and read by chunks, many at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outercore import _core
from outercore._native import Progress
from outercore.errors import CorruptError, DeviceError, InvalidError, NotFoundError
from outercore.sizes import parse_size

DEFAULT_LISTEN = "127.0.0.1:7411"
"""Where a memory server listens if nobody says otherwise: this machine alone."""

_PROFILE = "far.json"
_PROFILE_VERSION = 1

Receive = Literal["shared", "per_thread"]
What = Literal["grid", "features", "topology"]
WHAT: tuple[What, ...] = ("grid", "features", "topology")
"""The parts of a data set that a memory server can hold."""


@dataclass(frozen=True)
class FarOptions:
    """Where a memory server is, and how to use it.

    Example:
        >>> from outercore.far import FarOptions
        >>> FarOptions("10.0.0.7", queue_length=64).address
        'tcp://10.0.0.7:7411'
    """

    address: str
    """``HOST:PORT``, ``unix:PATH`` or ``fabric://HOST:PORT``."""
    token_file: str | None = None
    """File with the server's token; the environment variable ``OUTERCORE_FAR_TOKEN`` by default."""
    chunk: int | None = None
    """Longest piece in bytes that one transfer moves.

    By default what `outercore far probe` found best for the data set and this address, 256 KiB
    where nobody probed.
    """
    queues: int = 1
    """Data connections beside that for control messages."""
    queue_length: int = 32
    """Transfers in flight in each queue."""
    timeout_s: float = 5.0
    """Seconds without any progress after which the server counts as gone."""
    fallback: bool = True
    """Whether to read from the disk when the server is gone, instead of failing."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "address", _core.far_address(self.address))
        if self.token_file is not None:
            object.__setattr__(self, "token_file", os.fspath(self.token_file))


Far = FarOptions | str
"""A server by its options, or by its address alone."""


def options_of(far: Far | None, root: Path | None = None) -> dict[str, Any] | None:
    """What the core is told about `far`, with the chunk that was probed for the data set `root`."""
    if far is None:
        return None
    options = FarOptions(far) if isinstance(far, str) else far
    if options.chunk is None and root is not None:
        options = replace(options, chunk=probed_chunk(root, options.address))
    return {name: value for name, value in asdict(options).items() if value is not None}


def probed_chunk(root: Path, address: str) -> int | None:
    """The best chunk for a data set and a server, ``None`` where nobody probed.

    Raises:
        CorruptError: the profile beside the data set is none.
    """
    found = _profiles(root).get(_core.far_address(address))
    if found is None:
        return None
    chunk = found.get("best_chunk") if isinstance(found, dict) else None
    if not isinstance(chunk, int) or chunk <= 0:
        raise CorruptError(
            f"far memory profile `{root / _PROFILE}`: `best_chunk` is {chunk!r}, expected bytes"
            "\nhint: run `outercore far probe` again"
        )
    return chunk


def store_profile(root: Path, address: str, profile: dict[str, Any]) -> Path:
    """Keep what a probe measured beside the device profile of ``root``; returns the file."""
    from outercore.storage import Storage, device_errors, replace_file

    servers = _profiles(root)
    measured = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    servers[_core.far_address(address)] = {"measured": measured, **profile}
    text = json.dumps({"version": _PROFILE_VERSION, "servers": servers}, indent=2) + "\n"
    path = root / _PROFILE
    with device_errors(f"far memory profile `{path}`"):
        replace_file(Storage(), path, text.encode())
    return path


def _profiles(root: Path) -> dict[str, Any]:
    """The profiles in a directory, by address."""
    path = root / _PROFILE
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise _damaged(path, str(error)) from None
    if not isinstance(found, dict) or not isinstance(found.get("servers"), dict):
        raise _damaged(path, "expected `servers`")
    if found.get("version") != _PROFILE_VERSION:
        raise _damaged(path, f"version {found.get('version')}, expected {_PROFILE_VERSION}")
    return found["servers"]


def _damaged(path: Path, problem: str) -> CorruptError:
    return CorruptError(
        f"far memory profile `{path}`: {problem}"
        "\nhint: remove it and run `outercore far probe` again"
    )


def new_token(path: str | os.PathLike[str]) -> Path:
    """Write a new token to a new file that only its owner may read; returns the file.

    Raises:
        InvalidError: there is such a file.
        DeviceError: it cannot be written.
    """
    _core.far_new_token(os.fspath(path))
    return Path(path)


class MemoryServer:
    """Lends memory of this process to clients, until it is stopped; a context manager.

    Example:
        >>> import tempfile
        >>> from outercore import far
        >>> token = far.new_token(tempfile.mkdtemp() + "/far.token")
        >>> with far.MemoryServer("1MiB", token, listen=["127.0.0.1:0"]) as server:
        ...     server.status()["used"]
        0
    """

    def __init__(
        self,
        size: str | int,
        token_file: str | os.PathLike[str],
        *,
        listen: Sequence[str] = (DEFAULT_LISTEN,),
        max_clients: int | None = None,
        session_timeout_s: float | None = None,
        fabric_provider: str | None = None,
    ) -> None:
        """Bind the addresses and start to serve.

        Args:
            size: memory to lend at most, such as ``"32GiB"``.
            token_file: file with the token that clients must know, at least 16 bytes, readable by
                its owner alone; see `new_token`.
            listen: ``HOST:PORT``, ``unix:PATH`` or ``fabric://HOST:PORT``; port 0 picks a free one.
            max_clients: clients at once.
            session_timeout_s: seconds of silence after which a client counts as dead, and what it
                had not kept is freed.
            fabric_provider: libfabric's provider for ``fabric://``, such as ``verbs`` or ``tcp``;
                the one that it holds for the best by default.

        Raises:
            InvalidError: an address, a limit or a token that will not do.
            DeviceError: an address is taken.
        """
        wanted = {
            "listen": [_core.far_address(address) for address in listen],
            "size": parse_size(size),
            "token_file": os.fspath(token_file),
            "max_clients": max_clients,
            "session_timeout_s": session_timeout_s,
            "fabric_provider": fabric_provider,
        }
        self._core = _core.MemoryServer(json.dumps(wanted))

    @property
    def addresses(self) -> list[str]:
        """Where it listens, with the ports that were chosen."""
        return self._core.addresses()

    def status(self) -> dict[str, Any]:
        """What it has and lends: bytes, clients, regions."""
        return json.loads(self._core.status())

    def stop(self) -> None:
        """Close all connections and give all memory back."""
        self._core.stop()

    def __enter__(self) -> MemoryServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


@dataclass(frozen=True)
class Region:
    """A region of far memory."""

    key: int
    """By which it is read and written; drawn by the server, not to be guessed."""
    length: int
    """Bytes."""


class Connection:
    """The low-level interface to far memory (Fargraph+ 8.1); made by `build_connection`.

    Transfers of one thread are started and completed under its number; several Python threads may
    use one connection, each with a number of its own. Whatever waits ends after the time-out of
    the options, with a ``DeviceError``.

    Example:
        >>> import tempfile
        >>> from outercore import far
        >>> token = far.new_token(tempfile.mkdtemp() + "/far.token")
        >>> server = far.MemoryServer("1MiB", token, listen=["127.0.0.1:0"])
        >>> options = far.FarOptions(server.addresses[0], token_file=str(token))
        >>> with far.build_connection(options) as connection:
        ...     region = connection.allocate(8192)
        ...     connection.far_write_start(region, np.arange(8192) % 251)
        ...     connection.far_write_complete()
        ...     connection.seal(region)
        ...     ticket = connection.far_read_start(region, 252, 4)
        ...     connection.far_read_complete(ticket).tolist()
        [1, 2, 3, 4]
        >>> server.stop()
    """

    def __init__(self, far: Far, threads: int, receive: Receive) -> None:
        self._core = _core.FarConnection(json.dumps(options_of(far)), threads, receive)

    @property
    def memory_bytes(self) -> int:
        """What queues and receive buffers hold at the moment."""
        return self._core.memory_bytes()

    def allocate(self, length: int, name: str | None = None) -> Region:
        """A region of ``length`` bytes, to be found under ``name`` once it is sealed.

        Raises:
            NoSpaceError: the server is full.
            InvalidError: a length of zero, a name that is taken.
            DeviceError: the server is gone.
        """
        return Region(self._core.allocate(length, name), length)

    def seal(self, region: Region, *, keep: bool = False) -> None:
        """Make the content final; ``keep`` lets it outlive this connection.

        Raises:
            InvalidError: not a region of this connection.
            DeviceError: the server is gone.
        """
        self._core.seal(region.key, region.length, keep)

    def find(self, name: str) -> Region | None:
        """The sealed region of a name, where there is one.

        Raises:
            DeviceError: the server is gone.
        """
        found = self._core.find(name)
        return None if found is None else Region(*found)

    def free(self, region: Region) -> None:
        """Give a region back.

        Raises:
            NotFoundError: there is no such region.
            DeviceError: the server is gone.
        """
        self._core.free(region.key, region.length)

    def status(self) -> dict[str, Any]:
        """What the server has and lends, and the regions that may be seen.

        Raises:
            DeviceError: the server is gone.
        """
        return json.loads(self._core.status())

    def far_write_start(
        self, region: Region, data: ArrayLike, offset: int = 0, *, thread: int = 0
    ) -> None:
        """Start writing the bytes of ``data`` to a region.

        The bytes are copied before it returns.

        Args:
            region: one of this connection that is not sealed.
            data: ``uint8`` of any shape; other types where conversion changes no value.
            offset: byte of the region.
            thread: below the number of threads of the connection.

        Raises:
            InvalidError: beyond the end of the region, no bytes, no such thread.
            DeviceError: the server is gone, or an earlier write has failed.
        """
        self._core.write_start(thread, region.key, region.length, offset, _as_bytes(data))

    def far_write_complete(self, *, thread: int = 0) -> None:
        """Wait for all writes of a thread.

        Raises:
            DeviceError: one has failed.
        """
        self._core.write_complete(thread)

    def far_read_start(self, region: Region, offset: int, length: int, *, thread: int = 0) -> int:
        """Start reading ``length`` bytes of a region; returns a ticket.

        Raises:
            InvalidError: beyond the end of the region, longer than all receive buffers together,
                no such thread.
            BudgetError: all receive buffers stay in use for the time-out.
        """
        return self._core.read_start(thread, region.key, region.length, offset, length)

    def far_read_complete(self, ticket: int, *, thread: int = 0) -> NDArray[np.uint8]:
        """Wait for a read and take its bytes.

        Raises:
            InvalidError: no ticket of this thread, or completed already.
            DeviceError: the server is gone.
        """
        return self._core.read_complete(thread, ticket)

    def close(self) -> None:
        """End the connection; regions that were not kept are freed."""
        self._core.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def build_connection(far: Far, *, threads: int = 1, receive: Receive = "shared") -> Connection:
    """Connect to a memory server: one control connection, and data queues of their own.

    Args:
        far: the server.
        threads: how many threads will start transfers.
        receive: one pool of receive buffers ``shared`` by all threads, or one ``per_thread``
            (Fargraph+ 6.3).

    Raises:
        InvalidError: the server refuses the token.
        VersionError: the server speaks another version of the protocol.
        DeviceError: nobody answers.
    """
    if receive not in ("shared", "per_thread"):
        raise InvalidError(f"receive `{receive}`, expected `shared` or `per_thread`")
    return Connection(far, threads, receive)


@dataclass(frozen=True)
class FarSegment:
    """A piece of what a program holds, and how often it is read (Fargraph+ 5.1)."""

    group: int
    """1 results and state, 2 working data, 3 edges that are read, 4 what is never read."""
    bytes: int
    """Its size."""
    reads: int
    """How often a run reads it."""
    transferable: bool = False
    """Whether it is to lie in far memory."""


def add_transferable_flag(segments: Sequence[FarSegment], far_ratio: float) -> list[FarSegment]:
    """Mark what is to lie in far memory: the share ``far_ratio`` of the bytes that may move.

    Group 4 goes before group 3, fewer reads a byte before more; groups 1 and 2 stay.

    Raises:
        InvalidError: a group other than 1 to 4, a ratio outside 0 to 1.

    Source: Fargraph+ 5.2.

    Example:
        >>> from outercore.far import FarSegment, add_transferable_flag
        >>> held = [FarSegment(1, 80, 9), FarSegment(3, 40, 7), FarSegment(4, 40, 0)]
        >>> [segment.transferable for segment in add_transferable_flag(held, 0.5)]
        [False, False, True]
    """
    described = [asdict(segment) for segment in segments]
    flags = _core.add_transferable_flag(json.dumps(described), far_ratio)
    return [
        replace(segment, transferable=flag) for segment, flag in zip(segments, flags, strict=True)
    ]


def arrays(root: Path) -> list[dict[str, Any]]:
    """The files of a data set that far memory can hold.

    Returns ``what`` (one of `WHAT`), ``key``, ``bytes``, and ``names``: those of the regions, which
    say what the content is and are the same on any machine.
    """
    return json.loads(_core.far_arrays(os.fspath(root)))


def put(
    root: Path,
    far: Far,
    *,
    what: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Copy parts of a data set to a memory server, where they stay until they are dropped.

    Args:
        root: directory of the data set.
        far: the server.
        what: of `WHAT`; all that the data set has by default.
        progress: called as ``progress(phase, done, total, unit)``.

    Returns the arrays with ``state``: ``kept`` now, ``there`` already, or ``full`` where the server
    had no room.

    Raises:
        InvalidError: an unknown part, a token that the server refuses.
        NotFoundError: the data set lacks a part that was asked for.
        DeviceError: the server is gone.
    """
    for part in what or ():
        if part not in WHAT:
            raise InvalidError(f"part `{part}`, expected one of {', '.join(WHAT)}")
    found = arrays(root)
    there = {array["what"] for array in found}
    for part in what or ():
        if part not in there:
            hint = f"run `outercore grid {root}`" if part == "grid" else "leave it out"
            raise NotFoundError(f"data set `{root}`: no {part}\nhint: {hint}")
    chosen = [array for array in found if what is None or array["what"] in what]
    keys = [array["key"] for array in chosen]
    options = json.dumps(options_of(far, root))
    states = _core.far_put(os.fspath(root), options, keys, progress)
    return [{**array, "state": state} for array, state in zip(chosen, states, strict=True)]


def holds(root: Path, far: Far, *, what: Sequence[str] = ("features", "topology")) -> bool:
    """Whether a memory server holds parts of a data set for good, all of what there is of them.

    ``False`` also where the server does not answer.
    """
    names = [name for array in arrays(root) if array["what"] in what for name in array["names"]]
    try:
        with build_connection(far) as connection:
            return bool(names) and all(connection.find(name) is not None for name in names)
    except DeviceError:
        return False


def probe(
    far: Far,
    *,
    size: str | int | None = None,
    seconds: float = 0.3,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure a memory server: bytes a second by chunk size and queue length.

    Args:
        far: the server.
        size: of the region that is allocated there, written, read and given back; 64 MiB by
            default, less where the server has less.
        seconds: time for each point.
        progress: called as ``progress(phase, done, total, unit)``.

    Returns ``best_chunk``, ``latency_s`` and ``points``.

    Raises:
        NoSpaceError: the server has less room.
        DeviceError: the server is gone.
    """
    chosen = {
        "size": None if size is None else parse_size(size),
        "seconds_per_point": seconds,
    }
    text = _core.far_probe(json.dumps(options_of(far)), json.dumps(chosen), progress)
    return json.loads(text)


def _as_bytes(data: ArrayLike) -> NDArray[np.uint8]:
    """Any bytes as one contiguous row of them."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return np.frombuffer(data, np.uint8)
    given = np.asarray(data)
    taken = given.astype(np.uint8, copy=False)
    if taken is not given and not np.array_equal(taken, given):
        raise InvalidError(
            f"data of type {given.dtype}, expected bytes (uint8)\nhint: pass `array.view('uint8')`"
        )
    return np.ascontiguousarray(taken).reshape(-1)
