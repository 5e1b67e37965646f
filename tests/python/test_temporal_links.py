"""Training on the past of edges with times, and scores on their future."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import outercore as oc  # noqa: E402
from observers import StopAfter, terminate  # noqa: E402
from outercore.cli import run  # noqa: E402
from outercore.data.triples import PARTS  # noqa: E402
from outercore.errors import (  # noqa: E402
    BudgetError,
    InterruptError,
    InvalidError,
    NotFoundError,
    OutercoreError,
    UnsupportedError,
)
from outercore.importing.build.graph import import_graph  # noqa: E402
from outercore.importing.inputs import TypedInputs  # noqa: E402
from outercore.importing.options import ImportOptions  # noqa: E402
from outercore.importing.typed_graph import open_typed  # noqa: E402
from outercore.training.config import (  # noqa: E402
    BudgetConfig,
    LinkConfig,
    ModelConfig,
    OptimiserConfig,
    RunConfig,
    SamplingConfig,
    TrainConfig,
)
from outercore.training.links.network import TimeEncoding  # noqa: E402
from outercore.training.links.timed import timed_links  # noqa: E402
from outercore.training.links.work import TemporalLinkWork  # noqa: E402
from outercore.training.loaders import neighbor_loader  # noqa: E402
from outercore.training.model_files import load_model  # noqa: E402
from outercore.training.run import plan, resume, train  # noqa: E402
from outercore.training.trained_model import evaluate  # noqa: E402
from outercore.training.work import GraphWork  # noqa: E402
from typed_files import write_table  # noqa: E402

torch.set_num_threads(1)
USERS, MESSAGES = 60, 1500
SENDS = ("user", "sends", "user")


def messages(*, shuffled: bool) -> dict[str, list[int]]:
    """At each time some users hear from everyone; who they are changes slowly.

    Shuffled times have the same users and nothing that lasts.
    """
    random = np.random.default_rng(1)
    times = np.sort(random.integers(1_000_000, 2_000_000, MESSAGES))
    shift = (times - 1_000_000) * USERS // 250_000
    targets = (random.integers(6, size=MESSAGES) + shift) % USERS
    sources = (targets + random.integers(1, USERS, MESSAGES)) % USERS
    if shuffled:
        random.shuffle(times)
    return {"source": sources.tolist(), "target": targets.tolist(), "sent": times.tolist()}


def written(place: Path, columns: dict[str, list[int]], *, add_reverse: bool = True) -> Path:
    place.mkdir(exist_ok=True)
    table = write_table(place / "messages.csv", columns)
    edges = (f"user,sends,user={table}",)
    inputs = TypedInputs((f"user={USERS}",), edges, add_reverse=add_reverse, dangling="refuse")
    import_graph(open_typed(inputs), place / "graph", ImportOptions(memory="16MiB"))
    return place / "graph"


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("typed"), messages(shuffled=False))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same messages as one type; each edge leads both ways."""
    place, columns = tmp_path_factory.mktemp("plain"), messages(shuffled=False)
    edges = np.array([columns["source"], columns["target"]]).T
    np.save(place / "edges.npy", edges)
    arguments = ["import", place / "edges.npy", "--undirected", "--out", place / "graph"]
    assert run([str(argument) for argument in [*arguments, "--nodes", USERS]]) == 0
    oc.open(place / "graph").add_edge_array("sent", np.array(columns["sent"]))
    return place / "graph"


def config(kind: str = "sage", epochs: int = 4, **changes: Any) -> TrainConfig:
    """Changes by the name of a group, as fields that differ."""
    plain = TrainConfig(
        model=ModelConfig(kind=kind, hidden=16, heads=2, dropout=0.0),
        sampling=SamplingConfig(fanout=(8,), batch_size=64, time="sent"),
        optimiser=OptimiserConfig(learning_rate=0.01, epochs=epochs, patience=0),
        budget=BudgetConfig(memory="32MiB", threads=2),
        run=RunConfig(task="link", metric="average_precision"),
        link=LinkConfig(held_out=0.3),
    )
    groups = {
        name: dataclasses.replace(getattr(plain, name), **values)
        for name, values in changes.items()
    }
    return dataclasses.replace(plain, **groups)


def work_of(graph: oc.Graph, settings: TrainConfig) -> TemporalLinkWork:
    return TemporalLinkWork(graph, settings, open_loader=neighbor_loader, note=lambda _: None)


@pytest.mark.parametrize("share", [0.3, 0.05, 0.0])
@pytest.mark.parametrize("name", ["typed", "plain"])
def test_every_edge_is_in_one_part_and_no_part_begins_before_the_one_before_it_ends(
    name: str, share: float, request: pytest.FixtureRequest
) -> None:
    graph = oc.open(request.getfixturevalue(name))
    links = timed_links(graph, config(link={"held_out": share}))
    columns = messages(shuffled=False)
    given = zip(columns["source"], columns["target"], columns["sent"], strict=True)
    found = zip(*links.index.tolist(), links.times.tolist(), strict=True)
    if name == "plain":
        # An undirected edge has no direction.
        ordered = (
            sorted((min(one, other), max(one, other), time) for one, other, time in edges)
            for edges in (given, found)
        )
    else:
        ordered = (sorted(edges) for edges in (given, found))
    assert len({tuple(one) for one in ordered}) == 1
    times = [links.times[links.part(part)] for part in PARTS]
    assert sum(map(len, times)) == MESSAGES
    for earlier, later in itertools.combinations([one for one in times if len(one)], 2):
        assert earlier.max() < later.min()
    assert len(times[0]) == pytest.approx(MESSAGES * (1 - share), abs=3)


def test_edges_of_one_time_stay_together(tmp_path: Path) -> None:
    columns = messages(shuffled=False) | {"sent": [number // 500 for number in range(MESSAGES)]}
    graph = oc.open(written(tmp_path, columns))
    links = timed_links(graph, config())
    assert links.bounds == (1000, 1000, 1500)
    with pytest.raises(InvalidError, match="nearly the same time"):
        timed_links(graph, config(link={"held_out": 0.9}))


@pytest.mark.parametrize("name", ["typed", "plain"])
@pytest.mark.parametrize("kind", ["sage", "gat"])
def test_what_lasts_is_learnt_and_scores_are_those_of_the_run(
    name: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    data_set = request.getfixturevalue(name)
    record = train(data_set, config(kind), out=tmp_path / "run")
    scores = record["result"]["scores"]
    # Without directions, who writes counts as much as who hears.
    least = 0.75 if name == "typed" else 0.62
    assert scores["valid"] > least
    assert scores["test"] > least
    facts = record["data_set"]["links"]
    assert facts["train"] + facts["valid"] + facts["test"] == MESSAGES
    again = evaluate(tmp_path / "run", split="test", memory="64MiB")
    assert again["score"] == pytest.approx(scores["test"], abs=1e-6)
    assert again["edges"] == facts["test"]
    np.save(tmp_path / "pairs.npy", np.zeros((3, 2), np.int64))
    with pytest.raises(UnsupportedError, match="scores an edge at its time"):
        oc.predict(data_set, tmp_path / "run", tmp_path / "o.parquet", edges=tmp_path / "pairs.npy")


@pytest.mark.parametrize("add_reverse", [False, True])
def test_a_network_is_at_chance_where_times_tell_nothing(add_reverse: bool, tmp_path: Path) -> None:
    """Who hears in the future is in the data set: a network that saw it would know."""
    data_set = written(tmp_path, messages(shuffled=True), add_reverse=add_reverse)
    record = train(data_set, config(sampling={"fanout": (8, 4)}), out=tmp_path / "run")
    for score in record["result"]["scores"].values():
        assert 0.35 < score < 0.65


def test_budgets_and_threads_change_no_score(typed: Path, tmp_path: Path) -> None:
    records = [
        train(typed, config(budget={"memory": memory, "threads": threads}), out=tmp_path / memory)
        for memory, threads in (("24MiB", 1), ("256MiB", 2))
    ]
    one, other = (record["result"]["links"] for record in records)
    assert one == other


def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(typed: Path, tmp_path: Path) -> None:
    settings = config("gat", epochs=2)
    train(typed, settings, out=tmp_path / "whole")
    with pytest.raises(InterruptError, match="--resume"):
        train(typed, settings, out=tmp_path / "cut", observer=StopAfter(20, terminate))
    resume(tmp_path / "cut")
    one, other = (load_model(tmp_path / name / "model") for name in ("whole", "cut"))
    states = one.model.state_dict(), other.model.state_dict()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_ages_are_waves_and_decades() -> None:
    span = 1000
    found = TimeEncoding(span)(torch.tensor([0, 1, 250, span]))
    waves = TimeEncoding.width - 1
    for row, age in zip(found, (0, 1, 250, span), strict=True):
        for number in range(waves):
            periods = 1e6 ** (number / (waves - 1)) * age / span
            assert row[number] == pytest.approx(math.cos(2 * math.pi * periods), abs=1e-4)
        assert row[-1] == pytest.approx(math.log1p(age * 1e6 / span) / math.log1p(1e6))


def naive_state(
    work: TemporalLinkWork, batch: Any, seed: int, relation_types: list[Any]
) -> torch.Tensor:
    """The state of a seed after one layer of `sage`, edge by edge."""
    model, users = work.model, batch["user"]
    layer = model.stack[0]
    table = model.encoder.tables["user"].weight
    now = int(users.seed_time[users.batch[seed]])
    state = layer.own["user"](table[users.n_id[seed]])
    for one in relation_types:
        relation, edges = layer.relations[one], batch[one]
        found = []
        for place in range(edges.edge_index.shape[1]):
            source, target = edges.edge_index[:, place].tolist()
            if target != seed:
                continue
            age = now - int(edges.edge_sent[place])
            assert age > 0
            ages = model.time(torch.tensor([age]))[0]
            message = relation.source(table[users.n_id[source]]) + relation.age(ages)
            found.append(torch.relu(message))
        mean = torch.stack(found).mean(dim=0) if found else torch.zeros_like(state)
        count = torch.tensor([math.log1p(len(found))])
        state = state + relation.out(torch.cat([mean, count]))
    return torch.relu(state)


def test_scores_are_those_of_a_naive_network(typed: Path) -> None:
    graph = oc.open(typed)
    work = work_of(graph, config(sampling={"batch_size": 8}, link={"negatives": 2, "head": "dot"}))
    work.model.eval()
    with torch.no_grad():
        batch = list(itertools.islice(work.loaders.training(), 3))[-1]
        positive, negative = work.model(batch)
        users = batch["user"]
        for number in range(8):
            source, target = (
                naive_state(work, batch, int(places[number]), graph.edge_types)
                for places in (users.src_index, users.dst_pos_index)
            )
            assert positive[number].item() == pytest.approx((source @ target).item(), rel=1e-4)
            for place, other in enumerate(users.dst_neg_index[number].tolist()):
                found = (source @ naive_state(work, batch, other, graph.edge_types)).item()
                assert negative[number, place].item() == pytest.approx(found, rel=1e-4)
    work.loaders.close()


@pytest.mark.parametrize(
    ("changes", "kind", "error", "message"),
    [
        ({"sampling": {"time": "when"}}, "sage", NotFoundError, "no edge array `when`"),
        ({"link": {"relation": "user,likes,user"}}, "sage", NotFoundError, "user,sends,user"),
        ({"link": {"edges": "some.npz"}}, "sage", UnsupportedError, "held_out"),
        ({}, "rgcn", UnsupportedError, "`sage` or `gat`"),
        ({"model": {"residual": True}}, "sage", UnsupportedError, "have neither"),
        ({"budget": {"memory": "50KiB"}}, "sage", BudgetError, "1,500 edges"),
        ({"run": {"metric": "accuracy"}}, "sage", InvalidError, "edges are scored by"),
        ({"run": {"metric": "hits@100"}, "link": {"held_out": 0.05}}, "sage", InvalidError, "100"),
    ],
)
def test_what_does_not_fit_is_named(
    changes: dict[str, Any], kind: str, error: type[OutercoreError], message: str,
    typed: Path, tmp_path: Path,
) -> None:  # fmt: skip
    with pytest.raises(error, match=message):
        train(typed, config(kind, **changes), out=tmp_path / "run")


def test_whole_graphs_have_no_past(plain: Path) -> None:
    with pytest.raises(UnsupportedError, match="no past"):
        GraphWork(oc.open(plain), config(run={"task": "graph"}))


def test_a_plan_names_what_the_edges_take(typed: Path) -> None:
    found = plan(typed, config())
    assert found["edges_memory"] == 16 * MESSAGES
    assert found["embeddings_memory"] > 0
    assert found["training"]["nodes_per_batch"] > 0
