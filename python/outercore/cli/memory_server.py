"""`outercore memory-server`: lend memory of this machine to other machines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from outercore.base.sizes import format_size, parse_size
from outercore.cli import console, options
from outercore.data.far import MemoryServer, new_token
from outercore.runs.stop import StopRequest, stop_on_signals

_WAIT_S = 1.0


def _new_token(path: Path | None) -> None:
    if path is not None:
        console.data(f"token in {new_token(path)}")
        raise typer.Exit


@options.command
def memory_server(
    *,
    make_token: Annotated[
        Path | None,
        typer.Option(
            "--new-token",
            callback=_new_token,
            is_eager=True,
            help="Write a new token to this file and exit.",
        ),
    ] = None,
    values: Annotated[options.Values, MemoryServer.__init__],
    json: options.Json = False,
) -> None:
    """Lend memory to `outercore run` and `outercore train` on this machine or others.

    Clients need the token. Data is not encrypted, so use only addresses in a network that you
    trust. The server ends with Ctrl-C or SIGTERM, and loses the data of all clients.

    **Examples**

        outercore memory-server --new-token far.token

        outercore memory-server --size 32GiB --token-file far.token --listen 10.0.0.7:7411

        outercore memory-server --size 8GiB --token-file far.token --listen unix:/run/far.sock
    """
    wanted = parse_size(values["size"])
    physical = parse_size("100%")
    if wanted > physical:
        console.note(
            f"note: {format_size(wanted)} is more than the {format_size(physical)} of this machine"
        )
    stop = StopRequest()
    with stop_on_signals(stop), MemoryServer(**values) as server:
        if json:
            ready = {"addresses": server.addresses, "size": wanted, "process": os.getpid()}
            console.json_data(ready, indent=None)
        else:
            for address in server.addresses:
                console.data(f"listening on {address}, lending {format_size(wanted)}")
        # Polls, because a signal just before the wait would not end it.
        while not stop.wait(_WAIT_S):
            pass
    if not json:
        console.note("stopped: all memory is free")
