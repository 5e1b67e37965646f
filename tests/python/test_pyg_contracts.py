"""What programs for PyG do with its loaders and data, and do with ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NeighborLoader as TheirLoader
from torch_geometric.nn import GAT, GCN, GIN, PNA, EdgeCNN, GraphSAGE
from torch_geometric.nn.models import basic_gnn
from torch_geometric.utils import degree

import outercore as oc

NODES, EDGES = 30, 120
RATES, LIKES = ("user", "rates", "item"), ("user", "likes", "item")


def data(seed: int = 0, **more: Any) -> Data:
    draw = torch.Generator().manual_seed(seed)
    edges = torch.randint(NODES, (2, EDGES), generator=draw)
    # Models of PyG need no copies: PNA and GCN count them.
    edges = torch.unique(edges, dim=1)[
        :, torch.randperm(edges.unique(dim=1).shape[1], generator=draw)
    ]
    return Data(x=torch.rand(NODES, 4, generator=draw), edge_index=edges, **more)


def hetero(seed: int = 0) -> HeteroData:
    draw = torch.Generator().manual_seed(seed)
    found = HeteroData()
    found["user"].x, found["item"].x = torch.rand(9, 2, generator=draw), torch.rand(7, 2)
    ends = [torch.randint(count, (40,), generator=draw) for count in (9, 7)]
    found[RATES].edge_index = torch.stack(ends)
    found[RATES].time, found[RATES].stars = torch.randperm(40, generator=draw), torch.rand(40)
    return found


def models(of: Data) -> dict[str, Any]:
    degrees = degree(of.edge_index[1], NODES, dtype=torch.long)
    pna = {"aggregators": ["mean", "max"], "scalers": ["identity"], "deg": degrees.bincount()}
    return {
        "GraphSAGE": GraphSAGE(4, 8, 2, 3),
        "GCN": GCN(4, 8, 2, 3, normalize=False),
        "GIN": GIN(4, 8, 2, 3),
        "GAT": GAT(4, 8, 2, 3),
        "PNA": PNA(4, 8, 2, 3, **pna),
        "EdgeCNN": EdgeCNN(4, 8, 2, 3),
        "GraphSAGE, jumping knowledge": GraphSAGE(4, 8, 3, 3, jk="last"),
    }


@pytest.mark.parametrize("name", models(data()))
@pytest.mark.parametrize("cache", [False, True])
def test_a_model_of_pyg_infers_layer_by_layer(tmp_path: Path, name: str, cache: bool) -> None:
    whole = data()
    torch.manual_seed(0)
    model = models(whole)[name].eval()
    loader = oc.NeighborLoader(oc.from_pyg(whole, tmp_path / "g"), [-1], batch_size=7)
    found = model.inference(loader, cache=cache)
    with torch.no_grad():
        torch.testing.assert_close(found, model(whole.x, whole.edge_index), rtol=1e-4, atol=1e-5)


def test_a_loader_is_taken_for_inference_and_for_no_data_loader(tmp_path: Path) -> None:
    whole = data()
    loader = oc.NeighborLoader(oc.from_pyg(whole, tmp_path / "g"), [-1])
    assert isinstance(loader, basic_gnn.NeighborLoader)
    assert isinstance(TheirLoader.__new__(TheirLoader), basic_gnn.NeighborLoader)
    assert not isinstance(DataLoader([1]), basic_gnn.NeighborLoader)
    # Lightning and Accelerate build a `DataLoader` again, with a sampler of their own.
    assert not isinstance(loader, DataLoader)
    with pytest.raises(AssertionError):
        GraphSAGE(4, 8, 2, 3).eval().inference(oc.NeighborLoader(loader.graph, [2, 2]))


def test_the_data_of_a_loader_has_what_pygs_has(tmp_path: Path) -> None:
    mask = torch.arange(NODES) < 5
    given = data(y=torch.rand(NODES, 1), edge_weight=None, train_mask=mask)
    given.edge_weight = torch.rand(given.num_edges)
    found = oc.NeighborLoader(oc.from_pyg(given, tmp_path / "g"), [2], batch_size=4).data
    assert (found.num_nodes, found.num_edges) == (NODES, given.num_edges)
    assert found.num_node_features == 4
    for name in ("x", "y", "edge_index", "edge_weight", "train_mask"):
        assert torch.equal(torch.as_tensor(getattr(found, name).to("cpu")), given[name]), name
    assert torch.equal(found.x[torch.tensor([3, -1])], given.x[[3, -1]])
    assert found.y.shape == given.y.shape
    found.n_id = torch.arange(NODES)
    assert found.n_id.shape == (NODES,)
    assert not hasattr(found, "pos")


def test_the_data_of_a_loader_reads_no_array_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = oc.NeighborLoader(oc.from_pyg(data(), tmp_path / "g"), [2], batch_size=4)
    monkeypatch.setattr(oc.Graph, "array", lambda *_: pytest.fail("a whole array was read"))
    assert loader.data.x.shape == (NODES, 4)
    assert loader.data.x[[1, 2]].shape == (2, 4)


def test_the_data_of_a_loader_of_several_types_is_asked_by_type(tmp_path: Path) -> None:
    given = hetero()
    found = oc.NeighborLoader(oc.from_pyg(given, tmp_path / "g"), [2], "user").data
    assert found["item"].num_nodes == 7
    assert torch.equal(found["item"].x.to("cpu"), given["item"].x)
    assert torch.equal(found[RATES].edge_index, given[RATES].edge_index)
    assert torch.equal(found[RATES].edge_stars.to("cpu"), given[RATES].stars)
    with pytest.raises(KeyError):
        found["nothing"]
    with pytest.raises(AttributeError, match="`y`"):
        _ = found["item"].y


@pytest.mark.parametrize("seed", range(4))
def test_every_attribute_of_edges_is_taken(tmp_path: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    given, count = data(seed), data(seed).num_edges
    kinds = [np.int64, np.int32, np.float32, np.float64, np.uint8]
    names = ["edge_type", "time", "edge_attr", "edge_weight", "flow", "edge_norm"]
    for name in names:
        shape = (count, 3) if name in ("edge_attr", "flow") and seed % 2 else (count,)
        given[name] = torch.from_numpy(draw.integers(1, 9, shape).astype(draw.choice(kinds)))
    graph = oc.from_pyg(given, tmp_path / "g", arrays=["edge_type"])
    batch = next(iter(oc.NeighborLoader(graph, [-1], batch_size=NODES)))
    for name in names:
        found = batch[f"edge_{name.removeprefix('edge_')}"]
        assert torch.equal(found, given[name][batch.e_id]), f"{name}, seed {seed}"
        assert found.dtype == given[name].dtype


def test_attributes_of_edges_that_cannot_be_taken_are_named(tmp_path: Path) -> None:
    given = data()
    given.edge_time = given.time = torch.arange(given.num_edges)
    given.ids = torch.arange(given.num_edges)
    given.edge_label = torch.arange(given.num_edges)
    given.edge_note = ["a"] * given.num_edges
    with pytest.warns(UserWarning, match="not taken: `edge_label`, `edge_note`, `ids`, `time`"):
        graph = oc.from_pyg(given, tmp_path / "g")
    assert "edges/edge/time" in graph.arrays


def test_times_of_edges_are_sampled_by_as_in_pygs_recommender(tmp_path: Path) -> None:
    given = hetero()
    graph = oc.from_pyg(given, tmp_path / "g")
    loader = oc.LinkNeighborLoader(
        graph,
        [-1],
        edge_label_index=(("user", "item"), given[RATES].edge_index),
        edge_label_time=given[RATES].time,
        time_attr="time",
        batch_size=8,
        neg_sampling="binary",
    )
    for batch in loader:
        store = batch[RATES]
        ends = batch["item"].batch[store.edge_index[1]]
        assert (store.edge_time <= given[RATES].time[store.input_id][ends]).all()


def test_a_pair_of_node_types_is_their_only_edge_type(tmp_path: Path) -> None:
    given = hetero()
    graph = oc.from_pyg(given, tmp_path / "one")
    pairs = oc.LinkNeighborLoader(graph, {("user", "item"): [2]}, ("user", "item"), batch_size=40)
    triples = oc.LinkNeighborLoader(graph, {RATES: [2]}, RATES, batch_size=40)
    assert torch.equal(
        next(iter(pairs))[RATES].edge_label_index, next(iter(triples))[RATES].edge_label_index
    )
    graph.add_edge_array("cost", np.arange(40.0), edge_type=("user", "item"))
    given[LIKES].edge_index = given[RATES].edge_index
    graph = oc.from_pyg(given, tmp_path / "two")
    for links in (("user", "item"), (("user", "item"), given[RATES].edge_index)):
        with pytest.raises(oc.InvalidError, match="hint: it has user__likes__item, user__rates"):
            oc.LinkNeighborLoader(graph, [2], links)


def test_data_without_edges_is_a_graph(tmp_path: Path) -> None:
    links = torch.randint(NODES, (2, 20), generator=torch.Generator().manual_seed(0))
    graph = oc.from_pyg(Data(x=torch.rand(NODES, 4)), tmp_path / "plain")
    assert (graph.num_nodes, graph.num_edges) == (NODES, 0)
    for kind in (None, "binary", "triplet"):
        loader = oc.LinkNeighborLoader(graph, [], links, batch_size=5, neg_sampling=kind)
        assert [len(batch.input_id) for batch in loader] == [5] * 4
    with pytest.raises(oc.InvalidError, match="`adj_t` is not read"):
        oc.from_pyg(Data(x=torch.rand(3, 1), adj_t=torch.eye(3).to_sparse()), tmp_path / "no")


def test_links_may_be_of_a_type_without_edges(tmp_path: Path) -> None:
    given = hetero()
    given["user", "blocks", "item"]
    links = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]])
    graph = oc.from_pyg(given, tmp_path / "g")
    for edge_type in (("user", "blocks", "item"), ("item", "near", "item"), ("item", "user")):
        loader = oc.LinkNeighborLoader(
            graph,
            [2],
            (edge_type, links),
            batch_size=4,
            neg_sampling="binary",
            exclude_seed_edges=True,
        )
        batch = next(iter(loader))
        stored = edge_type if len(edge_type) == 3 else ("item", "to", "user")
        index = batch[stored].edge_label_index[:, :4]
        ends = [batch[stored[end]].n_id[row] for end, row in ((0, index[0]), (2, index[1]))]
        assert torch.equal(torch.stack(ends), links)
    with pytest.raises(oc.InvalidError, match=r"'rate', 'item'.* is not in the graph"):
        oc.LinkNeighborLoader(graph, [2], (("user", "rate", "item"), links))


def edges_of(batch: Any, edge_type: Any = None) -> set[tuple[int, int]]:
    """The edges of a batch by ids of the graph."""
    store, source, target = batch, batch, batch
    if edge_type is not None:
        store, source, target = batch[edge_type], batch[edge_type[0]], batch[edge_type[2]]
    first, second = store.edge_index
    return {*zip(source.n_id[first].tolist(), target.n_id[second].tolist(), strict=True)}


@pytest.mark.parametrize("options", [{}, {"disjoint": True}, {"subgraph_type": "induced"}])
def test_edges_of_the_links_of_a_batch_are_left_out(tmp_path: Path, options: Any) -> None:
    given = data(y=None)
    given.edge_weight = torch.arange(given.num_edges)
    graph = oc.from_pyg(given, tmp_path / "g")
    makes = {"num_neighbors": [-1, -1], "batch_size": 6, "neg_sampling": "binary", **options}
    whole, without = (
        oc.LinkNeighborLoader(graph, exclude_seed_edges=leaves, **makes) for leaves in (False, True)
    )
    lost = 0
    for before, after in zip(whole, without, strict=True):
        ends = given.edge_index[:, after.input_id]
        links = {*zip(*ends.tolist(), strict=True), *zip(*ends.flip(0).tolist(), strict=True)}
        assert edges_of(after) == edges_of(before) - links
        assert sum(after.num_sampled_edges) == after.num_edges
        assert torch.equal(after.edge_weight, after.e_id)
        assert torch.equal(after.n_id[after.edge_index], given.edge_index[:, after.e_id]), (
            "rows of edges and their ids go together"
        )
        assert torch.equal(after.edge_label, before.edge_label)
        lost += before.num_edges - after.num_edges
    assert lost


def test_edges_that_lead_back_are_left_out_of_several_types(tmp_path: Path) -> None:
    given = hetero()
    back = ("item", "rev_rates", "user")
    given[back].edge_index = given[RATES].edge_index.flip(0)
    graph = oc.from_pyg(given, tmp_path / "g")
    loader = oc.LinkNeighborLoader(
        graph, [-1, -1], RATES, batch_size=5, exclude_seed_edges=True, shuffle=True
    )
    for batch in loader:
        links = {*zip(*given[RATES].edge_index[:, batch[RATES].input_id].tolist(), strict=True)}
        assert not edges_of(batch, RATES) & links
        assert not edges_of(batch, back) & {(item, user) for user, item in links}


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("amount", [1, 2, 3])
def test_negatives_of_triplets_are_seeds_round_by_round(
    tmp_path: Path, typed: bool, amount: int
) -> None:
    graph = oc.from_pyg(hetero() if typed else data(), tmp_path / "g")
    sampling = {"mode": "triplet", "amount": amount}
    links = RATES if typed else None
    options: dict[str, Any] = {"batch_size": 4, "neg_sampling": sampling, "disjoint": True}
    batch = next(iter(oc.LinkNeighborLoader(graph, [2], links, **options)))
    target = batch["item"] if typed else batch
    first = 4 if typed else 8
    # As `edge_sample` of PyG has them.
    expected = torch.arange(first, first + 4 * amount).view(-1, 4).t().reshape(4, -1).squeeze(-1)
    assert torch.equal(target.dst_neg_index, expected)
    assert torch.equal(
        target.batch[target.dst_neg_index].view(4, -1), torch.arange(4)[:, None].expand(4, amount)
    )


def test_the_split_val_is_valid_everywhere(tmp_path: Path) -> None:
    mask = torch.arange(NODES) > 20
    for number, given in enumerate((data(), hetero())):
        store = given if number == 0 else given["user"]
        store.y, store.val_mask = torch.zeros(store.num_nodes).long(), mask[-store.num_nodes :]
        graph = oc.from_pyg(given, tmp_path / str(number))
        expected = graph.split("valid").tolist()
        for name in ("val", "validation", "dev"):
            assert graph.split(name).tolist() == expected
            assert len(oc.NeighborLoader(graph, [2], name).dataset) == len(expected)
            assert len(oc.HGTLoader(graph, [2], name).dataset) == len(expected)
        if number == 0:
            sampled = [batch.input_id for batch in oc.NeighborSampler(graph, [2], "val")]
            assert len(sampled) == len(expected)
        with pytest.raises(oc.NotFoundError, match="split `test`"):
            graph.split("test")


def test_node_types_are_a_list_and_a_dictionary(tmp_path: Path) -> None:
    types = oc.from_pyg(hetero(), tmp_path / "g").node_types
    assert (types[0], types[-1], types[:2]) == ("item", "user", ["item", "user"])
    assert (types["user"], list(types), types) == (9, ["item", "user"], {"item": 7, "user": 9})
    for wrong in ("nothing", None):
        with pytest.raises(KeyError):
            types[wrong]
    with pytest.raises(IndexError):
        types[2]


@pytest.mark.parametrize("seed", range(5))
def test_edges_of_the_stores_are_in_the_order_of_the_import(tmp_path: Path, seed: int) -> None:
    plain, typed = data(seed), hetero(seed)
    for number, (given, edges) in enumerate(
        ((plain, plain.edge_index), (typed, typed[RATES].edge_index))
    ):
        edge_type = RATES if number else ("node", "edge", "node")
        store = oc.from_pyg(given, tmp_path / str(number)).pyg()[1]
        found = store.get_edge_index(edge_type=edge_type, layout="coo")
        assert torch.equal(torch.stack(found), edges), f"seed {seed}"
        row, column, ids = ((one[RATES] if number else one) for one in store.coo())
        assert torch.equal(torch.stack([row, column]), edges)
        assert torch.equal(ids, torch.arange(edges.shape[1]))
        starts, targets = store.get_edge_index(edge_type=edge_type, layout="csr")
        order = torch.argsort(edges[0], stable=True)
        assert torch.equal(starts.diff(), edges[0].bincount(minlength=len(starts) - 1))
        sources = torch.repeat_interleave(torch.arange(len(starts) - 1), starts.diff())
        assert {*zip(sources.tolist(), targets.tolist(), strict=True)} == {
            *zip(*edges[:, order].tolist(), strict=True)
        }


def test_pygs_links_over_the_stores_have_their_own_labels(tmp_path: Path) -> None:
    from torch_geometric.loader.utils import get_edge_label_index

    given = hetero()
    stores = oc.from_pyg(given, tmp_path / "g").pyg()
    _, links = get_edge_label_index(stores, RATES)
    assert torch.equal(links, given[RATES].edge_index)


def test_sources_ascend_by_time_for_pygs_temporal_sampling(tmp_path: Path) -> None:
    given = data(time=torch.randperm(NODES), year=torch.randperm(NODES))
    graph = oc.from_pyg(given, tmp_path / "g", arrays=("time", "year"))
    for name, store in (("time", graph.pyg()[1]), ("year", graph.pyg(time_attr="year")[1])):
        sources, offsets, ids = store.csc()
        for first, last in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            times = given[name][sources[first:last]]
            assert torch.equal(times, times.sort().values)
        targets = torch.repeat_interleave(torch.arange(NODES), offsets.diff())
        assert torch.equal(torch.stack([sources, targets]), given.edge_index[:, ids])


def test_stores_read_rows_from_the_end_as_tensors_do(tmp_path: Path) -> None:
    given = data(y=torch.rand(NODES, 1))
    store = oc.from_pyg(given, tmp_path / "g").pyg()[0]
    for index in (-1, [-1, 0, -NODES], torch.tensor([-2, 5]), slice(-3, None)):
        assert torch.equal(store["x"][index], given.x[index])
        assert torch.equal(store["y"][index], given.y[index])
    assert store.get_tensor_size(attr_name="y") == (NODES, 1)
    with pytest.raises(oc.InvalidError, match=f"no row -{NODES + 1}"):
        store["x"][[-NODES - 1]]
    # Outercore's own ids never count from the end: -1 would hide a mistake.
    with pytest.raises(oc.InvalidError, match="no row -1"):
        oc.open(tmp_path / "g").rows("x", [-1])
