"""The state of input files: an import reads some of them several times, and may be resumed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from outercore.errors import InvalidError


@dataclass(frozen=True)
class FileState:
    """The size and time of a file. They show whether the file has changed."""

    path: Path
    size: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> FileState:
        """The current state of a file."""
        found = path.stat()
        return cls(path, found.st_size, found.st_mtime_ns)

    def __str__(self) -> str:
        return f"{self.size} {self.modified_ns}"


def states(path: Path) -> tuple[FileState, ...]:
    """The state of a file, or of all files in a directory. Call it before the files are read."""
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    return tuple(FileState.of(file) for file in files)


def require_unchanged(files: Iterable[FileState]) -> None:
    """Errors: `InvalidError` for a file that has changed."""
    for before in dict.fromkeys(files):
        if not before.path.exists() or FileState.of(before.path) != before:
            raise InvalidError(
                f"`{before.path}` changed during the import\n"
                "hint: import again with `--overwrite` when nothing writes to the file"
            )
