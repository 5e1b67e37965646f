"""Common parts of the side-by-side benchmarks: settings, repeated limited runs, medians, tables."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from limits import drop_cached, run_limited

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent


@dataclass(frozen=True)
class Settings:
    """Paths of files and programs, and the length of measurements."""

    work: Path
    """Folder for large inputs and data sets, which are created once."""
    dgl_python: Path
    """Interpreter of the environment of `peers/requirements.txt`."""
    peers_python: Path
    """Interpreter of the environment of `peers/graphs.txt`."""
    kge_python: Path
    """Interpreter of the environment of `peers/embeddings.txt`."""
    stores_python: Path = Path("stores-python")
    """Interpreter of the environment of `peers/stores.txt`."""
    fastapi: Path = Path("fastapi")
    """Folder with the packages of `peers/serving.txt`."""
    load: Path = Path("load")
    """The load generator: example `load` of the crate `outercore-server`."""
    replay: Path = Path("replay")
    """Repeats reads by the I/O engine: example `replay` of the crate `outercore-pipeline`."""
    scale: int = 22
    """The served graph has 2^scale nodes with ten edges each."""
    rounds: int = 20
    """Number of times that a store is killed and opened again."""
    repeats: int = 3
    quick: bool = False
    threads: int = 2
    seconds: float = 60.0
    """Seconds after which a slow program is stopped; its throughput counts its finished work."""

    @property
    def big(self) -> str:
        """The workload of epochs and gathers."""
        return "rmat18" if self.quick else "rmat24"

    @property
    def dense(self) -> str:
        """The workload of sampling and import."""
        return "rmat18" if self.quick else "rmat22"

    @property
    def served(self) -> str:
        """The workload of serving."""
        return "serve16" if self.quick else f"serve{self.scale}"


@dataclass
class Series:
    """Repeated measurements of a program in a case."""

    program: str
    case: str
    unit: str
    values: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def median(self) -> float | None:
        """The median; None if all runs failed."""
        return statistics.median(self.values) if self.values else None


@dataclass(frozen=True)
class Target:
    """A ratio of two medians that should reach a bound."""

    what: str
    ratio: float | None
    least: float | None
    """The bound; None if the ratio is only reported."""

    @property
    def met(self) -> bool | None:
        """Whether the bound is reached; None without a bound or a ratio."""
        return None if self.ratio is None or self.least is None else self.ratio >= self.least


@dataclass
class Result:
    """The results of a benchmark: series, and ratios with their bounds."""

    name: str
    what: str
    series: list[Series] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    details: dict[str, object] = field(default_factory=dict)

    def median(self, program: str, case: str = "") -> float | None:
        """The median of a series."""
        for series in self.series:
            if (series.program, series.case) == (program, case):
                return series.median
        return None

    def compare(
        self,
        what: str,
        numerator: tuple[str, str],
        denominator: tuple[str, str],
        least: float | None = None,
    ) -> None:
        """Record the ratio of two medians."""
        over, under = self.median(*numerator), self.median(*denominator)
        ratio = over / under if over is not None and under else None
        self.targets.append(Target(what, ratio, least))

    def to_json(self) -> dict[str, object]:
        """Plain values, the raw measurements included."""
        return {
            "name": self.name,
            "what": self.what,
            "series": [{**asdict(series), "median": series.median} for series in self.series],
            "targets": [{**asdict(target), "met": target.met} for target in self.targets],
            "details": self.details,
        }


def python(script: str, *arguments: object, interpreter: Path | None = None) -> list[str]:
    """The command line of a script below `benchmarks/`."""
    return [str(interpreter or sys.executable), str(HERE / script), *map(str, arguments)]


@dataclass
class Trial:
    """A program to measure in a case, with the outputs and resource use of its runs."""

    series: Series
    command: Sequence[str]
    value: Callable[[dict], float]
    """The value for the series, from the JSON output of a run."""
    memory: int | None = None
    swap: bool = False
    cold: Sequence[Path] = ()
    """Files and folders whose cached pages are dropped before each run."""
    timeout_s: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    runs: list[dict] = field(default_factory=list)
    failed: bool = False

    def run(self, settings: Settings) -> None:
        """Run once more, unless a run has failed.

        A failure is recorded and ends the runs: it is a result that a program cannot work under the
        limit.
        """
        if self.failed:
            return
        drop_cached(self.cold)
        outcome = run_limited(
            self.command,
            self.memory,
            swap=self.swap,
            timeout_s=self.timeout_s,
            env={"OMP_NUM_THREADS": str(settings.threads), **self.env},
        )
        turn = len(self.runs) + 1
        say(f"{self.series.program} {self.series.case} run {turn}: {outcome.wall_s:.1f} s")
        try:
            printed = outcome.last_json()
        except RuntimeError as failure:
            self.failed, self.series.note = True, str(failure)[-400:]
            say(f"failed: {failure}")
            return
        printed["used"] = {
            "wall_s": outcome.wall_s,
            "peak": outcome.peak,
            "peak_resident": outcome.peak_resident,
            "bytes_read": outcome.bytes_read,
            "enforced": outcome.enforced,
            "limit": outcome.limit,
        }
        self.series.values.append(self.value(printed))
        self.runs.append(printed)


class Runs(Protocol):
    """A measurement that takes turns with others."""

    def run(self, settings: Settings) -> None:
        """Run once more."""


def by_turns(settings: Settings, trials: Sequence[Runs]) -> None:
    """Run every program once, and repeat this `repeats` times.

    The speed of a shared machine changes from minute to minute. With turns, all programs run under
    the same conditions; otherwise, the ratios would show changes of the machine.
    """
    for _ in range(settings.repeats):
        for trial in trials:
            trial.run(settings)


def repeated(
    series: Series,
    settings: Settings,
    command: Sequence[str],
    value: Callable[[dict], float],
    *,
    memory: int | None = None,
    cold: Sequence[Path] = (),
    timeout_s: float | None = None,
) -> list[dict]:
    """Run a program `repeats` times; returns the outputs and resource use of its runs."""
    trial = Trial(series, command, value, memory, cold=cold, timeout_s=timeout_s)
    by_turns(settings, [trial])
    return trial.runs


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """`count` processes that compute all the time while the block runs."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def say(text: str) -> None:
    """Print progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, object]:
    """The machine and versions on which measurements depend."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory": memory,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def number(value: float | None) -> str:
    """A number for tables: three digits, with k and M."""
    if value is None:
        return "-"
    for bound, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= bound:
            return f"{value / bound:.3g} {letter}"
    return f"{value:.3g}"


def markdown(results: Sequence[Result]) -> str:
    """Tables of all medians and ratios."""
    lines = []
    for result in results:
        lines += [f"## {result.name}", "", result.what, ""]
        lines += ["| program | case | median | unit | runs | note |", "|---|---|---:|---|---|---|"]
        for series in result.series:
            runs = ", ".join(number(value) for value in series.values)
            note = " ".join(series.note.split()).replace("|", "/")[-160:]
            lines.append(
                f"| {series.program} | {series.case} | {number(series.median)} | {series.unit} "
                f"| {runs} | {note} |"
            )
        if result.targets:
            lines += ["", "| ratio | found | at least | met |", "|---|---:|---:|---|"]
            words = {True: "yes", False: "no", None: ""}
            for target in result.targets:
                ratio = "-" if target.ratio is None else f"{target.ratio:.2f}"
                least = "" if target.least is None else f"{target.least:g}"
                lines.append(f"| {target.what} | {ratio} | {least} | {words[target.met]} |")
        lines.append("")
    return "\n".join(lines)


def write_results(results: Sequence[Result], folder: Path) -> Path:
    """Store all results as JSON and as Markdown; returns the path of the JSON file."""
    folder.mkdir(parents=True, exist_ok=True)
    about = machine()
    stem = (
        "-".join(result.name for result in results)[:80] + "-" + str(about["when"]).replace(":", "")
    )
    path = folder / f"{stem}.json"
    record = {"machine": about, "results": [result.to_json() for result in results]}
    path.write_text(json.dumps(record, indent=1) + "\n")
    path.with_suffix(".md").write_text(markdown(results))
    return path
