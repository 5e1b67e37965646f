"""Frames, NetworkX, SciPy and DGL graphs as data sets, with the ids and columns of their owner."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

import outercore as oc
from outercore import _core
from outercore.errors import InvalidError, NotFoundError
from test_import_cases import edges_by_id
from typed_files import edges_by_type


def by_name(graph: oc.Graph, key: str) -> dict[str, Any]:
    return dict(zip(graph.entity_names(), graph.array(key).tolist(), strict=True))


def test_a_frame_with_names_comes_with_its_nodes(tmp_path: Path) -> None:
    edges = pd.DataFrame(
        {"w": [1.5, 2, 3], "src": ["ann", "bob", "di"], "dst": ["bob", "cy", "ann"]}
    )
    nodes = pd.DataFrame(
        {
            "id": ["cy", "ann", "bob", "eve", "di"],
            "age": [30, 40, 50, 60, 70],
            "team": [1, 0, 1, 0, None],
            "city": ["Bonn", "Rom", None, "Köln", "Ulm"],
            "seen": [True, False, True, False, False],
        }
    )
    graph = oc.from_pandas(
        edges,
        tmp_path / "g",
        nodes=nodes,
        features=["age"],
        labels="team",
        splits={"train": ["eve", "ann"], "val": "seen"},
    )
    named = [graph.entity_names(edge) for edge in edges_by_id(graph)]
    assert named == [["ann", "bob"], ["bob", "cy"], ["di", "ann"]]
    assert graph.array("edges/edge/w").tolist() == [1.5, 2, 3]
    ages = {"cy": [30.0], "di": [70.0], "ann": [40.0], "bob": [50.0], "eve": [60.0]}
    assert by_name(graph, "x") == ages
    assert [*ages] == graph.entity_names()
    assert by_name(graph, "y") == {"cy": 1, "ann": 0, "bob": 1, "eve": 0, "di": -1}
    assert by_name(graph, "city")["eve"] == "Köln"
    assert by_name(graph, "city")["bob"] == ""
    assert graph.entity_names(graph.split("train")) == ["eve", "ann"]
    assert set(graph.entity_names(graph.split("valid"))) == {"cy", "bob"}
    assert _core.check(tmp_path / "g", lambda *_: None)["problems"] == []


def test_numbers_without_gaps_stay_and_others_become_names(tmp_path: Path) -> None:
    dense = pd.DataFrame({"a": [0, 1, 2], "b": [1, 2, 0]})
    graph = oc.from_pandas(dense, tmp_path / "dense")
    assert edges_by_id(graph) == [[0, 1], [1, 2], [2, 0]]
    assert "names/entity.bytes" not in graph.arrays
    sparse = pd.DataFrame({"a": [7, 10**12], "b": [10**12, 100]})
    graph = oc.from_pandas(sparse, tmp_path / "sparse")
    assert graph.entity_names() == ["7", "100", "1000000000000"]
    assert edges_by_id(graph) == [[0, 2], [2, 1]]


def test_a_networkx_graph_has_the_degrees_that_it_had(tmp_path: Path) -> None:
    club = nx.karate_club_graph()
    nx.set_node_attributes(club, {node: node % 2 for node in club}, "label")
    club.nodes[3]["pos"] = object()
    with pytest.warns(UserWarning, match="`pos`"):
        graph = oc.from_networkx(club, tmp_path / "club", labels="label")
    degrees = oc.degrees(graph)
    assert degrees.tolist() == [club.degree(node) for node in range(34)]
    assert graph.array("club")[0] == "Mr. Hi"
    assert graph.array("y").tolist() == [node % 2 for node in range(34)]
    weights = {frozenset(edge): club.edges[edge]["weight"] for edge in club.edges}
    stored = zip(edges_by_id(graph), graph.array("edges/edge/weight").tolist(), strict=False)
    assert {frozenset(edge): weight for edge, weight in stored} == weights


def test_pagerank_of_a_named_directed_graph_is_that_of_networkx(tmp_path: Path) -> None:
    pairs = [("ann", "bob"), ("bob", "cy"), ("cy", "ann"), ("di", "cy"), ("ann", "cy")]
    graph = oc.from_networkx(nx.DiGraph(pairs), tmp_path / "g")
    ranks = oc.pagerank(graph, tolerance=1e-12, max_iterations=500)
    expected = nx.pagerank(nx.DiGraph(pairs), tol=1e-12, max_iter=500)
    assert dict(zip(graph.entity_names(), ranks, strict=True)) == pytest.approx(expected, abs=1e-8)


def test_a_sparse_matrix_keeps_its_values(tmp_path: Path) -> None:
    matrix = scipy.sparse.random_array((20, 20), density=0.2, rng=np.random.default_rng(1))
    x, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 3
    graph = oc.from_scipy(
        matrix.tocsr(), tmp_path / "g", features=x, labels=y, splits={"train": [3, 1]}
    )
    ends = np.array(edges_by_id(graph)).T
    weights = graph.array("weight")
    again = scipy.sparse.coo_array((weights, (ends[0], ends[1])), (20, 20))
    assert (again.toarray() == matrix.toarray()).all()
    assert (graph.array("x") == x).all()
    assert graph.split("train").tolist() == [3, 1]
    with pytest.raises(InvalidError, match="2 x 3, expected a square one"):
        oc.from_scipy(scipy.sparse.csr_array(np.ones((2, 3))), tmp_path / "no")


def dgl_graph() -> Any:
    """What `from_dgl` asks of a DGLGraph: DGL itself has no wheels for this PyTorch."""
    return SimpleNamespace(
        is_homogeneous=True,
        edges=lambda order: (torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])),
        num_nodes=lambda: 4,
        ndata={
            "feat": torch.eye(4),
            "label": torch.tensor([0, 1, 0, 1]),
            "train_mask": torch.tensor([True, False, False, True]),
            "year": torch.tensor([1, 2, 3, 4]),
        },
        edata={"w": torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16, requires_grad=True)},
    )


def test_a_graph_of_dgl_keeps_ids_and_data(tmp_path: Path) -> None:
    graph = oc.from_dgl(dgl_graph(), tmp_path / "g")
    assert edges_by_id(graph) == [[0, 1], [1, 2], [2, 0]]
    assert graph.num_nodes == 4
    assert (graph.array("x") == np.eye(4)).all()
    assert graph.array("y").tolist() == [0, 1, 0, 1]
    assert graph.split("train").tolist() == [0, 3]
    assert graph.array("year").tolist() == [1, 2, 3, 4]
    assert graph.array("edges/edge/w").tolist() == [1, 2, 3]


WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")


class TypedEdges:
    """The edges of a DGLGraph: called, the ends of a type; by `[]`, its data."""

    def __call__(self, *, etype: Any, order: str) -> Any:
        assert order == "eid"
        ends = {WRITES: ([2, 0, 2], [1, 1, 0]), CITES: ([1], [0])}[etype]
        return tuple(torch.tensor(end) for end in ends)

    def __getitem__(self, etype: Any) -> Any:
        if etype != WRITES:
            return SimpleNamespace(data={})
        learnt = torch.tensor([0.5, 1, 2], dtype=torch.bfloat16, requires_grad=True)
        return SimpleNamespace(data={"place": torch.tensor([1, 2, 3]), "learnt": learnt})


def typed_dgl(**more: Any) -> Any:
    """What `from_dgl` asks of a DGLGraph of several types, with more data of authors."""
    paper = {
        "feat": torch.eye(2),
        "label": torch.tensor([1, 0]),
        "val_mask": torch.tensor([False, True]),
    }
    data = {"author": {"age": torch.tensor([7, 8, 9]), **more}, "paper": paper}
    return SimpleNamespace(
        is_homogeneous=False,
        ntypes=["author", "paper"],
        canonical_etypes=[CITES, WRITES],
        nodes={name: SimpleNamespace(data=values) for name, values in data.items()},
        edges=TypedEdges(),
        num_nodes={"author": 3, "paper": 2}.get,
    )


def test_a_graph_of_dgl_with_several_types_keeps_ids_and_data(tmp_path: Path) -> None:
    graph = oc.from_dgl(typed_dgl(), tmp_path / "g")
    assert edges_by_type(graph) == {
        "author__writes__paper": [(0, 2, 1), (1, 0, 1), (2, 2, 0)],
        "paper__cites__paper": [(0, 1, 0)],
    }
    assert graph.array("nodes/author/age").tolist() == [7, 8, 9]
    assert graph.array("nodes/paper/x").tolist() == [[1, 0], [0, 1]]
    assert graph.array("nodes/paper/y").tolist() == [1, 0]
    assert graph.split("valid").tolist() == [1]
    assert graph.array("edges/author__writes__paper/place").tolist() == [1, 2, 3]
    assert graph.array("edges/author__writes__paper/learnt").tolist() == [0.5, 1, 2]


def test_data_of_dgl_that_batches_have_themselves_are_left_out(tmp_path: Path) -> None:
    taken = {name: torch.tensor([1, 2, 3]) for name in ("x", "batch", "num_nodes")}
    with pytest.warns(UserWarning, match=r"`author\.x`, `author\.batch`, `author\.num_nodes`"):
        graph = oc.from_dgl(typed_dgl(**taken), tmp_path / "g")
    assert graph.node_types == {"author": 3, "paper": 2}
    assert "nodes/author/x" not in graph.arrays
    assert graph.array("nodes/author/age").tolist() == [7, 8, 9]


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    edges = pd.DataFrame({"a": ["x", "y"], "b": ["y", "z"]})
    out = tmp_path / "no"

    def nodes(**columns: Any) -> pd.DataFrame:
        return pd.DataFrame(columns)

    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"nodes": nodes(id=["x", "x"])}, InvalidError, "node `x` has several rows"),
        ({"nodes": nodes(id=["x", "y"], n=[1, 2])}, InvalidError, "1 nodes have no row"),
        ({"features": ["n"]}, NotFoundError, "no column `n` of nodes"),
        ({"splits": {"train": ["q"]}}, NotFoundError, "node `q` is not in the graph"),
        ({"ends": ("a", "c")}, InvalidError, "expected two columns"),
        ({"nodes": nodes(id=[1, 2])}, InvalidError, "some ids are numbers and some are texts"),
    ]
    for given, kind, said in cases:
        with pytest.raises(kind, match=said):
            oc.from_pandas(edges, out, **given)
    with pytest.raises(InvalidError, match="row 1 has no id"):
        oc.from_pandas(pd.DataFrame({"a": ["x", None], "b": ["y", "z"]}), out)
    with pytest.raises(InvalidError, match="convert_node_labels_to_integers"):
        oc.from_networkx(nx.grid_2d_graph(2, 2), out)
    assert not out.exists()


def test_nodes_without_edges_are_a_graph(tmp_path: Path) -> None:
    lonely = nx.Graph()
    lonely.add_nodes_from(["ann", "bob"])
    graph = oc.from_networkx(lonely, tmp_path / "g")
    assert (graph.entity_names(), graph.num_edges) == (["ann", "bob"], 0)


def test_options_of_an_import_hold(tmp_path: Path) -> None:
    edges = pd.DataFrame({"a": [0, 1], "b": [1, 0]})
    graph = oc.from_pandas(edges, tmp_path / "g", options=oc.ImportOptions(undirected=True))
    assert graph.num_edges == 4


def test_nodes_without_a_row_have_no_label_and_no_text(tmp_path: Path) -> None:
    edges = pd.DataFrame({"source": ["a", "b"], "target": ["b", "c"]})
    for place, labels in enumerate(([True, False], np.array([4, 0], np.uint8))):
        nodes = pd.DataFrame({"id": ["c", "a"], "team": labels, "city": ["Rom", "Ulm"]})
        graph = oc.from_pandas(edges, tmp_path / str(place), nodes=nodes, labels="team")
        assert by_name(graph, "y") == {"a": int(labels[1]), "b": -1, "c": int(labels[0])}
        assert by_name(graph, "city") == {"a": "Ulm", "b": "", "c": "Rom"}


def test_features_that_float32_does_not_hold_are_told(tmp_path: Path) -> None:
    edges = pd.DataFrame({"source": [0], "target": [1]})
    nodes = pd.DataFrame({"size": [16777217, 1]})
    with pytest.raises(InvalidError, match="16777217"):
        oc.from_pandas(edges, tmp_path / "g", nodes=nodes, features=["size"])


def test_a_name_that_is_no_text_is_told(tmp_path: Path) -> None:
    graph = oc.from_pandas(pd.DataFrame({"source": [0], "target": [1]}), tmp_path / "g")
    with pytest.raises(InvalidError):
        graph.array(5)  # type: ignore[arg-type]


PAIRS = pd.DataFrame({"source": ["ann", "bob"], "target": ["bob", "cy"]})


def test_hints_about_options_work_in_python(tmp_path: Path) -> None:
    place = tmp_path / "g"
    oc.from_pandas(PAIRS, place)
    with pytest.raises(InvalidError, match=r"pass `options=oc\.ImportOptions\(overwrite=True\)`"):
        oc.from_pandas(PAIRS, place)
    with pytest.raises(InvalidError, match=r"`options=oc\.ImportOptions\(undirected=True\)`"):
        oc.from_pandas(PAIRS, place, undirected=True)  # type: ignore[call-arg]
    with pytest.raises(InvalidError, match=r"`options=oc\.ImportOptions\(memory='1GiB'\)`"):
        oc.from_pandas(PAIRS, place, memory="1GiB")  # type: ignore[call-arg]
    with pytest.raises(InvalidError, match="did you mean `features`"):
        oc.from_pandas(PAIRS, place, feature=["x"])  # type: ignore[call-arg]
    with pytest.raises(InvalidError, match=r"expected `oc\.ImportOptions`, found dict"):
        oc.from_pandas(PAIRS, place, options={"overwrite": True})  # type: ignore[arg-type]
    graph = oc.from_pandas(PAIRS, place, options=oc.ImportOptions(overwrite=True, undirected=True))
    assert graph.num_edges == 4


def test_gaps_are_refused_or_kept_as_the_hint_says(tmp_path: Path) -> None:
    for place, ages in enumerate(([30, 40], [30, 40, None])):
        nodes = pd.DataFrame({"id": ["ann", "bob", "cy"][: len(ages)], "age": ages})
        with pytest.raises(InvalidError, match=r"ImportOptions\(allow_nan=True\)") as refused:
            oc.from_pandas(PAIRS, tmp_path / str(place), nodes=nodes, features="age")
        assert "--fill" not in str(refused.value)
        keep = oc.ImportOptions(allow_nan=True)
        graph = oc.from_pandas(
            PAIRS, tmp_path / str(place), nodes=nodes, features="age", options=keep
        )
        assert np.isnan(by_name(graph, "x")["cy"])
    one = nx.Graph(PAIRS.to_numpy().tolist())
    one.nodes["bob"]["height"] = 1.5
    with pytest.raises(InvalidError, match=r"ImportOptions\(allow_nan=True\)"):
        oc.from_networkx(one, tmp_path / "nx", features=["height"])


def test_words_as_labels_are_classes(tmp_path: Path) -> None:
    club = nx.karate_club_graph()
    del club.nodes[5]["club"]
    graph = oc.from_networkx(club, tmp_path / "g", labels="club")
    classes = {"Mr. Hi": 0, "Officer": 1}
    expected = [classes.get(club.nodes[node].get("club"), -1) for node in range(34)]
    assert graph.array("y").tolist() == expected
    assert {"names/class.bytes", "names/class.offsets"} <= {*graph.arrays}
    teams = pd.DataFrame({"id": ["cy", "ann"], "team": ["red", "blue"]})
    graph = oc.from_pandas(PAIRS, tmp_path / "teams", nodes=teams, labels="team")
    assert by_name(graph, "y") == {"ann": 0, "bob": -1, "cy": 1}


def test_what_is_not_taken_is_told_with_its_reason(tmp_path: Path) -> None:
    edges = PAIRS.assign(note=["x", "y"], thing=[object(), object()])
    with pytest.warns(UserWarning, match="not taken") as told:
        oc.from_pandas(edges, tmp_path / "g")
    said = str(told[0].message)
    assert "`note` (texts of edges are not kept), `thing` (neither numbers nor texts)" in said
    assert told[0].filename == __file__


def test_ids_in_a_column_of_another_name_are_told(tmp_path: Path) -> None:
    nodes = pd.DataFrame({"age": [1, 2, 3], "name": ["ann", "bob", "cy"]})
    with pytest.raises(InvalidError, match=r"no column `id`.*`nodes=nodes.set_index\('name'\)`"):
        oc.from_pandas(PAIRS, tmp_path / "g", nodes=nodes)
    graph = oc.from_pandas(PAIRS, tmp_path / "g", nodes=nodes.set_index("name"), features="age")
    assert by_name(graph, "x") == {"ann": [1.0], "bob": [2.0], "cy": [3.0]}


def test_objects_of_another_kind_are_told(tmp_path: Path) -> None:
    cases: list[tuple[Any, Any, str]] = [
        (oc.from_pandas, {"a": [0]}, "edges: expected a frame of pandas, found dict"),
        (oc.from_networkx, [(0, 1)], "expected a graph of NetworkX, found list"),
        (oc.from_scipy, np.eye(2), "expected a sparse matrix of SciPy, found ndarray"),
        (oc.from_dgl, 3, "expected a graph of DGL, found int"),
        (oc.from_pyg, 3, "expected `edge_index`, found none"),
    ]
    for function, given, said in cases:
        with pytest.raises(InvalidError, match=said):
            function(given, tmp_path / "g")
    with pytest.raises(InvalidError, match="nodes: expected a frame of pandas, found list"):
        oc.from_pandas(PAIRS, tmp_path / "g", nodes=[1])


def test_values_in_place_of_names_of_columns_are_told(tmp_path: Path) -> None:
    nodes = pd.DataFrame({"id": ["ann", "bob", "cy"], "age": [1, 2, 3]})
    for given in ({"labels": np.array([0, 1, 0])}, {"features": np.eye(3)}):
        with pytest.raises(InvalidError, match=r"expected names of columns of nodes"):
            oc.from_pandas(PAIRS, tmp_path / "g", nodes=nodes, **given)


def path_with(of: str, values: dict[int, Any], multi: bool = False) -> nx.Graph:
    """Nodes 0 to 3 in a row, with the attribute `age` at some nodes or edges."""
    graph = nx.path_graph(4, create_using=nx.MultiGraph if multi else nx.Graph)
    ends = [*getattr(graph, of)]
    for place, value in values.items():
        getattr(graph, of)[ends[place]]["age"] = value
    return graph


@pytest.mark.parametrize("of", ["nodes", "edges"])
def test_fractions_that_some_nodes_or_edges_lack_are_nan_with_a_note(
    tmp_path: Path, of: str
) -> None:
    for number, values in enumerate(
        ({0: 3.5, 1: 2}, {0: np.float32(1.5), 1: None}, {0: float("nan"), 2: 1.5})
    ):
        given = path_with(of, values)
        lacking = sum(values.get(place) is None for place in range(len(getattr(given, of))))
        with pytest.warns(UserWarning, match=f"`age`: {lacking} of . {of} have none, which is NaN"):
            graph = oc.from_networkx(given, tmp_path / str(number))
        found = graph.array(f"{of}/{of.removesuffix('s')}/age")
        expected = [np.nan if values.get(place) is None else values[place] for place in range(3)]
        np.testing.assert_array_equal(found[:3], expected)


@pytest.mark.parametrize(
    ("of", "multi"), [("nodes", False), ("edges", False), ("nodes", True), ("edges", True)]
)
def test_whole_numbers_that_some_lack_are_refused_with_a_call_that_works(
    tmp_path: Path, of: str, multi: bool
) -> None:
    graph = path_with(of, {0: 3, 1: None}, multi)
    with pytest.raises(InvalidError, match=f"`age`: . of . {of} have none") as refused:
        oc.from_networkx(graph, tmp_path / "g")
    assert "pandas" not in str(refused.value)
    exec(str(refused.value).split("hint: `")[1].split("`")[0], {"networkx": nx, "graph": graph})
    stored = oc.from_networkx(graph, tmp_path / "g").array(f"{of}/{of.removesuffix('s')}/age")
    assert sorted(stored.tolist())[-2:] == [0, 3]


def test_gaps_that_have_a_meaning_are_no_gaps(tmp_path: Path) -> None:
    graph = nx.path_graph(3)
    graph.nodes[0]["kind"], graph.edges[0, 1]["weight"] = 1, 5
    stored = oc.from_networkx(graph, tmp_path / "g", labels="kind")
    assert stored.array("y").tolist() == [1, -1, -1]
    assert sorted(stored.array("edges/edge/weight").tolist()) == [1, 5]
    with pytest.raises(InvalidError, match="2 of 3 nodes have none, expected a value for each"):
        oc.from_networkx(
            path_with("nodes", {0: 1.5}).subgraph([0, 1, 2]), tmp_path / "x", features="age"
        )
    kept = oc.from_networkx(
        path_with("nodes", {0: 3}), tmp_path / "kept", options=oc.ImportOptions(allow_nan=True)
    )
    np.testing.assert_array_equal(kept.array("nodes/node/age"), [3, np.nan, np.nan, np.nan])


@pytest.mark.parametrize("large", [2**63, 2**64, 2**70, -(2**64)])
def test_ids_beyond_64_bits_are_refused_with_a_call_that_works(tmp_path: Path, large: int) -> None:
    graph = nx.DiGraph([(large, 1), (1, 2)])
    with pytest.raises(InvalidError, match=f"source ids: {large} does not fit into 64") as refused:
        oc.from_networkx(graph, tmp_path / "g")
    call = str(refused.value).split("`")[1]
    known = {"networkx": nx, "graph": graph}
    exec(call, known)
    assert oc.from_networkx(known["graph"], tmp_path / "g").num_nodes == 3
    edges = pd.DataFrame({"source": [large, 1], "target": [1, 2]}, dtype=object)
    with pytest.raises(InvalidError, match=f"{large} does not fit into 64 bits"):
        oc.from_pandas(edges, tmp_path / "p")


def test_hints_are_in_words_of_the_library_that_is_used(tmp_path: Path) -> None:
    x = np.array([[1.0], [np.nan], [2.0]])
    ends = [(0, 1), (1, 2)]
    ring = scipy.sparse.coo_array((np.ones(2), tuple(zip(*ends, strict=True))), (3, 3))
    graph = nx.Graph(ends)
    nx.set_node_attributes(graph, dict(enumerate(x[:, 0])), "age")
    frame = pd.DataFrame(ends, columns=["source", "target"])
    nodes = pd.DataFrame({"id": [0, 1, 2], "age": x[:, 0]})
    data = SimpleNamespace(
        **{**dgl_graph().__dict__, "ndata": {"feat": torch.tensor([[np.nan]] * 4)}}
    )
    libraries = ("pandas", "networkx", "numpy", "torch")
    for function, own, call in (
        (oc.from_networkx, "networkx", lambda out: oc.from_networkx(graph, out)),
        (oc.from_pandas, "nodes[", lambda out: oc.from_pandas(frame, out, nodes=nodes)),
        (oc.from_scipy, "numpy", lambda out: oc.from_scipy(ring, out, features=x)),
        (oc.from_dgl, "torch", lambda out: oc.from_dgl(data, out)),
    ):
        with pytest.raises(InvalidError, match="NaN") as refused:
            call(tmp_path / function.__name__)
        hint = str(refused.value).split("hint: ")[1]
        assert own in hint
        assert not [one for one in libraries if one != own and one in hint]
    for labels, hint in (("ab1", "relabel_nodes"), ([(1, 2), (3, 4)], "convert_node_labels")):
        graph = nx.path_graph(0)
        graph.add_edges_from([(labels[0], labels[1]), (labels[-1] if hint[0] == "c" else 1, 2)])
        with pytest.raises(InvalidError) as refused:
            oc.from_networkx(graph, tmp_path / "n")
        assert "pandas" not in str(refused.value)
