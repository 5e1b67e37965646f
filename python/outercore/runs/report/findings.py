"""Findings of a report in words: the bottleneck of a run, and warnings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from outercore.base.display import format_duration
from outercore.base.shell import quoted
from outercore.data.how_to_add import how_to_add
from outercore.runs import record as records
from outercore.runs.report.runs import AlgorithmRun, EmbeddingRun, EpochRun, Recorded, Run

_STAGES = {
    "sample": ("Sampling", "More threads help, or `--set budget.topology=resident` where it fits."),
    "fetch": ("The device", "More `--memory`, smaller fan-outs or `float16` features help."),
    "assemble": ("Assembling batches", "More threads help."),
    "train": ("The model", "Its batches were ready in time."),
}
_MUCH = 0.5
"""A stage that is busy for at least this share of the time counts as the bottleneck."""
_SOME = 0.2
"""Waits of at least this share of the time are worth a change."""


def bottleneck(run: Recorded) -> str:
    """One or two sentences on the bottleneck of a run; empty without counters."""
    match run:
        case Run():
            return " ".join([*_of_training(run), *_validation(run)])
        case EmbeddingRun():
            return " ".join([*_of_embedding(run), *_validation(run)])
        case AlgorithmRun():
            return _of_algorithm(run)
    return ""


def warnings(run: Recorded) -> list[str]:
    """Reasons not to trust or compare the results of a run."""
    if not isinstance(run, EpochRun):
        return []
    texts = ["No epoch has ended, so there is no result to compare."]
    if run.epochs:
        texts = [_loss(run)]
    if run.epochs and all(epoch["score"] is None for epoch in run.epochs):
        data_set = run.record["data_set"]["path"]
        command = f"`outercore embed {quoted(data_set)} --held-out 0.05`"
        texts.append(
            "Validation did not happen: nothing says which epoch was best, or when to stop. "
            + (
                f"{command} holds out triples for it."
                if isinstance(run, EmbeddingRun)
                else f"{_split_for_it(data_set)}."
            )
        )
    error = (run.record.get("result") or {}).get("error")
    if error is not None:
        texts.append(f"The run failed: {error}")
    return [text for text in texts if text]


def _split_for_it(data_set: str) -> str:
    text = how_to_add(Path(data_set), "--split", "valid=FILE", what="a split for it")
    return text[0].upper() + text[1:]


def _of_training(run: Run) -> Iterator[str]:
    # Shares are of the epochs: a stage that has finished counts as neither starved nor blocked.
    whole = sum(epoch["seconds"] for epoch in run.epochs)
    busy = {
        name: stage["busy_s"]
        for name, stage in records.stages(run.counters).items()
        if name in _STAGES
    }
    if not whole or not busy:
        return
    slowest = max(busy, key=lambda name: busy[name])
    share = min(busy[slowest] / whole, 1.0)
    stage, advice = _STAGES[slowest]
    if share < _MUCH:
        yield (
            "No single stage limits: they waited for each other, and "
            f"{stage[0].lower()}{stage[1:]} was busy most, {share:.0%} of the training."
        )
    else:
        yield f"{stage} limits: it was busy for {share:.0%} of the training. {advice}"


def _of_embedding(run: EmbeddingRun) -> Iterator[str]:
    seconds = sum(epoch["seconds"] for epoch in run.epochs)
    names = ("waited_s", "triples_waited_s")
    waits = sum(epoch["counters"].get(name, 0.0) for epoch in run.epochs for name in names)
    if not seconds:
        return
    if not run.order:
        yield "Computing limits: all rows were in memory."
    elif waits / seconds < _SOME:
        share = waits / seconds
        yield f"Computing limits: training waited for the device {share:.0%} of its time."
    else:
        yield (
            f"The device limits: training waited for it {waits / seconds:.0%} of its time. More "
            "`--memory` keeps more partitions."
        )


def _of_algorithm(run: AlgorithmRun) -> str:
    device, cores = (run.counters.get(f"{name}_busy") for name in ("device", "cores"))
    if device is None or cores is None:
        return ""
    if max(device, cores) < _MUCH:
        return (
            f"No single part limits: the device was busy for {device:.0%} of the passes, the cores "
            f"for {cores:.0%}."
        )
    if device >= cores:
        return (
            f"The device limits: it was busy for {device:.0%} of the passes, the cores for "
            f"{cores:.0%}. More `--memory` keeps more edges."
        )
    return (
        f"The cores limit: they were busy for {cores:.0%} of the passes, the device for "
        f"{device:.0%}. More `--threads` help where there are more cores."
    )


def _validation(run: EpochRun) -> Iterator[str]:
    """A sentence if validation took longer than training."""
    training = sum(epoch["seconds"] for epoch in run.epochs)
    validation = sum(epoch["validation_seconds"] for epoch in run.epochs)
    if validation > training:
        yield (
            f"Validation took longer than training: {format_duration(validation)}, "
            f"{format_duration(training)}."
        )


def _loss(run: EpochRun) -> str:
    losses = [epoch["loss"] for epoch in run.epochs]
    for number, loss in zip(run.numbers, losses, strict=True):
        if loss is None or not math.isfinite(loss) or loss < 0:
            value = "no number" if loss is None or math.isnan(loss) else f"{loss:.4g}"
            return (
                f"Impossible loss: {value} in epoch {number}, and a loss is 0 or more. Check the "
                "features and labels, and try a lower `--learning-rate`."
            )
    task = run.record["description"].get("task", "")
    if isinstance(run, Run) and task.endswith("classification"):
        classes = run.record["data_set"]["classes"]
        blind = math.log(classes) if classes > 1 else math.inf
        if losses[-1] > blind:
            return (
                f"The loss of {losses[-1]:.4g} is above {blind:.4g}, that of guessing among "
                f"{classes:,} classes: the model has learnt nothing yet."
            )
    if len(losses) > 1 and losses[-1] > losses[0]:
        return (
            f"The loss rose from {losses[0]:.4g} to {losses[-1]:.4g}: try a lower "
            "`--learning-rate`."
        )
    return ""
