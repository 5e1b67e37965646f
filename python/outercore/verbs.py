"""Functions over runs of every job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from outercore import embedding, training
from outercore.errors import InvalidError, NotFoundError
from outercore.training.run_directory import is_data_set, made_by

if TYPE_CHECKING:
    from outercore.embedding.result import EmbedResult


def resume(run: str | Path, **options: Any) -> dict[str, Any] | EmbedResult:
    """Continue a run from its last checkpoint, to the bits that it would have had uninterrupted.

    Args:
        run: run directory of `oc.train` or `oc.embed`.
        options: those of `outercore.training.resume` or `outercore.embedding.resume`; for example
            `epochs=40` continues a finished embedding.

    Returns:
        What `oc.train` or `oc.embed` returned: the run record of a training, an `EmbedResult`.

    Raises:
        NotFoundError: no run there.
        InvalidError: a data set; an array that the run reads has changed; an option that a run
            keeps as it was.
    """
    match made_by(Path(run)):
        case "train":
            record: dict[str, Any] = training.resume(run, **options)
            return record
        case "embed":
            return embedding.resume(run, **options)
    give = "hint: give a run directory of `outercore train` or `outercore embed`"
    if is_data_set(Path(run)):
        raise InvalidError(f"run `{run}`: this is a data set\n{give}")
    missing = "no `config.json` there" if Path(run).exists() else "no such directory"
    raise NotFoundError(f"run `{run}`: {missing}\n{give}")
