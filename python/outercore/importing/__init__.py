"""Import: turns files, data set layouts and PyG objects into a data set, streaming."""

from __future__ import annotations

from outercore.importing.build.graph import import_graph
from outercore.importing.options import ImportOptions
from outercore.importing.source import GraphSource

__all__ = ["GraphSource", "ImportOptions", "import_graph"]
