"""What a run may go on with that it did not begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outercore.base.options import fields
from outercore.embedding.config import EmbedConfig
from outercore.embedding.options import CHANGEABLE, configuration
from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.embedding.tables.store import Progress

_PATHS = {field.name: field.path for field in fields(EmbedConfig) if field.name in CHANGEABLE}


@dataclass(frozen=True)
class Change:
    """The configuration that a run had, and the one that it goes on with."""

    before: EmbedConfig
    after: EmbedConfig

    @classmethod
    def of(cls, config: EmbedConfig, options: Mapping[str, Any]) -> Change:
        """`config` with options by short names laid on it; one that is `None` is not given.

        Errors: `InvalidError` for an option that a run keeps, a wrong value, or the weight of a
        regulariser that there is not.
        """
        kept = next((name for name in options if name not in CHANGEABLE), None)
        if kept is not None:
            known = ", ".join(f"`{name}`" for name in CHANGEABLE)
            raise InvalidError(
                f"{kept}: a run is resumed with its own options\n"
                f"hint: leave it out, or start another run; only {known} may change"
            )
        change = cls(config, configuration(config, **options))
        weight = next((name for name in change.values if name.startswith("regulariser.")), None)
        if weight is not None and config.regulariser.kind == "none":
            raise InvalidError(
                f"{weight}: the run has no regulariser, so that nothing would change\n"
                "hint: leave it out, or start another run"
            )
        return change

    @property
    def values(self) -> dict[str, list[Any]]:
        """What differs, before and after: `{"optimiser.epochs": [4, 8]}`."""
        before, after = self.before.to_dict(), self.after.to_dict()
        return {
            f"{group}.{key}": [before[group][key], after[group][key]]
            for group, key in (path.split(".") for path in _PATHS.values())
            if before[group][key] != after[group][key]
        }

    def require_more(self, progress: Progress) -> None:
        """Errors: `InvalidError` where the run is over with the new values as it was before, or
        where fewer epochs are asked for than are done."""
        done, stale = progress.epoch, progress.stale
        before, after = self.before.optimiser, self.after.optimiser
        fewer = after.epochs <= done and after.epochs != before.epochs
        if not fewer and not (before.over(done, stale) and after.over(done, stale)):
            return
        if not fewer and after.impatient(stale):
            raise InvalidError(
                f"optimiser.patience: the run stopped after {stale} validations without a better "
                f"one, expected more than that, or 0, found {after.patience}\n"
                f"hint: `--set optimiser.patience={stale + 1}` or more continues"
            )
        raise InvalidError(
            f"optimiser.epochs: {done} are done, expected more, found {after.epochs}\n"
            f"hint: `--epochs {done + 1}` or more continues"
        )
