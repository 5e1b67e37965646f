"""`outercore train`: train a graph network out of core."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from outercore.base.fields import build
from outercore.base.options import Option, fields, groups_of
from outercore.cli import console, options
from outercore.cli.watch import TrainWatch
from outercore.data.far import FarOptions
from outercore.runs.resume import require_changeable
from outercore.training.config import CHANGEABLE, TrainConfig, configuration

_NO_SERVER = "none"
_OF_SERVER = tuple(field.name for field in fields(FarOptions))
"""Options that say where a run reads from: a resumed run may have others."""


@options.command
def train(
    *,
    data_set: options.JobDataSet = None,
    values: Annotated[options.Values, TrainConfig],
    config: options.ConfigFile = None,
    out: options.OutRun = None,
    resume: Annotated[
        Path | None,
        Option(
            "Continue the run in this directory, with its options. Only `--epochs`, `--patience` "
            "and `--far` may change; `--far none` uses no memory server."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Train a graph neural network on a graph that need not fit in memory.

    Ctrl-C ends the run between two batches and writes a checkpoint. `--resume` continues there.

    **Examples**

        outercore train papers --model sage --fanout 15,10 --memory 2GiB --out runs/first

        outercore train molecules --task graph --model gin --set model.norm=batch --epochs 100

        outercore train papers --task link --metric mrr --out runs/links

        outercore train messages --task link --time time --model gat --fanout 20

        outercore train papers --model my_models.py:Deep --fanout 10,5

        outercore train --resume runs/first --epochs 40
    """
    options.require_one("train", data_set, resume)
    # Before PyTorch is imported, so that a mistake is reported at once.
    network = network_of(values)
    if resume is not None and network is not None:
        del values["model"]
    with options.named(TrainConfig, values):
        if resume is None:
            chosen = configuration(config, values)
        else:
            others = {"--config": config, "--out": out}
            require_changeable(
                TrainConfig,
                [*values, *(name for name, value in others.items() if value is not None)],
                (*CHANGEABLE, *_OF_SERVER),
                own=others,
            )
            more = {name: values.pop(name) for name in CHANGEABLE if name in values}
            far = _server_of_resumed(values)
    from outercore import training

    command = options.command_line()
    with TrainWatch(quiet=json) as watch:
        if resume is not None:
            record = training.resume(
                resume, far=far, network=network, observer=watch, command=command, **more
            )
        else:
            assert data_set is not None
            record = training.train(
                data_set, chosen, out=out, network=network, observer=watch, command=command
            )
    if json:
        console.json_data(record)
        return
    result = record["result"]
    scores = [
        (name, "-" if score is None else f"{score:.4f}") for name, score in result["scores"].items()
    ]
    where = "whole graphs" if "graphs" in record["data_set"] else "all neighbours"
    if record["config"]["sampling"]["time"] is not None or record["description"]["sampled"]:
        where = "sampled neighbours"
    title = f"{result['metric']} of the best epoch ({result['best_epoch'] + 1}), {where}"
    console.table(title, [*scores, ("run", record["description"]["run"])])


def network_of(values: dict[str, Any]) -> str | None:
    """The custom network that `--model FILE.py:NAME` names."""
    model = str(values.get("model", ""))
    return model if ":" in model else None


def _server_of_resumed(values: dict[str, Any]) -> FarOptions | Literal[False] | None:
    """The memory server of a resumed run: `None` keeps it, `False` uses no server.

    Errors: `InvalidError` for a wrong option.
    """
    if not values:
        return None
    far = groups_of(TrainConfig, values)["budget"]["far"]
    return False if far.get("address") == _NO_SERVER else build(FarOptions, far, "budget.far")
