"""Code for the seeds of a loader, for hints in error messages. Does not import PyTorch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from outercore.data.graph import Graph
from outercore.loading.typed_choice import input_type


@dataclass(frozen=True)
class SeedCode:
    """Code for the data set and the seeds. Variables are named like the loader's arguments."""

    graph: str
    at: str
    """Code for the seeds at `{places}`."""
    tensors: str
    """Code for all seeds, in the form that PyG's loaders accept."""
    note: str = ""
    """Remark after the code for seeds at places: the meaning of its variables."""

    def fill(self, template: str, places: str) -> str:
        """`template` with code in place of `{graph}` and `{seeds}`.

        The code for `{seeds}` selects the seeds at `places`, or all seeds if `places` is empty.
        """
        seeds = self.at.replace("{places}", places) if places else self.tensors
        filled = template.replace("{seeds}", seeds).replace("{graph}", self.graph)
        return filled + self.note if places else filled


def code_of_nodes(data: Any, graph: Graph, input_nodes: Any) -> SeedCode:
    """Code for `input_nodes` of the data set `graph`, which was opened from `data`.

    Example:
        >>> import outercore as oc
        >>> code_of_nodes("planted", oc.open(tiny_dataset), "train").at
        'oc.open("planted").split("train")[{places}]'
    """
    name = _graph(data)
    if not graph.is_typed:
        return SeedCode(name, *_ids(name, graph.num_nodes, input_nodes, "input_nodes"))
    node_type, ids = input_type(graph, input_nodes)
    called = "input_nodes" if isinstance(input_nodes, str) else "input_nodes[1]"
    at, tensors = _ids(name, graph.node_types[node_type], ids, called)
    return SeedCode(name, f'("{node_type}", {at})', f'("{node_type}", {tensors})')


def code_of_links(data: Any, graph: Graph, links: Any) -> SeedCode:
    """Code for `edge_label_index`, passed as `links`; `data` and `graph` as in `code_of_nodes`."""
    name, every = _graph(data), "edge_label_index"
    if not graph.is_typed:
        edge_type, links, called = "None", links, every
    elif isinstance(links[0], str):
        edge_type, links, called = every, None, every
    else:
        edge_type, links, called = f"{every}[0]", links[1], f"{every}[1]"
    if links is None:
        # No short code gives all edges in the order of the import.
        at, note = "links[:, {places}]", ", with `links` [2, n] in place of all edges"
        every_one = f"torch.stack({name}.pyg()[1].coo()[:2])" if edge_type == "None" else "None"
    else:
        every_one, note = _tensor(links, called), ""
        at = f"{every_one}[:, {{places}}]"
    at = at if edge_type == "None" else f"({edge_type}, {at})"
    return SeedCode(name, at, f"({edge_type}, {every_one})", note)


def _graph(data: Any) -> str:
    """Code for the data set: the variable `graph`, or a call that opens a directory."""
    # A `Graph` is a path, too.
    is_path = isinstance(data, (str, os.PathLike)) and not isinstance(data, Graph)
    return f'oc.open("{os.fspath(data)}")' if is_path else "graph"


def _ids(graph: str, count: int, ids: Any, called: str) -> tuple[str, str]:
    """Code for ids of one node type: for the ids at `{places}`, and for all ids as a tensor.

    `called` is the code for the variable that holds `ids`.
    """
    if ids is None:
        return "{places}", f"torch.arange({count})"
    if isinstance(ids, str):
        split = f'{graph}.split("{ids}")'
        return f"{split}[{{places}}]", f"torch.from_numpy({split})"
    tensor = _tensor(ids, called)
    if np.asarray(ids.cpu() if hasattr(ids, "cpu") else ids).dtype == np.bool_:
        return f"{tensor}.nonzero().flatten()[{{places}}]", tensor
    return f"{called if hasattr(ids, 'dtype') else tensor}[{{places}}]", tensor


def _tensor(given: Any, called: str) -> str:
    return called if hasattr(given, "cpu") else f"torch.as_tensor({called})"
