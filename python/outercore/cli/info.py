"""`outercore info`: describe a data set."""

from __future__ import annotations

from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from outercore.base.sizes import format_size
from outercore.cli import console, options
from outercore.data.graph import Graph, StoredGraph, triple_counts
from outercore.data.many_graphs import ManyGraphs, has_graphs
from outercore.data.triples import PARTS

if TYPE_CHECKING:
    from outercore.data.layouts import Layout


@options.command
def info(data_set: options.DataSet, json: options.Json = False) -> None:
    """Describe a data set: its sizes, arrays, splits and provenance.

    The command reads the manifest, the first nodes of many graphs, the headers of layouts, and the
    log of updates. It writes nothing. Updates in the log are counted, but the sizes do not include
    them.

    **Example**

        outercore info papers
    """
    from outercore.data.layouts import layouts

    graph = StoredGraph(data_set)
    pending = graph.pending_updates
    if json:
        # Without a log there are no pending updates.
        waiting = {"pending_updates": pending} if graph.schema.is_live else {}
        console.json_data({**graph.manifest, **waiting})
        return
    graphs = []
    if has_graphs(graph):
        many = ManyGraphs(graph)
        splits = ", ".join(many.splits) or "none"
        count = f"{many.num_nodes:,}"
        if many.num_unregistered:
            count += f", {many.num_unregistered:,} of them unregistered"
        graphs = [("graphs", count), ("splits of graphs", splits)]
    provenance = graph.schema.provenance
    console.table(
        str(data_set),
        [
            *(_triples(graph) if graph.schema.has_triples else _nodes(graph)),
            *graphs,
            *[("layout", _layout(layout)) for layout in layouts(graph)],
            *([("pending updates", f"{pending:,}")] if pending else []),
            ("made by", provenance.get("command") or "-"),
            ("with", f"outercore {provenance.get('outercore', '?')}"),
        ],
    )
    if graph.is_typed:
        types(graph)
    console.data("")
    console.table("arrays", [(key, _array(described)) for key, described in graph.arrays.items()])


def _nodes(graph: Graph) -> list[tuple[str, str]]:
    from_1 = [("ids in files", f"from {graph.first_id}")] if graph.first_id else []
    return [
        ("nodes", f"{graph.num_nodes:,}"),
        *from_1,
        ("arcs", f"{graph.num_edges:,}"),
        *([] if graph.is_typed else [("features", f"{graph.num_features:,}")]),
        ("classes", f"{graph.num_classes:,}"),
        ("splits", ", ".join(graph.splits) or "none"),
    ]


def _triples(graph: Graph) -> list[tuple[str, str]]:
    weighted = [part for part in PARTS if f"triples/{part}.weight" in graph.arrays]
    return [
        *triple_counts(graph),
        *([("weights", ", ".join(weighted))] if weighted else []),
        *([("features", f"{graph.num_features:,}")] if graph.num_features else []),
        *([("classes", f"{graph.num_classes:,}")] if graph.num_classes else []),
        *([("splits", ", ".join(graph.splits))] if graph.splits else []),
    ]


def types(graph: Graph) -> None:
    """Tables of the node types and of the edge types."""

    def features(name: str) -> str:
        key = graph.features_of(name)
        return "-" if key is None else _features(graph.arrays[key])

    console.columns(
        graph.node_types,
        {
            "node type": str,
            "nodes": lambda name: f"{graph.node_types[name]:,}",
            "features": features,
            "labels": lambda name: "yes" if name == graph.labelled_type else "-",
        },
    )
    console.columns(
        graph.edge_types,
        {
            "source": itemgetter(0),
            "relation": itemgetter(1),
            "target": itemgetter(2),
            "edges": lambda edge_type: f"{graph.schema.edges[edge_type].count:,}",
        },
    )


def _features(described: dict[str, Any]) -> str:
    return f"{described['shape'][1]:,} {described['dtype']}"


def _layout(layout: Layout) -> str:
    stale = ", stale: the array has changed" if layout.stale else ""
    return f"{layout.array}: {layout.precision}, order {layout.order}{stale}"


def _array(described: dict[str, Any]) -> str:
    shape = " x ".join(f"{extent:,}" for extent in described["shape"])
    size = _bytes(described)
    place = f", in place at {described['file']}" if described.get("external") else ""
    return f"{described['dtype']} {shape}, {format_size(size)}{place}"


def _bytes(described: dict[str, Any]) -> int:
    digits = "".join(filter(str.isdigit, described["dtype"]))
    return prod(described["shape"]) * (int(digits) // 8 if digits else 1)
