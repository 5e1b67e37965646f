"""The labelled node type of a typed graph, as tasks and scores see it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outercore.data.names import KEY
from outercore.data.schema import Schema
from outercore.errors import NotFoundError

if TYPE_CHECKING:
    from outercore.data.graph import Graph

_PREFIX = "nodes/node/"


class LabelledNodes:
    """The nodes of the labelled type, as `outercore.data.many_graphs.Labelled` describes them.

    Its schema has their arrays under `nodes/node/`, and their keys as names. So tasks need to
    know of no type.

    Errors: `NotFoundError` for a data set without labels.
    """

    def __init__(self, graph: Graph) -> None:
        if graph.labelled_type is None:
            raise NotFoundError(
                f"data set `{graph.root}`: no node type has labels, expected one that has\n"
                "hint: import the data set again with labels and splits of a node type"
            )
        self._graph = graph
        self.node_type: str = graph.labelled_type

    @property
    def root(self) -> Path:
        """Where the data set is."""
        return Path(self._graph.root)

    @property
    def num_nodes(self) -> int:
        """Nodes of the labelled type."""
        return self._graph.node_types[self.node_type]

    @property
    def num_edges(self) -> int:
        """Arcs of all edge types."""
        return self._graph.num_edges

    @property
    def num_classes(self) -> int:
        """Classes or columns of the labels, 0 where the manifest does not say."""
        return self._graph.num_classes

    @property
    def splits(self) -> list[str]:
        """Names of the splits."""
        return self._graph.splits

    @cached_property
    def schema(self) -> Schema:
        """The schema with these nodes alone; their arrays are under `nodes/node/`."""
        schema = self._graph.schema
        prefixes = {f"nodes/{self.node_type}/": _PREFIX, "names/class.": "names/class."}
        if self._graph.keys_of(self.node_type) is not None:
            prefixes[f"names/{self.node_type}.{KEY}."] = "names/entity."
        arrays = {
            renamed + key.removeprefix(prefix): entry
            for prefix, renamed in prefixes.items()
            for key, entry in schema.arrays.items()
            if key.startswith(prefix)
        }
        own = f"nodes/{self.node_type}/"
        features, labels = schema.features_of(self.node_type), str(schema.labels)
        return Schema.of_nodes(
            self.num_nodes,
            arrays,
            features=None if features is None else _PREFIX + features.removeprefix(own),
            labels=_PREFIX + labels.removeprefix(own),
            classes=schema.classes,
        )

    def array(self, name: str) -> NDArray[Any]:
        """A whole array with a row for each of these nodes."""
        return self._graph.array(f"nodes/{self.node_type}/{name.removeprefix(_PREFIX)}")

    def split(self, name: str) -> NDArray[np.int64]:
        """Ids of a split, within the labelled type."""
        return self._graph.split(name)
