"""Names of options and functions in NetworkX, igraph, GDS and PyG, and Outercore's equivalents.

The module has only tables. Each one maps a name to the advice for the error message.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

_WEIGHTS = ("weight", "weights", "distance", "length", "eweight", "edge_weight", "edge_weights")
_NODES = ("nodes", "nodelist", "nbunch", "vertices", "u", "v")

_RENAMED: dict[str, tuple[str, ...]] = {
    "lr": ("learning_rate",),
    **dict.fromkeys(("num_neighbors", "fan_outs"), ("fanout",)),
    **dict.fromkeys(("hidden_channels", "hidden_dim", "hidden_size"), ("hidden", "dim")),
    **dict.fromkeys(("dimensions", "embedding_dim"), ("dim", "hidden")),
    **dict.fromkeys(("alpha", "d", "damping_factor", "dampingFactor"), ("damping",)),
    **dict.fromkeys(
        ("max_iter", "maxiter", "maxIterations", "n_iterations", "niter", "iterations"),
        ("max_iterations",),
    ),
    **dict.fromkeys(("tol", "eps", "epsilon", "threshold"), ("tolerance",)),
    **dict.fromkeys(("personalized", "reset", "pers", "sourceNodes"), ("personalization",)),
    **dict.fromkeys(_WEIGHTS, ("weights",)),
    **dict.fromkeys(_NODES, ("nodes",)),
    **dict.fromkeys(("k", "num_samples", "samplingSize", "samples"), ("samples", "sources")),
    **dict.fromkeys(("source", "sources", "root", "start", "sourceNode"), ("source", "sources")),
    **dict.fromkeys(("depth_limit", "max_depth", "limit", "cutoff"), ("cutoff",)),
    **dict.fromkeys(("mode", "directed", "orientation"), ("direction", "which")),
    **dict.fromkeys(("random_state", "randomSeed"), ("seed",)),
    **dict.fromkeys(("n_jobs", "workers", "concurrency", "num_threads"), ("threads",)),
    **dict.fromkeys(("wf_improved", "useWassermanFaust"), ("improved",)),
    "gamma": ("resolution",),
    "writeProperty": ("save",),
    "G": ("graph",),
}
"""Options of other libraries, and Outercore's options of the same meaning. A job has one."""

_ALIKE = "edges count alike"
_ALL_PATHS = "paths of any length count"
_START = "where the iteration starts does not matter, it ends at `tolerance`"
_ONE_WAY = "there is one method for all graphs"
_AGAINST = '`direction="in"` follows arcs against their direction'
_BEFORE = '`result="predecessors"` gives the node before each one'
_HOPS = f"{_ALIKE}; `oc.sssp(graph, node, weights=...)` has weighted distances"

_ADVICE: tuple[tuple[tuple[str, ...], dict[str, str]], ...] = (
    (
        _WEIGHTS,
        {
            "": _ALIKE,
            "bfs": "hops count; `oc.sssp` takes `weights`",
            "closeness": _HOPS,
            "radii": _HOPS,
            "local_clustering": f"{_ALIKE}; `oc.EdgeStream(graph, weights=...)` reads weighted "
            "edges for a measure of your own",
            "degrees": f"{_ALIKE}; `oc.EdgeStream(graph, weights=...)` reads weighted edges, whose "
            "sums are weighted degrees",
            "label_propagation": f"{_ALIKE}; `oc.louvain` takes `weights`",
            "wcc": "components do not depend on weights",
            "scc": "components do not depend on weights",
        },
    ),
    (_NODES, {"": "values of all nodes come: index the array with the nodes"}),
    (
        ("target", "targets"),
        {
            "": "values of all nodes come: index the array with the targets",
            "betweenness": "all nodes are targets; `sources` chooses where paths begin",
        },
    ),
    (
        ("dangling",),
        {
            "pagerank": "a walker at a node without out-arcs jumps where `personalization` leads, "
            "which is the default of NetworkX"
        },
    ),
    (("nstart", "start", "initial"), {"pagerank": _START, "hits": _START}),
    (
        ("endpoints",),
        {
            "betweenness": "ends of paths do not count; in an undirected graph add to "
            "`normalized=False` the number of other nodes in the component of the node"
        },
    ),
    (
        ("normalized",),
        {
            "pagerank": "values always sum to 1",
            "hits": "values always sum to 1",
            "closeness": "values are one over mean distances; `improved` scales them by the share "
            "of nodes that are reached",
            "degrees": "divide the array by the number of other nodes",
        },
    ),
    (
        ("cutoff",),
        {
            "betweenness": f"{_ALL_PATHS}; `samples` is what makes it cheaper",
            "closeness": f"{_ALL_PATHS}; `nodes` is what makes it cheaper",
            "radii": _ALL_PATHS,
        },
    ),
    (
        ("k",),
        {
            "kcore": "`oc.kcore(graph) >= k` marks the nodes of the k-core",
            "closeness": "`nodes` chooses whose closeness is computed",
        },
    ),
    (("threshold",), {"louvain": "a level ends when modularity grows by less than 1e-7"}),
    (("max_level",), {"louvain": "levels are joined until modularity no longer grows"}),
    (("partition", "communities"), {"louvain": "each node begins as its own community"}),
    (("reverse",), {"bfs": _AGAINST, "sssp": _AGAINST}),
    (("sort_neighbors",), {"bfs": "hops do not depend on the order of neighbours"}),
    (("method", "heuristic"), {"bfs": _ONE_WAY, "sssp": _ONE_WAY}),
    (
        ("count_zeros",),
        {"local_clustering": "`values[values > 0].mean()` is the mean without zeros"},
    ),
    (("seed",), {"": "nothing is drawn, the result is always the same"}),
    (("personalization",), {"": "only `oc.pagerank` takes it"}),
    (("predecessors", "pred", "paths"), {"bfs": _BEFORE, "sssp": _BEFORE}),
)
"""Advice for options of other libraries, by algorithm; the key `""` is for all other algorithms."""
_LACKING = {name: advice for names, advice in _ADVICE for name in names}


def called_here(option: str, taken: Container[str]) -> str | None:
    """The option in `taken` with the same meaning as an option of another library, or None."""
    others = (name for name in _RENAMED.get(option, ()) if name != option)
    return next((name for name in others if name in taken), None)


def instead_of_option(algorithm: str, option: str, taken: Container[str]) -> str:
    """Advice for an option of another library, or an empty string.

    `taken` are the options that the algorithm has.

    Example:
        >>> instead_of_option("pagerank", "alpha", ["damping", "tolerance"])
        'it is called `damping` here'
        >>> instead_of_option("kcore", "k", [])
        '`oc.kcore(graph) >= k` marks the nodes of the k-core'
    """
    meant = called_here(option, taken)
    if meant is not None:
        return f"it is called `{meant}` here"
    advice = _LACKING.get(option, {})
    return advice.get(algorithm, advice.get("", ""))


_SAMPLED = "`oc.NeighborLoader` samples neighbourhoods, there is no loader of other subgraphs"
_SEARCH = "`oc.bfs(graph, source)` counts hops"
_PATHS = "`oc.sssp(graph, source)` has lengths of shortest paths"
_COMPONENTS = "`oc.wcc` names the component of each node"
_COMMUNITIES = "`oc.louvain` finds communities by modularity"
_FAR = "`oc.radii` has distances from sampled nodes; the largest is a bound of the diameter"

FUNCTIONS: Mapping[str, str] = {
    **dict.fromkeys(
        ("ClusterData", "ClusterLoader", "GraphSAINTSampler", "RandomNodeLoader", "IBMBNodeLoader"),
        _SAMPLED,
    ),
    "ShaDowKHopSampler": '`oc.NeighborLoader(..., subgraph_type="induced", disjoint=True)`',
    "NodeLoader": "`oc.NeighborLoader`",
    "LinkLoader": "`oc.LinkNeighborLoader`",
    "HGTSampler": "`oc.HGTLoader`",
    "DataLoader": "`oc.train` trains on many graphs; `oc.NeighborLoader` has batches of one graph",
    **dict.fromkeys(("betweenness_centrality", "approximate_betweenness"), "`oc.betweenness`"),
    "betweenness_centrality_subset": "`oc.betweenness(graph, sources=[...])`",
    "closeness_centrality": "`oc.closeness`",
    **dict.fromkeys(
        ("harmonic", "harmonic_centrality"), "`oc.closeness` is the nearest measure that is there"
    ),
    **dict.fromkeys(
        ("eigenvector_centrality", "katz_centrality"),
        "`oc.pagerank` and `oc.hits` are the nearest measures that are there",
    ),
    **dict.fromkeys(
        ("degree", "degree_centrality", "in_degree", "out_degree"), "`oc.degrees(graph, which=...)`"
    ),
    **dict.fromkeys(
        (
            *("connected_components", "weakly_connected_components", "is_connected"),
            *("number_connected_components", "node_connected_component"),
        ),
        _COMPONENTS,
    ),
    "strongly_connected_components": "`oc.scc` names the component of each node",
    **dict.fromkeys(("core_number", "k_core", "coreness"), "`oc.kcore` has core numbers"),
    **dict.fromkeys(
        ("clustering", "average_clustering", "clustering_coefficient"), "`oc.local_clustering`"
    ),
    "transitivity": "`oc.triangles` counts triangles, `oc.degrees` the pairs of neighbours",
    **dict.fromkeys(
        (
            *("louvain_communities", "louvain_partitions", "leiden", "leiden_communities"),
            *("community_multilevel", "community_leiden", "greedy_modularity_communities"),
        ),
        _COMMUNITIES,
    ),
    **dict.fromkeys(
        ("label_propagation_communities", "asyn_lpa_communities", "community_label_propagation"),
        '`oc.label_propagation(graph, update="asynchronous")`',
    ),
    **dict.fromkeys(
        (
            *("bfs_edges", "bfs_tree", "shortest_path_length", "descendants_at_distance"),
            "single_source_shortest_path_length",
        ),
        _SEARCH,
    ),
    **dict.fromkeys(
        (
            *("dijkstra", "shortest_path", "dijkstra_path_length", "bellman_ford_path_length"),
            *("single_source_dijkstra_path_length", "multi_source_dijkstra", "delta_stepping"),
        ),
        _PATHS,
    ),
    **dict.fromkeys(("eccentricity", "diameter", "radius"), _FAR),
}
"""Functions and classes of other libraries, and Outercore's equivalents."""

_READERS = {
    "networkx": "oc.from_networkx",
    "torch_geometric": "oc.from_pyg",
    "dgl": "oc.from_dgl",
    "pandas": "oc.from_pandas",
    "scipy": "oc.from_scipy",
}


def reader_of(thing: object) -> str:
    """Name of the function that converts an object of another library; empty for other objects."""
    return _READERS.get(type(thing).__module__.partition(".")[0], "")
