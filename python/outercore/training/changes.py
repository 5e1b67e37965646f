"""What a run may go on with that it did not begin with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from outercore.errors import InvalidError
from outercore.training.config import TrainConfig
from outercore.training.options import configuration

if TYPE_CHECKING:
    from outercore.training.run_directory import TrainDirectory

CHANGEABLE = ("epochs", "patience")
"""Options that a run may go on with that it did not begin with."""


def epochs_of(run: TrainDirectory) -> tuple[int, int]:
    """Epochs of a finished run, and how many of them came after the best one."""
    record = run.record()
    done, best = len(record["epochs"]), record["result"]["best_epoch"]
    return done, done if best is None else done - 1 - best


def changed(run: TrainDirectory, options: Mapping[str, Any]) -> TrainConfig:
    """The configuration of a run with other epochs or patience; one that is `None` is not given.

    Errors: `InvalidError` for another option, a wrong value, fewer epochs than are done, and where
    a finished run is over with the new values, too.
    """
    config: TrainConfig = run.config()
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in CHANGEABLE:
            known = " and ".join(f"`{one}`" for one in CHANGEABLE)
            raise InvalidError(
                f"{name}: a run is resumed with its own options\n"
                f"hint: leave it out, or start another run; only {known} may change"
            )
    after = configuration(config, given)
    if after == config or not run.finished:
        return after
    done, stale = epochs_of(run)
    if after.optimiser.epochs <= done:
        raise InvalidError(
            f"optimiser.epochs: {done} are done, expected more, found {after.optimiser.epochs}\n"
            f"hint: `--epochs {done + 1}` or more continues"
        )
    if after.optimiser.is_over(done, stale):
        raise InvalidError(
            f"optimiser.patience: the run stopped after {stale} epochs without a better one, "
            f"expected more than that, or 0, found {after.optimiser.patience}\n"
            f"hint: `--patience {stale + 1}` or more continues"
        )
    return after
