"""`outercore check`: is a data set whole and unaltered?"""

from __future__ import annotations

from typing import Any

import typer

from outercore.cli import console, options


def check(data_set: options.DataSet, json: options.Json = False) -> None:
    """Verify the structure and the checksums of a data set.

    Reads every array once. Ends with exit code 1 where anything is wrong.

    **Example**

        outercore check papers
    """
    from outercore import _native

    with console.bars(quiet=json) as progress:
        report = _native.check(data_set, progress)
    problems = report["problems"]
    if json:
        console.json_data(report)
    elif not problems:
        console.data(f"{data_set}: whole and unaltered")
    else:
        _show(report)
    if problems:
        raise typer.Exit(1)


def _show(report: dict[str, Any]) -> None:
    for problem in report["problems"]:
        where = f"array `{problem['array']}`: " if problem.get("array") else ""
        hint = f"\nhint: {problem['hint']}" if problem.get("hint") else ""
        console.error(f"{where}{problem['message']}{hint}")
    if report.get("omitted"):
        console.note(f"and {report['omitted']:,} more")
