"""Triples in batches, and batches in chunks, of about the size that was asked for."""

from __future__ import annotations

from torch import Tensor

from outercore import _core


def even_pieces(places: Tensor, size: int) -> tuple[Tensor, ...]:
    """`places` in pieces of about `size`, whose lengths differ by one at most.

    They are as many as `size` goes into the number of places, rounded, so each has three quarters
    of `size` to one and a half times it, or there are too few for one. A batch steps as far as any
    other: a last one of a few triples would count for too much. And a batch costs something beside
    its triples: of pools little larger than one, two halves would cost twice that.

    Example:
        >>> import torch
        >>> [len(piece) for piece in even_pieces(torch.arange(260), 100)]
        [87, 87, 86]
        >>> [len(piece) for piece in even_pieces(torch.arange(140), 100)]
        [140]
    """
    return places.tensor_split(_core.count_pieces(len(places), size)) if len(places) else ()
