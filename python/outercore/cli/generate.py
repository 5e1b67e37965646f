"""`outercore generate`: generate graphs of any size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from outercore.base.display import flat
from outercore.base.options import MemoryOption, Option, SeedOption
from outercore.cli import console, options
from outercore.errors import InvalidError

generate = typer.Typer(
    help="Generate a graph of any size.", no_args_is_help=True, rich_markup_mode="markdown"
)


@dataclass(frozen=True, kw_only=True)
class _Generated:
    """Options of both commands."""

    out: options.OutDataSet
    seed: SeedOption = 0
    memory: MemoryOption = "1GiB"
    overwrite: options.Overwrite = False
    json: options.Json = False


@dataclass(frozen=True, kw_only=True)
class _Rmat(_Generated):
    """Options of `outercore generate rmat`."""

    scale: Annotated[int, Option("Generate 2^scale nodes.")]
    edge_factor: Annotated[int, Option("Number of edges for each node.")] = 16
    undirected: Annotated[bool, Option("Store every edge in both directions.")] = False


@generate.command("rmat", no_args_is_help=True)
@options.command
def rmat(arguments: _Rmat) -> None:
    """Generate an R-MAT (Kronecker) graph, with skewed degrees and without communities.

    **Example**

        outercore generate rmat --scale 22 --edge-factor 16 --out rmat22
    """
    _generate("rmat", arguments)


@dataclass(frozen=True, kw_only=True)
class _Planted(_Generated):
    """Options of `outercore generate planted`."""

    nodes: Annotated[int, Option("Number of nodes.")]
    degree: Annotated[int, Option("Mean in-degree of the nodes.")] = 10
    features: Annotated[int, Option("Number of features of each node.")] = 128
    classes: Annotated[
        int, Option("Number of communities. The community of a node is its label.")
    ] = 16
    splits: Annotated[
        str, Option("Shares of the nodes in the splits `train`, `valid` and `test`.")
    ] = "0.5,0.25,0.25"
    homophily: Annotated[
        float | None, Option("Share of the edges within a community. The default is 0.8.")
    ] = None
    noise: Annotated[
        float | None,
        Option(
            "Standard deviation of features around the centroid of their community. The default is "
            "1."
        ),
    ] = None
    dtype: Annotated[
        str | None,
        Option("Store features as `float32`, `float16` or `bfloat16`. The default is `float32`."),
    ] = None


@generate.command("planted", no_args_is_help=True)
@options.command
def planted(arguments: _Planted) -> None:
    """Generate a graph with communities, which edges reveal better than features.

    **Example**

        outercore generate planted --nodes 1000000 --degree 12 --features 256 --out planted
    """
    _generate("planted", arguments, splits=_shares(arguments.splits))


def _shares(text: str) -> list[float]:
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if len(shares) != 3:
        raise InvalidError(f"--splits: expected three shares such as `0.8,0.1,0.1`, found `{text}`")
    return shares


def _generate(kind: str, arguments: _Generated, **parsed: Any) -> None:
    from outercore import _core
    from outercore.base.sizes import parse_size

    chosen = {**vars(arguments), **parsed, "memory": parse_size(arguments.memory)}
    out, json = chosen.pop("out"), chosen.pop("json")
    write = {"rmat": _core.generate_rmat, "planted": _core.generate_planted}[kind]
    with console.bars(quiet=json) as progress:
        described = {**chosen, "command": options.command_line()}
        summary = write(out, described, progress)
    console.result(summary, str(out), flat(summary), as_json=json)
