"""Batches of links have the links, negatives without an edge, and nothing from their future."""

from __future__ import annotations

import copy
import itertools
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.sampler import NegativeSampling

import outercore as oc
from fakes import write_graph
from multigraph import imported
from outercore.data.csc import Edges, all_links, csc, edge_rows
from outercore.errors import InvalidError
from outercore.loading import link_loader
from reference import permutation_at
from typed_fakes import planted_types

WRITES = ("author", "writes", "paper")
CITES = ("paper", "cites", "paper")
PLAIN = ("node", "edge", "node")
OPTIONS = {"batch_size": 16, "seed": 3, "memory": "32MiB", "threads": 2}
PATIENCE = 240.0


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    found = imported(tmp_path_factory.mktemp("links") / "plain", nodes=120, edges=600)
    random = np.random.default_rng(5)
    found.add_node_array("time", random.integers(50, size=found.num_nodes))
    found.add_edge_array("time", random.integers(50, size=found.num_edges))
    return found


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    return oc.open(planted_types(tmp_path_factory.mktemp("links") / "typed", timed=True))


def imported_edges(graph: oc.Graph, edge_type: oc.graph.EdgeType = PLAIN) -> np.ndarray:
    """int64 [2, edges] in the order of the imported list."""
    offsets = graph.array("edges/edge/offsets").astype(np.int64)
    sources = graph.array("edges/edge/sources").astype(np.int64)
    ids = graph.array("edges/edge/ids").astype(np.int64)
    first, column, begins = 0, 0, {}
    for name, count in graph.node_types.items():
        begins[name] = first
        first += count
    for other in graph.edge_types:
        if other == edge_type:
            break
        column += graph.node_types[other[2]]
    bounds = offsets[column : column + graph.node_types[edge_type[2]] + 1]
    part = slice(bounds[0], bounds[-1])
    targets = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    order = np.argsort(ids[part])
    return np.stack([sources[part] - begins[edge_type[0]], targets])[:, order]


def given(graph: oc.Graph, edge_type: oc.graph.EdgeType, links: Any) -> Any:
    """`edge_label_index` for a graph of one type or of several."""
    if not graph.is_typed:
        return links
    return edge_type if links is None else (edge_type, links)


def stores(batch: Any, edge_type: oc.graph.EdgeType) -> tuple[Any, Any, Any]:
    """Where the links, the sources and the targets of a batch are."""
    if isinstance(batch, Data):
        return batch, batch, batch
    return batch[edge_type], batch[edge_type[0]], batch[edge_type[2]]


def pairs(batch: Any, edge_type: oc.graph.EdgeType = PLAIN) -> np.ndarray:
    """`edge_label_index` by node ids."""
    links, sources, targets = stores(batch, edge_type)
    index = links.edge_label_index
    return torch.stack([sources.n_id[index[0]], targets.n_id[index[1]]]).numpy()


def same(one: Any, other: Any) -> bool:
    left, right = one.to_dict(), other.to_dict()
    return equal(left, right)


def equal(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[k], right[k]) for k in left)
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    return bool(left == right)


@pytest.fixture(params=[PLAIN, WRITES, CITES], ids=["plain", "two types", "one of several types"])
def case(request, graph: oc.Graph, typed: oc.Graph) -> tuple[oc.Graph, oc.graph.EdgeType]:
    return (graph if request.param == PLAIN else typed), request.param


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("self_loops", ["keep", "drop"])
@pytest.mark.parametrize("block", [7, 1 << 16])
def test_all_edges_are_links_in_the_order_of_the_import_however_they_are_read(
    undirected: bool, self_loops: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a row of the import is no edge, or two."""
    monkeypatch.setattr("outercore.data.csc._BLOCK", block)
    graph = imported(
        tmp_path / "graph", nodes=60, edges=500, undirected=undirected, self_loops=self_loops
    )
    offsets, sources = csc(graph, PLAIN)
    rows = edge_rows(graph, PLAIN)
    assert rows is not None
    targets = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.argsort(rows, kind="stable")
    np.testing.assert_array_equal(all_links(graph, PLAIN), np.stack([sources, targets])[:, order])


def test_an_edge_is_found_however_many_pairs_are_looked_up_together(graph: oc.Graph) -> None:
    pairs = np.random.default_rng(0).integers(0, graph.num_nodes, (2, 500))
    known = set(map(tuple, imported_edges(graph).T.tolist()))
    expected = [pair in known for pair in map(tuple, pairs.T.tolist())]
    for together in (1, 3, 500):
        edges = Edges(graph, PLAIN)
        edges._pairs = together
        assert edges.has(*pairs).tolist() == expected, together


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint16])
def test_links_that_are_given_stay_in_the_memory_of_the_caller(graph: oc.Graph, kind: type) -> None:
    every = imported_edges(graph)
    given = np.asfortranarray(every.astype(kind))
    loader = oc.LinkNeighborLoader(graph, [2], given, shuffle=True, **OPTIONS)
    assert loader._links._index is given
    ids = np.concatenate([batch.input_id.numpy() for batch in loader])
    places = range(every.shape[1])
    assert ids.tolist() == [permutation_at(one, every.shape[1], 3, 0) for one in places]
    loader.set_epoch(0)
    found = np.concatenate([pairs(batch) for batch in loader], axis=1)
    np.testing.assert_array_equal(found, every[:, ids])


def test_a_budget_that_all_links_do_not_fit_into_is_refused(graph: oc.Graph) -> None:
    with pytest.raises(oc.BudgetError, match="600 edges as links take") as refused:
        oc.LinkNeighborLoader(graph, [2], **{**OPTIONS, "memory": 4096})
    assert refused.value.needed is not None
    assert refused.value.needed >= 600 * 8


@pytest.mark.parametrize("shuffle", [False, True])
def test_all_edges_come_once_in_the_order_of_the_import(case, shuffle: bool) -> None:
    graph, edge_type = case
    edges = imported_edges(graph, edge_type)
    loader = oc.LinkNeighborLoader(
        graph, [3, 2], given(graph, edge_type, None), shuffle=shuffle, **OPTIONS
    )
    orders = []
    for _ in range(2):
        batches = list(loader)
        assert len(batches) == len(loader) == -(-edges.shape[1] // 16)
        ids = np.concatenate([stores(one, edge_type)[0].input_id.numpy() for one in batches])
        assert sorted(ids) == list(range(edges.shape[1]))
        found = np.concatenate([pairs(one, edge_type) for one in batches], axis=1)
        np.testing.assert_array_equal(found, edges[:, ids])
        # As in PyG there are no labels without labels or negatives, and no number of seeds.
        for batch in batches:
            assert "edge_label" not in stores(batch, edge_type)[0]
            assert not any("batch_size" in store for store in stores(batch, edge_type))
        orders.append(ids.tolist())
    assert (orders[0] == list(range(edges.shape[1]))) is not shuffle
    assert (orders[0] == orders[1]) is not shuffle


def test_sampled_edges_are_edges_and_features_are_those_of_their_nodes(case) -> None:
    graph, edge_type = case
    loader = oc.LinkNeighborLoader(
        graph, [3, 2], given(graph, edge_type, None), neg_sampling="binary", **OPTIONS
    )
    for batch in itertools.islice(loader, 4):
        for one in graph.edge_types:
            links, sources, targets = stores(batch, one)
            edges = torch.stack(
                [sources.n_id[links.edge_index[0]], targets.n_id[links.edge_index[1]]]
            )
            rows = links.e_id.numpy()
            np.testing.assert_array_equal(edges.numpy(), imported_edges(graph, one)[:, rows])
        for name in graph.node_types:
            store = batch[name] if graph.is_typed else batch
            if (key := graph.features_of(name)) is not None:
                np.testing.assert_array_equal(store.x, graph.array(key)[store.n_id])


def test_given_links_come_with_their_labels_and_places(case) -> None:
    graph, edge_type = case
    links = imported_edges(graph, edge_type)[:, 40:5:-1]
    labels = torch.arange(links.shape[1] * 2).view(-1, 2)
    loader = oc.LinkNeighborLoader(
        graph, [2], given(graph, edge_type, torch.from_numpy(links.copy())), labels, **OPTIONS
    )
    batches = list(loader)
    assert [len(stores(one, edge_type)[0].input_id) for one in batches] == [16, 16, 3]
    for batch in batches:
        store = stores(batch, edge_type)[0]
        np.testing.assert_array_equal(pairs(batch, edge_type), links[:, store.input_id])
        assert torch.equal(store.edge_label, labels[store.input_id])


@pytest.mark.parametrize("amount", [0.3, 1, 2.5])
def test_binary_negatives_follow_the_links_and_are_no_edges(case, amount: float) -> None:
    graph, edge_type = case
    edges = set(zip(*imported_edges(graph, edge_type).tolist(), strict=True))
    loader = oc.LinkNeighborLoader(
        graph, [2], given(graph, edge_type, None), neg_sampling_ratio=amount, **OPTIONS
    )
    seen = set()
    for batch in itertools.islice(loader, 6):
        store = stores(batch, edge_type)[0]
        count, extra = len(store.input_id), int(np.ceil(amount * len(store.input_id)))
        assert store.edge_label.tolist() == [1.0] * count + [0.0] * extra
        assert store.edge_label.dtype == torch.float32
        found = list(zip(*pairs(batch, edge_type).tolist(), strict=True))
        assert len(found) == count + extra
        assert set(found[:count]) <= edges
        assert not set(found[count:]) & edges
        if edge_type[0] == edge_type[2]:
            assert all(source != target for source, target in found[count:])
        seen |= set(found[count:])
    assert len(seen) > 6 * extra * 0.9


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (torch.tensor([0, 2, 1]), [1, 3, 2]),
        (torch.tensor([1.0, 1.0, 1.0]), [1.0, 1.0, 1.0]),
        (torch.tensor([3, 1, 2]), [3, 1, 2]),
    ],
)
def test_labels_leave_zero_to_negatives_as_in_pyg(graph, labels, expected) -> None:
    links = imported_edges(graph)[:, :3]
    loader = oc.LinkNeighborLoader(graph, [2], links, labels, neg_sampling="binary", **OPTIONS)
    batch = next(iter(loader))
    assert batch.edge_label.tolist() == [*expected, 0, 0, 0]
    assert batch.edge_label.dtype == labels.dtype


@pytest.mark.parametrize("amount", [1, 3])
def test_triplets_have_other_targets_for_each_source(case, amount: int) -> None:
    graph, edge_type = case
    links = imported_edges(graph, edge_type)
    edges = set(zip(*links.tolist(), strict=True))
    loader = oc.LinkNeighborLoader(
        graph,
        [2],
        given(graph, edge_type, None),
        neg_sampling=NegativeSampling("triplet", amount),
        **OPTIONS,
    )
    for batch in itertools.islice(loader, 4):
        store, sources, targets = stores(batch, edge_type)
        count = len(store.input_id)
        assert "edge_label_index" not in store
        from_ids = sources.n_id[sources.src_index].numpy()
        np.testing.assert_array_equal(from_ids, links[0, store.input_id])
        np.testing.assert_array_equal(targets.n_id[targets.dst_pos_index], links[1, store.input_id])
        assert targets.dst_neg_index.shape == ((count,) if amount == 1 else (count, amount))
        negatives = targets.n_id[targets.dst_neg_index].view(count, amount).numpy()
        for source, row in zip(from_ids, negatives, strict=True):
            assert not any((source, target) in edges for target in row.tolist())


def test_weights_say_which_nodes_become_negatives(graph: oc.Graph) -> None:
    sources, targets = np.zeros(graph.num_nodes), np.zeros(graph.num_nodes)
    sources[[3, 8, 9]], targets[[20, 50, 60]] = 1, [1, 5, 0]
    sampling = NegativeSampling("binary", 1, torch.from_numpy(sources), torch.from_numpy(targets))
    loader = oc.LinkNeighborLoader(graph, [2], neg_sampling=sampling, **OPTIONS)
    found = np.concatenate([pairs(one)[:, len(one.input_id) :] for one in loader], axis=1)
    assert set(found[0]) <= {3, 8, 9}
    assert set(found[1]) == {20, 50}
    assert (found[1] == 50).mean() > 0.7


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_in_a_complete_graph_the_last_draw_stays(tmp_path: Path, mode: str) -> None:
    source, target = np.divmod(np.arange(25), 5)
    root = write_graph(
        tmp_path / "complete",
        source,
        target,
        5,
        features=np.ones((5, 2), np.float32),
        labels=np.zeros(5, np.int64),
        splits={},
    )
    batches = list(oc.LinkNeighborLoader(root, [2], neg_sampling=mode, **OPTIONS))
    assert [len(one.input_id) for one in batches] == [16, 9]
    negatives = batches[0].dst_neg_index if mode == "triplet" else batches[0].edge_label_index[0]
    assert len(negatives) == (16 if mode == "triplet" else 32)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 31, 64, 97])
def test_ranks_have_every_link_once_and_as_many_batches(graph, world, drop_last, count) -> None:
    links = imported_edges(graph)[:, :count]
    options = {**OPTIONS, "shuffle": True, "drop_last": drop_last, "neg_sampling": "binary"}
    ranks = [
        list(oc.LinkNeighborLoader(graph, [2], links, rank=rank, world_size=world, **options))
        for rank in range(world)
    ]
    assert len({len(batches) for batches in ranks}) == 1
    ids = [place for batches in ranks for one in batches for place in one.input_id.tolist()]
    assert len(ids) == len(set(ids)) == (count // (16 * world) * 16 * world if drop_last else count)


def test_the_batches_of_a_rank_do_not_depend_on_what_is_drawn_together(
    graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**OPTIONS, "rank": 1, "world_size": 2, "neg_sampling": "binary", "shuffle": True}
    whole = list(oc.LinkNeighborLoader(graph, [2, 2], **options))
    assert len(whole) > 8
    monkeypatch.setattr(link_loader, "_POOL_SEEDS", 200)
    small = oc.LinkNeighborLoader(graph, [2, 2], **options)
    assert all(same(*both) for both in zip(whole, small, strict=True))
    small.set_epoch(0)
    small.seek(5)
    assert all(same(*both) for both in zip(whole[5:], small, strict=True))


@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
def test_pools_copies_and_seeking_change_no_batch(case, mode, monkeypatch) -> None:
    graph, edge_type = case
    options = {**OPTIONS, "shuffle": True, "neg_sampling": mode}
    loader = oc.LinkNeighborLoader(graph, [3, 2], given(graph, edge_type, None), **options)
    epochs = [list(loader), list(loader)]
    assert not same(epochs[0][0], epochs[1][0])
    monkeypatch.setattr(link_loader, "_POOL_SEEDS", 150)
    loader.set_epoch(1)
    copies = [copy.copy(loader), pickle.loads(pickle.dumps(loader)), loader]
    for one in copies:
        one.seek(3)
        assert all(same(*both) for both in zip(epochs[1][3:], one, strict=True))


def test_an_older_iterator_says_that_a_newer_one_has_begun(graph: oc.Graph) -> None:
    loader = oc.LinkNeighborLoader(graph, [2], **OPTIONS)
    older = iter(loader)
    next(older)
    newer = iter(loader)
    next(newer)
    with pytest.raises(InvalidError, match="a newer iterator"):
        next(older)
    assert len(list(newer)) == len(loader) - 1


def summary(loader: oc.LinkNeighborLoader) -> list[tuple[list[int], list[int]]]:
    loader.set_epoch(1)
    return [(one.n_id.tolist(), one.edge_label_index.flatten().tolist()) for one in loader]


def answer(loader: oc.LinkNeighborLoader, answers: Any) -> None:
    answers.put(summary(loader))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.slow
def test_a_loader_is_sent_to_a_worker(graph: oc.Graph, method: str) -> None:
    loader = oc.LinkNeighborLoader(graph, [2], neg_sampling="binary", shuffle=True, **OPTIONS)
    expected = summary(loader)
    assert len(pickle.dumps(loader)) < 100_000
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    worker = context.Process(target=answer, args=(loader, answers))
    worker.start()
    assert answers.get(timeout=PATIENCE) == expected
    worker.join(PATIENCE)
    assert worker.exitcode == 0
    assert summary(loader) == expected


def test_no_links_make_no_batches(case) -> None:
    graph, edge_type = case
    links = np.empty((2, 0), np.int64)
    loader = oc.LinkNeighborLoader(
        graph, [2], given(graph, edge_type, links), torch.empty(0), neg_sampling="binary", **OPTIONS
    )
    assert len(loader) == 0
    assert list(loader) == []


@pytest.mark.parametrize(
    ("memory", "backend", "threads"),
    itertools.product(["6MiB", "64MiB"], ["auto", "threads", "mmap"], [1, 3]),
)
def test_no_setting_changes_a_batch(case, memory, backend, threads) -> None:
    graph, edge_type = case
    options = {"batch_size": 16, "seed": 3, "shuffle": True, "neg_sampling": "binary"}
    index = given(graph, edge_type, None)
    plain = oc.LinkNeighborLoader(graph, [3, 2], index, memory="1GiB", **options)
    other = oc.LinkNeighborLoader(
        graph, [3, 2], index, memory=memory, backend=backend, threads=threads, **options
    )
    assert all(same(*both) for both in zip(plain, other, strict=True))


@pytest.mark.parametrize("equal_times", ["seen", "hidden"])
@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
def test_nothing_in_a_batch_is_later_than_its_link(case, mode, strategy, equal_times) -> None:
    """The ends of the links themselves aside: they are given. Negatives are not."""
    graph, edge_type = case
    random = np.random.default_rng(9)
    links = imported_edges(graph, edge_type)
    times = random.integers(5, 50, links.shape[1])
    loader = oc.LinkNeighborLoader(
        graph,
        [4, 3],
        given(graph, edge_type, links),
        edge_label_time=torch.from_numpy(times),
        time_attr="time",
        temporal_strategy=strategy,
        equal_times=equal_times,
        neg_sampling=None if mode is None else {"mode": mode, "amount": 2},
        shuffle=True,
        arrays=["time", "edge_time"] if not graph.is_typed else None,
        **OPTIONS,
    )
    latest = 0 if equal_times == "seen" else -1
    checked = 0
    for batch in itertools.islice(loader, 8):
        store, sources, targets = stores(batch, edge_type)
        now = torch.from_numpy(times)[store.input_id]
        seeds = {id(sources): set(), id(targets): set()}
        if mode == "triplet":
            assert torch.equal(sources.seed_time, now)
            assert torch.equal(targets.seed_time, now)
            seeds[id(sources)] |= set(sources.src_index.tolist())
            seeds[id(targets)] |= set(targets.dst_pos_index.tolist())
            assert torch.equal(
                targets.batch[targets.dst_neg_index],
                torch.arange(len(now)).view(-1, 1).expand(-1, 2),
            )
        else:
            extra = 0 if mode is None else 2
            assert torch.equal(store.edge_label_time, now.repeat(1 + extra))
            index = store.edge_label_index[:, : len(now)]
            seeds[id(sources)] |= set(index[0].tolist())
            seeds[id(targets)] |= set(index[1].tolist())
            names = torch.arange(len(now)).repeat(1 + extra)
            assert torch.equal(sources.batch[store.edge_label_index[0]], names)
            assert torch.equal(targets.batch[store.edge_label_index[1]], names)
        for name in graph.node_types:
            nodes = batch[name] if graph.is_typed else batch
            if "time" in nodes:
                late = nodes.time > now[nodes.batch] + latest
                assert set(torch.nonzero(late).flatten().tolist()) <= seeds.get(id(nodes), set())
        for one in graph.edge_types:
            edges, _, ends = stores(batch, one)
            assert not (edges.edge_time > now[ends.batch[edges.edge_index[1]]] + latest).any()
            checked += edges.edge_index.shape[1]
    assert checked > 100


@pytest.mark.parametrize("equal_times", ["seen", "hidden"])
def test_negatives_know_nothing_of_edges_that_come_later(case, equal_times) -> None:
    """A pair is a negative until its edge comes: to leave it out would tell of the future."""
    graph, edge_type = case
    links = imported_edges(graph, edge_type)
    key = "__".join(edge_type) if graph.is_typed else "edge"
    of_edges = graph.array(f"edges/{key}/time")[np.sort(edge_rows(graph, edge_type))]
    earliest: dict[tuple[int, int], int] = {}
    for source, target, time in zip(*links.tolist(), of_edges.tolist(), strict=True):
        earliest[source, target] = min(time, earliest.get((source, target), time))
    times = np.random.default_rng(2).integers(10, 40, links.shape[1])
    loader = oc.LinkNeighborLoader(
        graph,
        [1],
        given(graph, edge_type, links),
        edge_label_time=times,
        time_attr="time",
        equal_times=equal_times,
        neg_sampling={"mode": "binary", "amount": 8},
        **OPTIONS,
    )
    later = 0
    for batch in loader:
        store, sources, targets = stores(batch, edge_type)
        count = len(store.input_id)
        ends = store.edge_label_index[:, count:]
        pairs = zip(sources.n_id[ends[0]].tolist(), targets.n_id[ends[1]].tolist(), strict=True)
        for pair, now in zip(pairs, store.edge_label_time[count:].tolist(), strict=True):
            comes = earliest.get(pair, 10**9)
            # Also where a seed sees nothing of its own time: a link is no negative of itself.
            assert comes > now
            later += comes < 10**9
    assert later > 0


def test_a_negative_before_the_first_node_is_refused(graph: oc.Graph) -> None:
    links = imported_edges(graph)[:, :3]
    with pytest.raises(InvalidError, match="no node to draw from is there at time -1"):
        list(
            oc.LinkNeighborLoader(
                graph,
                [2],
                links,
                edge_label_time=np.full(3, -1),
                time_attr="time",
                neg_sampling="binary",
                **OPTIONS,
            )
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edge_label_index": np.zeros((3, 2), np.int64)}, r"\[2, links\]"),
        ({"edge_label_index": np.full((2, 1), 120)}, "row 0 has ids beyond the 120 nodes"),
        ({"edge_label": torch.ones(4)}, "edge_label: 4 of"),
        ({"time_attr": "time"}, "edge_label_time: expected together"),
        ({"neg_sampling": "other"}, "expected binary or triplet"),
        ({"neg_sampling": {"mode": "triplet", "amount": 1.5}}, "a whole one for triplets"),
        ({"neg_sampling": {"mode": "binary", "ratio": 2}}, "expected mode, amount"),
        ({"neg_sampling": "binary", "neg_sampling_ratio": 2.0}, "expected without"),
        (
            {"neg_sampling": NegativeSampling("binary", 1, torch.ones(7))},
            "a weight of 0 or more for each of the 120 nodes",
        ),
    ],
)
def test_wrong_arguments_name_the_thing(graph: oc.Graph, options, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        oc.LinkNeighborLoader(graph, [2], **{**OPTIONS, **options})


def test_an_unknown_edge_type_lists_those_there_are(typed: oc.Graph) -> None:
    with pytest.raises(InvalidError, match="author__writes__paper"):
        oc.LinkNeighborLoader(typed, [2], ("author", "reads", "paper"), **OPTIONS)


def test_input_ids_are_not_a_view_of_the_order(graph: oc.Graph) -> None:
    loader = oc.LinkNeighborLoader(graph, [2], **OPTIONS)
    next(iter(loader)).input_id.fill_(0)
    loader.set_epoch(0)
    assert next(iter(loader)).input_id.tolist() == list(range(16))


def test_batches_have_the_attributes_of_pygs_loader(graph: oc.Graph) -> None:
    pytest.importorskip("pyg_lib", reason="PyG's loader needs pyg-lib or torch-sparse")
    from torch_geometric.loader import LinkNeighborLoader

    edges = torch.from_numpy(imported_edges(graph))
    data = Data(x=torch.from_numpy(graph.array("x")), edge_index=edges)
    for mode in (None, "binary", "triplet"):
        ours = oc.LinkNeighborLoader(
            graph, [-1], neg_sampling=mode, labels=None, arrays=[], **OPTIONS
        )
        theirs = LinkNeighborLoader(data, [-1], neg_sampling=mode, batch_size=16)
        for one, other in zip(ours, theirs, strict=True):
            assert set(one.keys()) == set(other.keys())
            if mode is None:
                assert sorted(one.n_id.tolist()) == sorted(other.n_id.tolist())


def test_each_edge_type_may_have_fan_outs_of_its_own(typed: oc.Graph) -> None:
    links = (WRITES, imported_edges(typed, WRITES)[:, :16])
    fan_outs = {edge_type: [3, 2] for edge_type in typed.edge_types}
    alike, listed = (
        next(iter(oc.LinkNeighborLoader(typed, of, links, **OPTIONS))) for of in (fan_outs, [3, 2])
    )
    assert all(
        torch.equal(alike[edge_type].edge_index, listed[edge_type].edge_index)
        for edge_type in typed.edge_types
    )
    only = {**{edge_type: [0] for edge_type in typed.edge_types}, CITES: [-1]}
    batch = next(iter(oc.LinkNeighborLoader(typed, only, links, **OPTIONS)))
    cited = imported_edges(typed, CITES)[1]
    papers = batch["paper"].n_id[: batch["paper"].num_sampled_nodes[0]].numpy()
    assert batch[CITES].num_edges == int(np.isin(cited, papers).sum()) > 0
    assert {one for one in typed.edge_types if batch[one].num_edges} == {CITES}
