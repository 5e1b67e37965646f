"""A training run as people watch it."""

from __future__ import annotations

from typing import Any

from outercore.cli.run_watch import RunWatch


class Watch(RunWatch):
    """Shows a run's events; a context manager."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__("seeds", "batches", quiet=quiet)

    def started(self, description: dict[str, Any]) -> None:
        """One line on what runs."""
        kind = description["validation"]
        where = "" if description["of_graphs"] else f" on {kind} neighbourhoods"
        validates = f"validates{where} by {description['metric']}"
        guessed = " (guessed from the labels)" if description["task_guessed"] else ""
        self._say(
            f"run {description['run']}: {description['model']}, {description['task']}{guessed}, "
            f"{description['parameters']:,} parameters, on {description['device']}; "
            f"{'validates nothing' if kind == 'none' else validates}"
        )
