"""Functions for every job: plan a job, resume a run."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from outercore.base.likeness import hint_like
from outercore.base.other_libraries import FUNCTIONS
from outercore.data.directories import is_data_set, made_by
from outercore.data.graph import Source
from outercore.errors import InvalidError, NotFoundError

_JOBS = {"train": "outercore.training", "embed": "outercore.embedding"}
"""Packages of the jobs. They import this package, so they are imported at the first call."""
_ALGORITHMS = "outercore.analytics"


def plan(job: str, data_set: Source, **options: Any) -> dict[str, Any]:
    """Plan the memory of a job without running it.

    Args:
        job: `train`, `embed`, or the name of an algorithm such as `pagerank`.
        data_set: the directory of the data set, or an open graph.
        options: options of the job, such as `memory="2GiB"`.

    Returns:
        A dictionary of bytes and rates by name, as printed by `outercore plan JOB --json`.

    Raises:
        BudgetError: the budget is too small; the message has the smallest sufficient budget.
        InvalidError: an unknown job or option.
    """
    if job in _JOBS:
        return import_module(_JOBS[job]).plan(data_set, **options)
    analytics = import_module(_ALGORITHMS)
    if job not in analytics.ALGORITHMS:
        jobs = (*_JOBS, *analytics.ALGORITHMS)
        advice = FUNCTIONS.get(job, "")
        hint = f"\nhint: {advice}" if advice else hint_like(job, jobs)
        raise InvalidError(f"plan: expected one of {', '.join(jobs)}; found `{job}`{hint}")
    return analytics.plan(job, data_set, **options)


def resume(run: str | Path, **options: Any) -> Any:
    """Continue a run from its last checkpoint. The result is bit-identical to an uninterrupted run.

    Args:
        run: the run directory of `oc.train`, `oc.embed`, or an algorithm.
        options: options of `resume` in `outercore.training`, `outercore.embedding` or
            `outercore.analytics`; for example `epochs=40` continues a finished embedding.

    Returns:
        The result: the run record of a training, the `EmbedResult` of an embedding, or the `Run`
        of an algorithm.

    Raises:
        NotFoundError: the directory is not a run.
        InvalidError: the directory is a data set, an array that the run reads has changed, or an
            option cannot change.
    """
    if (job := made_by(Path(run))) is not None:
        return import_module(_JOBS.get(job, _ALGORITHMS)).resume(run, **options)
    give = "hint: give a run directory of `outercore train`, `embed` or `run`"
    if is_data_set(Path(run)):
        raise InvalidError(f"run `{run}`: this is a data set\n{give}")
    missing = "no `config.json` there" if Path(run).exists() else "no such directory"
    raise NotFoundError(f"run `{run}`: {missing}\n{give}")
