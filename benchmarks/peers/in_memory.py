"""BFS or PageRank of a library with its graph in memory. Prints JSON lines.

python benchmarks/peers/in_memory.py networkit|igraph|scipy bfs|pagerank edges.npy --source S
    [--iterations I] [--threads T] [--ready FILE]

Builds the graph with both directions of every edge, then runs the algorithm once. With `--ready`,
it runs a second time: it creates the file after the first run, and waits until the file is removed.
The parent process can set a memory limit between the two runs.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np


def networkit(options: argparse.Namespace) -> Callable[[], object]:
    """Breadth-first search without stored distances; power iteration without an early end."""
    import networkit as nk

    nk.setNumberOfThreads(options.threads)
    pairs = np.load(options.edges).astype(np.uint64)
    ends = (np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]))
    graph = nk.GraphFromCoo(ends, n=int(pairs.max()) + 1, weighted=False, directed=False)
    if options.algorithm == "bfs":
        return lambda: nk.distance.BFS(graph, options.source, False).run()

    def pagerank() -> object:
        ranks = nk.centrality.PageRank(graph, 0.85, 1e-300)
        ranks.maxIterations = options.iterations
        return ranks.run()

    return pagerank


def igraph(options: argparse.Namespace) -> Callable[[], object]:
    """Distances from the source; PageRank by PRPACK, which ends after convergence."""
    import igraph

    pairs = np.load(options.edges)
    graph = igraph.Graph(n=int(pairs.max()) + 1, edges=pairs, directed=False)
    del pairs
    if options.algorithm == "bfs":
        return lambda: graph.distances(source=[options.source])
    return lambda: graph.pagerank(damping=0.85, implementation="prpack")


def scipy(options: argparse.Namespace) -> Callable[[], object]:
    """Compressed rows with float64 values for `csgraph`; one product per iteration."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order

    pairs = np.load(options.edges).astype(np.int32)
    nodes = int(pairs.max()) + 1
    ends = (np.concatenate([pairs[:, 0], pairs[:, 1]]), np.concatenate([pairs[:, 1], pairs[:, 0]]))
    del pairs
    matrix = coo_array((np.ones(len(ends[0])), ends), shape=(nodes, nodes)).tocsr()
    del ends
    if options.algorithm == "bfs":
        return lambda: breadth_first_order(matrix, options.source, return_predecessors=False)
    degrees = matrix.sum(axis=1)

    def pagerank() -> object:
        ranks = np.full(nodes, 1 / nodes)
        for _turn in range(options.iterations):
            shares = np.divide(ranks, degrees, out=np.zeros(nodes), where=degrees > 0)
            lost = ranks[degrees == 0].sum()
            ranks = 0.85 * (matrix @ shares) + (0.15 + 0.85 * lost) / nodes
        return ranks

    return pagerank


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    libraries = {"networkit": networkit, "igraph": igraph, "scipy": scipy}
    parser.add_argument("library", choices=libraries)
    parser.add_argument("algorithm", choices=("bfs", "pagerank"))
    parser.add_argument("edges", type=Path)
    parser.add_argument("--source", type=int, required=True)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ready", type=Path)
    options = parser.parse_args()

    def timed(what: str, work: Callable[[], object]) -> object:
        begun = time.perf_counter()
        result = work()
        print(json.dumps({what: time.perf_counter() - begun}), flush=True)
        return result

    algorithm = timed("build_s", lambda: libraries[options.library](options))
    timed("first_s", algorithm)
    if options.ready is None:
        return
    options.ready.touch()
    while options.ready.exists():
        time.sleep(0.01)
    timed("second_s", algorithm)


if __name__ == "__main__":
    main()
