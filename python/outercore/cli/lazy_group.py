"""A group of commands, each of which is built when it is used."""

from __future__ import annotations

from abc import abstractmethod
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from typer.core import TyperCommand, TyperGroup


class LazyGroup(TyperGroup):
    """A group that builds a command at its first lookup.

    Building all takes several times as long as most commands run. Help and completion of the
    group need only names and summaries.
    """

    summaries: ClassVar[Mapping[str, str]]
    """First paragraphs of the help, by names of commands."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments | {"commands": _Commands(self.summaries, self.build)})
        self._lists_only = False

    @staticmethod
    @abstractmethod
    def build(name: str) -> Any:
        """Builds the command of this name."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names in the order of the help."""
        return list(self.summaries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, or only its summary within a listing."""
        if self._lists_only and cmd_name in self.summaries:
            return TyperCommand(cmd_name, help=self.summaries[cmd_name])
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the help from summaries."""
        with self._listing():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Completes names and options of the group."""
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _listing(self) -> Iterator[None]:
        self._lists_only = True
        try:
            yield
        finally:
            self._lists_only = False


class _Commands(UserDict[str, Any]):
    """Commands by name; the value is `None` until the first lookup."""

    def __init__(self, names: Iterable[str], build: Callable[[str], Any]) -> None:
        super().__init__(dict.fromkeys(names))
        self._build = build

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            self.data[name] = self._build(name)
        return self.data[name]
