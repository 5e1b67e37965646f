"""PyG's stores over a data set: every type, and edge arrays by the ids of the import."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data.feature_store import TensorAttr
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout
from torch_geometric.data.remote_backend_utils import num_nodes
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, SamplerOutput

import outercore as oc
from multigraph import imported
from typed_fakes import COUNTS, EDGES, WIDTHS, planted_types

WRITES = ("author", "writes", "paper")


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    return oc.open(planted_types(tmp_path_factory.mktemp("stores") / "typed", timed=True))


@pytest.fixture(scope="module", params=[False, True], ids=["directed", "undirected"])
def plain(request, tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    root = tmp_path_factory.mktemp("stores") / "plain"
    graph = imported(root, nodes=60, edges=400, undirected=request.param)
    graph.add_edge_array("weight", np.arange(graph.num_edge_rows) * 0.5)
    return graph


def test_sizes_are_known_by_type(typed: oc.Graph) -> None:
    stores = typed.pyg()
    assert {name: num_nodes(*stores, name) for name in COUNTS} == COUNTS
    sizes = {attr.edge_type: attr.size for attr in stores[1].get_all_edge_attrs()}
    assert sizes == {one: (COUNTS[one[0]], COUNTS[one[2]]) for one in EDGES}


def test_every_edge_type_comes_in_every_layout(typed: oc.Graph) -> None:
    _, store = typed.pyg()
    rows, columns, ids = store.coo()
    sources, offsets, csc_ids = store.csc()
    pointers, targets, csr_ids = store.csr()
    for edge_type, count in EDGES.items():
        links = np.stack([rows[edge_type], columns[edge_type]])
        # Each row of the import has its place, from 0 in each type.
        assert sorted(ids[edge_type].tolist()) == list(range(count))
        by_row = links[:, np.argsort(ids[edge_type].numpy())]
        ends = np.repeat(np.arange(COUNTS[edge_type[2]]), offsets[edge_type].diff())
        found = np.stack([sources[edge_type], ends])
        np.testing.assert_array_equal(found[:, np.argsort(csc_ids[edge_type].numpy())], by_row)
        starts = np.repeat(np.arange(COUNTS[edge_type[0]]), pointers[edge_type].diff())
        found = np.stack([starts, targets[edge_type]])
        np.testing.assert_array_equal(found[:, np.argsort(csr_ids[edge_type].numpy())], by_row)
        loader = oc.LinkNeighborLoader(typed, [1], edge_type, batch_size=1000)
        batch = next(iter(loader))
        index = batch[edge_type].edge_label_index
        links = [batch[edge_type[0]].n_id[index[0]], batch[edge_type[2]].n_id[index[1]]]
        np.testing.assert_array_equal(np.stack(links), by_row)


def test_an_edge_type_is_asked_for_in_csc_and_coo(typed: oc.Graph) -> None:
    _, store = typed.pyg()
    rows, columns = store.get_edge_index(EdgeAttr(WRITES, EdgeLayout.COO))
    sources, offsets = store.get_edge_index(EdgeAttr(WRITES, EdgeLayout.CSC))
    starts, targets = store.get_edge_index(edge_type=WRITES, layout="csr")
    ids, of_rows = store.csc([WRITES])[2][WRITES], store.csr([WRITES])[2][WRITES]
    assert torch.equal(rows[ids], sources)
    assert torch.equal(columns.bincount(minlength=COUNTS["paper"]), offsets.diff())
    assert torch.equal(rows.bincount(minlength=COUNTS["author"]), starts.diff())
    assert torch.equal(columns[of_rows], targets)
    with pytest.raises(KeyError):
        store.get_edge_index(EdgeAttr(("author", "reads", "paper"), EdgeLayout.CSC))


def test_features_and_edge_arrays_come_by_type(typed: oc.Graph) -> None:
    store, _ = typed.pyg()
    listed = {(attr.group_name, attr.attr_name) for attr in store.get_all_tensor_attrs()}
    assert {(name, "x") for name in WIDTHS} <= listed
    index = torch.tensor([4, 2, 4])
    for name in WIDTHS:
        whole = typed.array(f"nodes/{name}/x")
        found = store.get_tensor(group_name=name, attr_name="x", index=index)
        np.testing.assert_array_equal(found, whole[index])
    time = typed.array("edges/author__writes__paper/time")
    found = store.get_tensor(group_name=WRITES, attr_name="time", index=slice(250, None))
    np.testing.assert_array_equal(found, time[250:])
    assert store.get_tensor_size(group_name=WRITES, attr_name="time") == time.shape
    with pytest.raises(oc.NotFoundError, match="nodes/topic/other"):
        store.get_tensor(group_name="topic", attr_name="other")


def test_arrays_are_found_by_index_and_by_view(typed: oc.Graph) -> None:
    store, edges = typed.pyg()
    whole = typed.array("nodes/paper/x")
    np.testing.assert_array_equal(store["paper", "x", None], whole)
    np.testing.assert_array_equal(store["paper", "x"](), whole)
    np.testing.assert_array_equal(store["paper"].x(), whole)
    for view in (store["paper", "x"], store["paper"].x):
        np.testing.assert_array_equal(view, whole)
        assert torch.equal(view, torch.from_numpy(whole))
        assert torch.equal(torch.relu(input=view), torch.from_numpy(whole).relu())
        assert torch.equal(view.double(), torch.from_numpy(whole).double())
        assert view.shape == whole.shape
        assert len(view) == len(whole)
        assert view.dtype == torch.float32
    np.testing.assert_array_equal(store["paper"].x[[3, 1]], whole[[3, 1]])
    np.testing.assert_array_equal(store["paper", "x", 0:20], whole[:20])
    np.testing.assert_array_equal(store["paper", "x", torch.tensor([3, 3])], whole[[3, 3]])
    row, col = edges[WRITES, "coo"]
    assert len(row) == len(col) == EDGES[WRITES]
    with pytest.raises(ValueError, match="not fully specified"):
        store.get_tensor(group_name="paper")


INDICES = [
    [5, 2, 5],
    np.array([3, 1]),
    torch.tensor([4]),
    torch.arange(60) % 7 == 0,
    slice(2, 50, 3),
    slice(None),
    slice(-3, None),
    9,
    np.int64(9),
    [],
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_a_view_reads_the_rows_asked_for_and_no_others(plain: oc.Graph, index, monkeypatch) -> None:
    store, _ = plain.pyg()
    whole = torch.from_numpy(plain.array("x"))
    expected = (
        whole[torch.tensor(index, dtype=torch.int64)] if isinstance(index, list) else whole[index]
    )
    if not isinstance(index, slice) or index != slice(None):
        monkeypatch.setattr(oc.Graph, "array", None)
    by_attr = TensorAttr(attr_name="x", index=index)
    for found in (
        store["x"][index],
        store["x", index],
        store.view("x")[index],
        store.get_tensor("x", index),
        store.get_tensor(attr_name="x", index=index),
        store.get_tensor(by_attr),
        *store.multi_get_tensor([by_attr]),
    ):
        assert torch.equal(found, expected)


def test_without_an_index_a_tensor_is_whole(plain: oc.Graph) -> None:
    store, _ = plain.pyg()
    whole = torch.from_numpy(plain.array("x"))
    for found in (
        store["x"](),
        store["x", None],
        store.get_tensor(attr_name="x"),
        store.get_tensor(TensorAttr(attr_name="x")),
    ):
        assert torch.equal(found, whole)
    assert store.get_tensor_size(attr_name="x") == tuple(whole.shape)


def test_what_is_no_row_is_refused(plain: oc.Graph) -> None:
    store, _ = plain.pyg()
    for index, text in [
        ([3, 60], "no row 60, it has rows 0 to 59"),
        (torch.tensor([-61]), "no row -61"),
        (2.5, "index of type float64"),
        ([[1]], r"index of type int64 and shape \(1, 1\)"),
        (torch.ones(3, dtype=torch.bool), r"mask of shape \(3,\), expected \(60,\)"),
    ]:
        with pytest.raises(oc.InvalidError, match=f"array `nodes/node/x`: {text}"):
            store["x"][index]


def test_a_missing_array_is_a_key_error_too(plain: oc.Graph, typed: oc.Graph) -> None:
    for wrong in (
        lambda: plain.pyg()[0]["nothing"][[1]],
        lambda: plain.pyg()[0].get_tensor_size(attr_name="nothing"),
        lambda: typed.pyg()[0]["paper", "nothing", [1]],
        lambda: plain.array("nothing"),
    ):
        with pytest.raises(KeyError, match="nothing") as raised:
            wrong()
        assert isinstance(raised.value, oc.NotFoundError)
        assert str(raised.value).startswith("array `")
    with pytest.raises(oc.InvalidError, match=r"hint: .*`store\[node_type, name\]\[index"):
        typed.pyg()[0]["paper"][torch.tensor([1])]()


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([1.5, 2.7], r"found \[1.5, 2.7\]"),
        ("a", "found 'a'"),
        ([[1], [1, 2]], r"found \[\[1\], \[1, 2\]\]"),
        (None, "found None"),
        (True, "found True"),
        ([3, 60], "no row 60, it has rows 0 to 59"),
        ([-1], "no row -1"),
        ([True, False], r"mask of shape \(2,\), expected \(60,\)"),
    ],
)
def test_rows_of_a_graph_take_what_a_view_takes_and_nothing_else(
    plain: oc.Graph, index, message: str
) -> None:
    with pytest.raises(oc.InvalidError, match=message):
        plain.rows("x", index)
    expected = plain.array("x")[[3, 5]]
    mask = np.isin(np.arange(60), [3, 5])
    for chosen in (
        [3, 5],
        np.uint8([3, 5]),
        torch.tensor([3, 5]),
        mask,
        mask.tolist(),
        slice(3, 6, 2),
    ):
        assert np.array_equal(plain.rows("x", chosen), expected)


def test_loaders_take_both_stores_of_a_data_set(typed: oc.Graph, plain: oc.Graph) -> None:
    for loader in (oc.NeighborLoader, oc.HGTLoader):
        found, expected = (
            next(iter(loader(graph, [4, 2], "train", batch_size=8)))
            for graph in (typed.pyg(), typed)
        )
        assert torch.equal(found["paper"].n_id, expected["paper"].n_id)
    mixed = (typed.pyg()[0], plain.pyg()[1])
    for wrong in (mixed, (typed.pyg()[0],), (typed, typed)):
        with pytest.raises(oc.InvalidError, match="the graph store of one data set"):
            oc.NeighborLoader(wrong, [4], "train")


class AllEdges(BaseSampler):
    """Gives the whole graph as every batch, as a sampler of PyG gives its part."""

    def __init__(self, graph: oc.Graph) -> None:
        self.graph = graph
        self.sources, self.offsets, self.ids = graph.pyg()[1].csc()

    @property
    def edge_permutation(self):
        return self.ids

    def sample_from_nodes(self, index, **_):
        names, metadata = self.graph.node_types, (index.input_id, index.time)
        if not self.graph.is_typed:
            targets = torch.repeat_interleave(torch.arange(names["node"]), self.offsets.diff())
            nodes, edges = torch.arange(names["node"]), torch.arange(len(targets))
            return SamplerOutput(nodes, self.sources, targets, edges, metadata=metadata)
        targets = {
            one: torch.repeat_interleave(torch.arange(len(offsets) - 1), offsets.diff())
            for one, offsets in self.offsets.items()
        }
        return HeteroSamplerOutput(
            {name: torch.arange(count) for name, count in names.items()},
            self.sources,
            targets,
            {one: torch.arange(len(ends)) for one, ends in targets.items()},
            metadata=metadata,
        )

    def sample_from_edges(self, *_, **__):
        raise NotImplementedError


def test_a_loader_of_pyg_delivers_edge_arrays_of_every_type(typed: oc.Graph) -> None:
    stores = typed.pyg()
    loader = NodeLoader(
        stores,
        AllEdges(typed),
        input_nodes="paper",
        batch_size=90,
        transform=stores[0].add_edge_arrays,
    )
    batch = next(iter(loader))
    for edge_type, count in EDGES.items():
        whole = typed.array(f"edges/{'__'.join(edge_type)}/time")
        assert len(batch[edge_type].edge_time) == count
        np.testing.assert_array_equal(batch[edge_type].edge_time, whole[batch[edge_type].e_id])


def test_a_loader_of_pyg_delivers_edge_arrays_of_both_directions(plain: oc.Graph) -> None:
    stores = plain.pyg()
    loader = NodeLoader(
        stores,
        AllEdges(plain),
        input_nodes=torch.arange(60),
        batch_size=60,
        transform=stores[0].add_edge_arrays,
    )
    batch = next(iter(loader))
    assert batch.num_edges == plain.num_edges
    assert torch.equal(batch.edge_weight, batch.e_id * 0.5)
    edges = ("node", "edge", "node")
    found = stores[0].get_tensor(group_name=edges, attr_name="weight", index=batch.e_id)
    assert torch.equal(found, batch.edge_weight)


def test_edges_without_ids_are_refused_where_arrays_are_wanted(plain: oc.Graph) -> None:
    from torch_geometric.data import Data

    with pytest.raises(oc.InvalidError, match="`e_id`"):
        plain.pyg()[0].add_edge_arrays(Data(edge_index=torch.zeros(2, 3, dtype=torch.int64)))


def test_pygs_neighbor_loader_takes_the_stores(typed: oc.Graph, tmp_path: Path) -> None:
    pytest.importorskip("pyg_lib", reason="PyG's loader needs pyg-lib or torch-sparse")
    from torch_geometric.loader import NeighborLoader

    stores = typed.pyg()
    transform = stores[0].add_edge_arrays
    batch = next(iter(NeighborLoader(stores, [3], input_nodes="paper", transform=transform)))
    assert set(batch.edge_types) == set(EDGES)
