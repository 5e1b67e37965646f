"""Resuming a run: options that may change, and checks for a finished run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from outercore.base.fields import Configuration
from outercore.base.options import configuration, fields, flat
from outercore.errors import InvalidError

_Config = TypeVar("_Config", bound=Configuration)
_EPOCHS, _PATIENCE = "optimiser.epochs", "optimiser.patience"


def require_changeable(
    kind: type[Configuration],
    options: Iterable[str],
    changeable: Sequence[str],
    *,
    own: Iterable[str] = (),
    instead: str = "start another run",
) -> None:
    """Checks that a resumed run may change these options, given by short names.

    `kind` is the type of the run's configuration. `own` are options that are not fields of `kind`.
    `instead` is the advice to the user in the hint.

    Errors: `InvalidError` names the first option that may not change, and all that may.
    """
    known = {field.name: field.path for field in fields(kind)} | {name: name for name in own}
    for name in options:
        if name not in changeable:
            why = "a run is resumed with its own options" if name in known else "no such option"
            *first, last = (f"`{name}`" for name in changeable)
            listed = f"{', '.join(first)} and {last}" if first else last
            raise InvalidError(
                f"{known.get(name, name)}: {why}\n"
                f"hint: leave it out, or {instead}; only {listed} may change"
            )


@dataclass(frozen=True)
class Change(Generic[_Config]):
    """The configurations of a run before and after it was resumed."""

    before: _Config
    after: _Config

    @classmethod
    def of(
        cls, config: _Config, options: Mapping[str, Any], changeable: Sequence[str]
    ) -> Change[_Config]:
        """The change of `config` by options with short names. Values of `None` are ignored.

        Errors: `InvalidError` for an option that may not change, or a wrong value.
        """
        changed = {name: value for name, value in options.items() if value is not None}
        require_changeable(type(config), changed, changeable)
        return cls(config, configuration(type(config), config, changed))

    @property
    def values(self) -> dict[str, list[Any]]:
        """The changed values by path, old and new: `{"optimiser.epochs": [4, 8]}`."""
        before, after = flat(self.before.to_dict()), flat(self.after.to_dict())
        paths = dict.fromkeys([*before, *after])
        pairs = {path: [before.get(path), after.get(path)] for path in paths}
        return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}

    def require_more(self, done: int, stale: int) -> None:
        """Checks that a run with `done` epochs has something left to train.

        `stale` is the number of validations since the best one.

        Errors: `InvalidError` if the new number of epochs is not above `done`, or if a finished run
        would stay finished.
        """
        before, after = self.before.optimiser, self.after.optimiser  # type: ignore[attr-defined]
        fewer = after.epochs <= done and after.epochs != before.epochs
        if not fewer and not (before.is_over(done, stale) and after.is_over(done, stale)):
            return
        if not fewer and after.is_impatient(stale):
            raise InvalidError(
                f"{_PATIENCE}: the run stopped after {stale} validations without a better one, "
                f"expected more than that, or 0, found {after.patience}\n"
                f"hint: `{self._setting(_PATIENCE, stale + 1)}` or more continues"
            )
        raise InvalidError(
            f"{_EPOCHS}: {done} are done, expected more, found {after.epochs}\n"
            f"hint: `{self._setting(_EPOCHS, done + 1)}` or more continues"
        )

    def _setting(self, path: str, value: int) -> str:
        field = next(field for field in fields(type(self.after)) if field.path == path)
        return f"{field.flag}{' ' if field.option.common else '='}{value}"
