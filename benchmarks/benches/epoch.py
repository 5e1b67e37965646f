"""Training epochs with a tenth of the data in memory, compared with all data in memory."""

from __future__ import annotations

from measure import Result, Series, Settings, Trial, by_turns, python

from benches.inputs import interpreter_bytes, product_set, share_of, workload

WHAT = (
    "Seeds a second of the same training program (GraphSAGE, two layers, hidden 256, Adam, fan-out "
    "15,10, batches of 1,024) at two budgets: 10 % of the data in a cgroup of that size plus the "
    "interpreter and 512 MiB for the network, and everything in memory. `loading` leaves the "
    "network out."
)
SHARE = 0.10
EPOCHS = 4
NETWORK = 512 << 20
"""Bytes for the network: activations and gradients of two batches, optimiser, PyTorch."""


def run(settings: Settings) -> Result:
    """Measure both budgets, with and without the network."""
    result = Result("epoch", WHAT)
    work, folder = workload(settings, settings.big)
    ours = product_set(settings, settings.big)
    budget = max(share_of(work, SHARE), 64 << 20)
    allowance = interpreter_bytes(settings) + NETWORK
    everything = work.data_bytes * 2
    result.details = {"data": work.data_bytes, "budget": budget, "limit": budget + allowance}
    for compute in ("sage", "none"):
        label = "training" if compute == "sage" else "loading"
        trials = [
            Trial(
                Series(name, f"{label}, first epoch", "seeds/s"),
                python(
                    "workers/epoch.py", ours, "--memory", memory, "--epochs", EPOCHS,
                    "--threads", settings.threads, "--compute", compute,
                ),
                _seeds,
                memory=limit,
                cold=[folder / "x.npy", ours],
            )
            for name, memory, limit in (
                ("10 %", budget, budget + allowance),
                ("all in memory", everything, None),
            )
        ]  # fmt: skip
        by_turns(settings, trials)
        for trial in trials:
            name = trial.series.program
            warm = Series(name, f"{label}, warm epoch", "seeds/s", note=trial.series.note)
            warm.values = [_seeds(printed, epoch=-1) for printed in trial.runs]
            result.details[f"{label}, {name}"] = trial.runs
            result.series += [trial.series, warm]
        case = f"{label}, warm epoch"
        least = 0.8 if compute == "sage" else None
        result.compare(f"{label}: 10 % over all", ("10 %", case), ("all in memory", case), least)
        result.compare(
            f"{label}: first epoch over warm at 10 %",
            ("10 %", f"{label}, first epoch"),
            ("10 %", case),
            1 / 1.5 if compute == "sage" else None,
        )
    return result


def _seeds(printed: dict, epoch: int = 0) -> float:
    timed = printed["epochs"][epoch]
    # The time of the first epoch includes planning and filling the caches.
    return timed["seeds"] / (timed["seconds"] + (printed["plan_s"] if epoch == 0 else 0.0))
