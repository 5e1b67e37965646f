"""Descriptions of folders in YAML, and the files that they name.

Values are read as text. With YAML's aliases, a few hundred bytes can describe more values than fit
in memory. Aliases are allowed, but the number of values is limited.

The author of a description chooses the names of the files. Without a check, a downloaded folder
could copy any file of this machine into the data set: by an absolute path, `..` or a link.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from outercore.base.likeness import suggestion
from outercore.errors import InvalidError, NotFoundError
from outercore.files.input_file import read_small
from outercore.importing.table.parquet import PARQUET

_MOST_BYTES = 1 << 18
_MOST_DEPTH = 16
_MOST_VALUES = 100_000
_MOST_SHOWN = 60
"""Characters of a value in a message."""
_MOST_OF_PATH = 500
"""Characters of a path in a message."""


class _Plain(yaml.BaseLoader):
    """Loads only texts, lists and maps. So `no` and `2013` stay texts, and no code is executed."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Like PyYAML's method, which is recursive, but with a limit on the depth.

        Errors: `ComposerError` for values that are nested too deeply.
        """
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise _too_deep(self.peek_event().start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def get_single_node(self) -> Any:
        """Like PyYAML's method, but limits the number of values; each alias counts all its values.

        Errors: `ComposerError` for too many values, and for a list that contains itself.
        """
        node = super().get_single_node()
        if node is not None:
            _size(node, {}, 0)
        return node


def _size(node: Any, known: dict[int, tuple[int, int]], depth: int) -> tuple[int, int]:
    """Number and depth of a node's values with aliases expanded; visits each node once."""
    values, height = known.get(id(node), (0, 0))
    if id(node) in known and not values:
        raise _refused("a value that is part of itself", node.start_mark)
    if not values:
        known[id(node)] = values, height
        within: list[Any] = []
        if isinstance(node, yaml.MappingNode):
            within = [one for pair in node.value for one in pair]
        elif isinstance(node, yaml.SequenceNode):
            within = node.value
        sizes = [_size(one, known, depth + 1) for one in within]
        values = 1 + sum(count for count, _ in sizes)
        height = 1 + max((below for _, below in sizes), default=0)
        known[id(node)] = values, height
    if depth + height > _MOST_DEPTH:
        raise _too_deep(node.start_mark)
    if values > _MOST_VALUES:
        raise _refused(f"more than {_MOST_VALUES:,} values", node.start_mark)
    return values, height


def _too_deep(mark: Any) -> yaml.MarkedYAMLError:
    return _refused(f"lists or maps in each other, more than {_MOST_DEPTH} deep", mark)


def _refused(what: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.composer.ComposerError(None, None, what, mark)


def _map_without_doubles(loader: _Plain, node: yaml.MappingNode) -> dict[Any, Any]:
    seen = set[str]()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(
                None, None, "expected a name before the colon", key_node.start_mark
            )
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"`{shortened(key)}` is there twice", key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Plain.add_constructor("tag:yaml.org,2002:map", _map_without_doubles)


@dataclass(frozen=True)
class Entry:
    """A value of a description, and its place for messages."""

    value: Any
    where: str

    def __getitem__(self, key: str) -> Entry:
        return Entry(self.fields().get(key), f"{self.where}: `{key}`")

    @property
    def is_empty(self) -> bool:
        """Whether the value is missing."""
        return self.value in ("", None)

    def fields(self, known: tuple[str, ...] | None = None) -> dict[str, Any]:
        """The value as a map; an empty value is an empty map.

        Errors: `InvalidError` for anything else, and for a key that is not in `known`.
        """
        if self.is_empty:
            return {}
        if not isinstance(self.value, dict):
            found = shortened(self.value)
            raise InvalidError(f"{self.where}: expected `name: value` lines, found {found}")
        for key in self.value:
            if known is not None and key not in known:
                guess = suggestion(shortened(key), known, otherwise="known are")
                raise InvalidError(f"{self.where}: `{shortened(key)}` is not known\nhint: {guess}")
        return self.value

    def items(self) -> list[Entry]:
        """The values of a list; an empty value is an empty list.

        Errors: `InvalidError` for anything else.
        """
        if self.is_empty:
            return []
        if not isinstance(self.value, list):
            raise InvalidError(f"{self.where}: expected a list, found {shortened(self.value)}")
        numbered = enumerate(self.value)
        return [Entry(value, f"{self.where}, entry {number}") for number, value in numbered]

    def text(self) -> str:
        """The value as a text.

        Errors: `InvalidError` for anything else, and for a missing value.
        """
        if not isinstance(self.value, str):
            raise InvalidError(f"{self.where}: expected one value, found {shortened(self.value)}")
        if not self.value:
            raise InvalidError(f"{self.where}: expected a value, found none")
        return self.value


def read_yaml(path: Path) -> Entry:
    """The maps, lists and texts of a YAML file.

    Errors: `InvalidError` with the line that is not YAML, repeats a key, or exceeds the limits on
    values.
    """
    data = read_small(path, "description", _MOST_BYTES)
    try:
        return Entry(yaml.load(data.decode("utf-8-sig"), Loader=_Plain), f"`{path}`")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark is not None else ""
        raise InvalidError(f"`{path}`: {line}{error.problem}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # An escape beyond Unicode is one of the latter two.
        raise InvalidError(f"`{path}`: {error}") from None


def count_of(text: str, where: str) -> int:
    """Converts a text to a number of nodes.

    Errors: `InvalidError` for anything else.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= 19) or int(text) >= 2**63:
        raise InvalidError(f"{where}: expected a number of nodes, found {shortened(text)}")
    return int(text)


def shortened(value: Any, most: int = _MOST_SHOWN) -> str:
    """A value for messages: at most `most` characters of a text, the type of other values."""
    if isinstance(value, (dict, list)):
        return "a map" if isinstance(value, dict) else "a list"
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}..."


def described_file(folder: Path, name: str, where: str, *, outside: bool) -> Path:
    """The file, or directory of Parquet files, that a description in `folder` names.

    `where` is the entry for messages. `outside` allows files outside `folder`.

    Errors: `InvalidError` for a file outside `folder`; `NotFoundError` for a missing file.
    """
    path = folder / name
    try:
        require_inside(folder, path, where, outside=outside)
        is_there = path.exists()
    except InvalidError:
        raise
    except (OSError, ValueError, RuntimeError):
        # The name is too long, it has a zero byte, or links form a circle.
        is_there = False
    if not is_there:
        raise NotFoundError(f"{where}: file `{shortened(path, _MOST_OF_PATH)}` does not exist")
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
                f"{where}: `{shortened(one, _MOST_OF_PATH)}` is outside of the folder `{folder}`\n"
                "hint: put the file into the folder, or, where you trust the description, pass "
                "`--outside-files`"
            )
