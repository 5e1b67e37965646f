"""`outercore plan`: what will live where, and what will that cost?"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from outercore.base.likeness import closest
from outercore.cli import config_options, console, options
from outercore.cli.plan_embed import plan_embed
from outercore.cli.plan_tables import show_plan
from outercore.cli.train import network_of
from outercore.errors import InvalidError
from outercore.training.config import TrainConfig, configuration


def _require_no_job(words: list[str]) -> None:
    """Errors: `InvalidError` where the first word is a job that has its plan elsewhere, or like one
    of those that have it here."""
    first = words[0]
    if len(words) < 2 or words[1].startswith("-") or Path(first).exists():
        return
    from outercore.analytics import ALGORITHMS

    if first.replace("-", "_") in ALGORITHMS:
        command = shlex.join(["outercore", "run", *words, "--plan"])
        raise InvalidError(f"plan: expected `train` or `embed`, found `{first}`\nhint: `{command}`")
    if (job := closest(first, ("train", "embed"))) is not None:
        command = shlex.join(["outercore", "plan", job, *words[1:]])
        raise InvalidError(f"plan: expected `train` or `embed`, found `{first}`\nhint: `{command}`")


class _TrainByDefault(TyperGroup):
    """`plan DATASET` is `plan train DATASET`; options may stand before the job, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts the job first."""
        job = next((word for word in args if word in self.commands), None)
        if job is not None:
            rest = list(args)
            rest.remove(job)
            args = [job, *rest]
        elif args and args[0] not in ("-h", "--help"):
            _require_no_job(args)
            args = ["train", *args]
        return super().parse_args(ctx, args)


plan = typer.Typer(
    cls=_TrainByDefault,
    no_args_is_help=True,
    help="""Show what a memory budget is used for, before anything is done: `train` by default.

    **Examples**

        outercore plan papers --memory 2GiB

        outercore plan embed friends --dim 64 --memory 2GiB
    """,
)
plan.command("embed", no_args_is_help=True)(plan_embed)


@plan.command("train", no_args_is_help=True)
@config_options.takes(TrainConfig)
def plan_train(
    data_set: options.DataSet,
    config: config_options.ConfigFile = None,
    json: options.Json = False,
    *,
    given: dict[str, Any],
) -> None:
    """Show how a training divides its memory, before anything is trained.

    Takes the options of `outercore train`. Opens the topology, samples batches of two
    epochs, and tries a few steps of the network.

    **Examples**

        outercore plan train papers --memory 2GiB

        outercore plan train papers --fanout 10,5 --memory 512MiB
    """
    # Read before PyTorch is imported: a mistake is reported at once.
    with config_options.named(TrainConfig, given):
        chosen = configuration(config, given)
    from outercore import training

    planned = training.plan(data_set, chosen, network=network_of(given))
    if json:
        console.json_data(planned)
        return
    show_plan(planned)
