"""`outercore plan`: what will live where, and what will that cost?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outercore.cli import console, options
from outercore.errors import InvalidError
from outercore.train.config import TrainConfig


def plan(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[train] DATASET", help="The job to plan for, and the data set."),
    ],
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
    """Say what a memory budget will buy, before anything is trained.

    Opens the topology and samples a few batches.

    **Examples**

        outercore plan papers --memory 2GiB

        outercore plan train papers --fanout 10,5 --memory 512MiB
    """
    from outercore.train.planning import plan_training

    config = TrainConfig.from_dict(
        {
            "model": {"kind": model},
            "sampling": {
                "fanout": options.fanout(fanout),
                "batch_size": batch_size,
                "replace": replace,
                "train": split,
            },
            "budget": {
                "memory": memory,
                "validation_share": validation_share,
                "backend": backend,
                "threads": threads,
                "topology": topology,
                "policy": policy,
                "hotness": hotness,
            },
            "run": {"seed": seed},
        }
    )
    planned = plan_training(_data_set(words), config)
    if json:
        console.json_data(planned)
        return
    console.table("plan", console.flat(planned))


def _data_set(words: list[str]) -> Path:
    *job, data_set = words
    if job not in ([], ["train"]):
        raise InvalidError(f"plan: expected `train` and a data set, found `{' '.join(words)}`")
    return Path(data_set)
