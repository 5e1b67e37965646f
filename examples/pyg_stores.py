"""Use a data set on disk in PyG's loaders, through PyG's remote back-end interface.

    python examples/pyg_stores.py DATASET

PyG's loaders and samplers accept a `FeatureStore` and a `GraphStore` in place of a `Data` object.
Features are read from disk row by row on request. The topology is loaded into memory, because PyG's
samplers need it there. If the topology is too large for memory, use `oc.NeighborLoader`.
"""

from __future__ import annotations

import argparse

import torch
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

import outercore as oc


class InNeighbours(BaseSampler):
    """A custom sampler: all in-neighbours of the seeds, one hop."""

    def __init__(
        self, offsets: torch.Tensor, sources: torch.Tensor, edge_ids: torch.Tensor | None
    ) -> None:
        """Sample from a CSC; without ``edge_ids``, the id of an arc is its position."""
        self.offsets = offsets
        self.sources = sources
        self.edge_ids = edge_ids

    @property
    def edge_permutation(self) -> torch.Tensor | None:
        """Row in the imported edge list of every arc, for PyG's ``e_id``."""
        return self.edge_ids

    def sample_from_nodes(self, index: NodeSamplerInput, **_: object) -> SamplerOutput:
        """The seeds with their in-neighbours, numbered seeds first."""
        seeds = index.node
        degrees = self.offsets[seeds + 1] - self.offsets[seeds]
        columns = torch.repeat_interleave(torch.arange(len(seeds)), degrees)
        first = torch.repeat_interleave(self.offsets[seeds] - degrees.cumsum(0) + degrees, degrees)
        edges = first + torch.arange(len(columns))
        others = torch.unique(self.sources[edges])
        others = others[~torch.isin(others, seeds)]
        nodes = torch.cat([seeds, others])
        order = torch.argsort(nodes)
        rows = order[torch.searchsorted(nodes[order], self.sources[edges])]
        return SamplerOutput(
            node=nodes,
            row=rows,
            col=columns,
            edge=edges,
            metadata=(index.input_id, index.time),
        )

    def sample_from_edges(self, *_: object, **__: object) -> SamplerOutput:
        """Not supported: this example samples only from nodes."""
        raise NotImplementedError


def main() -> None:
    """Print the first batches."""
    parser = argparse.ArgumentParser(description="Use a data set through PyG's stores.")
    parser.add_argument("dataset")
    graph = oc.open(parser.parse_args().dataset)

    feature_store, graph_store = graph.pyg()
    print("node arrays:", [attr.attr_name for attr in feature_store.get_all_tensor_attrs()])
    sources, offsets, edge_ids = graph_store.csc()

    loader = NodeLoader(
        (feature_store, graph_store),
        node_sampler=InNeighbours(offsets, sources, edge_ids),
        input_nodes=torch.from_numpy(graph.split("train")),
        batch_size=64,
    )
    for batch, _ in zip(loader, range(3), strict=False):
        assert isinstance(batch, Data)
        print(f"{batch.batch_size} seeds, {batch.num_nodes} nodes, x {tuple(batch.x.shape)}")


if __name__ == "__main__":
    main()
