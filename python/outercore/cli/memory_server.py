"""`outercore memory-server`: lends memory of this machine to others."""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import typer

from outercore.cli import console, options
from outercore.cli.signals import stop_on_signals
from outercore.config.sizes import format_size, parse_size
from outercore.errors import InvalidError
from outercore.far import DEFAULT_LISTEN, MemoryServer, new_token

_REFRESH_S = 1.0


def memory_server(
    size: Annotated[
        str | None,
        typer.Option(
            callback=options.size,
            help="Memory to lend at most: `32GiB`, `50%`.",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token that clients must know.", show_default=False),
    ] = None,
    listen: Annotated[
        list[str],
        typer.Option(help="`HOST:PORT`, `unix:PATH` or `fabric://HOST:PORT`; may be repeated."),
    ] = [DEFAULT_LISTEN],  # noqa: B006 - Typer copies it
    max_clients: Annotated[
        int | None, typer.Option(help="Clients at once.", show_default=False)
    ] = None,
    session_timeout: Annotated[
        float | None,
        typer.Option(
            help="Seconds of silence after which a client counts as dead; 30 by default.",
        ),
    ] = None,
    fabric_provider: Annotated[
        str | None,
        typer.Option(help="Provider of libfabric for `fabric://`: `verbs`, `tcp`; else the best."),
    ] = None,
    make_token: Annotated[
        Path | None,
        typer.Option("--new-token", help="Write a new token to this file, and end."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Lend memory to `outercore run` and `outercore train` on this machine or others.

    Clients must know the token; data is not encrypted, so keep the addresses within a network that
    you trust. Ends with Ctrl-C or SIGTERM; then all that it held is gone.

    **Examples**

        outercore memory-server --new-token far.token

        outercore memory-server --size 32GiB --token-file far.token --listen 10.0.0.7:7411

        outercore memory-server --size 8GiB --token-file far.token --listen unix:/run/far.sock
    """
    if make_token is not None:
        path = str(new_token(make_token))
        console.either({"token_file": path}, f"token in {path}", as_json=json)
        return
    if size is None or token_file is None:
        missing = "--size" if size is None else "--token-file"
        how = "`outercore memory-server --new-token FILE` writes a token"
        raise InvalidError(f"memory-server: expected `{missing}`\nhint: {how}")
    wanted = parse_size(size)
    _note_on_memory(wanted)
    with (
        stop_on_signals() as stop,
        MemoryServer(
            wanted,
            token_file,
            listen=listen,
            max_clients=max_clients,
            session_timeout_s=session_timeout,
            fabric_provider=fabric_provider,
        ) as server,
    ):
        if json:
            told = {"addresses": server.addresses, "size": wanted, "process": os.getpid()}
            console.json_data(told, indent=None)
        else:
            for address in server.addresses:
                console.data(f"listening on {address}, lending {format_size(wanted)}")
        _serve(server, stop, quiet=json)
    if not json:
        console.note("stopped: all memory is given back")


def _note_on_memory(wanted: int) -> None:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if wanted > physical:
        console.note(
            f"note: {format_size(wanted)} is more than the {format_size(physical)} of this machine"
        )


def _serve(server: MemoryServer, stop: Event, *, quiet: bool) -> None:
    """Waits for a signal; shows what happens where somebody watches."""
    with console.live(quiet=quiet) as show:
        if show is None:
            # Looked at again and again: a signal that comes before the wait begins does not end it.
            while not stop.wait(_REFRESH_S):
                pass
            return
        before, then = _moved(server.status()), time.monotonic()
        while not stop.wait(_REFRESH_S):
            status, now = server.status(), time.monotonic()
            moved = _moved(status)
            show(_line(status, (moved - before) / max(now - then, 1e-9)))
            before, then = moved, now


def _moved(status: dict[str, Any]) -> int:
    """Bytes that clients have read and written so far."""
    return int(status.get("read_bytes", 0)) + int(status.get("written_bytes", 0))


def _line(status: dict[str, Any], rate: float) -> str:
    """What a server does at the moment."""
    clients = status["clients"]
    return (
        f"{clients} {'client' if clients == 1 else 'clients'}"
        f"  {format_size(status['used'])} of {format_size(status['size'])} lent"
        f"  {format_size(rate)}/s"
    )
