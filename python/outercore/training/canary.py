"""Planted leaks: tests whether samples and splits show a model the future or the answers.

Each seed gets a random label of 0 or 1. Forbidden nodes and edges carry the label of the seed; all
others carry a random bit. A model scores a seed by the mean of the bits in its sample. If nothing
leaks, its score is at chance. Samples without a guard are the control: from these the model must
find the label.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.base.shell import quoted
from outercore.data.csc import Edges, among, array_of, edge_array_key, pair_keys
from outercore.data.edge_types import REVERSE, EdgeType
from outercore.data.triples import PARTS
from outercore.errors import NotFoundError
from outercore.training.config import TrainConfig
from outercore.training.links.data import divide
from outercore.training.links.timed import edge_times
from outercore.training.metrics import auc
from outercore.training.typed_network import TypedParts

if TYPE_CHECKING:
    from outercore.data.graph import Graph

_SEEDS = 2_000
_PAIRS = 20_000
_FAN_OUTS = (10, 10)
_BATCH = 256
_DEVIATIONS = 3.0
"""Standard deviations above chance from which a score shows that a model sees the label."""

Verdict = Literal["leaks", "chance", "no power"]


@dataclass(frozen=True)
class Canary:
    """The result of one planted leak."""

    guard: str
    """The rule that keeps forbidden nodes and edges out."""
    seeds: int
    seen: dict[str, int]
    """Number of forbidden nodes and edges in the samples, by kind; empty if nothing leaks."""
    score: float
    """Area under the ROC curve of the model: 0.5 is chance."""
    without: float | None
    """The same area without the guard; `None` if the guard cannot be left out."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing leaks."""
        return not self.seen

    @property
    def has_power(self) -> bool:
        """Whether the test can find a leak: without the guard, the score is far above chance."""
        if self.without is None:
            return self.seeds > 0
        # Standard deviation of the area under the curve at chance, with half of the seeds positive.
        deviation = math.sqrt((self.seeds + 1) / 3) / self.seeds if self.seeds else math.inf
        return self.without > 0.5 + _DEVIATIONS * deviation

    @property
    def verdict(self) -> Verdict:
        """The conclusion. Without power, a score at chance proves nothing."""
        if not self.is_sound:
            return "leaks"
        return "chance" if self.has_power else "no power"


def canaries(
    graph: Graph,
    time: str | None = None,
    memory: str | int = "1GiB",
    on_start: Callable[[str], None] = lambda _: None,
) -> list[Canary]:
    """Runs all canaries that a data set allows, and returns their results.

    Args:
        graph: a data set of one graph.
        time: name of the arrays with times of nodes or edges. By default arrays called `time` are
            used if the data set has any.
        memory: budget of a loader.
        on_start: called with the name of each canary before it starts.

    Cost: samples at most 2,000 seeds of each node type, twice. Reads the edges once.
    Errors: `NotFoundError` if no array is called `time`; `InvalidError` if loaders cannot use the
    times.
    """
    name = time or "time"
    types = _timed_types(graph, name)
    if time is not None and not types:
        raise NotFoundError(
            f"--time {time}: data set `{graph.root}` has no array `{time}` of nodes or edges\n"
            f"hint: `outercore info {quoted(graph.root)}` lists them"
        )
    results = []
    for node_type in types:
        on_start(f"canary: times, seeds of `{node_type}`")
        results.append(_of_times(graph, node_type, name, memory))
    if len(graph.splits) > 1:
        on_start("canary: splits")
        results.append(_of_splits(graph))
    if not graph.is_typed and "edges/edge/offsets" in graph.arrays and graph.num_edges:
        on_start("canary: held-out edges")
        results.append(_of_links(graph))
    return results


def without_times(graph: Graph, time: str | None = None) -> list[str]:
    """The types without times, if other types have times. Samples by time always see them."""
    name = time or "time"
    edges = edge_times(graph, name)
    nodes = [kind for kind in graph.node_types if f"nodes/{kind}/{name}" not in graph.arrays]
    if not edges and len(nodes) == len(graph.node_types):
        return []
    others = [kind for kind in graph.edge_types if kind not in edges]
    return [
        *(f"nodes of `{kind}`" for kind in nodes),
        *(f"edges of `{','.join(kind)}`" for kind in others),
    ]


@dataclass
class _Model:
    """Scores seeds by the mean of the bits in their samples."""

    labels: NDArray[np.bool_]
    random: np.random.Generator
    sums: NDArray[np.float64] = field(init=False)
    counts: NDArray[np.float64] = field(init=False)
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.sums, self.counts = np.zeros((2, len(self.labels)))

    def look(self, what: str, seeds: NDArray[np.int64], hidden: NDArray[np.bool_]) -> None:
        """Adds the nodes or edges that seeds see. `hidden` marks forbidden nodes and edges."""
        bits = self.random.random(len(seeds)) < 0.5
        np.add.at(self.sums, seeds, np.where(hidden, self.labels[seeds], bits))
        np.add.at(self.counts, seeds, 1.0)
        if hidden.any():
            self.seen[what] += int(hidden.sum())

    def score(self) -> float:
        """The area under the ROC curve."""
        chance = np.full(len(self.sums), 0.5)
        scores = np.divide(self.sums, self.counts, chance, where=self.counts > 0)
        area = auc(scores, self.labels)
        return 0.5 if area is None else area


def _timed_types(graph: Graph, name: str) -> list[str]:
    """The node types whose samples a time limits, with in-edges and at least one node."""
    edges = edge_times(graph, name)
    timed = {target for _, _, target in edges} | {source for source, _, _ in edges}
    timed |= {
        node_type for node_type in graph.node_types if f"nodes/{node_type}/{name}" in graph.arrays
    }
    reached = {target for _, _, target in graph.edge_types}
    return [
        node_type
        for node_type, count in graph.node_types.items()
        if node_type in timed & reached and count
    ]


def _of_times(graph: Graph, node_type: str, name: str, memory: str | int) -> Canary:
    random = np.random.default_rng(0)
    count = graph.node_types[node_type]
    nodes = np.sort(random.choice(count, min(count, _SEEDS), replace=False))
    times = _seed_times(graph, node_type, name, nodes)
    labels = random.random(len(nodes)) < 0.5
    models = []
    for guard in (name, None):
        model = _Model(labels, np.random.default_rng(1))
        for first, batch in _batches(graph, node_type, nodes, times, guard, name, memory):
            for what, seeds, later in _later(graph, batch, name, times[first:]):
                model.look(what, first + seeds, later)
        models.append(model)
    guarded, bare = models
    what = f"times `{name}`, seeds of `{node_type}`"
    return Canary(what, len(nodes), dict(guarded.seen), guarded.score(), bare.score())


def _seed_times(
    graph: Graph, node_type: str, name: str, nodes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The time of each seed: the time of the node, or the median of the edge times."""
    key = f"nodes/{node_type}/{name}"
    if key in graph.arrays:
        return graph.rows(key, nodes).astype(np.int64)
    some = []
    for edge_type, array in edge_times(graph, name).items():
        times = array_of(graph, edge_array_key(graph, edge_type, array))
        some.append(np.asarray(times[:: len(times) // 10_000 + 1], np.int64))
    joined = np.concatenate(some) if some else np.zeros(1, np.int64)
    return np.full(len(nodes), int(np.median(joined)) if len(joined) else 0)


def _batches(
    graph: Graph,
    node_type: str,
    nodes: NDArray[np.int64],
    times: NDArray[np.int64],
    guard: str | None,
    name: str,
    memory: str | int,
) -> Iterator[tuple[int, Any]]:
    """The index of the first seed of each batch, and the batch.

    With `guard`, the name of the times, a seed sees only nodes and edges up to its time. Without
    it, a seed may see all nodes and edges. In both cases each seed has a separate sample.
    """
    from outercore.loading.loader import NeighborLoader

    rules: dict[str, Any] = {"disjoint": True}
    if guard is not None:
        rules = {"time_attr": guard, "input_time": times}
    timed = edge_times(graph, name)
    keys = [edge_array_key(graph, *timed_type) for timed_type in timed.items()]
    loader = NeighborLoader(
        graph,
        list(_FAN_OUTS),
        (node_type, nodes) if graph.is_typed else nodes,
        batch_size=_BATCH,
        features=None,
        labels=None,
        arrays=keys if graph.is_typed else [f"edge_{timed_type}" for timed_type in timed.values()],
        hotness="none",
        memory=memory,
        **rules,
    )
    with loader:
        for number, batch in enumerate(loader):
            yield number * _BATCH, batch


def _later(
    graph: Graph, batch: Any, name: str, seed_times: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.bool_]]]:
    """The nodes and edges of a batch, by kind: name, seeds, and whether they are later."""
    timed = edge_times(graph, name)
    parts = TypedParts(batch)
    of_nodes = {node_type: parts.nodes(node_type).batch.numpy() for node_type in graph.node_types}
    ids = {node_type: parts.nodes(node_type).n_id.numpy() for node_type in graph.node_types}
    for node_type, seeds in of_nodes.items():
        key = f"nodes/{node_type}/{name}"
        if key in graph.arrays and len(seeds):
            times = graph.rows(key, ids[node_type]).astype(np.int64)
            yield f"nodes of `{node_type}`", seeds, times > seed_times[seeds]
    for edge_type in graph.edge_types:
        source, _, target = edge_type
        store = parts.edges(edge_type)
        index = store.edge_index.numpy()
        seeds = of_nodes[target][index[1]]
        if not len(seeds):
            continue
        what = f"edges of `{','.join(edge_type)}`"
        if edge_type in timed:
            times = np.asarray(store[f"edge_{timed[edge_type]}"]).astype(np.int64)
            yield what, seeds, times > seed_times[seeds]
            continue
        mirrored = _mirrored(edge_type, timed)
        if mirrored is not None:
            edges = Edges(graph, mirrored, timed[mirrored])
            ends = ids[target][index[1]], ids[source][index[0]]
            known = edges.has(*ends, at=seed_times[seeds])
            yield f"{what}, as `{mirrored[1]}` is later", seeds, edges.has(*ends) & ~known


def _mirrored(edge_type: EdgeType, timed: dict[EdgeType, str]) -> EdgeType | None:
    """The edge type with times of which `edge_type` is the reverse; `None` if there is none."""
    source, relation, target = edge_type
    names = (relation.removeprefix(REVERSE), REVERSE + relation)
    for other in ((target, name, source) for name in names if name != relation):
        if other in timed:
            return other
    return None


def _of_splits(graph: Graph) -> Canary:
    """Tests whether a node of a later split is also in an earlier split."""
    random = np.random.default_rng(0)
    names = sorted(graph.splits, key=lambda name: (PARTS.index(name) if name in PARTS else 3, name))
    earlier = np.unique(graph.split(names[0]))
    parts = []
    for name in names[1:]:
        nodes = np.unique(graph.split(name))
        parts.append((name, nodes, among(nodes, earlier)))
        earlier = np.union1d(earlier, nodes)
    count = sum(len(nodes) for _, nodes, _ in parts)
    model = _Model(random.random(count) < 0.5, random)
    first = 0
    for name, nodes, known in parts:
        # A network can learn the labels of these nodes by heart.
        seeds = first + np.flatnonzero(known)
        model.look(f"nodes of `{name}` in a split before", seeds, np.ones(len(seeds), np.bool_))
        first += len(nodes)
    return Canary(f"splits {', '.join(names)}", count, dict(model.seen), model.score(), None)


def _of_links(graph: Graph) -> Canary:
    """Tests whether edges held out of `outercore train --task link` are also training edges."""
    divided = divide(graph, TrainConfig())
    held = [pairs for pairs in divided.held_out.values() if len(pairs)]
    pairs = np.concatenate(held) if held else np.empty((0, 2), np.int64)
    random = np.random.default_rng(0)
    if len(pairs) > _PAIRS:
        pairs = pairs[random.choice(len(pairs), _PAIRS, replace=False)]
    keys = np.unique(pair_keys(pairs, graph.num_nodes))
    leaked = np.zeros(len(keys), np.bool_)
    for pairs in divided.train():
        learnt = pair_keys(pairs, graph.num_nodes)
        leaked[np.searchsorted(keys, learnt[among(learnt, keys)])] = True
    count = int(leaked.sum())
    seen = {"held-out edges among those to learn from, in one direction or the other": count}
    # The model asks whether an edge exists. Without the guard, all held-out edges exist.
    score = 0.5 + count / max(2 * len(keys), 1)
    what = "edges held out of `outercore train --task link`"
    return Canary(what, len(keys), seen if count else {}, score, 1.0)
