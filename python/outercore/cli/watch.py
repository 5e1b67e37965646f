"""A training run as people watch it."""

from __future__ import annotations

from typing import Any

from outercore.cli.run_watch import RunWatch


class Watch(RunWatch):
    """Shows a run's events; a context manager."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__("seeds", "batches", quiet=quiet)

    def started(self, description: dict[str, Any]) -> None:
        """What runs, what it learns, and how that is judged."""
        kind, metric = description["validation"], description["metric"]
        where = "" if description["of_graphs"] else f", {kind} neighbourhoods"
        guessed = ", guessed from the labels" if description["task_guessed"] else ""
        self._say(
            f"run {description['run']}: {description['model']}, "
            f"{description['parameters']:,} parameters, on {description['device']}\n"
            f"  task        {description['task']}{guessed}\n"
            f"  validation  {'none' if kind == 'none' else metric + where}"
        )
