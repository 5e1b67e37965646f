"""`outercore plan`: what will live where, and what will that cost?"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from outercore.cli import console, options, train_options
from outercore.cli.plan_embed import plan_embed


class _TrainByDefault(TyperGroup):
    """`plan DATASET` is `plan train DATASET`; options may stand before the job, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts the job first."""
        job = next((word for word in args if word in self.commands), None)
        if job is not None:
            args = [job, *_without(args, job)]
        elif args and args[0] not in ("-h", "--help"):
            args = ["train", *args]
        return super().parse_args(ctx, args)


def _without(words: list[str], word: str) -> list[str]:
    place = words.index(word)
    return [*words[:place], *words[place + 1 :]]


plan = typer.Typer(
    cls=_TrainByDefault,
    no_args_is_help=True,
    help="""Say what a memory budget will buy, before anything is done: `train` by default.

    **Examples**

        outercore plan papers --memory 2GiB

        outercore plan embed friends --dim 64 --memory 2GiB
    """,
)
plan.command("embed", no_args_is_help=True)(plan_embed)


@plan.command("train", no_args_is_help=True)
def plan_train(
    context: typer.Context,
    data_set: options.DataSet,
    model: Annotated[
        str, typer.Option(help="`gcn` and `gin` keep the in-degrees in memory, too.")
    ] = "sage",
    fanout: options.FanOut = "15,10",
    batch_size: options.BatchSize = 1024,
    memory: options.Memory = "2GiB",
    validation_share: options.ValidationShare = 0.25,
    split: Annotated[str, typer.Option(help="Split to train on.")] = "train",
    replace: options.Replace = False,
    seed: options.Seed = 0,
    backend: options.Backend = "auto",
    threads: options.Threads = None,
    topology: options.Topology = "auto",
    policy: options.Policy = "window",
    hotness: options.Hotness = "presample",
    json: options.Json = False,
) -> None:
    """Say what a memory budget will buy for training, before anything is trained.

    Opens the topology and samples a few batches.

    **Examples**

        outercore plan train papers --memory 2GiB

        outercore plan train papers --fanout 10,5 --memory 512MiB
    """
    from outercore.training.planning import plan_training

    config = train_options.configuration(
        context,
        model=model,
        fanout=options.fanout(fanout),
        batch_size=batch_size,
        replace=replace,
        split=split,
        memory=memory,
        validation_share=validation_share,
        backend=backend,
        threads=threads,
        topology=topology,
        policy=policy,
        hotness=hotness,
        seed=seed,
    )
    planned = plan_training(data_set, config)
    if json:
        console.json_data(planned)
        return
    console.table("plan", console.flat(planned))
