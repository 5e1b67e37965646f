"""Names of edge types; no PyTorch."""

from __future__ import annotations

from typing import TypeAlias

EdgeType: TypeAlias = "tuple[str, str, str]"
"""Source type, relation, target type."""


def edge_type_key(edge_type: EdgeType) -> str:
    """How keys name an edge type.

    Example:
        >>> edge_type_key(("author", "writes", "paper"))
        'author__writes__paper'
    """
    return "__".join(edge_type)
