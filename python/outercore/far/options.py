"""Where a memory server is, and how to use it."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from outercore import _core
from outercore.far.profile import probed_chunk


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
