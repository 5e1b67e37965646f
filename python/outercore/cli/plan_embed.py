"""`outercore plan embed`: what will live where, and what will an epoch cost?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from outercore.base.durations import format_duration
from outercore.base.plan_display import embed_rows
from outercore.base.sizes import format_size, parse_size
from outercore.cli import config_options, console, embed_options, options
from outercore.cli.run_watch import EmbedWatch
from outercore.embedding.config import EmbedConfig
from outercore.errors import InvalidError

_SWAPS = {"in-place": "in place", "in-turn": "in turn", "spare-slot": "spare"}
_ORDER: console.Cells = {
    "order": lambda one: f"{one['kind']}, {_SWAPS[one['swap']]}" + (" *" if one["chosen"] else ""),
    "states": lambda one: f"{one['states']:,}",
    "moved": lambda one: format_size(one["bytes_between"]),
    "triples": lambda one: (
        format_size(one["bytes_of_triples"]) if one["bytes_of_triples"] else "in memory"
    ),
    "prefetch": lambda one: f"{one['prefetchable']:,}/{one['swaps']:,}",
    "hidden": lambda one: f"{one['hidden']:,}",
    "epoch": lambda one: format_duration(one["epoch_seconds"]),
}
"""What is shown of an order of partitions; the one that a run would take has a star."""


@config_options.takes(EmbedConfig)
def plan_embed(
    data_set: options.DataSet,
    recipe: embed_options.Recipe = None,
    config: config_options.ConfigFile = None,
    start_from: embed_options.StartFrom = None,
    from_data: embed_options.FromData = None,
    score: embed_options.Score = None,
    triples_per_second: Annotated[
        float | None,
        typer.Option(help="What this machine trains; measured for a second by default."),
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            metavar="READ,WRITE",
            help="Bytes a second of the disk, such as `2GB,1GB`; probed or measured by default.",
        ),
    ] = None,
    json: options.Json = False,
    *,
    given: dict[str, Any],
) -> None:
    """Show how an embedding would use its memory, before anything is embedded.

    Takes the options of `outercore embed`. Shows how long an epoch, a validation and the final
    figures take. For each order of partitions: buffer states, bytes that an epoch moves, triples
    that it reads, swaps with something to train meanwhile, expected seconds, and whether computing
    hides the I/O (theorem 3 of Legend). Triples are taken to be spread evenly; a run that counts
    others may choose other partitions.

    **Examples**

        outercore plan embed friends --dim 64 --memory 2GiB

        outercore plan embed friends --triples-per-second 100000 --bandwidth 2GB,1GB --json
    """
    from outercore import embedding

    read, write = _bandwidths(bandwidth)
    with EmbedWatch(quiet=json) as watch, config_options.named(EmbedConfig, given):
        planned = embedding.plan(
            data_set,
            config,
            recipe=recipe,
            start_from=start_from,
            from_data=from_data,
            score=score,
            triples_per_second=triples_per_second,
            read_bandwidth=read,
            write_bandwidth=write,
            told=watch.preparing,
            **given,
        )
    if json:
        console.json_data(planned)
        return
    orders, missing = planned.pop("orders", []), planned.pop("no_orders", {})
    warning = planned.pop("warning", None)
    console.table("plan", embed_rows(planned))
    if orders:
        console.columns(orders, _ORDER, style=lambda one: "bold" if one["chosen"] else "")
        for reason in missing.values():
            console.data(f"not offered: {reason}")
        console.data(_theorem(orders))
    if warning is not None:
        console.note(warning)


def _bandwidths(text: str | None) -> tuple[float | None, float | None]:
    """Errors: `InvalidError` for anything but two sizes."""
    if text is None:
        return None, None
    read, comma, write = text.partition(",")
    if not comma:
        raise InvalidError(f"--bandwidth: expected two sizes such as `2GB,1GB`, found `{text}`")
    return float(parse_size(read, "--bandwidth")), float(parse_size(write, "--bandwidth"))


def _theorem(orders: list[dict[str, Any]]) -> str:
    chosen = next(one for one in orders if one["chosen"])
    density, least = chosen["density"], chosen["least_density"]
    if least is None:
        return "I/O does not hide (theorem 3): nothing can be trained during a swap"
    verdict = "hides" if chosen["hides"] else "does not hide"
    relation = "at least" if chosen["hides"] else "below"
    return f"I/O {verdict} (theorem 3): density {density:.3g} is {relation} {least:.3g}"
