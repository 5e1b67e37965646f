"""`outercore check`: is a data set whole and unaltered, and do its samples and splits leak?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from outercore.base.shell import quoted
from outercore.cli import console, options
from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.training.canary import Canary

_ADVICE = (
    "import the data set again, with times for both directions of edges and each node in one split"
)


def check(
    data_set: options.DataSet,
    canary: Annotated[
        bool,
        typer.Option(
            "--canary",
            help="Plant labels in the future, in held-out edges and in other splits, and look "
            "whether samples tell them. Needs PyTorch.",
        ),
    ] = False,
    time: Annotated[
        str | None,
        typer.Option(
            help="With `--canary`: the array of times of nodes or edges, as `outercore train` has "
            "it; `time` where there is one.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Verify the structure and the checksums of a data set.

    Reads every array once. Ends with exit code 1 where anything is wrong.

    **Example**

        outercore check papers --canary
    """
    from outercore import _core

    if time is not None and not canary:
        raise InvalidError("--time: no effect without `--canary`\nhint: add `--canary`")
    with console.bars(quiet=json) as progress:
        report = _core.check(data_set, progress)
    problems = report["problems"]
    looked = canary and not problems
    found, untimed = _canaries(data_set, time, quiet=json) if looked else ([], [])
    if json:
        more = {"canary": [_fields(one) for one in found], "without_times": untimed}
        console.json_data(report | (more if looked else {}))
    elif problems:
        _show(report)
    else:
        console.data(f"{data_set}: whole and unaltered")
        if canary:
            _show_canaries(found, untimed)
    if problems or not all(one.is_sound for one in found):
        raise typer.Exit(1)


def _canaries(data_set: Any, time: str | None, *, quiet: bool) -> tuple[list[Canary], list[str]]:
    """What the planted leaks have shown, and what has no times where something has."""
    from outercore.data.graph import Graph
    from outercore.data.time_arrays import time_arrays
    from outercore.training.canary import canaries, without_times

    graph = Graph(data_set)
    found = canaries(graph, time, told=lambda text: None if quiet else console.note(text))
    names = dict.fromkeys(name for _, name in time_arrays(graph))
    if time is None and names and "time" not in names and not quiet:
        listed = ", ".join(f"`--time {quoted(name)}`" for name in names)
        console.note(f"canary: times are looked at by name: {listed}")
    return found, without_times(graph, time)


def _fields(one: Canary) -> dict[str, Any]:
    return {
        "guard": one.guard,
        "seeds": one.seeds,
        "seen": one.seen,
        "auc": one.score,
        "auc_without": one.without,
        "leaks": not one.is_sound,
        "verdict": one.verdict,
    }


def _show_canaries(found: list[Canary], untimed: list[str]) -> None:
    if untimed:
        console.note(f"canary: without times, so seen at any time: {', '.join(untimed)}")
    if not found:
        console.note("canary: no times, splits or edges of one type: no power to find a leak")
        return
    cells: console.Cells = {
        "guard": lambda one: one.guard,
        "seeds": lambda one: f"{one.seeds:,}",
        "AUC": lambda one: f"{one.score:.3f}",
        "without guard": lambda one: "" if one.without is None else f"{one.without:.3f}",
        "verdict": lambda one: one.verdict,
    }
    console.columns(found, cells)
    if any(one.verdict == "no power" for one in found):
        console.note(
            "no power: the model is at chance without the guard, too, so a leak would not show"
        )
    for one in found:
        for what, count in one.seen.items():
            console.error(f"{one.guard}: {count:,} {what}\nhint: {_ADVICE}")


def _show(report: dict[str, Any]) -> None:
    for problem in report["problems"]:
        where = f"array `{problem['array']}`: " if problem.get("array") else ""
        hint = f"\nhint: {problem['hint']}" if problem.get("hint") else ""
        console.error(f"{where}{problem['message']}{hint}")
    if report.get("omitted"):
        console.note(f"and {report['omitted']:,} more")
