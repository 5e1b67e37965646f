"""The plan of a training as people read it: sizes, times, and what limits it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outercore.base.durations import format_duration
from outercore.base.plan_display import train_rows
from outercore.base.sizes import as_option, format_size
from outercore.cli import console

_LIMITS = {
    "device": "the disk",
    "model": "the network",
    "sampling": "sampling",
    "assembling": "putting batches together",
    "processor": "the processor",
}
"""What an epoch waits for."""


def show_plan(planned: Mapping[str, Any]) -> None:
    """Prints the memory, the epochs and the verdict."""
    console.table(f"a budget of {format_size(planned['memory'])}", train_rows(planned))
    if forecast := planned["forecast"]:
        cells: console.Cells = {
            "an epoch": lambda row: row[0],
            "first": lambda row: row[1],
            "later": lambda row: row[2],
        }
        console.columns(_epochs(forecast), cells)
    console.data(verdict(planned))


def _epochs(forecast: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    epochs = [forecast["first_epoch"], forecast["later_epochs"]]
    lines: list[tuple[str, Any]] = [
        ("time", lambda one: format_duration(one["seconds"])),
        ("read", lambda one: format_size(one["bytes"])),
        ("reads", lambda one: f"{one['requests']:,.0f}"),
        ("rows found in memory", lambda one: f"{one['hit_ratio']:.1%}"),
        ("sampling, by itself", lambda one: format_duration(one["sample_s"])),
        ("reading rows", lambda one: format_duration(one["fetch_s"])),
        ("putting together", lambda one: format_duration(one["assemble_s"])),
        ("network", lambda one: format_duration(one["train_s"])),
    ]
    return [(name, *(shown(one) for one in epochs)) for name, shown in lines]


def verdict(planned: Mapping[str, Any]) -> str:
    """What an epoch costs, what limits it, and what more memory would change."""
    if not planned["forecast"]:
        return "The budget is enough."
    later = planned["forecast"]["later_epochs"]
    limit = _LIMITS.get(later["bottleneck"], later["bottleneck"])
    reads = format_size(later["bytes"]) if later["bytes"] else "nothing"
    said = f"A later epoch reads {reads} and takes about {format_duration(later['seconds'])}; "
    said += f"{limit} limits it."
    # A validation without a share of the memory takes all of it, and the cache is lost.
    emptied = bool(later["bytes"]) and not planned["validation_memory"]
    if not later["rows_read"] and not emptied:
        return f"{said} All feature rows stay in memory."
    if emptied:
        said += " Each validation empties the cache."
    enough = planned["all_rows_memory"]
    if enough is None or enough <= planned["memory"]:
        return said
    return f"{said} With `--memory {as_option(enough)}` all feature rows stay in memory."
