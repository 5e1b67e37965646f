"""Resuming a run: which options may change, and whether anything is left to train."""

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
    """Refuses options, by short names, that a resumed run may not change.

    `kind` is the configuration of the run, `own` are its options that are not fields of `kind`.

    Errors: `InvalidError` names the first one, and those that may change.
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
        """`config` with options by short names; `None` changes nothing.

        Errors: `InvalidError` for an option that may not change, or a wrong value.
        """
        given = {name: value for name, value in options.items() if value is not None}
        require_changeable(type(config), given, changeable)
        return cls(config, configuration(type(config), config, given))

    @property
    def values(self) -> dict[str, list[Any]]:
        """The values that differ, before and after: `{"optimiser.epochs": [4, 8]}`."""
        before, after = flat(self.before.to_dict()), flat(self.after.to_dict())
        paths = dict.fromkeys([*before, *after])
        pairs = {path: [before.get(path), after.get(path)] for path in paths}
        return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}

    def require_more(self, done: int, stale: int) -> None:
        """Refuses fewer epochs than are `done`, and a finished run that stays finished.

        Errors: `InvalidError`.
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
        """The option of the command line with this value."""
        field = next(field for field in fields(type(self.after)) if field.path == path)
        return f"{field.flag}{' ' if field.option.common else '='}{value}"
