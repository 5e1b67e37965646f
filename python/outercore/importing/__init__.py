"""Import: turns files, data set layouts and PyG objects into a data set, streaming."""

from __future__ import annotations

from outercore.importing.graph import GraphSource, ImportOptions, import_graph

__all__ = ["GraphSource", "ImportOptions", "import_graph"]
