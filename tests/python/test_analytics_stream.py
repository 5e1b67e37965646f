"""Programs of one's own over all arcs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naive
import outercore as oc
from outercore.errors import BudgetError, InvalidError, NotFoundError


@pytest.fixture(params=[False, True], ids=["directed", "undirected"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[oc.Graph, naive.Arcs]:
    random = np.random.default_rng(3)
    source, target = (90 * random.random((2, 700)) ** 2).astype(np.int64)
    weight = random.random(700, np.float32)
    graph, arcs = naive.write(
        tmp_path / "graph", 100, source, target, undirected=request.param, weight=weight
    )
    oc.grid(graph, weights="weight", partition_log2=4)
    return graph, arcs


def collected(stream: oc.EdgeStream, direction: Any = "out") -> list[tuple[int, int, float]]:
    found: list[tuple[int, int, float]] = []

    def collect(block: Any) -> None:
        assert block.source.dtype == block.target.dtype == np.int64
        weight = np.ones(len(block.source)) if block.weight is None else block.weight
        found.extend(
            zip(block.source.tolist(), block.target.tolist(), weight.tolist(), strict=True)
        )

    stream.each(collect, direction=direction)
    return found


def test_a_pass_gives_every_arc_once(pair: tuple[oc.Graph, naive.Arcs]) -> None:
    graph, arcs = pair
    expected = Counter(
        zip(arcs.source.tolist(), arcs.target.tolist(), arcs.weight.tolist(), strict=True)
    )
    stream = oc.EdgeStream(graph, weights="weight")
    assert Counter(collected(stream)) == expected
    assert Counter((s, t, w) for t, s, w in collected(stream, "in")) == expected
    plain = Counter(zip(arcs.source.tolist(), arcs.target.tolist(), strict=True))
    assert Counter((s, t) for s, t, _ in collected(oc.EdgeStream(graph))) == plain


def test_both_ways_is_twice_on_a_directed_graph(pair: tuple[oc.Graph, naive.Arcs]) -> None:
    graph, arcs = pair
    both = collected(oc.EdgeStream(graph), "both")
    assert len(both) == len(arcs.source) * (1 if arcs.undirected else 2)
    assert Counter((s, t) for s, t, _ in both) == Counter((t, s) for s, t, _ in both)


def test_the_order_depends_on_the_graph_alone(pair: tuple[oc.Graph, naive.Arcs]) -> None:
    graph, _ = pair
    first = collected(oc.EdgeStream(graph, threads=1))
    for options in ({"threads": 3}, {"memory": "8MiB"}, {"backend": "threads"}):
        assert collected(oc.EdgeStream(graph, **options)) == first


def test_what_the_function_raises_ends_the_pass(pair: tuple[oc.Graph, naive.Arcs]) -> None:
    graph, _ = pair
    stream = oc.EdgeStream(graph)
    with pytest.raises(ZeroDivisionError):
        stream.each(lambda block: 1 // 0)
    assert collected(stream)


def test_mistakes_are_named(pair: tuple[oc.Graph, naive.Arcs]) -> None:
    graph, _ = pair
    with pytest.raises(NotFoundError, match="edge array `w` is not in the data set"):
        oc.EdgeStream(graph, weights="w").each(print)
    with pytest.raises(BudgetError, match="the least that works is"):
        oc.EdgeStream(graph, memory="100KiB").each(print)
    with pytest.raises(InvalidError, match="`up`"):
        oc.EdgeStream(graph).each(print, direction="up")  # type: ignore[arg-type]
