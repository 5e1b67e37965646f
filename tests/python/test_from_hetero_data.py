"""`HeteroData` objects as data sets: every value arrives, everything else is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc
from outercore.errors import InvalidError
from outercore.importing.options import ImportOptions

torch = pytest.importorskip("torch")
torch_geometric = pytest.importorskip("torch_geometric")
HeteroData = torch_geometric.data.HeteroData

WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")


def graph_of_papers() -> Any:
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["paper"].x = torch.randn(30, 4, generator=generator)
    data["paper"].y = torch.arange(30) % 3
    data["paper"].year = torch.arange(30) + 1990
    data["paper"].train_mask = torch.arange(30) < 20
    data["paper"].val_mask = torch.arange(30) >= 25
    data["author"].x = torch.randn(10, 2, generator=generator).half()
    data["place"].num_nodes = 3
    data[WRITES].edge_index = torch.stack(
        [torch.randint(n, (50,), generator=generator) for n in (10, 30)]
    )
    data[WRITES].edge_attr = torch.randn(50, 2, generator=generator)
    data[CITES].edge_index = torch.randint(30, (2, 70), generator=generator)
    data[CITES].edge_time = torch.arange(70)
    data["paper", "at", "place"].edge_index = torch.zeros((2, 0), dtype=torch.long)
    return data


def test_all_values_arrive_and_batches_lead_back_to_them(tmp_path: Path) -> None:
    data = graph_of_papers()
    graph = oc.from_pyg(data, tmp_path / "graph", arrays=("year",))
    assert graph.node_types == {"author": 10, "paper": 30, "place": 3}
    assert graph.num_edges == 120
    assert np.array_equal(graph.array("nodes/paper/x"), data["paper"].x.numpy())
    assert np.array_equal(graph.array("nodes/author/x"), data["author"].x.numpy())
    assert np.array_equal(graph.array("nodes/paper/year"), data["paper"].year.numpy())
    key = "edges/author__writes__paper/attr"
    assert np.array_equal(graph.array(key), data[WRITES].edge_attr.numpy())
    assert graph.split("train").tolist() == list(range(20))
    assert graph.split("valid").tolist() == list(range(25, 30))
    batch = next(
        iter(oc.NeighborLoader(graph, [-1], batch_size=20, input_nodes="train", memory="16MiB"))
    )
    for edge_type in (WRITES, CITES):
        store, (source, _, target) = batch[edge_type], edge_type
        ends = torch.stack(
            [
                batch[source].n_id[store.edge_index[0]],
                batch[target].n_id[store.edge_index[1]],
            ]
        )
        assert torch.equal(ends, data[edge_type].edge_index[:, store.e_id])
    assert torch.equal(batch["paper"].x, data["paper"].x[batch["paper"].n_id])


def test_a_note_names_what_is_not_taken(tmp_path: Path) -> None:
    data = graph_of_papers()
    data[CITES].colour = ["red"] * 70
    data.note = 1
    with pytest.warns(UserWarning, match="not taken") as told:
        oc.from_pyg(data, tmp_path / "graph")
    text = str(told[0].message)
    for name in ("data['paper'].year", "data.note", f"data[{CITES!r}].colour"):
        assert f"`{name}`" in text


def test_splits_are_those_of_the_type_with_labels(tmp_path: Path) -> None:
    graph = oc.from_pyg(
        graph_of_papers(), tmp_path / "graph", arrays=("year",), splits={"train": np.array([7, 3])}
    )
    assert graph.split("train").tolist() == [7, 3]


def more_nodes(data: Any) -> None:
    data[CITES].edge_index[0, 4] = 30


def negative(data: Any) -> None:
    data[CITES].edge_index[1, 5] = -1


def no_count(data: Any) -> None:
    del data["place"].num_nodes


def two_labels(data: Any) -> None:
    data["author"].y = torch.arange(10)
    data["author"].train_mask = torch.arange(10) < 3


def short_times(data: Any) -> None:
    data[CITES].edge_time = torch.arange(9)


def floats(data: Any) -> None:
    data[CITES].edge_index = data[CITES].edge_index.double()


def a_matrix(data: Any) -> None:
    data[CITES].adj_t = data[CITES].edge_index
    del data[CITES].edge_index


def no_labels(data: Any) -> None:
    for name in ("y", "train_mask", "val_mask"):
        del data["paper"][name]


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (
            more_nodes,
            "edge type `paper__cites__paper`: row 4: source 30 is no node of type `paper`",
        ),
        (negative, "edge type `paper__cites__paper`: row 5: target -1 is no node of type `paper`"),
        (no_count, "data['place']: the number of nodes is not known"),
        (two_labels, "node types author, paper have labels"),
        (short_times, "'cites', 'paper')].edge_time: 9 rows, expected 70"),
        (floats, "'cites', 'paper')].edge_index: expected integers, found float64"),
        (a_matrix, "'cites', 'paper')].edge_index: expected an array, found none"),
        (no_labels, "splits: no node type has labels"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, spoil: Any, expected: str) -> None:
    data = graph_of_papers()
    spoil(data)
    splits = {"train": np.array([0])} if spoil is no_labels else None
    with pytest.raises(InvalidError) as raised:
        oc.from_pyg(data, tmp_path / "graph", arrays=("year",), splits=splits)
    assert expected in str(raised.value)
    assert not (tmp_path / "graph").exists()


def test_after_an_error_other_edges_are_not_taken_for_the_first_ones(tmp_path: Path) -> None:
    data = graph_of_papers()
    data["paper"].y = torch.arange(9)
    with pytest.raises(InvalidError, match="labels of `paper`: 9 rows"):
        oc.from_pyg(data, tmp_path / "graph", arrays=("year",))
    other = graph_of_papers()
    other[CITES].edge_index = other[CITES].edge_index.flip(0)
    graph = oc.from_pyg(other, tmp_path / "graph", arrays=("year",))
    fresh = oc.from_pyg(other, tmp_path / "fresh", arrays=("year",))
    for key in fresh.arrays:
        assert graph.array(key).tolist() == fresh.array(key).tolist()
    # The same edges are not read again.
    with pytest.raises(InvalidError, match="labels of `paper`: 9 rows"):
        oc.from_pyg(data, tmp_path / "again", arrays=("year",))
    assert oc.from_pyg(graph_of_papers(), tmp_path / "again", arrays=("year",)).num_edges == 120


def test_after_an_error_data_of_one_type_is_not_taken_for_the_first_one(tmp_path: Path) -> None:
    from torch_geometric.data import Data

    ends = torch.tensor([[0, 1, 2], [1, 2, 0]])
    data = Data(edge_index=ends, num_nodes=3, y=torch.tensor([0, 1]))
    with pytest.raises(InvalidError, match="labels: 2 rows"):
        oc.from_pyg(data, tmp_path / "graph")
    data.y = torch.tensor([0, 1, 0])
    data.edge_index = ends * 0
    graph = oc.from_pyg(data, tmp_path / "graph")
    assert graph.array("edges/edge/sources").tolist() == [0, 0, 0]


def test_options_of_one_type_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"^undirected: does not go with several types"):
        oc.from_pyg(graph_of_papers(), tmp_path / "graph", options=ImportOptions(undirected=True))


def test_lists_of_texts_are_kept(tmp_path: Path) -> None:
    data = graph_of_papers()
    titles = [f"On {number}" for number in range(29)] + [None]
    data["paper"].title = titles
    del data["paper"].year
    graph = oc.from_pyg(data, tmp_path / "graph", arrays="title")
    assert graph.array("nodes/paper/title").tolist() == [*titles[:-1], ""]
    one = torch_geometric.data.Data(edge_index=torch.tensor([[0], [1]]), title=["a", "b"])
    one.num_nodes = 2
    graph = oc.from_pyg(one, tmp_path / "one", arrays=("title",))
    assert graph.array("title").tolist() == ["a", "b"]
    one.title = ["a", "b", "c"]
    with pytest.raises(InvalidError, match=r"data\.title: 3 texts, expected 2"):
        oc.from_pyg(one, tmp_path / "no", arrays=("title",))
