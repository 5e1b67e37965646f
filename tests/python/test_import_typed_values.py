"""Tables of several types arrive unchanged: edges are those of a naive join by keys."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outercore as oc
from outercore import _core
from outercore.errors import InvalidError
from outercore.importing.build.graph import import_graph
from outercore.importing.inputs import TypedInputs
from outercore.importing.keys import NO_NODE, Column, Keys
from outercore.importing.options import ImportOptions
from outercore.importing.typed_graph import open_typed
from typed_files import edges_by_type, write_table

pytestmark = pytest.mark.skipif(
    not hasattr(_core, "Importer"), reason="the native module has no importer yet"
)


@dataclass
class Tables:
    """Node tables, and edge tables as pairs of keys with a value each."""

    nodes: dict[str, tuple[str, list[Any]]] = field(default_factory=dict)
    """Kind of keys (`int`, `text`, `none`) and the keys, by type."""
    edges: list[tuple[tuple[str, str, str], list[tuple[Any, Any, float]]]] = field(
        default_factory=list
    )
    suffix: str = ".csv"
    add_reverse: bool = False
    duplicates: str = "keep"
    dangling: str = "refuse"


_TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z", "Cs"), exclude_characters='"#%'),
    min_size=1,
    max_size=6,
)
_KEYS = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "text": _TEXTS.map(lambda text: "k" + text),
}


@st.composite
def tables(draw: st.DrawFn) -> Tables:
    suffix = draw(st.sampled_from([".csv", ".parquet"]))
    drop = draw(st.booleans())
    found = Tables(
        suffix=suffix,
        add_reverse=draw(st.booleans()),
        duplicates=draw(st.sampled_from(["keep", "drop"])),
        dangling="drop" if drop else "refuse",
    )
    names = draw(st.lists(st.sampled_from(["a", "b.c", "b", "Z z"]), min_size=1, unique=True))
    for name in names:
        kind = draw(st.sampled_from(["int", "text", "none"]))
        if kind == "none":
            found.nodes[name] = kind, list(range(draw(st.integers(0, 5))))
        else:
            found.nodes[name] = kind, draw(st.lists(_KEYS[kind], max_size=6, unique=True))
    for relation in draw(st.lists(st.sampled_from(["r", "s"]), max_size=3)):
        ends = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        keys = []
        for end in ends:
            kind, known = found.nodes[end]
            more = st.none() | _KEYS[kind] if drop and kind != "none" else st.nothing()
            keys.append(st.one_of(st.sampled_from(known) if known else st.nothing(), more))
        if any(key.is_empty for key in keys):
            rows = []
        else:
            rows = draw(st.lists(st.tuples(*keys, st.floats(-9, 9)), max_size=8))
        found.edges.append(((ends[0], relation, ends[1]), rows))
    return found


def join(tables: Tables) -> tuple[dict[str, list[tuple[int, int, int]]], dict[str, list[float]]]:
    """Edges with their rows, and values, by edge type."""
    place = {
        name: {key: row for row, key in enumerate(keys)} for name, (_, keys) in tables.nodes.items()
    }
    edges: dict[str, list[tuple[int, int, int]]] = {}
    values: dict[str, list[float]] = {}
    for (source, relation, target), rows in tables.edges:
        names = [(f"{source}__{relation}__{target}", False)]
        if tables.add_reverse:
            names.append((f"{target}__rev_{relation}__{source}", True))
        for name, is_reverse in names:
            own = edges.setdefault(name, [])
            weights = values.setdefault(name, [])
            for start, end, value in rows:
                if start not in place[source] or end not in place[target]:
                    continue
                ends = place[source][start], place[target][end]
                own.append((len(own), *(ends[::-1] if is_reverse else ends)))
                weights.append(value)
    if tables.duplicates == "drop":
        for name, own in edges.items():
            firsts: dict[tuple[int, int], int] = {}
            for row, start, end in own:
                firsts.setdefault((start, end), row)
            edges[name] = sorted((row, *ends) for ends, row in firsts.items())
    return edges, values


def loses_most(tables: Tables) -> bool:
    """Whether more than half of the rows of an edge type have keys that no node has."""
    lost: dict[tuple[str, str, str], list[bool]] = {}
    for edge_type, rows in tables.edges:
        known = [set(tables.nodes[end][1]) for end in (edge_type[0], edge_type[2])]
        lost.setdefault(edge_type, []).extend(
            None not in row[:2]
            and any(key not in of for key, of in zip(row[:2], known, strict=True))
            for row in rows
        )
    return any(2 * sum(rows) > len(rows) for rows in lost.values())


def write(tables: Tables, directory: Path) -> TypedInputs:
    nodes, edges = [], []
    for number, (name, (kind, keys)) in enumerate(tables.nodes.items()):
        if kind == "none":
            nodes.append(f"{name}={len(keys)}")
            continue
        ages = [number + 0.5 * row for row in range(len(keys))]
        columns = {"key": keys, "age": ages}
        path = write_table(directory / f"nodes-{number}{tables.suffix}", columns)
        nodes.append(f"{name}={path}:key")
    for number, ((source, relation, target), rows) in enumerate(tables.edges):
        columns = {
            "source": [row[0] for row in rows],
            "target": [row[1] for row in rows],
            "w": [row[2] for row in rows],
        }
        path = write_table(directory / f"edges-{number}{tables.suffix}", columns)
        edges.append(f"{source},{relation},{target}={path}")
    return TypedInputs(
        tuple(nodes),
        tuple(edges),
        add_reverse=tables.add_reverse,
        dangling=tables.dangling,  # type: ignore[arg-type]
    )


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables())
def test_edges_are_those_of_a_naive_join_and_values_arrive_unchanged(tables: Tables) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        inputs = write(tables, directory)
        options = ImportOptions(memory="16MiB", duplicates=tables.duplicates)  # type: ignore[arg-type]
        if loses_most(tables):
            with pytest.raises(InvalidError, match="more than half"):
                import_graph(open_typed(inputs, options), directory / "out", options)
            return
        summary = import_graph(open_typed(inputs, options), directory / "out", options)
        graph = oc.open(directory / "out")
        assert graph.node_types == {
            name: len(keys) for name, (_, keys) in sorted(tables.nodes.items())
        }
        edges, values = join(tables)
        assert edges_by_type(graph) == dict(sorted(edges.items()))
        total = sum(len(rows) for _, rows in tables.edges) * (1 + tables.add_reverse)
        empty = sum(None in row for _, rows in tables.edges for row in rows)
        assert sum(summary["empty_keys_dropped"].values()) == empty * (1 + tables.add_reverse)
        dropped = sum(
            count
            for kind in ("dangling_dropped", "empty_keys_dropped")
            for count in summary[kind].values()
        )
        assert dropped == total - sum(map(len, values.values()))
        for name, expected in values.items():
            key = f"edges/{name}/w"
            if expected:
                assert np.asarray(graph.array(key)).tolist() == expected
        for number, (name, (kind, keys)) in enumerate(tables.nodes.items()):
            if kind != "none" and keys:
                ages = np.asarray(graph.array(f"nodes/{name}/x"))[:, 0]
                assert ages.tolist() == [number + 0.5 * row for row in range(len(keys))]
        assert not _core.check(graph.root, lambda *_: None)["problems"]
        assert {path.name for path in directory.glob(".*")} == set()
    finally:
        shutil.rmtree(directory)


def test_columns_of_keys_are_read_once(tmp_path: Path) -> None:
    reads = list[str]()

    def column(name: str, keys: list[str]) -> Column:
        def texts() -> Iterator[Any]:
            reads.append(name)
            for key in keys:
                yield pa.array([key], pa.large_string())

        return Column("paper", name, texts)

    use = column("use", ["c", "a", "a", "d"])
    with Keys(tmp_path / "graph", [column("node", ["a", "b", "c"])], [use], "one") as keys:
        keys.build(64 << 20, lambda *_: None)
        assert keys.rows(0).tolist() == [2, 0, 0, NO_NODE]
    assert reads == ["node", "use"]
