"""Every file of the lists in `tests/cases/imports/` is understood exactly, or refused with its
reason; and every row of the guides' tables has such files."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc
from case_files import DIRECTORY, Case, array_of, cases, write_files
from outercore.errors import OutercoreError
from suggested import without_result
from typed_files import edges_by_type

GUIDES = Path(__file__).parents[2] / "docs/guides"
LISTS = sorted(path.stem for path in DIRECTORY.glob("*.json"))
ALL = [(name, case) for name in LISTS for case in cases(name)]
_ARRAYS = {
    "weight": "edges/edge/weight",
    "time": "edges/edge/time",
    "attr": "edges/edge/attr",
    "labels": "nodes/node/y",
    "features": "nodes/node/x",
    "array": "nodes/node/a",
    "tag": "nodes/node/tag",
    "first": "graphs/first",
}


def edges_by_id(graph: Any) -> list[list[int]]:
    """`[source, target]` of each edge of a directed graph."""
    offsets = np.asarray(graph.array("edges/edge/offsets"), np.int64)
    sources = np.asarray(graph.array("edges/edge/sources"), np.int64)
    targets = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    known = "edges/edge/ids" in graph.arrays
    ids = np.asarray(graph.array("edges/edge/ids")) if known else np.arange(len(sources))
    found = np.empty((len(sources), 2), np.int64)
    found[ids] = np.stack([sources, targets], axis=1)
    return found.tolist()


def arcs(graph: Any) -> list[list[int]]:
    """`[source, target]` of each arc, sorted."""
    offsets = np.asarray(graph.array("edges/edge/offsets"), np.int64)
    sources = np.asarray(graph.array("edges/edge/sources"), np.int64)
    targets = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return sorted(np.stack([sources, targets], axis=1).tolist())


def triples(graph: Any, part: str) -> list[list[str]]:
    """The names of the triples of a part."""
    ids = np.asarray(graph.array(f"triples/{part}"))
    heads, tails = graph.entity_names(ids[:, 0]), graph.entity_names(ids[:, 2])
    named = zip(heads, graph.relation_names(ids[:, 1]), tails, strict=True)
    return [list(triple) for triple in named]


@pytest.mark.parametrize(
    "case", [case for _, case in ALL], ids=[f"{name}-{case['name']}" for name, case in ALL]
)
def test_case(case: Case, tmp_path: Path, outcome: Any) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    write_files(case, inputs)
    out = tmp_path / "out"
    if "pyg" in case:
        code, summary, told = taken_from_pyg(case, out)
    else:
        given = case.get("input", next(iter(case.get("files", {})), None))
        given = given if isinstance(given, list) else [given]
        named = [name if name.startswith(("pyg:", "ogb:")) else inputs / name for name in given]
        args = [argument.replace("{dir}", str(inputs)) for argument in case.get("args", [])]
        code, summary, told = outcome("import", *named, *args, "--out", out, "--json")
    if "add" in case:
        assert code == 0, told
        args = [argument.replace("{dir}", str(inputs)) for argument in case["add"]]
        code, _, told = outcome("add", out, *args, "--json")
    if "refused" in case:
        assert code == 1, (summary, told)
        for part in case["refused"]:
            assert part.replace("{dir}", str(inputs)) in told
        assert (out / "graph.json").exists() == ("add" in case)
        assert bool(without_result(told, outcome)) == ("mend" in case)
        return
    assert code == 0, told
    for part in case.get("notes", []):
        assert part in told
    for part in case.get("unsaid", []):
        assert part not in told
    for member, value in case.get("summary", {}).items():
        assert json.loads(summary)[member] == value
    graph = oc.open(out)
    for member, found in (("edges", edges_by_id), ("arcs", arcs)):
        if member in case:
            assert found(graph) == case[member]
    if "nodes" in case:
        assert graph.num_nodes == case["nodes"]
    if "first_id" in case:
        assert graph.first_id == case["first_id"]
    if "names" in case:
        assert graph.entity_names() == case["names"]
    if "types" in case:
        assert graph.node_types == case["types"]
    for name, edges in case.get("typed_edges", {}).items():
        assert [[*ends] for _, *ends in edges_by_type(graph)[name]] == edges
    for node_type, keys in case.get("keys", {}).items():
        assert graph.keys_of(node_type).names() == keys
    for key, values in case.get("arrays", {}).items():
        assert without_nan(np.asarray(graph.array(key)).tolist()) == values
    if "times" in case:
        assert graph.manifest["roles"]["times"] == case["times"]
    for part, expected in case.get("triples", {}).items():
        assert triples(graph, part) == expected
    if "triple_weights" in case:
        assert np.asarray(graph.array("triples/train.weight")).tolist() == case["triple_weights"]
    for member, key in _ARRAYS.items():
        if member in case:
            assert without_nan(np.asarray(graph.array(key)).tolist()) == case[member]
        else:
            assert key not in graph.arrays
    for key, dtype in case.get("dtypes", {}).items():
        assert graph.arrays[key]["dtype"] == dtype
    of_graphs = case.get("graph_arrays", {})
    for name, ids in case.get("graph_splits", {}).items():
        of_graphs = {**of_graphs, f"splits/{name}": ids}
    found = {key.removeprefix("graphs/") for key in graph.arrays if key.startswith("graphs/")}
    assert found - {"first"} == set(of_graphs)
    for name, values in of_graphs.items():
        assert without_nan(np.asarray(graph.array(f"graphs/{name}")).tolist()) == values
    kept = {key.removeprefix("splits/") for key in graph.arrays if key.startswith("splits/")}
    assert kept == set(case.get("splits", {}))
    for name, ids in case.get("splits", {}).items():
        assert np.asarray(graph.split(name)).tolist() == ids


def without_nan(values: Any) -> Any:
    """Nested lists with `None` for NaN, which JSON does not have."""
    if isinstance(values, list):
        return [without_nan(value) for value in values]
    return None if values != values else values


def taken_from_pyg(case: Case, out: Path) -> tuple[int, str, str]:
    """What `from_pyg` makes of an object, as the command line would say it."""
    torch = pytest.importorskip("torch")
    data_module = pytest.importorskip("torch_geometric.data")

    def tensor(array: Any) -> Any:
        is_array = isinstance(array, dict) and "values" in array
        if is_array and array.get("dtype", "").startswith("float8"):
            # NumPy has no such type.
            return torch.tensor(array["values"]).to(getattr(torch, array["dtype"]))
        return torch.from_numpy(array_of(array)) if is_array else array

    attributes = {name: tensor(array) for name, array in case["pyg"].items()}
    more = {key: value for key, value in case.get("call", {}).items() if key != "splits"}
    if "splits" in case.get("call", {}):
        more["splits"] = {name: array_of(one) for name, one in case["call"]["splits"].items()}
    try:
        kind = getattr(data_module, case.get("class", "Data"))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            oc.from_pyg(kind(**attributes), out, **more)
    except OutercoreError as error:
        return 1, "", str(error)
    return 0, "{}", "\n".join(str(warning.message) for warning in told)


def rows_of(guide: str) -> dict[str, str]:
    """The first and the last cell of the tables that say what is refused."""
    found, is_such = {}, False
    for line in (GUIDES / guide).read_text("utf-8").splitlines():
        if not line.startswith("|"):
            is_such = False
            continue
        cells = [cell.strip() for cell in line.replace("\\|", "/").strip("|").split("|")]
        if cells[-1] == "what is refused":
            is_such = True
        elif is_such and not cells[0].startswith("---"):
            found[cells[0].partition(" (")[0].replace("`", "")] = cells[-1]
    return found


@pytest.mark.parametrize("guide", ["import.md", "knowledge-graphs.md"])
def test_every_row_of_a_table_has_cases_and_every_case_has_a_row(guide: str) -> None:
    is_triples = guide == "knowledge-graphs.md"
    listed = [case for name, case in ALL if (name == "triples") == is_triples]
    taken = {case["row"] for case in listed if "refused" not in case}
    refused = {case["row"] for case in listed if "refused" in case}
    rows = rows_of(guide)
    assert rows
    # Nothing is taken of the last row of the inputs.
    assert {row for row in rows if row != "files of other tools"} == taken
    assert {row for row, what in rows.items() if what} == refused


def test_the_name_of_a_case_is_its_own() -> None:
    for name in LISTS:
        names = [case["name"] for case in cases(name)]
        assert len(names) == len(set(names)), name
