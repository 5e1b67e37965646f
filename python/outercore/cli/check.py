"""`outercore check`: is a data set whole and unaltered, and do its samples and splits leak?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    from outercore import _native

    if time is not None and not canary:
        raise InvalidError("--time: no effect without `--canary`\nhint: add `--canary`")
    with console.bars(quiet=json) as progress:
        report = _native.check(data_set, progress)
    problems = report["problems"]
    found = _canaries(data_set, time, quiet=json) if canary and not problems else []
    if json:
        looked = canary and not problems
        console.json_data(report | ({"canary": [_fields(one) for one in found]} if looked else {}))
    elif problems:
        _show(report)
    else:
        console.data(f"{data_set}: whole and unaltered")
        if canary:
            _show_canaries(found)
    if problems or not all(one.is_sound for one in found):
        raise typer.Exit(1)


def _canaries(data_set: Any, time: str | None, *, quiet: bool) -> list[Canary]:
    from outercore.graph import Graph
    from outercore.training.canary import canaries

    return canaries(Graph(data_set), time, told=lambda text: None if quiet else console.note(text))


def _fields(one: Canary) -> dict[str, Any]:
    return {
        "guard": one.guard,
        "seeds": one.seeds,
        "seen": one.seen,
        "auc": one.score,
        "auc_without": one.without,
        "leaks": not one.is_sound,
    }


def _show_canaries(found: list[Canary]) -> None:
    if not found:
        console.note("canary: no times, splits or edges of one type: nothing can leak")
        return
    cells: console.Cells = {
        "guard": lambda one: one.guard,
        "seeds": lambda one: f"{one.seeds:,}",
        "AUC": lambda one: f"{one.score:.3f}",
        "without guard": lambda one: "" if one.without is None else f"{one.without:.3f}",
        "verdict": lambda one: "chance" if one.is_sound else "leaks",
    }
    console.columns(found, cells)
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
