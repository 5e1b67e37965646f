"""Run records as a report reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

from outercore.errors import CorruptError, NotFoundError
from outercore.runs import record as records


@dataclass(frozen=True)
class Recorded:
    """The record of one run, under a name that is unique in the report."""

    name: str
    record: Mapping[str, Any]


@dataclass(frozen=True)
class EpochRun(Recorded):
    """A run in epochs."""

    seen: ClassVar[str]
    """What an epoch counts."""

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
        """What was expected of epochs before the first one, beside what they were."""
        expected = self.record.get("forecast") or {}
        if not expected or not self.epochs:
            return []
        found = []
        parts = (("first", self.epochs[:1]), ("later", self.epochs[1:]))
        for name, epochs in parts:
            if epochs:
                one = expected["first_epoch" if name == "first" else "later_epochs"]
                found += _compared(f"{name} epoch", one, epochs)
        return found

    def score(self, split: str) -> float | None:
        """The final score on a split, `None` where there is none."""
        return (self.record.get("result") or {}).get("scores", {}).get(split)


@dataclass(frozen=True)
class Prediction:
    """A value that was expected, and its median over the epochs that it was expected of."""

    name: str
    predicted: float
    measured: float
    unit: str
    """`s`, `ratio` or `bytes`."""

    @property
    def deviation(self) -> float:
        """Of ratios the difference; of others the difference as a share of what was measured."""
        difference = self.predicted - self.measured
        if self.unit == "ratio":
            return difference
        return difference / self.measured if self.measured else 0.0


def _compared(
    name: str, expected: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]
) -> list[Prediction]:
    seconds = median(epoch["seconds"] for epoch in epochs)
    bytes_read = median(records.bytes_read(epoch["counters"]) for epoch in epochs)
    found = [
        Prediction(f"{name}, time", expected["seconds"], seconds, "s"),
        Prediction(f"{name}, bytes read", expected["bytes"], bytes_read, "bytes"),
    ]
    ratios = [records.hit_ratio(epoch["counters"]) for epoch in epochs]
    if None not in ratios:
        ratio = median(ratio for ratio in ratios if ratio is not None)
        found.append(Prediction(f"{name}, hit ratio", expected["hit_ratio"], ratio, "ratio"))
    return found


@dataclass(frozen=True)
class AlgorithmRun(Recorded):
    """A run of a graph algorithm. What its counters lack counts as nothing."""

    @property
    def algorithm(self) -> str:
        """What ran."""
        return self.record["description"]["algorithm"]

    @property
    def counters(self) -> Mapping[str, Any]:
        """Of all passes together."""
        return self.record["counters"]

    @property
    def seconds(self) -> float:
        """From the first pass to the result."""
        return self.counters.get("seconds", 0.0)

    @property
    def prepare_seconds(self) -> float:
        """Filling far memory and reading pins, before the first pass."""
        return self.counters.get("prepare_seconds", 0.0)

    @property
    def passes(self) -> Sequence[Mapping[str, Any]]:
        """What each pass has cost, as far as it was counted."""
        return self.counters.get("by_pass") or []

    @property
    def bytes_by_tier(self) -> Mapping[str, int]:
        """Where the bytes came from."""
        return records.bytes_by_tier(self.counters)


@dataclass(frozen=True)
class EmbeddingRun(EpochRun):
    """An embedding run."""

    seen = "triples"
    metric = "MRR"

    @property
    def metrics(self) -> Sequence[Mapping[str, Any]]:
        """The figures at the end, each with its protocol; none before."""
        return (self.record.get("result") or {}).get("metrics", [])

    @property
    def order(self) -> Mapping[str, Any]:
        """The order of partitions; empty where all was in memory."""
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
        """The MRR of a part by the first protocol, `None` where there is none."""
        return next((one["mrr"] for one in self.metrics if one["part"] == part), None)


_KINDS: Mapping[Any, type[Recorded]] = {
    records.ALGORITHM: AlgorithmRun,
    records.EMBEDDING: EmbeddingRun,
}


def load_runs(paths: Sequence[Path]) -> list[Recorded]:
    """The records in run directories; of a directory of several runs all of theirs.

    Errors: `NotFoundError` and `CorruptError` name the file.
    """
    paths = [run for path in paths for run in _runs_in(path)]
    names = _names(paths)
    return [_run(name, _record(path)) for name, path in zip(names, paths, strict=True)]


def _run(name: str, record: Mapping[str, Any]) -> Recorded:
    return _KINDS.get(record.get("job"), Run)(name, record)


def _runs_in(path: Path) -> list[Path]:
    """The run itself, or those one level below it, as `outercore jobs` leaves them."""
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
    try:
        return json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise CorruptError(f"run record `{file}`: {error}") from None


def _names(paths: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as many as it takes to tell them apart."""
    resolved = [path.resolve() for path in paths]
    for count in range(1, 32):
        names = ["/".join(path.parts[-count:]) for path in resolved]
        if len(set(names)) == len(set(resolved)):
            break
    return names
