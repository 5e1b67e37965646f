"""A slow sampler for tests, for every kind of graph: types, weights, times, disjoint trees.

It follows the definition edge by edge, on lists of Python numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

import reference

Edge = tuple[int, int]
"""Source and row of an edge, numbered within their types."""


@dataclass
class SlowGraph:
    """A graph as lists.

    `edges[edge type][target]` are the in-edges of a node, in the order of source and row.
    """

    nodes: dict[str, int]
    edges: dict[tuple[str, str, str], list[list[Edge]]]
    weights: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    edge_times: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    node_times: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        nodes: dict[str, int],
        rows: dict[tuple[str, str, str], np.ndarray],
        **values: dict,
    ) -> SlowGraph:
        """A graph from the rows [edges, 2] of each edge type."""
        edges = {}
        for edge_type in sorted(rows, key="__".join):
            into: list[list[Edge]] = [[] for _ in range(nodes[edge_type[2]])]
            for row, (source, target) in enumerate(rows[edge_type].tolist()):
                into[target].append((source, row))
            edges[edge_type] = [sorted(in_edges) for in_edges in into]
        return cls(dict(sorted(nodes.items())), edges, **values)


@dataclass
class Rules:
    """The rules of sampling, without fan-outs."""

    disjoint: bool = False
    weighted: bool = False
    timed: bool = False
    equal: bool = True
    last: bool = False
    replace: bool = False


@dataclass
class SlowBatch:
    """The expected batch, by type."""

    nodes: dict[str, list[int]]
    trees: dict[str, list[int]]
    edges: dict[tuple[str, str, str], list[tuple[int, int]]]
    """Local ids of source and target within their types."""
    rows: dict[tuple[str, str, str], list[int]]


def sample(
    graph: SlowGraph,
    seeds: list[tuple[str, int]],
    fan_outs: list[int],
    rules: Rules,
    *,
    seed: int,
    epoch: int,
    batch: int,
    times: list[int] | None = None,
) -> SlowBatch:
    """A batch around `seeds` (node type, node)."""
    key = reference.stream_key(seed, epoch)
    columns, first = {}, 0
    for edge_type in graph.edges:
        columns[edge_type] = first
        first += graph.nodes[edge_type[2]]
    forest = rules.disjoint or rules.timed
    sampled = SlowBatch(
        {name: [] for name in graph.nodes},
        {name: [] for name in graph.nodes},
        {edge_type: [] for edge_type in graph.edges},
        {edge_type: [] for edge_type in graph.edges},
    )
    local: dict[tuple[int, str, int], int] = {}
    for number, (name, node) in enumerate(seeds):
        tree = number if forest else 0
        local.setdefault((tree, name, node), len(sampled.nodes[name]))
        sampled.nodes[name].append(node)
        sampled.trees[name].append(tree)
    frontier = {name: (0, len(nodes)) for name, nodes in sampled.nodes.items()}
    for hop, fan_out in enumerate(fan_outs):
        for edge_type, into in graph.edges.items():
            source_type, _, target_type = edge_type
            for place in range(*frontier[target_type]):
                node, tree = sampled.nodes[target_type][place], sampled.trees[target_type][place]
                coordinate = tree * first + columns[edge_type] + node
                words = reference.uniform(key, batch, hop, coordinate)
                now = times[tree] if rules.timed and times is not None else None
                for source, row in _picked(
                    graph, edge_type, into[node], fan_out, rules, now, words
                ):
                    own = (tree, source_type, source)
                    if own not in local:
                        local[own] = len(sampled.nodes[source_type])
                        sampled.nodes[source_type].append(source)
                        sampled.trees[source_type].append(tree)
                    sampled.edges[edge_type].append((local[own], place))
                    sampled.rows[edge_type].append(row)
        frontier = {name: (frontier[name][1], len(nodes)) for name, nodes in sampled.nodes.items()}
    return sampled


def sample_hgt(
    graph: SlowGraph,
    seeds: list[tuple[str, int]],
    num_samples: dict[str, list[int]],
    *,
    seed: int,
    epoch: int,
    batch: int,
) -> SlowBatch:
    """A batch around `seeds` by HGT sampling; all scores are computed again before each hop."""
    key = reference.stream_key(seed, epoch)
    first = dict(zip(graph.nodes, np.cumsum([0, *graph.nodes.values()]).tolist(), strict=False))
    nodes: dict[str, list[int]] = {name: [] for name in graph.nodes}
    for name, node in seeds:
        nodes[name].append(node)
    hops = [{name: (0, len(of)) for name, of in nodes.items()}]
    for hop in range(max(map(len, num_samples.values()))):
        scores: dict[str, dict[int, float]] = {name: {} for name in graph.nodes}
        for of_hop in hops:
            for (source_type, _, target_type), into in graph.edges.items():
                for target in nodes[target_type][slice(*of_hop[target_type])]:
                    for source, _ in into[target]:
                        if source not in nodes[source_type]:
                            old = scores[source_type].get(source, 0.0)
                            scores[source_type][source] = old + 1.0 / len(into[target])
        newly = {}
        for name, of_type in scores.items():
            keyed = []
            for node, score in of_type.items():
                word = next(reference.uniform(key, batch, hop | 0x80, first[name] + node))
                keyed.append((-math.log(1.0 - (word >> 11) / (1 << 53)) / (score * score), node))
            drawn = [node for _, node in sorted(keyed)[: num_samples[name][hop]]]
            newly[name] = (len(nodes[name]), len(nodes[name]) + len(drawn))
            nodes[name] += drawn
        hops.append(newly)
    made = SlowBatch(
        nodes,
        {name: [0] * len(of) for name, of in nodes.items()},
        {edge_type: [] for edge_type in graph.edges},
        {edge_type: [] for edge_type in graph.edges},
    )
    for edge_type, into in graph.edges.items():
        sources, targets = nodes[edge_type[0]], nodes[edge_type[2]]
        for at, target in enumerate(targets):
            for source, row in into[target]:
                if source in sources:
                    made.edges[edge_type].append((sources.index(source), at))
                    made.rows[edge_type].append(row)
    return made


def _picked(
    graph: SlowGraph,
    edge_type: tuple[str, str, str],
    edges: list[Edge],
    fan_out: int,
    rules: Rules,
    now: int | None,
    words: Iterator[int],
) -> list[Edge]:
    def time(edge: Edge) -> float:
        of_edge = graph.edge_times.get(edge_type)
        of_node = graph.node_times.get(edge_type[0])
        return max(
            -math.inf if of_edge is None else of_edge[edge[1]],
            -math.inf if of_node is None else of_node[edge[0]],
        )

    if now is not None:
        edges = [edge for edge in edges if time(edge) < now or (rules.equal and time(edge) == now)]
    timed = edge_type in graph.edge_times or edge_type[0] in graph.node_times
    if rules.last and timed:
        if fan_out == -1:
            return edges
        latest = sorted(range(len(edges)), key=lambda place: (time(edges[place]), place))
        chosen = latest[len(latest) - min(fan_out, len(latest)) :]
        return [edges[place] for place in sorted(chosen)]
    if not rules.weighted:
        places = reference.pick(words, len(edges), fan_out, replace=rules.replace)
        return [edges[place] for place in places]
    weights = graph.weights.get(edge_type)
    weighed = [(edge, 1.0 if weights is None else weights[edge[1]]) for edge in edges]
    possible = [(edge, weight) for edge, weight in weighed if weight > 0]
    units = ((next(words) >> 11) / (1 << 53) for _ in iter(int, 1))
    if fan_out == -1:
        return [edge for edge, _ in possible]
    if rules.replace:
        ends = np.cumsum([weight for _, weight in possible]).tolist()
        drawn = [next(units) * ends[-1] for _ in range(fan_out if possible else 0)]
        return [
            possible[next(place for place, end in enumerate(ends) if end > at)][0] for at in drawn
        ]
    keyed = [
        (-math.log(1.0 - next(units)) / weight, place) for place, (_, weight) in enumerate(possible)
    ]
    chosen = sorted(place for _, place in sorted(keyed)[:fan_out])
    return [possible[place][0] for place in chosen]
