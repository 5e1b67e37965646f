"""Address and options of a memory server."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, overload

from outercore import _core
from outercore.base.fields import Configuration, build, typed
from outercore.base.options import Option
from outercore.data.far.profile import probed_chunk
from outercore.errors import InvalidError


@dataclass(frozen=True)
class FarOptions:
    """Address and options of a memory server.

    Example:
        >>> from outercore.data.far import FarOptions
        >>> FarOptions("10.0.0.7", queue_length=64).address
        'tcp://10.0.0.7:7411'
    """

    address: Annotated[
        str,
        Option(
            "Use the memory server at this address: `HOST:PORT`, `unix:PATH` or "
            "`fabric://HOST:PORT`.",
            name="far",
            common=True,
        ),
    ]
    token_file: Annotated[
        str | None,
        Option(
            "Read the token of the server from this file. By default, the environment variable "
            "`OUTERCORE_FAR_TOKEN` contains it.",
            name="far_token_file",
        ),
    ] = None
    chunk: Annotated[
        int | None,
        Option(
            "Transfer at most this many bytes at once. The default is the result of `outercore far "
            "probe`, otherwise 256 KiB.",
            name="far_chunk",
            size=True,
        ),
    ] = None
    queues: Annotated[
        int,
        Option(
            "Number of connections for data. Control messages have a separate connection.",
            name="far_queues",
        ),
    ] = 1
    queue_length: Annotated[
        int,
        Option("Number of transfers in flight on each data connection.", name="far_queue_length"),
    ] = 32
    timeout_s: Annotated[
        float,
        Option(
            "Treat the server as lost after this many seconds without progress.", name="far_timeout"
        ),
    ] = 5.0
    fallback: Annotated[
        bool,
        Option(
            "Continue from the disk if the server is lost. With `false`, the run fails instead."
        ),
    ] = True

    def __post_init__(self) -> None:
        address = _core.far_address(typed(str, self.address, "far.address"))
        object.__setattr__(self, "address", address)
        if self.token_file is not None:
            if not isinstance(self.token_file, (str, os.PathLike)):
                raise InvalidError(f"far.token_file: expected a path, found {self.token_file!r}")
            object.__setattr__(self, "token_file", os.fspath(self.token_file))


@dataclass(frozen=True)
class FarConfig(Configuration):
    """The configuration of commands whose only options are those of the memory server."""

    far: FarOptions | None = None


Far = FarOptions | str
"""A memory server: its options, or only its address."""


@overload
def options_of(far: Far, root: Path | None = None) -> dict[str, Any]: ...
@overload
def options_of(far: None, root: Path | None = None) -> None: ...
def options_of(far: Far | None, root: Path | None = None) -> dict[str, Any] | None:
    """The options of `far` in the form of the core, with the best chunk from a probe in `root`.

    Errors: `InvalidError` for anything but an address or options.
    """
    if far is None:
        return None
    options = FarOptions(far) if isinstance(far, str) else far
    if not isinstance(options, FarOptions):
        raise InvalidError(f"far: expected an address or `far.FarOptions`, found {far!r}")
    options = build(FarOptions, asdict(options), "far")
    if options.chunk is None and root is not None:
        options = replace(options, chunk=probed_chunk(root, options.address))
    return {name: value for name, value in asdict(options).items() if value is not None}
