"""The configuration of a run: memory, edges, back end, memory server and checkpoints."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from outercore.base.fields import Configuration, within
from outercore.base.options import BackendOption, MemoryOption, Option, configuration, fields
from outercore.base.sizes import parse_size
from outercore.base.threads import checked_threads
from outercore.data.edge_types import edge_type_key, triple_text
from outercore.data.far import FarOptions, options_of
from outercore.data.graph import Graph
from outercore.data.node_names import relation_of


@dataclass(frozen=True)
class RunConfig(Configuration):
    """The configuration of a run; the parameters of the algorithm's function are separate."""

    memory: MemoryOption = "1GiB"
    relation: Annotated[
        str | None,
        Option(
            "Use only the edges of this type, given as SOURCE,RELATION,TARGET, or of this relation "
            "of triples. By default, all edges count.",
            common=True,
        ),
    ] = None
    threads: Annotated[
        int | None, Option("Number of threads. The default is one for each core.", common=True)
    ] = None
    backend: BackendOption = "auto"
    far: FarOptions | None = None
    """Memory server that holds edges."""
    far_ratio: Annotated[
        float | None,
        Option(
            "Leave this share of the edges to the memory server. By default, the memory budget "
            "determines it."
        ),
    ] = None
    buffering: Annotated[
        bool, Option("Read ahead during the computation. Use `false` only for measurements.")
    ] = True
    scratch: Annotated[
        str | None,
        Option(
            "Write scratch files to this directory. The default is the directory of the data set."
        ),
    ] = None
    checkpoint_every: Annotated[
        float,
        Option("Write a checkpoint to the run directory each time this many seconds have passed."),
    ] = 60.0

    def __post_init__(self) -> None:
        parse_size(self.memory, "memory")
        checked_threads(self.threads)
        within("checkpoint_every", self.checkpoint_every, 0.0, None)
        if self.far_ratio is not None:
            within("far_ratio", self.far_ratio, 0, 1)

    def native(self, root: Path) -> dict[str, Any]:
        """The configuration for the core, for a run on the data set in `root`.

        Errors: `NotFoundError` for an unknown relation.
        """
        server = options_of(self.far, root)
        relation = None if self.relation is None else relation_key(Graph(root), self.relation)
        # Defaults are left out, so that records of runs stay comparable.
        rare = {
            "relation": relation,
            "far": server,
            "far_ratio": self.far_ratio,
            "buffering": None if self.buffering else False,
            "scratch": self.scratch,
        }
        return {
            "memory": parse_size(self.memory),
            "threads": self.threads,
            "backend": self.backend,
            **{name: value for name, value in rare.items() if value is not None},
        }


@dataclass(frozen=True)
class AnalysisConfig(Configuration):
    """The algorithm of a run, its resources, and the destination of its result."""

    algorithm: str
    options: dict[str, Any]
    """Options of the algorithm, by the parameters of its function."""
    run: RunConfig = field(default_factory=RunConfig)
    save: str | None = None
    """Name of the node array to write the result to."""
    out: str | None = None
    """File to write the result to."""
    overwrite: bool = False
    """Whether the run may replace this array and this file."""


def split_options(keywords: Mapping[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
    """Splits the keywords of a call into the configuration and the options of the algorithm.

    Errors: `InvalidError` for a wrong value.
    """
    names = [field.name for field in fields(RunConfig)]
    used = {name: keywords[name] for name in names if name in keywords}
    options = {name: value for name, value in keywords.items() if name not in used}
    if used.get("scratch") is not None:
        used["scratch"] = os.fspath(used["scratch"])
    if not isinstance(used.get("relation") or "", str):
        used["relation"] = triple_text(used["relation"], "relation")
    if not isinstance(used.get("memory", ""), str):
        used["memory"] = parse_size(used["memory"], "memory")
    return configuration(RunConfig, None, used), options


def relation_key(graph: Graph, relation: str | Sequence[str]) -> str | None:
    """The name of a relation in the core; `None` in a graph of one type.

    For triples, it is the id of the relation in decimal digits.

    Errors: `NotFoundError` with the existing edge types, or with similar relations.
    """
    if not graph.edge_types:
        name = relation if isinstance(relation, str) else ",".join(relation)
        # The core raises the error for a data set without edges.
        return str(graph.relation_id(name)) if graph.schema.is_knowledge_graph else name
    edge_type = relation_of(graph, relation)
    return edge_type_key(edge_type) if graph.is_typed else None
