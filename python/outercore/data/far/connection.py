"""The low-level interface to far memory: regions that are written and read in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outercore import _core
from outercore.data.far.options import Far, options_of
from outercore.errors import InvalidError

Receive = Literal["shared", "per_thread"]


@dataclass(frozen=True)
class Region:
    """A region: a piece of a memory server's memory."""

    key: int
    """Key for reads and writes: a random number from the server, hard to guess."""
    length: int
    """Length in bytes."""


class Connection:
    """The low-level interface to far memory. `build_connection` makes it.

    Several Python threads may use a connection, each with a separate thread number. A thread starts
    and completes its transfers under its number. A wait that exceeds the time-out of the options
    raises a ``DeviceError``.

    Source: Fargraph+ 8.1.

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
        self._core = _core.FarConnection(options_of(far), threads, receive)

    @property
    def memory_bytes(self) -> int:
        """Current bytes of memory for queues and receive buffers."""
        return self._core.memory_bytes()

    def allocate(self, length: int, name: str | None = None) -> Region:
        """Allocate a region of ``length`` bytes; when it is sealed, `find` finds it by ``name``.

        Raises:
            NoSpaceError: the server is full.
            InvalidError: the length is zero, or the name is in use.
            DeviceError: the server does not answer.
        """
        return Region(self._core.allocate(length, name), length)

    def seal(self, region: Region, *, keep: bool = False) -> None:
        """Make the content of a region final. With ``keep``, the region outlives this connection.

        Raises:
            InvalidError: ``region`` does not belong to this connection.
            DeviceError: the server does not answer.
        """
        self._core.seal(region.key, region.length, keep)

    def find(self, name: str) -> Region | None:
        """The sealed region of a name, or None.

        Raises:
            DeviceError: the server does not answer.
        """
        region = self._core.find(name)
        return None if region is None else Region(*region)

    def free(self, region: Region) -> None:
        """Free a region.

        Raises:
            NotFoundError: the region does not exist.
            DeviceError: the server does not answer.
        """
        self._core.free(region.key, region.length)

    def status(self) -> dict[str, Any]:
        """Memory of the server, lent memory, and the regions that this client may see.

        Raises:
            DeviceError: the server does not answer.
        """
        return self._core.status()

    def far_write_start(
        self, region: Region, data: ArrayLike, offset: int = 0, *, thread: int = 0
    ) -> None:
        """Start writing the bytes of ``data`` to a region.

        The method copies the bytes before it returns.

        Args:
            region: a region of this connection that is not sealed.
            data: ``uint8`` of any shape, or another type if conversion changes no value.
            offset: first byte in the region.
            thread: number of the calling thread, below the connection's number of threads.

        Raises:
            InvalidError: the bytes exceed the region, ``data`` is empty, or the thread does not
                exist.
            DeviceError: the server does not answer, or an earlier write has failed.
        """
        self._core.write_start(thread, region.key, region.length, offset, _as_bytes(data))

    def far_write_complete(self, *, thread: int = 0) -> None:
        """Wait for all writes of a thread.

        Raises:
            DeviceError: a write has failed.
        """
        self._core.write_complete(thread)

    def far_read_start(self, region: Region, offset: int, length: int, *, thread: int = 0) -> int:
        """Start reading ``length`` bytes of a region. Returns a ticket for `far_read_complete`.

        Raises:
            InvalidError: the read exceeds the region, or is longer than all receive buffers
                together, or the thread does not exist.
            BudgetError: all receive buffers were in use until the time-out.
        """
        return self._core.read_start(thread, region.key, region.length, offset, length)

    def far_read_complete(self, ticket: int, *, thread: int = 0) -> NDArray[np.uint8]:
        """Wait for a read and return its bytes.

        Raises:
            InvalidError: the ticket does not belong to this thread, or is already completed.
            DeviceError: the server does not answer.
        """
        return self._core.read_complete(thread, ticket)

    def close(self) -> None:
        """End the connection; the server frees its regions that are not kept."""
        self._core.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def build_connection(far: Far, *, threads: int = 1, receive: Receive = "shared") -> Connection:
    """Connect to a memory server by a control connection and separate data queues.

    Args:
        far: address or options of the memory server.
        threads: number of threads that start transfers.
        receive: one pool of receive buffers ``shared`` by all threads, or one pool ``per_thread``
            (Fargraph+ 6.3).

    Raises:
        InvalidError: the server refuses the token.
        VersionError: the server has another version of the protocol.
        DeviceError: the server does not answer.
    """
    if receive not in ("shared", "per_thread"):
        raise InvalidError(f"receive `{receive}`, expected `shared` or `per_thread`")
    return Connection(far, threads, receive)


def _as_bytes(data: ArrayLike) -> NDArray[np.uint8]:
    """The data as a contiguous array of bytes, uint8 [n]."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return np.frombuffer(data, np.uint8)
    values = np.asarray(data)
    as_bytes = values.astype(np.uint8, copy=False)
    if as_bytes is not values and not np.array_equal(as_bytes, values):
        raise InvalidError(
            f"data of type {values.dtype}, expected bytes (uint8)\nhint: pass `array.view('uint8')`"
        )
    return np.ascontiguousarray(as_bytes).reshape(-1)
