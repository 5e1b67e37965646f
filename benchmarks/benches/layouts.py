"""Pages of feature rows that a request touches, by the layout of the features."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from measure import Result, Series, Settings, say
from numpy.typing import NDArray

import outercore as oc
from outercore import _core
from outercore.data.layouts import build_layout, remove_layouts

PAGE, DATA_OFFSET = 4096, 4096
REQUESTS, WINDOW = 1000, 32
FANOUT = [15, 10]
FEATURES = 128
GRAPHS = {"10 communities": 10, "2,000 communities": 2000}
"""Planted graphs, with their numbers of communities."""
LAYOUTS = [("none", "exact"), ("degree", "exact"), ("rcm", "exact"), ("glist", "exact")]
LAYOUTS += [("none", "int8"), ("glist", "int8")]
WHAT = (
    f"Distinct pages of {PAGE:,} bytes with the feature rows of a request for one node (fan-out "
    f"{','.join(map(str, FANOUT))}), and of {WINDOW} requests that are read together, each by "
    f"request. Mean of {REQUESTS:,} requests for random nodes. Nothing is cached."
)


def run(settings: Settings) -> Result:
    """Measure planted graphs in every layout."""
    result = Result("layouts", WHAT)
    nodes = 20_000 if settings.quick else 200_000
    for name, classes in GRAPHS.items():
        root = settings.work / "layouts"
        shutil.rmtree(root, ignore_errors=True)
        sizes = {"nodes": nodes, "degree": 16, "features": FEATURES}
        described = {**sizes, "classes": classes, "seed": 1}
        _core.generate_planted(root, described, lambda *_: None)
        wanted = requests(root)
        for order, precision in LAYOUTS:
            places, row = laid_out(root, order, precision)
            alone, together = pages(wanted, places, row)
            label = f"{order}, {precision}"
            result.series.append(Series(label, f"{name}, alone", "pages/request", [alone]))
            window = f"{name}, {WINDOW} together"
            result.series.append(Series(label, window, "pages/request", [together]))
            say(f"{name}, {label}: {alone:.1f} pages a request, {together:.1f} together")
        shutil.rmtree(root)
    return result


def requests(root: Path) -> list[NDArray[np.int64]]:
    """The nodes whose rows a request needs, for each request."""
    graph = oc.open(root)
    seeds = np.random.default_rng(1).integers(graph.num_nodes, size=REQUESTS)
    sampler = oc.NeighborSampler(graph, FANOUT, seeds, batch_size=1, seed=2)
    return [np.asarray(sample.n_id) for sample in sampler]


def laid_out(root: Path, order: str, precision: str) -> tuple[NDArray[np.int64], int]:
    """The place of each node's row, and the bytes per row."""
    graph = oc.open(root)
    remove_layouts(graph)
    row = FEATURES * (1 if precision == "int8" else 4)
    if order == "none":
        return np.arange(graph.num_nodes), row
    summary = build_layout(graph, order=order, precision=precision)  # type: ignore[arg-type]
    say(f"{order}, {precision}: built in {summary['seconds']:.1f} s")
    places = graph.array(f"layout/nodes/node/x/{precision}/places")
    return places.astype(np.int64), row


def pages(
    wanted: list[NDArray[np.int64]], places: NDArray[np.int64], row: int
) -> tuple[float, float]:
    """Distinct pages per request, for single requests and for windows of requests."""

    def distinct(nodes: NDArray[np.int64]) -> int:
        start = DATA_OFFSET + places[np.unique(nodes)] * row
        return len(np.union1d(start // PAGE, (start + row - 1) // PAGE))

    alone = [distinct(nodes) for nodes in wanted]
    windows = range(0, len(wanted), WINDOW)
    together = [distinct(np.concatenate(wanted[at : at + WINDOW])) for at in windows]
    return sum(alone) / len(wanted), sum(together) / len(wanted)
