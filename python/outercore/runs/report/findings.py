"""Findings of a report in words: the bottleneck of a run, and warnings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from outercore.base.durations import format_duration
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
"""Least busy share of a stage that counts as the bottleneck."""
_SOME = 0.2
"""Least share of waits that is worth a change."""


def bottleneck(run: Recorded) -> str:
    """One or two sentences on the bottleneck of a run; empty without counters."""
    match run:
        case Run():
            return _of_training(run)
        case EmbeddingRun():
            return _of_embedding(run)
        case AlgorithmRun():
            return _of_algorithm(run)
    return ""


def warnings(run: Recorded) -> list[str]:
    """Reasons not to trust or compare the results of a run."""
    if not isinstance(run, EpochRun):
        return []
    texts = (
        [_loss(run)] if run.epochs else ["No epoch has ended, so there is no result to compare."]
    )
    path = run.record["data_set"]["path"]
    data_set = quoted(path)
    if run.epochs and all(epoch["score"] is None for epoch in run.epochs):
        texts.append(
            "Validation did not happen: nothing says which epoch was best, or when to stop. "
            + (
                f"`outercore embed {data_set} --held-out 0.05` holds out triples for it."
                if isinstance(run, EmbeddingRun)
                else f"{_split_for_it(path)}."
            )
        )
    error = (run.record.get("result") or {}).get("error")
    if error is not None:
        texts.append(f"The run failed: {error}")
    return [text for text in texts if text]


def _split_for_it(data_set: str) -> str:
    said = how_to_add(Path(data_set), "--split", "valid=FILE", what="a split for it")
    return said[0].upper() + said[1:]


def _of_training(run: Run) -> str:
    # Shares are of the epochs: a stage that has finished counts as neither starved nor blocked.
    whole = sum(epoch["seconds"] for epoch in run.epochs)
    shares = {
        name: min(stage["busy_s"] / whole, 1.0)
        for name, stage in records.stages(run.counters).items()
        if whole and name in _STAGES
    }
    return " ".join([*_slowest_stage(shares), *_validation(run)])


def _slowest_stage(shares: dict[str, float]) -> Iterator[str]:
    if not shares:
        return
    slowest = max(shares, key=lambda name: shares[name])
    what, advice = _STAGES[slowest]
    if shares[slowest] < _MUCH:
        yield (
            "No single stage limits: they waited for each other, and "
            f"{what[0].lower()}{what[1:]} was busy most, {shares[slowest]:.0%} of the training."
        )
    else:
        yield f"{what} limits: it was busy for {shares[slowest]:.0%} of the training. {advice}"


def _of_embedding(run: EmbeddingRun) -> str:
    seconds = sum(epoch["seconds"] for epoch in run.epochs)
    if not seconds:
        return ""
    if not run.order:
        said = "Computing limits: all rows were in memory."
    else:
        names = ("waited_s", "triples_waited_s")
        waits = (epoch["counters"].get(name, 0.0) for epoch in run.epochs for name in names)
        share = sum(waits) / seconds
        if share < _SOME:
            said = f"Computing limits: training waited for the device {share:.0%} of its time."
        else:
            said = (
                f"The device limits: training waited for it {share:.0%} of its time. More "
                "`--memory` keeps more partitions."
            )
    return " ".join([said, *_validation(run)])


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
    """A warning about the losses, or an empty text."""
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
