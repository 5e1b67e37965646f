"""`tables.yaml`: the tables of a relational database, their keys, times and features."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outercore.errors import InvalidError, NotFoundError
from outercore.importing.format.listed_files import described_file
from outercore.importing.table.yaml_file import list_of, map_of, read_yaml, text_of
from outercore.importing.typed.tables import require_type_name

DESCRIPTION = "tables.yaml"
_TOP = ("tables",)
_OF_TABLE = ("file", "primary_key", "foreign_keys", "time", "features")


@dataclass(frozen=True)
class ForeignKey:
    """Columns whose values are the primary key of a row of another table, or of the same."""

    columns: tuple[str, ...]
    table: str

    @property
    def relation(self) -> str:
        """The name of the relation that it becomes."""
        return "_".join(self.columns)


@dataclass(frozen=True)
class TableSchema:
    """What `tables.yaml` says about one table."""

    name: str
    file: Path
    primary_key: tuple[str, ...]
    foreign_keys: tuple[ForeignKey, ...]
    time: str | None
    features: list[str] | None
    """The columns that become features; `None`: all columns of numbers that are nothing else."""
    without: tuple[str, ...] = ()
    """Columns that do not become features, where others are not chosen."""

    @property
    def is_link(self) -> bool:
        """Whether its rows are edges: they link two rows, and no key names them."""
        return not self.primary_key and len(self.foreign_keys) == 2

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that the description names."""
        keys = [name for one in self.foreign_keys for name in one.columns]
        times = [self.time] if self.time is not None else []
        return tuple(
            dict.fromkeys([*self.primary_key, *keys, *times, *(self.features or self.without)])
        )


def is_relational(folder: Path) -> bool:
    """Whether a folder has a `tables.yaml`."""
    return (folder / DESCRIPTION).is_file()


def read_schema(folder: Path, *, outside: bool = False) -> dict[str, TableSchema]:
    """The tables that `tables.yaml` describes, by name; `outside` as in `described_file`.

    Errors: `InvalidError` names the table and the entry; `NotFoundError` a file that is not there.
    """
    path = folder / DESCRIPTION
    where = f"`{path}`"
    top = map_of(read_yaml(path), where, _TOP)
    tables = map_of(top.get("tables"), f"{where}: `tables`")
    if not tables:
        raise InvalidError(f"{where}: expected tables below `tables:`, found none")
    found = {name: _table(folder, name, value, where, outside) for name, value in tables.items()}
    for one in found.values():
        for key in one.foreign_keys:
            _require_target(key, one, found, where)
    return found


def _table(folder: Path, name: str, value: Any, where: str, outside: bool) -> TableSchema:
    require_type_name(where, name)
    at = f"{where}: table `{name}`"
    entries = map_of(value, at, _OF_TABLE)
    keys = []
    for columns, table in map_of(entries.get("foreign_keys"), f"{at}: `foreign_keys`").items():
        here = f"{at}: foreign key `{columns}`"
        keys.append(ForeignKey(_columns(columns, here), text_of(table, here)))
        require_type_name(at, keys[-1].relation)
    time = entries.get("time")
    features, without = _features(entries.get("features"), f"{at}: `features`")
    return TableSchema(
        name,
        described_file(folder, _file(folder, name, entries.get("file"), at), at, outside=outside),
        _columns(entries.get("primary_key", ""), f"{at}: `primary_key`"),
        tuple(keys),
        None if time is None else text_of(time, f"{at}: `time`"),
        features,
        without,
    )


def _features(value: Any, where: str) -> tuple[list[str] | None, tuple[str, ...]]:
    """The columns that are chosen; or those that are left out, as `"!COLUMN"`.

    Errors: `InvalidError` for both in one list.
    """
    if value is None:
        return None, ()
    names = [text_of(one, where) for one in list_of(value, where)]
    left_out = tuple(name[1:] for name in names if name.startswith("!"))
    if not left_out:
        return names, ()
    if len(left_out) < len(names):
        raise InvalidError(f"{where}: expected columns, or columns to leave out, found both")
    return None, left_out


def _columns(value: Any, where: str) -> tuple[str, ...]:
    """Columns with commas between them."""
    if value == "":
        return ()
    if isinstance(value, list):
        raise InvalidError(
            f"{where}: expected columns with commas between them, such as `shop, till`, found a "
            "list"
        )
    columns = tuple(name.strip() for name in text_of(value, where).split(","))
    if "" in columns or len(set(columns)) < len(columns):
        raise InvalidError(f"{where}: expected different columns with commas between them")
    return columns


def _file(folder: Path, name: str, value: Any, where: str) -> str:
    """The file of a table: the one that is named, else the one that is called as the table."""
    if value is not None:
        return text_of(value, f"{where}: `file`")
    found = sorted(one for one in folder.iterdir() if one.name == name or one.stem == name)
    found = found or sorted(one for one in folder.iterdir() if one.name.startswith(f"{name}."))
    if len(found) != 1:
        listed = ", ".join(one.name for one in found) or "none"
        raise NotFoundError(
            f"{where}: expected one file that is called `{name}`, such as `{name}.parquet` or "
            f"`{name}.csv`, found {listed}\nhint: name it: `file: NAME`"
        )
    return found[0].name


def _require_target(
    key: ForeignKey, one: TableSchema, tables: dict[str, TableSchema], where: str
) -> None:
    at = f"{where}: table `{one.name}`: foreign key `{','.join(key.columns)}`"
    target = tables.get(key.table)
    if target is None:
        raise InvalidError(
            f"{at}: there is no table `{key.table}`\nhint: the tables are {', '.join(tables)}"
        )
    if not target.primary_key:
        raise InvalidError(f"{at}: table `{key.table}` has no `primary_key`")
    if len(target.primary_key) != len(key.columns):
        raise InvalidError(
            f"{at}: {len(key.columns)} columns, but the primary key of table `{key.table}` is "
            f"`{','.join(target.primary_key)}`"
        )
