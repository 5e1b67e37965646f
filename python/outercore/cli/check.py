"""`outercore check`: verify a data set, and look for leaks in its samples and splits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from outercore.base.options import Option
from outercore.base.shell import quoted
from outercore.cli import console, options
from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.training.canary import Canary

_ADVICE = (
    "import the data set again, with times for both directions of edges and each node in one split"
)


@options.command
def check(
    data_set: options.DataSet,
    canary: Annotated[
        bool,
        Option(
            "Plant labels in later nodes and edges, in held-out edges and in other splits, and "
            "test whether samples reveal them. This needs PyTorch."
        ),
    ] = False,
    time: Annotated[
        str | None,
        Option(
            "With `--canary`: name of the array of times, as for `outercore train`. The default is "
            "`time`."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Verify the structure and the checksums of a data set.

    The command reads every array once. It ends with exit code 1 if anything is wrong.

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
    results, untimed = _canaries(data_set, time, quiet=json) if looked else ([], [])
    if json:
        more = {"canary": [_fields(result) for result in results], "without_times": untimed}
        console.json_data(report | (more if looked else {}))
    elif problems:
        _show(report)
    else:
        console.data(f"{data_set}: whole and unaltered")
        if canary:
            _show_canaries(results, untimed)
    if problems or not all(result.is_sound for result in results):
        raise typer.Exit(1)


def _canaries(data_set: Any, time: str | None, *, quiet: bool) -> tuple[list[Canary], list[str]]:
    """Results of the planted leaks, and the arrays without times if another has times."""
    from outercore.data.graph import Graph
    from outercore.data.time_arrays import time_arrays
    from outercore.training.canary import canaries, without_times

    graph = Graph(data_set)
    results = canaries(graph, time, on_start=lambda text: None if quiet else console.note(text))
    names = dict.fromkeys(name for _, name in time_arrays(graph))
    if time is None and names and "time" not in names and not quiet:
        listed = ", ".join(f"`--time {quoted(name)}`" for name in names)
        console.note(f"canary: times are looked at by name: {listed}")
    return results, without_times(graph, time)


def _fields(result: Canary) -> dict[str, Any]:
    return {
        "guard": result.guard,
        "seeds": result.seeds,
        "seen": result.seen,
        "auc": result.score,
        "auc_without": result.without,
        "leaks": not result.is_sound,
        "verdict": result.verdict,
    }


def _show_canaries(results: list[Canary], untimed: list[str]) -> None:
    if untimed:
        console.note(f"canary: without times, so seen at any time: {', '.join(untimed)}")
    if not results:
        console.note("canary: no times, splits or edges of result type: no power to find a leak")
        return
    cells: console.Cells = {
        "guard": lambda result: result.guard,
        "seeds": lambda result: f"{result.seeds:,}",
        "AUC": lambda result: f"{result.score:.3f}",
        "without guard": lambda result: "" if result.without is None else f"{result.without:.3f}",
        "verdict": lambda result: result.verdict,
    }
    console.columns(results, cells)
    if any(result.verdict == "no power" for result in results):
        console.note(
            "no power: the model is at chance without the guard, too, so a leak would not show"
        )
    for result in results:
        for what, count in result.seen.items():
            console.error(f"{result.guard}: {count:,} {what}\nhint: {_ADVICE}")


def _show(report: dict[str, Any]) -> None:
    for problem in report["problems"]:
        where = f"array `{problem['array']}`: " if problem.get("array") else ""
        hint = f"\nhint: {problem['hint']}" if problem.get("hint") else ""
        console.error(f"{where}{problem['message']}{hint}")
    if report.get("omitted"):
        console.note(f"and {report['omitted']:,} more")
