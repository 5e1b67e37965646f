"""The memory server, which lends memory to other processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outercore import _core
from outercore.base.sizes import parse_size

DEFAULT_LISTEN = "127.0.0.1:7411"
"""Default address of a memory server; only this machine can connect to it."""


def new_token(path: str | os.PathLike[str]) -> Path:
    """Write a new token to a new file that only its owner may read. Returns the file.

    Raises:
        InvalidError: the file exists.
        DeviceError: the file cannot be written.
    """
    _core.far_new_token(path)
    return Path(path)


class MemoryServer:
    """Lends memory of this process to clients, until it is stopped. It is a context manager.

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
            size: lend at most this much memory, such as ``32GiB`` or ``50%``.
            token_file: file with the token of the clients, at least 16 bytes. Only its owner may
                have access to it.
            listen: listen on ``HOST:PORT``, ``unix:PATH`` or ``fabric://HOST:PORT``. Port 0 picks a
                free port.
            max_clients: accept at most this many clients at a time.
            session_timeout_s: treat a client as dead after this many seconds of silence, and free
                its regions that are not kept. The default is 30.
            fabric_provider: use this provider of libfabric for ``fabric://``, such as ``verbs`` or
                ``tcp``. By default, libfabric chooses.

        Raises:
            InvalidError: an invalid address, limit or token.
            DeviceError: an address is in use.
        """
        options = {
            "listen": [_core.far_address(address) for address in listen],
            "size": parse_size(size),
            "token_file": os.fspath(token_file),
            "max_clients": max_clients,
            "session_timeout_s": session_timeout_s,
            "fabric_provider": fabric_provider,
        }
        self._core = _core.MemoryServer(options)

    @property
    def addresses(self) -> list[str]:
        """The addresses of the server, with the chosen ports."""
        return self._core.addresses()

    def status(self) -> dict[str, Any]:
        """Counts of the server: bytes, clients, regions."""
        return self._core.status()

    def stop(self) -> None:
        """Close all connections and free all memory."""
        self._core.stop()

    def __enter__(self) -> MemoryServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
