"""`outercore serve`: answer requests for predictions over HTTP."""

from __future__ import annotations

import os
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

from outercore.base.options import Option
from outercore.base.sizes import format_size, parse_size
from outercore.cli import console, options
from outercore.runs.stop import StopRequest, stop_on_signals
from outercore.serving.server import Server, ServerConfig

_LOOK_S = 0.5
"""Seconds between two checks that the server still runs."""


@options.command
def serve(
    data_set: options.DataSet,
    model: Annotated[
        Path, Option("Run directory of `outercore train`. The model gets the name of the run.")
    ],
    config: ServerConfig,
    json: options.Json = False,
) -> None:
    """Answer requests for predictions, on the machine that holds the data set.

    Requests follow the Open Inference Protocol 2. The server ends with Ctrl-C or SIGTERM, after it
    has answered the waiting requests. With --json, it prints each event as a line of JSON.

    **Example**

        outercore serve papers --model runs/first --memory 2GiB

        curl -s localhost:8100/v2/models/first/infer --json '{"inputs":[{"name":"node_ids",
        "datatype":"INT64","shape":[2],"data":[7,9]}]}'
    """
    tell = _json if json else _text
    stop = StopRequest()
    with stop_on_signals(stop), Server(data_set, model, config) as server:
        tell("ready", **_described(server, config))
        if server.notice:
            tell("notice", text=server.notice)
        while not stop.wait(_LOOK_S) and not server.ended:
            for failure in server.take_failures():
                tell("failure", text=failure)
    tell("stopped")


def _described(server: Server, config: ServerConfig) -> dict[str, Any]:
    return {
        "url": server.url,
        "grpc": server.grpc_address,
        "model": server.name,
        "precision": config.precision,
        "memory": parse_size(config.memory),
        "loss": asdict(server.loss) if server.loss else None,
        "process": os.getpid(),
    }


def _json(event: str, **more: Any) -> None:
    """Prints an event as a line of JSON, with its time."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    console.json_data({"time": now, "event": event, **more}, indent=None)


def _text(event: str, **more: Any) -> None:
    match event:
        case "ready":
            grpc = f" and {more['grpc']} (gRPC)" if more["grpc"] else ""
            lost = f", int8 loses {more['loss']['text']}" if more["loss"] else ""
            console.data(
                f"ready on {more['url']}{grpc}: model `{more['model']}`, within "
                f"{format_size(more['memory'])}{lost}"
            )
        case "notice":
            console.note(more["text"])
        case "failure":
            console.note(f"a request failed: {more['text']}")
        case "stopped":
            console.note("stopped: all waiting requests were answered")
