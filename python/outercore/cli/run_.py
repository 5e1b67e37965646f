"""`outercore run`: one command an algorithm over the grid of a data set."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from outercore.analytics import ALGORITHMS
from outercore.analytics.config import RunConfig
from outercore.cli import config_options, options
from outercore.cli.run_job import carry_on, carry_out, job_of, parameters_of
from outercore.errors import InvalidError

algorithms = typer.Typer(
    invoke_without_command=True, no_args_is_help=True, rich_markup_mode="markdown"
)


@algorithms.callback()
@config_options.takes(RunConfig, after="resume")
def run(
    context: typer.Context,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            help="Directory of a run to continue from its checkpoint. `--memory`, `--threads`, "
            "`--max-iterations` and where it reads from may change; the result is the same.",
        ),
    ] = None,
    max_iterations: Annotated[
        int | None, typer.Option(help="With `--resume`: passes at most, those done included.")
    ] = None,
    json: options.Json = False,
    *,
    given: dict[str, Any],
) -> None:
    """Run a graph algorithm out of core, or resume one.

    **Examples**

        outercore run pagerank papers --memory 128MiB --save rank

        outercore run --resume runs/papers-pagerank-1
    """
    changed = given | ({} if max_iterations is None else {"max_iterations": max_iterations})
    if context.invoked_subcommand is None:
        if resume is None:
            raise InvalidError("run: expected an algorithm, or `--resume RUN`")
        carry_on(resume, changed, json=json)
    elif changed or json or resume is not None:
        raise InvalidError(f"run: expected the options after `{context.invoked_subcommand}`")


_EXAMPLES = {
    "pagerank": "papers --memory 128MiB --save rank",
    "bfs": "papers --source 3 --out levels.npy",
    "sssp": "roads --source 3 --weights length",
    "wcc": "papers --save component",
    "radii": "papers --sources 64 --seed 1",
    "betweenness": "papers --samples 32",
    "closeness": "papers --nodes 3,17",
    "hits": "papers --score hubs",
    "label_propagation": "papers --max-iterations 10",
    "louvain": "papers --save community",
    "degrees": "papers --which out",
}


def _add(algorithm: str) -> None:
    """Adds the command of an algorithm: its options and its help are those of its function."""

    def command(**values: Any) -> None:
        carry_out(job_of(algorithm, values))

    name = algorithm.replace("_", "-")
    about, _, _ = (inspect.getdoc(ALGORITHMS[algorithm]) or "").partition("Args:")
    example = f"    outercore run {name} {_EXAMPLES.get(algorithm, 'papers')}"
    options.set_parameters(command, parameters_of(algorithm))
    command.configuration = RunConfig  # type: ignore[attr-defined]
    command.algorithm = algorithm  # type: ignore[attr-defined]
    help = f"{about}**Example**\n\n{example}".replace("``", "`")
    algorithms.command(name, help=help, no_args_is_help=True)(command)


for _algorithm in ALGORITHMS:
    _add(_algorithm)
