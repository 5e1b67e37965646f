"""Random tables with the oddities of real tables, and the commands that import them.

    python tests/python/odd_tables.py --seconds 600          # one seed after the other
    python tests/python/odd_tables.py --seed 17              # one seed again, with all messages

An import must either store all values unchanged, or fail with suggested commands that work. One of
these commands must store all values.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import datetime
import gzip
import importlib
import io
import itertools
import random
import shlex
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import outercore
from outercore.errors import OutercoreError
from suggested import commands_in
from typed_files import edges_by_type

EPOCH = datetime.datetime(1970, 1, 1)
ENDS = [
    *(("source", "target"), ("src", "dst"), ("from", "to"), ("user_id", "item_id"), ("a", "b")),
    *(("follower", "followed"), ("u", "v"), ("FromNodeId", "ToNodeId"), ("user", "item")),
]
WORDS = [
    "ann",
    "Bob",
    "Ünal",
    "O'Hara",
    "x y",
    "#tag",
    "%x",
    "NA",
    "null",
    "nan",
    "true",
    "-",
    "a,b",
]
WORDS += [
    "a;b",
    "a|b",
    'say "hi"',
    "1e5",
    "0x1f",
    "007",
    "7",
    "=1+1",
    "id",
    "node",
    "雪",
    "a:b",
]


@dataclass(frozen=True)
class World:
    """Content of the tables; edges and rows of nodes refer to nodes by their index in `keys`."""

    kind: str
    keys: list[str]
    edges: list[tuple[int, int]]
    weights: list[float] | None = None
    times: list[int] | None = None
    """Integers, or days since 1970 if `notation` is a notation of dates."""
    notation: str = "whole"
    labels: list[Any] | None = None
    features: list[float | None] | None = None

    @property
    def are_numbers(self) -> bool:
        """Whether each key is an integer in the usual notation, without leading zeros."""
        return all(key.isdigit() and str(int(key)) == key for key in self.keys)

    def expected(self) -> dict[str, Any]:
        """Edges as sorted tuples, and values of nodes by their keys."""
        times = self.times
        if times is not None and self.notation != "whole":
            times = [day * 86_400_000_000 for day in times]
        rows = zip(
            [self.keys[u] for u, _ in self.edges],
            [self.keys[v] for _, v in self.edges],
            self.weights or [None] * len(self.edges),
            times or [None] * len(self.edges),
            strict=True,
        )
        return {
            "edges": sorted(rows, key=repr),
            "labels": dict(zip(self.keys, self.labels, strict=True)) if self.labels else None,
            "features": dict(zip(self.keys, self.features, strict=True)) if self.features else None,
        }


def keys_of(draw: random.Random, kind: str, count: int) -> list[str]:
    """Keys of one kind, in random order."""
    if kind == "dense":
        keys = [str(key) for key in range(count)]
    elif kind == "from one":
        keys = [str(key) for key in range(1, count + 1)]
    elif kind == "gaps":
        start = draw.choice([0, 1, 9001, 124_836_179, 10**15])
        keys = [str(start + key) for key in draw.sample(range(10 * count), count)]
    elif kind == "zeros":
        keys = [f"{key:04d}" for key in draw.sample(range(1, 3000), count)]
    elif kind == "alike":
        keys = [f"user_{key}" for key in draw.sample(range(100), count)]
    elif kind == "hashes":
        keys = [f"{draw.getrandbits(32):08x}" for _ in range(count)]
    else:
        keys = draw.sample(WORDS, min(count, len(WORDS)))
    draw.shuffle(keys)
    return list(dict.fromkeys(keys))


KINDS = ["dense", "from one", "gaps", "zeros", "alike", "hashes", "words"]


def world_of(draw: random.Random) -> World:
    """A world with a random choice of columns."""
    kind = draw.choice(KINDS)
    keys = keys_of(draw, kind, draw.randint(4, 12))
    places = range(len(keys))
    # Each node has an edge, so every node is in the table of edges.
    edges = [(place, draw.choice(places)) for place in places]
    edges += [(draw.choice(places), draw.choice(places)) for _ in range(draw.randint(0, 12))]
    draw.shuffle(edges)
    world = World(kind, keys, edges)
    if draw.random() < 0.4:
        world = replace(world, weights=[draw.randint(-40, 400) / 4 for _ in edges])
    if draw.random() < 0.5:
        notation = draw.choice(["whole", "day", "moment", "letter T", "zone", "native"])
        times = [draw.randint(10_000, 20_000) for _ in edges]
        world = replace(world, times=times, notation=notation)
    if draw.random() < 0.5:
        of = draw.choice([["cat", "dog", "Yak 2"], [0, 1, 2], [0, 1, None], ["yes", "no", None]])
        labels = [draw.choice(of) for _ in keys]
        if any(label is not None for label in labels):
            world = replace(world, labels=labels)
    if draw.random() < 0.4:
        gap = [None] if draw.random() < 0.3 else []
        values = [draw.choice([*gap, draw.randint(-80, 80) / 8]) for _ in keys]
        if any(value is not None for value in values):
            world = replace(world, features=values)
    return world


@dataclass
class Table:
    """Columns of a table as Python values; `None` is a missing value."""

    columns: dict[str, list[Any]] = field(default_factory=dict)

    def part(self, rows: slice) -> Table:
        """A table of some of its rows."""
        return Table({name: column[rows] for name, column in self.columns.items()})

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values())))


def time_text(day: int, notation: str) -> str:
    """A day in one of the notations."""
    moment = EPOCH + datetime.timedelta(days=day)
    if notation == "whole":
        return str(day)
    if notation == "day":
        return f"{moment:%Y-%m-%d}"
    if notation == "letter T":
        return f"{moment:%Y-%m-%dT%H:%M:%S}"
    if notation == "zone":
        return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def edge_table(draw: random.Random, world: World, ends: tuple[str, str]) -> Table:
    """The edges with their values; sometimes the column of times is first."""
    columns = {
        ends[0]: [world.keys[u] for u, _ in world.edges],
        ends[1]: [world.keys[v] for _, v in world.edges],
    }
    if world.weights is not None:
        columns["weight"] = list(world.weights)
    if world.times is not None:
        name = draw.choice(["time", "ts", "when"])
        column = list(world.times)
        columns = {name: column, **columns} if draw.random() < 0.15 else {**columns, name: column}
    if draw.random() < 0.2:
        columns["note"] = [draw.choice(["x", "y z", ""]) for _ in world.edges]
    return Table(columns)


TIME_NAMES = ("time", "ts", "when")


@dataclass(frozen=True)
class Writing:
    """Options for writing a text file or a Parquet file."""

    separator: str = ","
    header: bool = True
    mark: bool = False
    end: str = "\n"
    quote_all: bool = False
    packed: bool = False
    comments: int = 0
    blank_end: bool = False
    parquet: bool = False

    @classmethod
    def of(cls, draw: random.Random, *, header: bool | None = None) -> Writing:
        """Random options."""
        return cls(
            separator=draw.choice([",", ",", "\t", ";", "|"]),
            header=draw.random() < 0.8 if header is None else header,
            mark=draw.random() < 0.2,
            end=draw.choice(["\n", "\n", "\r\n"]),
            quote_all=draw.random() < 0.2,
            packed=draw.random() < 0.1,
            comments=draw.choice([0, 0, 0, 2]),
            blank_end=draw.random() < 0.1,
            parquet=draw.random() < 0.2,
        )

    def write(self, path: Path, table: Table, world: World, repeated: int = 0) -> Path:
        """Writes a table; its header is repeated `repeated` times between the rows."""
        if self.parquet:
            path = path.with_suffix(".parquet")
            pq.write_table(_arrow(table, world), path, row_group_size=5)
            return path
        rows = [[_field(value) for value in row] for row in _rows(table, world)]
        if self.header:
            names = list(table.columns)
            rows.insert(0, names)
            for again in range(repeated):
                rows.insert(1 + (again + 1) * (len(rows) - 1) // (repeated + 1), names)
        out = io.StringIO()
        # A single column has no separator. A separator inside a word without quotes would be
        # detected as one.
        is_one = len(table.columns) == 1
        quoting = csv.QUOTE_ALL if self.quote_all or is_one else csv.QUOTE_MINIMAL
        writer = csv.writer(out, delimiter=self.separator, lineterminator=self.end, quoting=quoting)
        # Lines that begin with the comment sign would be read as comments.
        for _ in range(0 if any(key[0] in "#%" for key in world.keys) else self.comments):
            out.write(f"# made for a test{self.end}")
        writer.writerows(rows)
        if self.blank_end:
            out.write(self.end)
        data = out.getvalue().encode("utf-8-sig" if self.mark else "utf-8")
        suffix = {"\t": ".tsv", "|": ".txt"}.get(self.separator, ".csv")
        path = path.with_suffix(suffix + (".gz" if self.packed else ""))
        path.write_bytes(gzip.compress(data, mtime=0) if self.packed else data)
        return path


def _field(value: Any) -> str:
    return "" if value is None else str(value)


def _rows(table: Table, world: World) -> list[tuple[Any, ...]]:
    columns = [
        [time_text(value, world.notation) for value in column] if name in TIME_NAMES else column
        for name, column in table.columns.items()
    ]
    return list(zip(*columns, strict=True))


def _arrow(table: Table, world: World) -> pa.Table:
    columns = {}
    for name, column in table.columns.items():
        if name in TIME_NAMES and world.notation != "whole":
            columns[name] = _native_times(column, world.notation)
        elif (
            all(isinstance(key, str) for key in column)
            and world.are_numbers
            and set(column) <= set(world.keys)
        ):
            columns[name] = pa.array([int(key) for key in column])
        else:
            columns[name] = pa.array(column)
    return pa.table(columns)


def _native_times(days: list[int], notation: str) -> pa.Array:
    if notation == "day":
        return pa.array(days, pa.int32()).cast(pa.date32())
    unit, zone = {"zone": ("us", "UTC"), "moment": ("ns", None)}.get(notation, ("ms", None))
    scale = {"ns": 10**9, "us": 10**6, "ms": 10**3}[unit] * 86_400
    return pa.array([day * scale for day in days], pa.int64()).cast(pa.timestamp(unit, zone))


@dataclass(frozen=True)
class Import:
    """A command, and a function that reads its result."""

    arguments: list[str]
    read: Callable[[Any, list[str]], dict[str, Any]]
    """Called with the graph and the command that succeeded."""
    after: list[str] = field(default_factory=list)
    """A second command, on the result of the first."""
    call: Callable[[], Any] | None = None
    """A Python call in place of the command."""


def split_parts(
    draw: random.Random, table: Table, world: World, writing: Writing, path: Path
) -> list[Path]:
    """One file, or two files with parts of the rows; one file may repeat its header."""
    if draw.random() < 0.25 and table.rows > 5:
        middle = draw.randint(2, table.rows - 2)
        parts = [table.part(slice(middle)), table.part(slice(middle, None))]
        names = [path.with_name(f"{path.name}-{place}") for place in range(2)]
        return [writing.write(name, part, world) for name, part in zip(names, parts, strict=True)]
    repeated = draw.choice([1, 2]) if draw.random() < 0.2 else 0
    if world.kind in ("words", "hashes") and len(table.columns) == 1:
        # In a single column of words, a header could be one of the words.
        repeated = 0
    return [writing.write(path, table, world, repeated)]


def node_table(draw: random.Random, world: World, key: str) -> Table:
    """A table with a row per node, in random order."""
    order = list(range(len(world.keys)))
    draw.shuffle(order)
    columns: dict[str, list[Any]] = {key: [world.keys[place] for place in order]}
    if world.labels is not None:
        columns["label"] = [world.labels[place] for place in order]
    if world.features is not None:
        columns["size"] = [world.features[place] for place in order]
    return Table(columns)


def value_options(world: World, table: Table, header: bool) -> list[str]:
    """Options that name the columns of weights and times."""
    names = list(table.columns)
    options = []
    for option, wanted in (("--weight", ("weight",)), ("--edge-time", TIME_NAMES)):
        for place, name in enumerate(names):
            if name in wanted:
                options += [option, name if header else f"column {place + 1}"]
    return options


def plain(draw: random.Random, world: World, home: Path) -> Import:
    """The import of nodes of one type, by numbers or by a dictionary."""
    named = not world.are_numbers or world.kind == "gaps" or draw.random() < 0.3
    ends = draw.choice(ENDS)
    writing = Writing.of(draw)
    table = edge_table(draw, world, ends)
    files = split_parts(draw, table, world, writing, home / "edges")
    header = writing.header or writing.parquet
    arguments = [*map(str, files), *value_options(world, table, header)]
    if named and draw.random() < 0.8:
        arguments += ["--ids", "dictionary"]
    more: list[str] = []
    if world.labels is not None or world.features is not None:
        key = draw.choice(["id", "id", "node_id", "user", "name"])
        nodes = Writing.of(draw, header=True).write(
            home / "nodes", node_table(draw, world, key), world
        )
        if world.labels is not None:
            more += ["--labels", f"{nodes}:label"]
        if world.features is not None:
            more += ["--features", f"{nodes}:size"]
        if draw.random() < 0.3:
            arguments = [word for word in arguments if word not in ("--ids", "dictionary")]
            arguments += ["--nodes", f"{nodes}:{key}"]
    later = bool(more) and draw.random() < 0.3
    read = lambda graph, words: read_plain(graph, words, world)  # noqa: E731
    out = str(home / "graph")
    if later:
        return Import(["import", *arguments, "--out", out], read, ["add", out, *more])
    return Import(["import", *arguments, *more, "--out", out], read)


def read_plain(graph: Any, words: list[str], world: World) -> dict[str, Any]:
    """The content of a graph of one type, by the keys of the file."""
    if "names/entity.offsets" in graph.arrays:
        names = graph.entity_names()
    else:
        first = int("--one-based" in words)
        names = [str(node + first) for node in range(graph.num_nodes)]
    offsets = np.asarray(graph.array("edges/edge/offsets"), np.int64)
    sources = np.asarray(graph.array("edges/edge/sources"), np.int64)
    targets = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    has_ids = "edges/edge/ids" in graph.arrays
    ids = np.asarray(graph.array("edges/edge/ids")) if has_ids else np.arange(len(sources))
    ends = zip(ids.tolist(), sources.tolist(), targets.tolist(), strict=True)
    return _found(graph, world, names, ends, "edges/edge/", "nodes/node/")


def read_typed(
    graph: Any, world: World, kind: str, edge_type: str, columns: list[str]
) -> dict[str, Any]:
    """The content of a typed graph with one node type; `columns` are the columns of its edges."""
    keys = graph.keys_of(kind)
    names = keys.names() if keys is not None else world.keys
    ends = edges_by_type(graph)[edge_type]
    return _found(graph, world, names, ends, f"edges/{edge_type}/", f"nodes/{kind}/", columns)


def _found(
    graph: Any,
    world: World,
    names: list[str],
    ends: Any,
    of_edges: str,
    of_nodes: str,
    columns: Sequence[str] = (),
) -> dict[str, Any]:
    def values(*wanted: str) -> list[Any] | None:
        # Without a header, the name of a column is its position.
        places = [f"column {at}" for at, name in enumerate(columns, 1) if name in wanted]
        for name in (*wanted, *places):
            if of_edges + name in graph.arrays:
                return np.asarray(graph.array(of_edges + name)).reshape(-1).tolist()
        return None

    weights, times = values("weight"), values(*TIME_NAMES)
    rows = [
        (names[u], names[v], weights and weights[row], times and times[row]) for row, u, v in ends
    ]
    content: dict[str, Any] = {"edges": sorted(rows, key=repr), "labels": None, "features": None}
    for what, name, converted in (("labels", "y", class_of(graph)), ("features", "x", float)):
        if of_nodes + name in graph.arrays:
            array = np.asarray(graph.array(of_nodes + name)).reshape(len(names), -1)[:, -1]
            by_name = dict(zip(names, array.tolist(), strict=True))
            if world.kind == "zeros":
                # Without a dictionary, the keys are numbers.
                by_name |= {key: by_name.get(key, by_name.get(str(int(key)))) for key in world.keys}
            content[what] = {
                key: None if is_missing(what, by_name.get(key)) else converted(by_name[key])
                for key in world.keys
            }
    return content


def is_missing(what: str, value: Any) -> bool:
    """Whether a stored value means a missing value."""
    return value is None or value != value or (what == "labels" and value == -1)


def class_of(graph: Any) -> Callable[[Any], Any]:
    """A function from a stored label to the label of the file."""
    if "names/class.offsets" not in graph.arrays:
        return int
    offsets = np.asarray(graph.array("names/class.offsets")).tolist()
    data = np.asarray(graph.array("names/class.bytes")).tobytes()
    words = [data[a:b].decode() for a, b in itertools.pairwise(offsets)]
    return lambda label: words[int(label)]


def typed(draw: random.Random, world: World, home: Path) -> Import:
    """The import of a table of nodes and a table of edges, of one type each."""
    ends = draw.choice(ENDS)
    table = edge_table(draw, world, ends)
    files = split_parts(draw, table, world, Writing.of(draw), home / "edges")
    key = draw.choice(["id", "user", "key"])
    nodes = node_table(draw, world, key)
    rows = split_parts(draw, nodes, world, Writing.of(draw, header=True), home / "nodes")
    if rows[0].suffix == ".parquet" and len(rows) > 1:
        # Several Parquet files of a table are in a directory.
        (home / "parts").mkdir()
        rows = [path.rename(home / "parts" / path.name).parent for path in rows][:1]
    arguments = ["import"]
    for path in rows:
        arguments += ["--nodes", f"user={path}:{key}"]
    for path in files:
        arguments += ["--edges", f"user,likes,user={path}"]
    if world.labels is not None:
        arguments += ["--label", "user.label"]
    world = replace(world, keys=nodes.columns[key], edges=world.edges)
    read = lambda graph, _words: read_typed(  # noqa: E731
        graph, world, "user", "user__likes__user", list(table.columns)
    )
    return Import([*arguments, "--out", str(home / "graph")], read)


def triples(draw: random.Random, world: World, home: Path) -> Import:
    """The import of a knowledge graph: edges with a relation each."""
    names = draw.choice([("head", "relation", "tail"), ("subject", "predicate", "object")])
    relations = [draw.choice(["likes", "knows", "works at"]) for _ in world.edges]
    ends = [[world.keys[edge[side]] for edge in world.edges] for side in (0, 1)]
    table = Table({names[0]: ends[0], names[1]: relations, names[2]: ends[1]})
    files = split_parts(draw, table, world, Writing.of(draw), home / "facts")

    def read(graph: Any, _words: list[str]) -> dict[str, Any]:
        ids = np.asarray(graph.array("triples/train"))
        rows = zip(graph.entity_names(ids[:, 0]), graph.entity_names(ids[:, 2]), strict=True)
        kinds = graph.relation_names(ids[:, 1])
        if sorted(kinds) != sorted(relations):
            return {"relations": kinds}
        return {
            "edges": sorted(((u, v, None, None) for u, v in rows), key=repr),
            "labels": None,
            "features": None,
        }

    arguments = ["import", *map(str, files), "--triples", "--out", str(home / "graph")]
    return Import(arguments, read)


def folder(draw: random.Random, world: World, home: Path) -> Import:
    """The import of a folder of tables with a description."""
    folder = home / "tables"
    folder.mkdir()
    ends = draw.choice(ENDS)
    table = edge_table(draw, world, ends)
    nodes = node_table(draw, world, "id")
    paths = [
        Writing.of(draw, header=True).write(folder / name, part, world)
        for name, part in (("users", nodes), ("likes", table))
    ]
    time = next((name for name in table.columns if name in TIME_NAMES), None)
    lines = [
        "tables:",
        f"  user: {{file: {paths[0].name}, primary_key: id}}",
        "  likes:",
        f"    file: {paths[1].name}",
        f"    foreign_keys: {{{ends[0]}: user, {ends[1]}: user}}",
    ]
    lines += [f"    time: {time}"] if time and draw.random() < 0.7 else []
    (folder / "tables.yaml").write_text("\n".join([*lines, ""]))
    return _typed_import(world, nodes, table, [str(folder)], home)


def neo4j(draw: random.Random, world: World, home: Path) -> Import:
    """The import of a folder exported by Neo4j, sometimes with headers in separate files."""
    folder = home / "export"
    folder.mkdir()
    table = edge_table(draw, replace(world, times=None), (":START_ID", ":END_ID"))
    nodes = node_table(draw, world, "id")
    kinds = {"id": "id:ID", "size": "size:double", "weight": "weight:double", "label": "label"}
    for name, source in (("user", nodes), ("likes", table)):
        named = {kinds.get(column, column): values for column, values in source.columns.items()}
        writing = replace(Writing.of(draw, header=True), separator=",", parquet=False, comments=0)
        parts = [Table(named)]
        if draw.random() < 0.4:
            middle = draw.randint(1, source.rows - 1)
            parts = [parts[0].part(slice(middle)), parts[0].part(slice(middle, None))]
        apart = draw.random() < 0.5
        if apart:
            replace(writing, packed=False).write(
                folder / f"{name}-header", Table({column: [] for column in named}), world
            )
            # Some exports have the header in both places.
            writing = replace(writing, header=draw.random() < 0.3)
        for place, part in enumerate(parts):
            file = folder / (f"{name}-part{place}" if len(parts) > 1 else name)
            writing.write(file, part, world)
    return _typed_import(replace(world, times=None), nodes, table, [str(folder)], home)


def _typed_import(
    world: World, nodes: Table, table: Table, arguments: list[str], home: Path
) -> Import:
    """The import of a folder, and a function that reads its graph of one node type."""
    if world.labels is not None:
        arguments = [*arguments, "--label", "user.label"]
    own = replace(world, keys=nodes.columns["id"])

    def read(graph: Any, _words: list[str]) -> dict[str, Any]:
        return read_typed(graph, own, "user", "user__likes__user", list(table.columns))

    return Import(["import", *arguments, "--out", str(home / "graph")], read)


def arrays(draw: random.Random, world: World, home: Path) -> Import:
    """The import of NumPy arrays of edges and values; the nodes are numbers."""
    ids = np.array([[int(world.keys[node]) for node in edge] for edge in world.edges])
    ids = ids.astype(draw.choice(["int64", "int32", "uint32"]))
    ids = ids if draw.random() < 0.5 else np.asfortranarray(ids)
    np.save(home / "edges.npy", ids if draw.random() < 0.5 else ids.T)
    arguments = ["import", str(home / "edges.npy")]
    values = {"weight": ("--weight", world.weights), "time": ("--edge-time", world.times)}
    for name, (option, column) in values.items():
        if column is not None:
            np.save(home / f"{name}.npy", np.array(column))
            arguments += [option, str(home / f"{name}.npy")]
    order = np.argsort([int(key) for key in world.keys])
    first = int(world.kind == "from one")
    for name, column in (("labels", world.labels), ("features", world.features)):
        if column is not None:
            rows = [float("nan") if column[at] is None else column[at] for at in order]
            np.save(home / f"{name}.npy", np.array(rows))
            arguments += [f"--{name}", str(home / f"{name}.npy")]
    arguments += ["--one-based"] if first and draw.random() < 0.5 else []
    read = lambda graph, words: read_plain(graph, words, world)  # noqa: E731
    return Import([*arguments, "--out", str(home / "graph")], read)


def frames(draw: random.Random, world: World, home: Path) -> Import:
    """The import of pandas data frames."""
    pandas = importlib.import_module("pandas")

    def column(values: list[Any]) -> Any:
        if all(isinstance(key, str) for key in values) and set(values) <= set(world.keys):
            return [int(key) for key in values] if world.are_numbers else values
        return values

    ends = draw.choice(ENDS)
    table = edge_table(draw, world, ends)
    times = {}
    for name in set(table.columns) & set(TIME_NAMES):
        texts = [time_text(day, world.notation) for day in table.columns[name]]
        times[name] = table.columns[name] if world.notation == "whole" else texts
        if world.notation == "native":
            times[name] = pandas.to_datetime(texts)
    edges = pandas.DataFrame(
        {name: times.get(name, column(values)) for name, values in table.columns.items()}
    )
    nodes = node_table(draw, world, draw.choice(["id", "id", "user"]))
    key = next(iter(nodes.columns))
    options: dict[str, Any] = {"ends": ends} if next(iter(table.columns)) in TIME_NAMES else {}
    if world.labels is not None or world.features is not None:
        frame = pandas.DataFrame({name: column(values) for name, values in nodes.columns.items()})
        options["nodes"] = frame if key == "id" else frame.set_index(key)
    if world.labels is not None:
        options["labels"] = "label"
    if world.features is not None:
        options["features"] = ["size"]
        options["options"] = outercore.ImportOptions(allow_nan=True)
    call = lambda: outercore.from_pandas(edges, home / "graph", **options)  # noqa: E731
    return Import([], lambda graph, words: read_plain(graph, words, world), call=call)


PATHS = {
    "arrays": arrays,
    "folder": folder,
    "frames": frames,
    "neo4j": neo4j,
    "plain": plain,
    "triples": triples,
    "typed": typed,
}


def made(seed: int, home: Path) -> tuple[World, str, Import]:
    """The world of a seed, the name of its path, and its command; writes the files."""
    draw = random.Random(seed)
    world = world_of(draw)
    name = draw.choice(sorted(PATHS))
    if name == "triples":
        world = replace(world, weights=None, times=None, labels=None, features=None)
    if name == "neo4j":
        # In Neo4j, a property without a type is a text.
        labels = world.labels and [label if label is None else str(label) for label in world.labels]
        world = replace(world, times=None, labels=labels)
    if name == "arrays":
        words = world.labels is not None and any(isinstance(label, str) for label in world.labels)
        kind = draw.choice(["dense", "from one"])
        keys = keys_of(draw, kind, len(world.keys))
        world = replace(world, kind=kind, keys=keys, notation="whole")
        world = replace(world, labels=None) if words else world
    return world, name, PATHS[name](draw, world, home)


def problem(seed: int, home: Path, outcome: Any) -> str | None:
    """The problem with the import of a seed's tables, or `None`.

    `outcome` calls the command line: exit code, standard output, standard error.
    """
    world, name, task = made(seed, home)
    said: list[str] = []

    def differs(words: list[str]) -> str | None:
        graph = outercore.open(home / "graph")
        content, expected = task.read(graph, words), world.expected()
        if content == expected:
            return None
        if world.kind == "zeros" and "in front: as numbers" in "".join(said):
            # Without the option for a dictionary, ids are numbers; a note says so.
            keys = [str(int(key)) for key in world.keys]
            for what in ("labels", "features"):
                own = content[what]
                content[what] = own and {str(int(key)): value for key, value in own.items()}
            if content == replace(world, keys=keys).expected():
                return None
        return f"arrived as {content}, expected {expected}"

    def tried(words: list[str], depth: int) -> list[str]:
        """Problems of a command and of all suggested commands; empty if all values arrived."""
        code, _, message = outcome(*words)
        said.append(f"$ outercore {shlex.join(words)}\n{message}")
        if code == 0 and words[0] == "import" and task.after:
            code, _, message = outcome(*task.after)
            said.append(f"$ outercore {shlex.join(task.after)}\n{message}")
        if code == 0:
            wrong = differs(words)
            return [wrong] if wrong else []
        if code != 1:
            return [f"ended with {code}"]
        ways = [shlex.split(command)[1:] for command in commands_in(message)]
        if not ways or not depth:
            return ["was refused without a command"]
        before = Path(tempfile.mkdtemp(dir=home.parent))
        shutil.copytree(home, before, dirs_exist_ok=True)
        problems = []
        for way in ways:
            # Each suggested command starts from the state after the failed command.
            shutil.rmtree(home)
            shutil.copytree(before, home)
            problems.append(tried(way, depth - 1))
            if not problems[-1]:
                break
        shutil.rmtree(before)
        return (
            []
            if any(not wrong_ones for wrong_ones in problems)
            else [text for wrong_ones in problems for text in wrong_ones]
        )

    def called_from_python(call: Callable[[], Any]) -> list[str]:
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call()
        except OutercoreError as error:
            return [f"was refused: {error}"]
        said.extend(str(warning.message) for warning in caught)
        wrong = differs([])
        return [wrong] if wrong else []

    problems = tried(task.arguments, 4) if task.call is None else called_from_python(task.call)
    if not problems:
        return None
    return f"seed {seed}, {name}, {world.kind}: {problems[0]}\n" + "\n".join(said)


def main() -> None:
    """Tests seeds for some time, and prints the problems."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, help="this one only, with all that is said")
    parser.add_argument("--first", type=int, default=0, help="seed to begin with")
    chosen = parser.parse_args()
    end, seed, wrong = time.monotonic() + chosen.seconds, chosen.first, 0
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory() as home:
            seed = seed if chosen.seed is None else chosen.seed
            text = problem(seed, Path(home), called)
        if text or chosen.seed is not None:
            sys.stdout.write(f"{text or f'seed {seed}: nothing'}\n")
            sys.stdout.flush()
        wrong += text is not None
        if chosen.seed is not None:
            break
        seed += 1
    sys.stdout.write(f"{seed - chosen.first} seeds, {wrong} wrong\n")


def called(*words: str) -> tuple[int, str, str]:
    """Calls the command line: exit code, standard output, standard error."""
    from outercore.cli import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(words))
    return code, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    main()
