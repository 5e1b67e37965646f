"""Outercore's command line for the benchmarks: the only place that knows its options."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from limits import Outcome, run_limited


def sets(values: Mapping[str, object]) -> list[str]:
    """`--set` options for fields of a configuration, by their paths."""
    return [word for path, value in values.items() for word in ("--set", f"{path}={value}")]


def command(*arguments: object) -> list[str]:
    """`outercore ARGUMENTS...` in this environment."""
    program = shutil.which("outercore", path=str(Path(sys.executable).parent))
    start = [program] if program else [sys.executable, "-m", "outercore"]
    return [*start, *(str(argument) for argument in arguments)]


def import_command(
    folder: Path,
    out: Path,
    *,
    edges: str = "edges.npy",
    undirected: bool = False,
    memory: str = "1GiB",
    in_place: bool = False,
    topology_only: bool = False,
    extra: str = "",
) -> list[str]:
    """Import the files of `adapters.write` or `workloads.make` in `folder`.

    `in_place` registers the features without a copy; `topology_only` leaves out features, labels
    and splits; `extra` are further options.
    """
    arguments: list[object] = ["import", folder / edges, "--out", out, "--memory", memory]
    if undirected:
        arguments.append("--undirected")
    if not topology_only:
        if (folder / "x.npy").exists():
            arguments += ["--features", folder / "x.npy"]
            if in_place:
                arguments.append("--in-place")
        if (folder / "y.npy").exists():
            arguments += ["--labels", folder / "y.npy"]
        arguments += ["--split", folder / "splits.npz"]
    return command(*arguments, *extra.split())


def imported(folder: Path, out: Path, **options: object) -> Path:
    """The data set of `folder`, imported once and reused.

    Errors: `RuntimeError` with the command's message if the import fails.
    """
    if (out / "graph.json").exists():
        return out
    outcome: Outcome = run_limited(import_command(folder, out, **options))
    if outcome.returncode:
        raise RuntimeError(f"`{' '.join(outcome.command)}` failed: {outcome.stderr[-1500:]}")
    return out
