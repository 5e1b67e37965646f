"""Parses the files in options, which may choose columns of a table or members of an archive."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outercore.errors import UnsupportedError
from outercore.files.atomic import missing_file
from outercore.files.input_file import is_there

_BY_PLACE = re.compile(r"column \d+")
"""The name of a column without a header."""


def are_named(columns: Sequence[str]) -> bool:
    """Whether these columns need a header. Names like `column 3` do not need one."""
    return any(not _BY_PLACE.fullmatch(name) for name in columns)


@dataclass(frozen=True)
class FileSpec:
    """A file with chosen columns or members: `nodes.npz:x`, `users.csv:age,height`."""

    path: Path
    columns: tuple[str, ...]
    without: tuple[str, ...] = ()
    """Columns that are left out. Then all other columns are chosen."""

    @classmethod
    def parse(cls, text: str, *, may_leave_out: bool = False) -> FileSpec:
        """Parses `PATH[:NAME[,NAME]]`. Names may have colons: the longest existing path is used.

        With `may_leave_out`, also `PATH:!NAME[,NAME]`: all columns except these.

        Errors: `NotFoundError` for a missing file; `UnsupportedError` for a pipe.
        """
        end = len(text)
        while end > 0:
            path = Path(text[:end])
            if is_there(path):
                if not (path.is_file() or path.is_dir()):
                    raise UnsupportedError(
                        f"`{path}`: expected a file that can be read twice, found a pipe or a "
                        "device\nhint: write it to a file first"
                    )
                names = tuple(name for name in text[end + 1 :].split(",") if name)
                return cls._leaving_out(path, names) if may_leave_out else cls(path, names)
            end = text.rfind(":", 0, end)
        raise missing_file("file", Path(text))

    @classmethod
    def _leaving_out(cls, path: Path, names: tuple[str, ...]) -> FileSpec:
        marked = [name.startswith("!") for name in names]
        if not names or not marked[0]:
            return cls(path, names)
        return cls(path, (), tuple(name.removeprefix("!") for name in names))

    @property
    def by_name(self) -> bool:
        """Whether columns are chosen or left out by names, so that a text needs a header."""
        return are_named(self.columns or self.without)

    def __str__(self) -> str:
        names = f":{','.join(self.columns)}" if self.columns else ""
        names += f":!{','.join(self.without)}" if self.without else ""
        return f"{self.path}{names}"
