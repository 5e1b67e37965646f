"""Run records for a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

from outercore.errors import NotFoundError
from outercore.files.checked_json import read_json
from outercore.runs import record as records


@dataclass(frozen=True)
class Recorded:
    """The record of one run, under a name that is unique in the report."""

    name: str
    record: Mapping[str, Any]


@dataclass(frozen=True)
class EpochRun(Recorded):
    """The record of a run that has epochs."""

    seen: ClassVar[str]
    """Name of the counter of an epoch: `seeds` or `triples`."""

    @property
    def epochs(self) -> Sequence[Mapping[str, Any]]:
        """One entry for each finished epoch."""
        return self.record["epochs"]

    @property
    def numbers(self) -> list[int]:
        """The epochs, counted from 1."""
        return [epoch["epoch"] + 1 for epoch in self.epochs]

    @property
    def per_second(self) -> float:
        """Training throughput over all epochs."""
        seconds = sum(epoch["seconds"] for epoch in self.epochs)
        return sum(epoch[self.seen] for epoch in self.epochs) / seconds if seconds else 0.0


@dataclass(frozen=True)
class Run(EpochRun):
    """A training run."""

    seen = "seeds"

    @property
    def metric(self) -> str:
        """The name of the score."""
        return self.record["description"]["metric"]

    @cached_property
    def counters(self) -> Mapping[str, Any]:
        """The counters of all epochs together."""
        total: dict[str, Any] = {}
        for epoch in self.epochs:
            total = records.add(total, epoch["counters"])
        return total

    @property
    def bytes_per_epoch(self) -> float:
        """Bytes read from the device in an epoch, on average."""
        return records.bytes_read(self.counters) / max(len(self.epochs), 1)

    @property
    def predictions(self) -> Sequence[Prediction]:
        """The forecast of epochs, compared with the measured epochs."""
        forecast = self.record.get("forecast")
        if not forecast:
            return []
        return [
            *_compared("first epoch", forecast["first_epoch"], self.epochs[:1]),
            *_compared("later epoch", forecast["later_epochs"], self.epochs[1:]),
        ]

    def score(self, split: str) -> float | None:
        """The final score on a split, or `None`."""
        return (self.record.get("result") or {}).get("scores", {}).get(split)


@dataclass(frozen=True)
class Prediction:
    """A predicted value, and the measured median of its epochs."""

    name: str
    predicted: float
    measured: float
    unit: str
    """`s`, `ratio` or `bytes`."""

    @property
    def deviation(self) -> float:
        """Prediction minus measurement; relative to the measurement unless the unit is a ratio."""
        difference = self.predicted - self.measured
        if self.unit == "ratio":
            return difference
        return difference / self.measured if self.measured else 0.0


def _compared(
    name: str, expected: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]
) -> list[Prediction]:
    if not epochs:
        return []
    seconds = median(epoch["seconds"] for epoch in epochs)
    bytes_read = median(records.bytes_read(epoch["counters"]) for epoch in epochs)
    predictions = [
        Prediction(f"{name}, time", expected["seconds"], seconds, "s"),
        Prediction(f"{name}, bytes read", expected["bytes"], bytes_read, "bytes"),
    ]
    ratios = [records.hit_ratio(epoch["counters"]) for epoch in epochs]
    if None not in ratios:
        ratio = median(ratio for ratio in ratios if ratio is not None)
        predictions.append(Prediction(f"{name}, hit ratio", expected["hit_ratio"], ratio, "ratio"))
    return predictions


@dataclass(frozen=True)
class AlgorithmRun(Recorded):
    """A run of a graph algorithm. Missing counters count as zero."""

    @property
    def algorithm(self) -> str:
        """Name of the algorithm."""
        return self.record["description"]["algorithm"]

    @property
    def counters(self) -> Mapping[str, Any]:
        """Counters of all passes together."""
        return self.record["counters"]

    @property
    def seconds(self) -> float:
        """Seconds from the first pass to the result."""
        return self.counters.get("seconds", 0.0)

    @property
    def prepare_seconds(self) -> float:
        """Seconds before the first pass, to fill far memory and to read pinned segments."""
        return self.counters.get("prepare_seconds", 0.0)

    @property
    def passes(self) -> Sequence[Mapping[str, Any]]:
        """Counters of each pass; empty for records without them."""
        return self.counters.get("by_pass") or []

    @property
    def bytes_by_tier(self) -> Mapping[str, int]:
        """Bytes from memory, far memory and disk."""
        return records.bytes_by_tier(self.counters)


@dataclass(frozen=True)
class EmbeddingRun(EpochRun):
    """An embedding run."""

    seen = "triples"
    metric = "MRR"

    @property
    def metrics(self) -> Sequence[Mapping[str, Any]]:
        """The final metrics, each with its protocol; empty for an unfinished run."""
        return (self.record.get("result") or {}).get("metrics", [])

    @property
    def order(self) -> Mapping[str, Any]:
        """The order of partitions; empty if all rows were in memory."""
        return self.record["plan"].get("order") or {}

    @property
    def bytes_per_epoch(self) -> float:
        """Bytes of partitions that an epoch read and wrote, on average."""
        moved = sum(
            epoch["counters"].get(key, 0)
            for epoch in self.epochs
            for key in ("bytes_read", "bytes_written")
        )
        return moved / max(len(self.epochs), 1)

    def mrr(self, part: str) -> float | None:
        """The MRR on the split `part` by the first protocol, or `None`."""
        return next((metric["mrr"] for metric in self.metrics if metric["part"] == part), None)


_KINDS: Mapping[Any, type[Recorded]] = {
    records.ALGORITHM: AlgorithmRun,
    records.EMBEDDING: EmbeddingRun,
}


def load_runs(paths: Sequence[Path]) -> list[Recorded]:
    """The records in run directories, and in directories of several runs.

    Errors: `NotFoundError` and `CorruptError` name the file.
    """
    paths = [run for path in paths for run in _runs_in(path)]
    names = _names(paths)
    return [_run(name, _record(path)) for name, path in zip(names, paths, strict=True)]


def _run(name: str, record: Mapping[str, Any]) -> Recorded:
    return _KINDS.get(record.get("job"), Run)(name, record)


def _runs_in(path: Path) -> list[Path]:
    """`path` if it is a run; else the runs in its subdirectories, as after `outercore jobs`."""
    if (path / records.FILE).exists():
        return [path]
    return sorted(file.parent for file in path.glob(f"*/{records.FILE}")) or [path]


def _record(path: Path) -> Mapping[str, Any]:
    file = path / records.FILE
    if not file.exists():
        raise NotFoundError(
            f"run `{path}`: no `record.json` there\n"
            "hint: training writes it when the first epoch has ended, an algorithm at its end"
        )
    return read_json(file, "run record", hint="resume the run, which writes it again")


def _names(paths: Sequence[Path]) -> list[str]:
    """The last names of each path, as few as make all paths different."""
    resolved = [path.resolve() for path in paths]
    for count in range(1, 32):
        names = ["/".join(path.parts[-count:]) for path in resolved]
        if len(set(names)) == len(set(resolved)):
            break
    return names
