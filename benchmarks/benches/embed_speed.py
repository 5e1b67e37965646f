"""Trained triples per second on FB15k-237: Outercore, PyKEEN, PyTorch-BigGraph."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from limits import run_limited
from measure import Result, Series, Settings, python, repeated, say
from product import command, sets

from benches.inputs import beside, knowledge_set, numbered_triples

DATA = "fb15k-237"
EPOCHS = 3
PYKEEN_SECONDS = 20.0
AT_LEAST = 10.0
PBG_DELAY = 2
"""Default delay of PyTorch-BigGraph, in seconds."""
WHAT = (
    "Trained triples a second on FB15k-237 (272,115 triples, 14,541 entities), float32, Adagrad, "
    "softmax loss (`rotate`: self-adversarial), batches of 1,000; the same numbers an entity and "
    "the same number of negatives. Outercore and PyTorch-BigGraph (PBG) draw so many for the heads "
    "and as many for the tails, and share them: among the 1,000 triples of a chunk (Outercore), "
    "among 50, or 500 where there are 1,000 negatives (PBG, the fastest of what was tried; the "
    "other ends in the chunk are among the negatives). PyKEEN has one way to draw: so many triples "
    "for each triple alone, the first half of a batch with other heads, the rest with other tails; "
    "so it scores half as many. Outercore and PBG train three epochs of which the first does not "
    f"count; PyKEEN trains for {PYKEEN_SECONDS:.0f} s from the second batch on. PBG trains without "
    "locks in processes of one thread, with one number of optimiser state a row. `first epoch`: "
    "the one that does not count elsewhere, with the start of PBG's processes; all but one of them "
    f"then wait for {PBG_DELAY} s in every bucket, as they do where they are not told otherwise."
)


@dataclass(frozen=True)
class Case:
    """A model, measured in all programs that have it."""

    model: str
    """Name of the model; for distances with the norm, such as `transe-1`."""
    negatives: int
    pbg_chunk: int | None = 50
    """Triples that share negatives in PBG (the fastest value tried); None: PBG lacks the model."""
    pykeen: bool = True
    dim: int = 100

    @property
    def name(self) -> str:
        """Name in the tables."""
        return f"{self.model}, d = {self.dim}, {self.negatives} negatives"


CASES = (
    Case("complex", 100),
    Case("complex", 150, pykeen=False),
    Case("complex", 1000, pbg_chunk=500),
    Case("distmult", 100),
    Case("transe-2", 100),
    Case("transe-1", 100, pbg_chunk=None),
    Case("rotate", 100, pbg_chunk=None),
)


def run(settings: Settings) -> Result:
    """Measure all cases, then partitions on disk, shared negatives as in PBG, and BLAS."""
    result = Result("embed_speed", WHAT)
    data = knowledge_set(settings, DATA)
    for case in CASES[:1] if settings.quick else CASES:
        _outercore(result, settings, data, case)
        if case.pykeen:
            _pykeen(result, settings, case)
        if case.pbg_chunk is not None:
            _pbg(result, settings, case)
        for peer in ("PyKEEN", "PBG"):
            if result.median(peer, case.name) is not None:
                result.compare(
                    f"{case.name}: Outercore over {peer}",
                    ("Outercore", case.name),
                    (peer, case.name),
                    AT_LEAST,
                )
    if not settings.quick:
        _like_pbg(result, settings, data)
    _share_of_peak(result, settings)
    return result


def _outercore(
    result: Result, settings: Settings, data: Path, case: Case, *more: object, suffix: str = ""
) -> None:
    """Measures Outercore by its command line."""
    series = Series("Outercore", case.name + suffix, "triples/s")
    out = settings.work / "embed_speed.run"
    for turn in range(settings.repeats):
        record = trained(data, out, case, settings, *more)
        speed = triples_per_second(record)
        say(f"{series.program} {series.case} run {turn + 1}: {speed:,.0f} triples/s")
        series.values.append(speed)
        result.details.setdefault(f"{series.program} {series.case}", []).append(record["epochs"])
    result.series.append(series)


def trained(
    data: Path, out: Path, case: Case, settings: Settings, *more: object, epochs: int = EPOCHS
) -> dict:
    """The record of a run; its directory is removed."""
    kind, _, norm = case.model.partition("-")
    shape: list[object] = ["--model", kind, "--dim", case.dim]
    if norm:
        shape += ["--set", f"model.norm={norm}"]
    if kind == "rotate":
        shape += ["--loss", "self-adversarial", "--set", "loss.margin=9"]
    shutil.rmtree(out, ignore_errors=True)
    outcome = run_limited(
        command(
            "embed", data, "--out", out, "--json", "--memory", "2GiB", *shape,
            "--negatives", case.negatives, "--batch-size", 1000, "--epochs", epochs,
            *sets(beside(epochs, settings.threads)), *more,
        ),
        env={"OMP_NUM_THREADS": str(settings.threads)},
    )  # fmt: skip
    outcome.check()
    shutil.rmtree(out)
    return json.loads(outcome.stdout[outcome.stdout.index("{") :])


def triples_per_second(record: dict) -> float:
    """Triples per second in all epochs but the first."""
    counted = record["epochs"][1:]
    return sum(epoch["triples"] for epoch in counted) / sum(epoch["seconds"] for epoch in counted)


def _pykeen(result: Result, settings: Settings, case: Case) -> None:
    series = Series("PyKEEN", case.name, "triples/s")
    result.series.append(series)
    if not settings.kge_python.exists():
        series.note = f"not installed at {settings.kge_python}"
        return
    call = python(
        "peers/pykeen_train.py", numbered_triples(settings, DATA), "--model", case.model,
        "--dim", case.dim, "--negatives", case.negatives, "--threads", settings.threads,
        "--seconds", min(PYKEEN_SECONDS, settings.seconds), interpreter=settings.kge_python,
    )  # fmt: skip
    result.details[f"{series.program} {series.case}"] = repeated(
        series, settings, call, _speed, timeout_s=300.0
    )


def _speed(printed: dict) -> float:
    return float(printed["triples_per_second"])


def _first_speed(printed: dict) -> float:
    return float(printed["triples"] / printed["first_epoch"])


def _pbg(
    result: Result,
    settings: Settings,
    case: Case,
    *more: object,
    suffix: str = "",
    value: Callable[[dict], float] = _speed,
) -> None:
    series = Series("PBG", case.name + suffix, "triples/s")
    result.series.append(series)
    if not settings.kge_python.exists():
        series.note = f"not installed at {settings.kge_python}"
        return
    call = python(
        "peers/pbg_train.py", numbered_triples(settings, DATA), settings.work / "pbg",
        "--model", case.model, "--dim", case.dim, "--negatives", case.negatives,
        "--chunk", case.pbg_chunk, "--workers", settings.threads, "--epochs", EPOCHS, *more,
        interpreter=settings.kge_python,
    )  # fmt: skip
    result.details[f"{series.program} {series.case}"] = repeated(
        series, settings, call, value, timeout_s=600.0
    )


def _like_pbg(result: Result, settings: Settings, data: Path) -> None:
    """Measures Outercore with the settings of PBG: shared chunks, and partitions on disk."""
    case = Case("complex", 150)
    alone = ", chunks of 50"
    _outercore(result, settings, data, case, "--set", "optimiser.chunk_size=50", suffix=alone)
    result.compare(
        f"{case.name}: Outercore{alone} over PBG",
        ("Outercore", case.name + alone),
        ("PBG", case.name),
    )
    divided = ", 4 partitions"
    in_two = sets({"budget.partitions": 4, "budget.slots": 2, "budget.swap": "in-turn"})
    _outercore(result, settings, data, case, *in_two, suffix=divided)
    _pbg(result, settings, case, "--partitions", 4, suffix=divided)
    result.compare(
        f"{case.name}{divided}: Outercore over PBG",
        ("Outercore", case.name + divided),
        ("PBG", case.name + divided),
        AT_LEAST,
    )
    # The first epoch of PyTorch-BigGraph with its defaults: its other processes begin every bucket
    # after a delay.
    first = divided + ", first epoch"
    series = Series("Outercore", case.name + first, "triples/s")
    series.values += [
        epochs[0]["triples"] / epochs[0]["seconds"]
        for epochs in result.details[f"Outercore {case.name}{divided}"]
    ]
    result.series.append(series)
    as_told = ("--partitions", 4, "--delay", PBG_DELAY)
    _pbg(result, settings, case, *as_told, suffix=first, value=_first_speed)
    result.compare(
        f"{case.name}{first}: Outercore over PBG",
        ("Outercore", case.name + first),
        ("PBG", case.name + first),
        AT_LEAST,
    )


def _share_of_peak(result: Result, settings: Settings) -> None:
    """Records the matrix products of training as a share of the peak of BLAS."""
    for case in CASES:
        speed = result.median("Outercore", case.name)
        if speed is None or case.model not in ("complex", "distmult", "transe-2"):
            continue
        peak = Series("BLAS", f"peak beside {case.name}", "FLOP/s")
        shaped = Series("BLAS", f"chunk of {case.name}", "FLOP/s")
        call = python(
            "workers/blas.py", "--rows", 1000, "--negatives", case.negatives, "--dim", case.dim,
            "--threads", settings.threads,
        )  # fmt: skip
        runs = repeated(peak, settings, call, lambda printed: printed["peak"])
        shaped.values = [run["chunk"] for run in runs]
        # Three products per side, with an addition and a multiplication per value.
        needed = Series("Outercore", f"products of {case.name}", "FLOP/s")
        needed.values = [speed * 12 * case.negatives * case.dim]
        result.series += [peak, shaped, needed]
        for what, one in (("peak", peak), ("BLAS at the chunk's shape", shaped)):
            result.compare(
                f"{case.name}: share of {what}",
                ("Outercore", needed.case),
                ("BLAS", one.case),
            )
