"""An embedding run as people watch it."""

from __future__ import annotations

from typing import Any

from outercore.cli.run_watch import RunWatch


class EmbedWatch(RunWatch):
    """Shows a run's events; a context manager."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__("triples", "triples", quiet=quiet)

    def started(self, description: dict[str, Any]) -> None:
        """What runs, and where its rows are."""
        where = "all partitions"
        if description["partitions"] > 1:
            where = f"{description['slots']} of {description['partitions']} partitions"
        self._say(
            f"run {description['run']}: {description['model']} of dimension {description['dim']}, "
            f"{description['parameters']:,} numbers, on {description['device']}\n"
            f"  in memory  {where}"
        )
