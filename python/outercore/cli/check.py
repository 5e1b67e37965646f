"""`outercore check`: is a data set whole and unaltered?"""

from __future__ import annotations

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
    problems = report.get("problems", [])
    if json:
        console.json_data(report)
    elif not problems:
        console.data(f"{data_set}: whole and unaltered")
    for problem in problems if not json else []:
        console.error(str(problem))
    if problems:
        raise typer.Exit(1)
