"""A small bibliography for the other programs in this directory."""

from __future__ import annotations

import torch
from torch.nn.functional import one_hot
from torch_geometric.data import HeteroData
from torch_geometric.transforms import ToUndirected


def bibliography(papers: int = 600, authors: int = 200, fields: int = 3) -> HeteroData:
    """Papers, authors and citations, in which most edges are within a field of research."""
    field = {"paper": torch.randint(fields, (papers,)), "author": torch.randint(fields, (authors,))}
    data = HeteroData()
    for name, of in field.items():
        x = one_hot(of, fields).float().repeat(1, 4)
        data[name].x = x + 1.5 * torch.randn(len(of), 4 * fields)
    data["paper"].y = field["paper"]
    for edge_type in (("author", "writes", "paper"), ("paper", "cites", "paper")):
        source, _, _ = edge_type
        pairs = torch.stack([torch.randint(len(field[source]), (12 * papers,))] * 2)
        pairs[1] = torch.randint(papers, (12 * papers,))
        alike = field[source][pairs[0]] == field["paper"][pairs[1]]
        data[edge_type].edge_index = pairs[:, alike | (torch.rand(12 * papers) < 0.1)]
    mask = torch.rand(papers) < 0.6
    data["paper"].train_mask, data["paper"].val_mask = mask, ~mask
    return ToUndirected()(data)
