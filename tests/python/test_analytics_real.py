"""Published values of real graphs, where they are at hand: `OUTERCORE_DATA` names the directory.

Each graph is a directory there with its edges and a `reference.json`.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naive
import outercore as oc

DATA = os.environ.get("OUTERCORE_DATA")

pytestmark = [
    pytest.mark.skipif(DATA is None, reason="OUTERCORE_DATA names no directory of graphs"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

MEMORY = "32MiB"


def unpacked(*parts: str) -> bytes:
    path = Path(DATA or "").joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return {".gz": gzip.decompress, ".xz": lzma.decompress}[path.suffix](path.read_bytes())


def reference(name: str) -> dict[str, Any]:
    return json.loads(Path(DATA or "").joinpath(name, "reference.json").read_text())


def integers(text: bytes) -> np.ndarray:
    return np.array(text.replace(b",", b" ").split(), np.int64)


def snap(name: str, root: Path) -> oc.Graph:
    """`nodes,edges,d or u` and then `source,target` a line, from 1."""
    header, _, lines = unpacked(name, "graph.jlg.gz").partition(b"\n")
    nodes, _, kind = header.decode().strip().split(",")[:3]
    ends = integers(lines).reshape(-1, 2) - 1
    graph, _ = naive.write(root, int(nodes), *ends.T, undirected=kind == "u")
    return graph


def road(name: str, root: Path) -> oc.Graph:
    """`p tw nodes edges` and then `u v` a line, from 1."""
    header, _, lines = unpacked("road-usa-open", f"{name}.gr.xz").partition(b"\n")
    ends = integers(lines).reshape(-1, 2) - 1
    graph, _ = naive.write(root, int(header.split()[2]), *ends.T, undirected=True)
    return graph


def web(root: Path) -> oc.Graph:
    """Out-degrees and gaps, the first of a row zigzag-coded from the node itself."""
    path = Path(DATA or "") / "cnr-2000" / "graph.npz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    stored = np.load(path)
    gaps = sum(stored[f"gap{byte}"].astype(np.int64) << (8 * byte) for byte in range(3))
    degree = stored["out_degree"].astype(np.int64)
    rows = np.flatnonzero(degree)
    start = (np.cumsum(degree) - degree)[rows]
    steps = gaps.copy()
    first = gaps[start]
    steps[start] = np.where(first % 2 == 0, first // 2, -(first + 1) // 2) + rows
    sums = np.cumsum(steps)
    target = sums - np.repeat(np.where(start > 0, sums[start - 1], 0), degree[rows])
    graph, _ = naive.write(root, len(degree), np.repeat(np.arange(len(degree)), degree), target)
    return graph


def sizes(labels: np.ndarray) -> np.ndarray:
    return np.unique(labels, return_counts=True)[1]


@pytest.mark.parametrize(
    "name",
    [
        "as-caida20071105",
        "ca-astroph-lcc",
        "email-enron",
        "facebook-ego",
        "soc-slashdot0902",
        "cit-hepth",
        "ego-twitter",
        "cnr-2000",
    ],
)
def test_components_and_triangles_are_the_published_ones(name: str, tmp_path: Path) -> None:
    root = tmp_path / "graph"
    graph = web(root) if name == "cnr-2000" else snap(name, root)
    known = reference(name)
    weak = sizes(oc.wcc(graph, memory=MEMORY))
    assert len(weak) == known["wcc"]
    assert weak.max() == known["largest_wcc_nodes"]
    if known["directed"]:
        strong = sizes(oc.scc(graph, memory=MEMORY))
        assert len(strong) == known["scc"]
        assert strong.max() == known["largest_scc_nodes"]
        assert oc.degrees(graph, which="out").max() == known["max_out_degree"]
        assert oc.degrees(graph, which="in").max() == known["max_in_degree"]
    done = oc.run("triangles", graph, memory="64MiB")
    assert done.facts["triangles"] == known["triangles"]


def test_a_web_graph_has_the_published_ranks_and_levels(tmp_path: Path) -> None:
    graph = web(tmp_path / "graph")
    known = reference("cnr-2000")
    levels = oc.bfs(graph, known["bfs"]["root"], memory=MEMORY)
    assert (levels >= 0).sum() == known["bfs"]["reached"]
    assert levels.max() == known["bfs"]["depth"]
    options = {"max_iterations": known["pagerank"]["iterations"], "tolerance": 0.0}
    ranks = oc.pagerank(graph, damping=known["pagerank"]["damping"], memory=MEMORY, **options)
    for node, rank in known["pagerank"]["top5_0based"]:
        np.testing.assert_allclose(ranks[node], rank, rtol=1e-8)


@pytest.mark.parametrize("name", ["NY", "BAY"])
def test_a_road_network_is_as_deep_as_published(name: str, tmp_path: Path) -> None:
    graph = road(name, tmp_path / "graph")
    known = reference("road-usa-open")[name]
    levels = oc.bfs(graph, known["bfs"]["root"], memory=MEMORY)
    assert (levels >= 0).sum() == known["bfs"]["reached"]
    assert levels.max() == known["bfs"]["depth"]
    assert oc.run("triangles", graph).facts["triangles"] == known["triangles"]


class Gnutella:
    """p2p-Gnutella31 with random weights and the outputs of another system, ids from 1."""

    nodes = 62_586
    source = 5

    def __init__(self, root: Path, *, undirected: bool) -> None:
        edges = integers(unpacked("p2p-gnutella31", "p2p-31.e.xz")).reshape(-1, 3)
        source, target, weight = edges.T
        self.graph, self.arcs = naive.write(
            root, self.nodes, source - 1, target - 1, undirected=undirected, weight=weight
        )

    def output(self, name: str) -> np.ndarray:
        words = unpacked("p2p-gnutella31", f"p2p-31-{name}.xz").split()
        values = np.empty(self.nodes)
        values[np.array(words[::2], np.int64) - 1] = np.array(words[1::2], np.float64)
        return values


def levels_of(distances: np.ndarray) -> np.ndarray:
    """Theirs writes 2^63 - 1 where nothing leads."""
    return np.where(distances > 1e9, -1, distances)


def test_gnutella_undirected_gives_the_outputs_of_libgrape(tmp_path: Path) -> None:
    gnutella = Gnutella(tmp_path / "graph", undirected=True)
    graph, source = gnutella.graph, gnutella.source
    np.testing.assert_array_equal(
        oc.bfs(graph, source, memory=MEMORY), levels_of(gnutella.output("BFS"))
    )
    np.testing.assert_array_equal(
        oc.sssp(graph, source, weights="weight", memory=MEMORY), gnutella.output("SSSP")
    )
    expected = gnutella.output("PR")
    found = oc.pagerank(graph, max_iterations=10, tolerance=0, memory=MEMORY)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    expected = gnutella.output("WCC")
    found = oc.wcc(graph, memory=MEMORY)
    both = np.unique(np.stack([expected, found]), axis=1)
    assert both.shape[1] == len(np.unique(expected)) == len(np.unique(found))
    clustering = oc.local_clustering(graph, memory=MEMORY)
    np.testing.assert_allclose(clustering, gnutella.output("LCC"), rtol=1e-12)
    labels = oc.label_propagation(graph, max_iterations=10, memory=MEMORY)
    np.testing.assert_array_equal(labels + 1, gnutella.output("CDLP"))


def test_gnutella_directed_gives_the_outputs_of_libgrape(tmp_path: Path) -> None:
    gnutella = Gnutella(tmp_path / "graph", undirected=False)
    graph, source = gnutella.graph, gnutella.source
    np.testing.assert_array_equal(
        oc.bfs(graph, source, memory=MEMORY), levels_of(gnutella.output("BFS-directed"))
    )
    np.testing.assert_array_equal(
        oc.sssp(graph, source, weights="weight", memory=MEMORY),
        gnutella.output("SSSP-directed"),
    )
