"""`outercore plan`: how a job divides its memory, and how long it takes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from outercore.base.display import format_duration
from outercore.base.likeness import closest
from outercore.base.options import Option
from outercore.base.sizes import as_option, format_size, parse_size
from outercore.cli import console, options
from outercore.cli.embed import FromData, Recipe, Score, StartFrom
from outercore.cli.train import network_of
from outercore.cli.watch import EmbedWatch
from outercore.embedding.config import EmbedConfig
from outercore.errors import InvalidError
from outercore.training.config import TrainConfig, configuration

_LIMITS = {
    "device": "the disk",
    "model": "the network",
    "sampling": "sampling",
    "assembling": "putting batches together",
    "processor": "the processor",
}
"""Names of bottlenecks of an epoch."""
_EPOCHS: console.Cells = {
    "time": lambda epoch: format_duration(epoch["seconds"]),
    "read": lambda epoch: format_size(epoch["bytes"]),
    "reads": lambda epoch: f"{epoch['requests']:,.0f}",
    "rows found in memory": lambda epoch: f"{epoch['hit_ratio']:.1%}",
    "sampling, by itself": lambda epoch: format_duration(epoch["sample_s"]),
    "reading rows": lambda epoch: format_duration(epoch["fetch_s"]),
    "putting together": lambda epoch: format_duration(epoch["assemble_s"]),
    "network": lambda epoch: format_duration(epoch["train_s"]),
}
_SWAPS = {"in-place": "in place", "in-turn": "in turn", "spare-slot": "spare"}
_ORDERS: console.Cells = {
    "order": lambda order: (
        f"{order['kind']}, {_SWAPS[order['swap']]}" + (" *" if order["chosen"] else "")
    ),
    "states": lambda order: f"{order['states']:,}",
    "moved": lambda order: format_size(order["bytes_between"]),
    "triples": lambda order: (
        format_size(order["bytes_of_triples"]) if order["bytes_of_triples"] else "in memory"
    ),
    "prefetch": lambda order: f"{order['prefetchable']:,}/{order['swaps']:,}",
    "hidden": lambda order: f"{order['hidden']:,}",
    "epoch": lambda order: format_duration(order["epoch_seconds"]),
}
"""Columns of the orders of partitions; a star marks the order that a run would take."""


def _require_no_other_job(words: list[str]) -> None:
    """Errors: `InvalidError` if the first word is an algorithm, or a misspelt job."""
    first = words[0]
    if len(words) < 2 or words[1].startswith("-") or Path(first).exists():
        return
    from outercore.analytics import ALGORITHMS

    command = None
    if first.replace("-", "_") in ALGORITHMS:
        command = ["outercore", "run", *words, "--plan"]
    elif (job := closest(first, ("train", "embed"))) is not None:
        command = ["outercore", "plan", job, *words[1:]]
    if command is not None:
        raise InvalidError(
            f"plan: expected `train` or `embed`, found `{first}`\nhint: `{shlex.join(command)}`"
        )


class _TrainByDefault(TyperGroup):
    """`plan DATASET` means `plan train DATASET`; options may also come before the job."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts the job first."""
        job = next((word for word in args if word in self.commands), None)
        if job is not None:
            rest = list(args)
            rest.remove(job)
            args = [job, *rest]
        elif args and args[0] not in ("-h", "--help"):
            _require_no_other_job(args)
            args = ["train", *args]
        return super().parse_args(ctx, args)


plan = typer.Typer(
    cls=_TrainByDefault,
    no_args_is_help=True,
    help="""Show how a job would divide its memory, without running it. The default job is `train`.

    **Examples**

        outercore plan papers --memory 2GiB

        outercore plan embed friends --dim 64 --memory 2GiB
    """,
)


@plan.command("embed", no_args_is_help=True)
@options.command
def plan_embed(
    data_set: options.DataSet,
    values: Annotated[options.Values, EmbedConfig],
    recipe: Recipe = None,
    config: options.ConfigFile = None,
    start_from: StartFrom = None,
    from_data: FromData = None,
    score: Score = None,
    triples_per_second: Annotated[
        float | None,
        Option(
            "Assume that this machine trains so many triples per second. By default, the plan "
            "measures it for a second."
        ),
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            metavar="READ,WRITE",
            help="Assume that the disk reads and writes so many bytes per second, such as "
            "`2GB,1GB`. By default, they are probed or measured.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Show how an embedding would use its memory, without running it.

    The command takes the options of `outercore embed`. It shows how long an epoch, a validation and
    the final metrics take. For each order of partitions, it shows the buffer states, the bytes that
    an epoch moves, the triples that it reads, the swaps during training, the expected seconds, and
    whether computing hides the I/O (theorem 3 of the Legend paper).

    The plan assumes that triples are spread evenly over the partitions. A run counts the triples,
    and may choose other partitions.

    **Examples**

        outercore plan embed friends --dim 64 --memory 2GiB

        outercore plan embed friends --triples-per-second 100000 --bandwidth 2GB,1GB --json
    """
    from outercore import embedding

    read, write = _bandwidths(bandwidth)
    with EmbedWatch(quiet=json) as watch, options.named(EmbedConfig, values):
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
            progress=watch.preparing,
            **values,
        )
    if json:
        console.json_data(planned)
        return
    orders, missing = planned.pop("orders", []), planned.pop("no_orders", {})
    warning = planned.pop("warning", None)
    console.table("plan", planned.rows())
    if orders:
        console.columns(orders, _ORDERS, style=lambda order: "bold" if order["chosen"] else "")
        for reason in missing.values():
            console.data(f"not offered: {reason}")
        console.data(_hiding(orders))
    if warning is not None:
        console.note(warning)


@plan.command("train", no_args_is_help=True)
@options.command
def plan_train(
    data_set: options.DataSet,
    values: Annotated[options.Values, TrainConfig],
    config: options.ConfigFile = None,
    json: options.Json = False,
) -> None:
    """Show how a training would divide its memory, without running it.

    The command takes the options of `outercore train`. It opens the topology, samples batches of
    two epochs, and tries a few steps of the network.

    **Examples**

        outercore plan train papers --memory 2GiB

        outercore plan train papers --fanout 10,5 --memory 512MiB
    """
    # Before PyTorch is imported, so that a mistake is reported at once.
    with options.named(TrainConfig, values):
        chosen = configuration(config, values)
    from outercore import training

    planned = training.plan(data_set, chosen, network=network_of(values))
    if json:
        console.json_data(planned)
        return
    console.table(f"a budget of {format_size(planned['memory'])}", planned.memory_rows())
    if forecast := planned["forecast"]:
        first, later = forecast["first_epoch"], forecast["later_epochs"]
        cells: console.Cells = {
            "an epoch": lambda row: row,
            "first": lambda row: _EPOCHS[row](first),
            "later": lambda row: _EPOCHS[row](later),
        }
        console.columns(_EPOCHS, cells)
    console.data(verdict(planned))


def verdict(planned: Mapping[str, Any]) -> str:
    """Sentences on a plan: the cost of an epoch, its bottleneck, the effect of more memory."""
    if not planned["forecast"]:
        return "The budget is enough."
    later = planned["forecast"]["later_epochs"]
    limit = _LIMITS.get(later["bottleneck"], later["bottleneck"])
    reads = format_size(later["bytes"]) if later["bytes"] else "nothing"
    text = f"A later epoch reads {reads} and takes about {format_duration(later['seconds'])}; "
    text += f"{limit} limits it."
    # A validation without its own share takes all the memory, and the cache is lost.
    emptied = bool(later["bytes"]) and not planned["validation_memory"]
    if not later["rows_read"] and not emptied:
        return f"{text} All feature rows stay in memory."
    if emptied:
        text += " Each validation empties the cache."
    enough = planned["all_rows_memory"]
    if enough is None or enough <= planned["memory"]:
        return text
    return f"{text} With `--memory {as_option(enough)}` all feature rows stay in memory."


def _bandwidths(text: str | None) -> tuple[float | None, float | None]:
    """Errors: `InvalidError` for a text that does not hold two sizes."""
    if text is None:
        return None, None
    read, comma, write = text.partition(",")
    if not comma:
        raise InvalidError(f"--bandwidth: expected two sizes such as `2GB,1GB`, found `{text}`")
    return float(parse_size(read, "--bandwidth")), float(parse_size(write, "--bandwidth"))


def _hiding(orders: list[dict[str, Any]]) -> str:
    """Whether computing hides the I/O of the chosen order (theorem 3 of Legend)."""
    chosen = next(order for order in orders if order["chosen"])
    density, least = chosen["density"], chosen["least_density"]
    if least is None:
        return "I/O does not hide (theorem 3): nothing can be trained during a swap"
    effect, relation = ("hides", "at least") if chosen["hides"] else ("does not hide", "below")
    return f"I/O {effect} (theorem 3): density {density:.3g} is {relation} {least:.3g}"
