"""Files that the description of a folder names: inside of the folder, unless the user says more.

Whoever wrote the description chose the names. Without a rule a downloaded folder could have any
file of this machine copied into the data set: by an absolute name, by `..`, or by a link.
"""

from __future__ import annotations

from pathlib import Path

from outercore.errors import InvalidError, NotFoundError
from outercore.importing.table.table import PARQUET
from outercore.importing.table.yaml_file import shown

_MOST_SHOWN = 500
"""Characters of a path in a message."""


def described_file(folder: Path, name: str, where: str, *, outside: bool) -> Path:
    """The file, or directory of Parquet files, that a description in `folder` names.

    `where` is the entry; `outside` says that the user allows files outside of the folder.

    Errors: `InvalidError` for one outside; `NotFoundError` for one that is not there.
    """
    path = folder / name
    try:
        require_inside(folder, path, where, outside=outside)
        is_there = path.exists()
    except InvalidError:
        raise
    except (OSError, ValueError, RuntimeError):
        # Longer than a name may be, with a zero byte, or links in a circle.
        is_there = False
    if not is_there:
        raise NotFoundError(f"{where}: file `{shown(path, _MOST_SHOWN)}` does not exist")
    return path


def require_inside(folder: Path, path: Path, where: str, *, outside: bool) -> None:
    """Errors: `InvalidError` for a path that leaves `folder`, or a directory with such links."""
    if outside:
        return
    root = folder.resolve()
    parts = [at for kind in PARQUET for at in path.glob(kind)] if path.is_dir() else []
    for one in (path, *parts):
        if not one.resolve().is_relative_to(root):
            raise InvalidError(
                f"{where}: `{shown(one, _MOST_SHOWN)}` is outside of the folder `{folder}`\n"
                "hint: put the file into the folder, or, where you trust the description, pass "
                "`--outside-files`"
            )
