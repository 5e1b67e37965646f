"""The low-level interface: regions of far memory, written and read by chunks."""

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
        self._core = _core.FarConnection(options_of(far), threads, receive)

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
        return self._core.status()

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

    def __exit__(self, *_: object) -> None:
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
