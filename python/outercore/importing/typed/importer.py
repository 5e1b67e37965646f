"""The core's importer of a graph of several types, and the options that it takes."""

from __future__ import annotations

from pathlib import Path

from outercore.base.native import Importer, Progress
from outercore.base.sizes import parse_size
from outercore.data.edge_types import EdgeType
from outercore.errors import InvalidError
from outercore.importing.graph import ImportOptions


def typed_importer(
    out: Path,
    options: ImportOptions,
    progress: Progress,
    *,
    inputs: list[str],
    identities: list[str],
    nodes: dict[str, int],
    edges: list[EdgeType],
) -> Importer:
    """The core's importer of a graph of several types; `identities` tell other edges apart."""
    described = {
        "memory": parse_size(options.memory),
        "duplicates": options.duplicates,
        "overwrite": options.overwrite,
        "command": options.command,
        "inputs": inputs,
        "edges": identities,
        "types": {"nodes": nodes, "edges": edges},
    }
    return Importer(out, described, progress)


def refuse_options(options: ImportOptions) -> None:
    """Errors: `InvalidError` for options that mean nothing for edges of several types."""
    for name, given in (
        ("--undirected", options.undirected),
        ("--self-loops", options.self_loops != "keep"),
    ):
        if given:
            raise InvalidError(
                f"{name}: does not go with several types of nodes\n"
                "hint: `--add-reverse` adds the other direction of each edge type"
            )
