"""Names of edge types. Does not import PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from outercore.base.likeness import closest
from outercore.errors import InvalidError, NotFoundError

EdgeType: TypeAlias = tuple[str, str, str]
"""An edge type: source type, relation, target type."""
PLAIN_EDGE: EdgeType = ("node", "edge", "node")
"""The edge type of a graph with only one type of nodes and edges."""
REVERSE = "rev_"
"""Prefix of the relation for the edge type in the opposite direction, as in PyG."""


def edge_type_key(edge_type: EdgeType) -> str:
    """The name of an edge type in the keys of arrays.

    Example:
        >>> edge_type_key(("author", "writes", "paper"))
        'author__writes__paper'
    """
    return "__".join(edge_type)


def triple_text(triple: str | Sequence[str], where: str) -> str:
    """The text ``author,writes,paper`` for a triple of texts. A text does not change.

    Args:
        triple: the edge type.
        where: name of the argument in the error.

    Raises:
        InvalidError: `triple` is neither a triple of texts nor a text.
    """
    if isinstance(triple, str):
        return triple
    if not isinstance(triple, Sequence) or not all(isinstance(part, str) for part in triple):
        raise InvalidError(
            f"{where}: expected (source type, name, target type), found {triple!r:.80}"
        )
    return ",".join(triple)


def only_between(pair: Any, known: Sequence[EdgeType]) -> EdgeType | None:
    """The edge type from a source type to a target type (`pair`), if it is the only one, or None.

    Example:
        >>> only_between(("a", "b"), [("a", "likes", "b"), ("b", "likes", "a")])
        ('a', 'likes', 'b')
        >>> only_between(("a", "b"), [("a", "likes", "b"), ("a", "owns", "b")])
    """
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        return None
    matches = [edge_type for edge_type in known if (edge_type[0], edge_type[2]) == tuple(pair)]
    return matches[0] if len(matches) == 1 else None


def edge_type_called(
    edge_type: str | Sequence[str], known: Sequence[EdgeType], where: str
) -> EdgeType:
    """The edge type of a triple, or of a text such as ``author,writes,paper`` or its key.

    Raises:
        NotFoundError: the edge type is not in `known`; the message begins with `where` and lists
            the known types.

    Example:
        >>> edge_type_called("a,to,b", [("a", "to", "b")], "relation")
        ('a', 'to', 'b')
    """
    if not isinstance(edge_type, str) and (between := only_between(edge_type, known)) is not None:
        return between
    text = triple_text(edge_type, where)
    types = {",".join(triple): triple for triple in known}
    by_text = types | {edge_type_key(triple): triple for triple in known}
    if text not in by_text:
        # The text may be only the relation.
        meant = {triple[1]: name for name, triple in types.items()} if "," not in text else {}
        close = closest(text, types) or meant.get(closest(text, meant) or "")
        hint = f"there are {' and '.join(types)}" if close is None else f"did you mean `{close}`?"
        raise NotFoundError(f"{where}: there is no edge type `{text}`\nhint: {hint}")
    return by_text[text]


def edge_type_described(key: str, described: Mapping[str, Any]) -> EdgeType:
    """The edge type of a key, with its source and target types from the manifest."""
    source, target = described["source"], described["target"]
    relation = key.removeprefix(f"{source}__").removesuffix(f"__{target}")
    return source, relation, target
