"""Directories of GraphBolt, IGBH and MAG240M: every value arrives as a plain reading has it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc
from outercore.importing.table.rows import from_array
from outercore.importing.table.torch_file import read_torch
from typed_files import edges_by_type

Run = Any
COUNTS = {"author": 30, "institution": 4, "paper": 50}
EDGES = {
    ("author", "affiliated_with", "institution"): 40,
    ("author", "writes", "paper"): 90,
    ("paper", "cites", "paper"): 120,
}


def drawn() -> dict[tuple[str, str, str], np.ndarray]:
    """[2, edges] of each edge type."""
    random = np.random.default_rng(7)
    return {
        one: np.stack([random.integers(COUNTS[end], size=count) for end in (one[0], one[2])])
        for one, count in EDGES.items()
    }


def import_folder(outcome: Run, folder: object, *more: str) -> oc.Graph:
    code, _, told = outcome("import", folder, *more, "--out", "graph", "--overwrite")
    assert code == 0, told
    assert outcome("check", "graph")[0] == 0
    return oc.open("graph")


def assert_edges(graph: oc.Graph, edges: dict[tuple[str, str, str], np.ndarray]) -> None:
    expected = {
        "__".join(one): [(row, *ends) for row, ends in enumerate(both.T.tolist())]
        for one, both in edges.items()
    }
    assert edges_by_type(graph) == expected


def save(path: Path, values: Any, dtype: str | None = None) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    found = np.asarray(values, dtype)
    np.save(path, found)
    return found


def mag(root: Path) -> dict[str, np.ndarray]:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(1)
    paper = root / "processed" / "paper"
    labels = random.integers(5, size=50).astype(np.float32)
    labels[40:] = np.nan
    found = {
        "feat": save(paper / "node_feat.npy", random.normal(size=(50, 8)), "float16"),
        "label": save(paper / "node_label.npy", labels),
        "year": save(paper / "node_year.npy", random.integers(2000, 2021, size=50), "int16"),
    }
    for one, both in drawn().items():
        save(root / "processed" / "___".join(one) / "edge_index.npy", both)
    torch.save({**COUNTS, "num_classes": 5}, root / "meta.pt")
    splits = {
        "train": np.arange(0, 20),
        "valid": np.arange(20, 30, dtype=np.int32),
        "test-dev": np.array([45, 41]),
        "test": torch.arange(30, 40),
    }
    torch.save(splits, root / "split_dict.pt")
    return found


def test_mag240m_arrives(tmp_path: Path, outcome: Run) -> None:
    expected = mag(tmp_path / "mag")
    graph = import_folder(outcome, "mag")
    assert graph.node_types == COUNTS
    assert_edges(graph, drawn())
    x = graph.array("nodes/paper/x")
    assert x.dtype == np.float16
    np.testing.assert_array_equal(x, expected["feat"])
    np.testing.assert_array_equal(graph.array("nodes/paper/year"), expected["year"])
    y = np.asarray(graph.array("nodes/paper/y"))
    np.testing.assert_array_equal(y[:40], expected["label"][:40])
    assert (y[40:] == -1).all()
    assert graph.split("train").tolist() == list(range(20))
    assert graph.split("valid").tolist() == list(range(20, 30))
    assert graph.split("test").tolist() == list(range(30, 40))
    assert graph.split("test-dev").tolist() == [45, 41]
    # What stands for missing features is no label.
    reverse = import_folder(outcome, "mag", "--add-reverse", "--fill", "0")
    np.testing.assert_array_equal(reverse.array("nodes/paper/y"), y)
    both = drawn()
    for (source, relation, target), ends in drawn().items():
        both[target, f"rev_{relation}", source] = ends[::-1]
    assert_edges(reverse, dict(sorted(both.items(), key=lambda one: "__".join(one[0]))))


def test_features_of_a_type_stay_in_place(tmp_path: Path, outcome: Run) -> None:
    expected = mag(tmp_path / "mag")
    graph = import_folder(outcome, "mag", "--in-place")
    assert not list(Path("graph").rglob("nodes/paper/x*"))
    loader = oc.NeighborLoader(graph, [3], "train", batch_size=7, memory="64MiB")
    for batch in loader:
        papers = batch["paper"]
        np.testing.assert_array_equal(papers.x.numpy(), expected["feat"][papers.n_id])


@pytest.mark.parametrize("has_header", [True, False])
def test_igbh_arrives(tmp_path: Path, outcome: Run, has_header: bool) -> None:
    random = np.random.default_rng(2)
    root = tmp_path / "igb"
    expected = {}
    for name, count in COUNTS.items():
        path = root / "processed" / name / "node_feat.npy"
        expected[name] = save(path, random.normal(size=(count, 1024)), "float32")
        if not has_header:
            expected[name].tofile(path)
    labels = save(root / "processed/paper/node_label_19.npy", np.arange(50) % 19, "float32")
    more = save(root / "processed/paper/node_label_2K.npy", np.arange(50) % 29, "float32")
    # The first ten have none.
    more[:10] = np.nan
    for name, kept in (("19", labels), ("2K", more)):
        path = root / f"processed/paper/node_label_{name}.npy"
        np.save(path, kept) if has_header else kept.tofile(path)
    for one, both in drawn().items():
        save(root / "processed" / "__".join(one) / "edge_index.npy", both.T)
    graph = import_folder(outcome, "igb")
    assert graph.node_types == COUNTS
    assert_edges(graph, drawn())
    for name, values in expected.items():
        np.testing.assert_array_equal(graph.array(f"nodes/{name}/x"), values)
    np.testing.assert_array_equal(graph.array("nodes/paper/y"), labels)
    splits = [graph.split(name).tolist() for name in ("train", "valid", "test")]
    assert splits == [list(range(30)), list(range(30, 40)), list(range(40, 50))]
    chosen = "paper=igb/processed/paper/node_label_2K.npy"
    other = import_folder(outcome, "igb", "--label", chosen, "--fill", "0")
    np.testing.assert_array_equal(other.array("nodes/paper/y"), np.where(more >= 0, more, -1))
    splits = [other.split(name).tolist() for name in ("train", "valid", "test")]
    assert splits == [list(range(10, 34)), list(range(34, 42)), list(range(42, 50))]


GRAPHBOLT = """
dataset_name: bib
graph:
  nodes:
    - {type: author, num: 30}
    - {type: institution, num: 4}
    - {type: paper, num: 50}
  edges:
    - {type: "author:affiliated_with:institution", format: csv, path: edges/affiliated.csv}
    - {type: "author:writes:paper", format: numpy, path: edges/writes.npy}
    - {type: "paper:cites:paper", format: numpy, path: edges/cites.npy}
feature_data:
  - {domain: node, type: paper, name: feat, format: numpy, in_memory: false, path: feat.npy}
  - {domain: node, type: paper, name: year, format: numpy, path: year.npy}
  - {domain: node, type: author, name: age, format: torch, path: age.pt}
  - {domain: edge, type: "paper:cites:paper", name: feat, format: numpy, path: cites-feat.npy}
tasks:
  - name: link_prediction
    train_set:
      - type: "author:writes:paper"
        data: [{name: seeds, format: numpy, path: pairs.npy}]
  - name: node_classification
    num_classes: 3
    train_set:
      - type: paper
        data:
          - {name: seeds, format: numpy, path: train.npy}
          - {name: labels, format: torch, path: train-labels.pt}
    validation_set:
      - type: paper
        data:
          - {name: seeds, format: numpy, path: valid.npy}
          - {name: labels, format: numpy, path: valid-labels.npy}
    test_set:
      - type: paper
        data: [{name: seeds, format: numpy, path: test.npy}]
"""


def graphbolt(root: Path, description: str = GRAPHBOLT) -> dict[str, np.ndarray]:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(3)
    root.mkdir(exist_ok=True)
    (root / "metadata.yaml").write_text(description)
    edges = {relation: both for (_, relation, _), both in drawn().items()}
    (root / "edges").mkdir(exist_ok=True)
    rows = [f"{source},{target}\n" for source, target in edges["affiliated_with"].T]
    (root / "edges/affiliated.csv").write_text("".join(rows))
    save(root / "edges/writes.npy", edges["writes"], "int32")
    save(root / "edges/cites.npy", edges["cites"])
    ages = torch.from_numpy(random.normal(size=(2, 30)).astype(np.float32)).T
    torch.save(ages, root / "age.pt")
    train, valid = np.array([3, 1, 40]), np.array([2, 49])
    labels = torch.tensor([2, 0, 1])
    torch.save(labels, root / "train-labels.pt")
    save(root / "pairs.npy", [[0, 1], [2, 3]])
    return {
        "feat": save(root / "feat.npy", random.normal(size=(50, 6)), "float32"),
        "year": save(root / "year.npy", random.integers(2000, 2021, size=50)),
        "cites": save(root / "cites-feat.npy", random.normal(size=(120, 2)), "float32"),
        "age": ages.numpy(),
        "train": save(root / "train.npy", train),
        "valid": save(root / "valid.npy", valid, "int32"),
        "test": save(root / "test.npy", [7, 8]),
        "labels": save(root / "valid-labels.npy", [1, 2]),
    }


def test_graphbolt_arrives(tmp_path: Path, outcome: Run) -> None:
    expected = graphbolt(tmp_path / "bib")
    graph = import_folder(outcome, "bib")
    assert graph.node_types == COUNTS
    assert_edges(graph, drawn())
    for key, name in (
        ("nodes/paper/x", "feat"),
        ("nodes/paper/year", "year"),
        ("nodes/author/x", "age"),
        ("edges/paper__cites__paper/attr", "cites"),
    ):
        np.testing.assert_array_equal(graph.array(key), expected[name], key)
    y = np.full(50, -1)
    y[[3, 1, 40, 2, 49]] = [2, 0, 1, 1, 2]
    assert graph.array("nodes/paper/y").tolist() == y.tolist()
    for name in ("train", "valid", "test"):
        assert graph.split(name).tolist() == expected[name].tolist()


UNTYPED = """
graph:
  nodes: [{num: 20}]
  edges: [{format: numpy, path: edges.npy}]
feature_data:
  - {domain: node, type: null, name: feat, format: numpy, path: feat.npy}
  - {domain: node, type: null, name: label, format: numpy, path: label.npy}
  - {domain: edge, type: null, name: w, format: numpy, path: w.npy}
tasks:
  - train_set: [{data: [{name: seeds, format: numpy, path: train.npy}]}]
"""


def test_graphbolt_without_types_is_a_graph_of_one(tmp_path: Path, outcome: Run) -> None:
    root = tmp_path / "one"
    random = np.random.default_rng(4)
    edges = save(root / "edges.npy", random.integers(20, size=(2, 60)))
    feat = save(root / "feat.npy", random.normal(size=(20, 3)), "float32")
    weight = save(root / "w.npy", random.random(60))
    label = save(root / "label.npy", np.arange(20) % 4)
    train = save(root / "train.npy", [5, 2])
    (root / "metadata.yaml").write_text(UNTYPED)
    weight[7], feat[3, 1] = np.nan, np.nan
    np.save(root / "w.npy", weight)
    np.save(root / "feat.npy", feat)
    graph = import_folder(outcome, "one", "--fill", "2")
    weight[7], feat[3, 1] = 2, 2
    assert graph.num_nodes == 20
    offsets, sources = (np.asarray(graph.array(f"edges/edge/{n}")) for n in ("offsets", "sources"))
    targets = np.repeat(np.arange(20), np.diff(offsets.astype(np.int64)))
    found = sorted(zip(sources.tolist(), targets.tolist(), strict=True))
    assert found == sorted(map(tuple, edges.T.tolist()))
    np.testing.assert_array_equal(graph.array("nodes/node/x"), feat)
    np.testing.assert_array_equal(graph.array("nodes/node/y"), label)
    np.testing.assert_array_equal(graph.array("edges/edge/w"), weight)
    assert graph.split("train").tolist() == train.tolist()
    wrong = UNTYPED.replace("domain: edge, type: null", "domain: edge, type: 'a:b:c'")
    (root / "metadata.yaml").write_text(wrong)
    code, _, told = outcome("import", "one", "--out", "graph", "--overwrite")
    assert code == 1
    assert "features `w`: there is no edge type `a:b:c`" in told


def test_graphbolt_loses_no_feature_and_no_column_without_a_word(
    tmp_path: Path, outcome: Run
) -> None:
    root = tmp_path / "bib"
    of_graph = """  feature_data:
    - {domain: node, type: author, name: born, format: numpy, path: born.npy}
    - {domain: edge, type: "author:writes:paper", name: weight, format: numpy, path: w.npy}
    - {domain: node, type: paper, name: year, format: numpy, path: year.npy}
feature_data:
  - {domain: node, type: paper, name: label, format: numpy, path: all-labels.npy}
  - {domain: node, type: institution, name: labels, format: numpy, path: kinds.npy}
"""
    description = GRAPHBOLT.replace("feature_data:\n", of_graph, 1).replace(
        "{name: seeds, format: numpy, path: valid.npy}",
        "{name: seeds, format: numpy, path: valid.npy}\n"
        "          - {name: when, format: numpy, path: valid-labels.npy}",
    )
    graphbolt(root, description)
    ages = np.random.default_rng(1).normal(size=(2, 30)).astype(np.float32).T
    ages[4, 1] = np.nan
    import torch

    torch.save(torch.from_numpy(ages), root / "age.pt")
    expected = {
        "nodes/author/born": save(root / "born.npy", np.arange(30) * 7),
        "edges/author__writes__paper/weight": save(root / "w.npy", np.arange(90) / 8),
        "nodes/paper/label": save(root / "all-labels.npy", np.arange(50) % 3),
        "nodes/institution/labels": save(root / "kinds.npy", [3, 1, 2, 0]),
        "nodes/author/x": np.where(np.isnan(ages), np.float32(0.5), ages),
    }
    code, _, told = outcome("import", "bib", "--fill", "0.5", "--out", "graph")
    assert code == 0, told
    assert "task `node_classification`: left out besides seeds and labels: `when`" in told
    graph = oc.open("graph")
    for key, values in expected.items():
        np.testing.assert_array_equal(graph.array(key), values, key)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("num: 30", "num: many", ["`nodes`, entry 0", "number of nodes"]),
        ("type: author, num", "type: paper, num", ["`nodes`, entry 2", "a new type"]),
        (
            'paper:cites:paper", format',
            'paper:cites", format',
            ["`paper:cites`", "source:relation"],
        ),
        (
            "author:writes",
            "autor:writes",
            ["`autor:writes:paper`", "no node type `autor`", "author,"],
        ),
        ("writes.npy", "no.npy", ["`edges`, entry 1", "no.npy` does not exist"]),
        ("edges/writes.npy", "feat.npy", ["feat.npy", "expected whole numbers, found float32"]),
        ("edges/writes.npy", "year.npy", ["year.npy", "expected shape [2,E], found (50,)"]),
        (
            "numpy, path: edges/cites",
            "hdf5, path: edges/cites",
            ["csv or numpy expected", "`hdf5`"],
        ),
        ("path: feat.npy", "path: year.npy", []),
        ("type: author, name", "type: who, name", ["features `age`", "no node type `who`"]),
        ("path: cites-feat.npy", "path: feat.npy", ["50 rows", "120"]),
        ("valid-labels.npy", "year.npy", ["50 labels", "2 seeds"]),
        ("domain: edge", "domain: edges", ["entry 3: domain node, edge or graph", "`edges`"]),
        ("path: test.npy", "path: year.npy", ["split `test`", "the graph has nodes 0 to 49"]),
        ("graph:", "graph_topology:", ["what GraphBolt has processed", "directory above"]),
        ("path: age.pt", "path: feat.npy", ["feat.npy", "expected a file of `torch.save`"]),
        (
            '"paper:cites:paper", name',
            '"paper:cite:paper", name',
            ["`feat`: there is no edge type `paper:cite:paper`", "author:writes:paper"],
        ),
        ("type: paper\n", "type: papers\n", ["`train` set: there is no node type `papers`"]),
        ("name: year, ", "", ["`feature_data`, entry 1: `name`", "expected one value"]),
        ("name: year", "name: feat", ["`feature_data`, entry 1", "second file", "`feat`"]),
        ("name: labels, format: torch", "name: seeds, format: torch", ["two columns `seeds`"]),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, outcome: Run, old: str, new: str, expected: list[str]
) -> None:
    assert old in GRAPHBOLT
    graphbolt(tmp_path / "bib", GRAPHBOLT.replace(old, new, 1))
    code, _, told = outcome("import", "bib", "--out", "graph")
    assert (code == 1) == bool(expected), told
    for part in expected:
        assert part in told, told


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("evil"),)


def test_a_torch_file_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    torch.save({"train": Evil()}, "evil.pt")
    with pytest.raises(oc.InvalidError, match=r"evil.pt`: holds `.*getattr`, which is not read"):
        read_torch(Path("evil.pt"))
    assert not Path("evil").exists()
    torch.save({"objects": np.array([Evil(), None])}, "objects.pt")
    with pytest.raises(oc.InvalidError, match=r"holds `.*getattr`, which is not read"):
        read_torch(Path("objects.pt"))
    assert not Path("evil").exists()


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "b1"])
def test_arrays_and_tensors_of_a_torch_file_are_those_of_torch(tmp_path: Path, kind: str) -> None:
    torch = pytest.importorskip("torch")
    values = (np.arange(24).reshape(4, 6) % 2).astype(kind)
    tensor = torch.from_numpy(values)
    given = {
        "array": values,
        "columns": np.asfortranarray(values),
        "empty": values[:0],
        "tensor": tensor,
        "turned": tensor.T,
        "part": tensor[1:3, ::2],
        "number": values[1, 1],
        "list": [1, 2.5, "a", None, True],
    }
    torch.save(given, tmp_path / "file.pt")
    found = read_torch(tmp_path / "file.pt")
    for name in ("array", "columns", "empty", "tensor", "turned", "part"):
        expected = np.asarray(given[name])
        assert found[name].dtype == expected.dtype
        np.testing.assert_array_equal(found[name], expected, name)
        is_tensor = name in ("tensor", "turned", "part")
        assert isinstance(found[name], np.memmap) == is_tensor, name
    assert found["number"] == values[1, 1]
    assert found["list"] == given["list"]


def test_rows_written_to_a_private_copy_of_a_file_stay(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(10))
    values = np.load(tmp_path / "x.npy", mmap_mode="c")
    values[3] = 7
    for _ in range(2):
        assert np.concatenate([*from_array("x", values).chunks()]).tolist() == values.tolist()
    assert values[3] == 7


def test_a_torch_file_with_packed_or_missing_numbers_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.arange(1000), tmp_path / "file.pt")
    for name, packing, numbers, expected in (
        ("packed.pt", zipfile.ZIP_DEFLATED, slice(None), "a packed tensor"),
        ("short.pt", zipfile.ZIP_STORED, slice(100), "a tensor beyond its numbers"),
    ):
        with (
            zipfile.ZipFile(tmp_path / "file.pt") as old,
            zipfile.ZipFile(tmp_path / name, "w", packing) as new,
        ):
            for one in old.namelist():
                data = old.read(one)
                new.writestr(one, data[numbers] if "/data/" in one else data)
        with pytest.raises(oc.InvalidError, match=f"{name}`: holds {expected}"):
            read_torch(tmp_path / name)


def test_parts_that_are_missing_are_named(tmp_path: Path, outcome: Run) -> None:
    torch = pytest.importorskip("torch")
    mag(tmp_path / "mag")
    splits = tmp_path / "mag/split_dict.pt"
    torch.save({"train": np.array([50])}, splits)
    code, _, told = outcome("import", "mag", "--out", "graph")
    assert code == 1
    assert "split `train`" in told
    assert "the graph has nodes 0 to 49" in told
    splits.unlink()
    torch.save({"author": 30, "paper": 50}, tmp_path / "mag/meta.pt")
    code, _, told = outcome("import", "mag", "--out", "graph")
    assert code == 1
    assert "meta.pt`: no number of nodes of type `institution`" in told
    (tmp_path / "mag/meta.pt").unlink()
    code, _, told = outcome("import", "mag", "--out", "graph")
    assert code == 1
    assert "meta.pt` is not there" in told
