"""Commands for fault tests: a server and its client in one process."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from outercore.files.atomic import device_errors, whole_file
from outercore.serving.server import Server
from test_live import CONFIG, X
from test_serve import ask, infer

UPDATES: list[list[dict[str, Any]]] = [
    [{"op": "add_node", "values": {"x": X, "y": 1}}],
    [{"op": "update_node", "node": 3, "values": {"x": X}}],
    [
        {"op": "add_edge", "source": 3, "target": 7},
        {"op": "add_edge", "source": 8, "target": 40},
    ],
    [{"op": "remove_node", "node": 11}],
    [{"op": "add_edge", "source": 5, "target": 3}],
]
"""Each list is a separate request with a key, so that it can be sent again."""
FOLDED_AFTER = 2
"""Number of the update after which the log is folded; later updates are in the log at the end."""


def change(data_set: str, model: str, steps: str = "") -> int:
    """Sends the first `steps` updates, prints each acknowledgement, and predicts."""
    with Server(data_set, model, CONFIG) as server:
        for number, updates in enumerate(UPDATES[: int(steps or len(UPDATES))]):
            body = {"key": f"update {number}", "updates": updates}
            status, answer = ask(server, "/graph/updates", body)
            if status == 200 and number == FOLDED_AFTER:
                status, answer = ask(server, "/graph/compact", {})
            # Predictions also work after a failed update.
            infer(server, [3, 7])
            if status != 200:
                return _failed(server, answer)
            print(f"acknowledged {number}", flush=True)  # noqa: T201
    return 0


def load(data_set: str, served: str, newer: str, out: str) -> int:
    """Points the link `served` to the newer model, and requests the server to load it."""
    with Server(data_set, served, replace(CONFIG, updates=False)) as server:
        before = infer(server, [3, 7], seed=1)
        with device_errors(f"`{served}`"):
            Path("next").unlink(missing_ok=True)
            Path("next").symlink_to(newer)
            Path("next").rename(served)
        status, answer = ask(server, f"/v2/repository/models/{server.name}/load", {})
        after = infer(server, [3, 7], seed=1)
        if status != 200:
            assert after == before
            return _failed(server, answer)
        with whole_file(Path(out)) as file:
            file.write(json.dumps(after["outputs"]).encode())
    return 0


def _failed(server: Server, answer: Any) -> int:
    failures = "; ".join(server.take_failures())
    sys.stderr.write(f"error: {failures or answer}\nhint: run the same command again\n")
    return 1
