"""Names of edge types; no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from outercore.base.likeness import closest
from outercore.errors import InvalidError, NotFoundError

EdgeType: TypeAlias = tuple[str, str, str]
"""Source type, relation, target type."""
PLAIN_EDGE: EdgeType = ("node", "edge", "node")
"""The edge type of a graph that has one."""
REVERSE = "rev_"
"""What the relation of an edge type in the other direction begins with, as in PyG."""


def edge_type_key(edge_type: EdgeType) -> str:
    """How keys name an edge type.

    Example:
        >>> edge_type_key(("author", "writes", "paper"))
        'author__writes__paper'
    """
    return "__".join(edge_type)


def triple_text(given: str | Sequence[str], where: str) -> str:
    """The text ``author,writes,paper`` of a triple, or the text as it is.

    Raises:
        InvalidError: it is neither.
    """
    if isinstance(given, str):
        return given
    if not isinstance(given, Sequence) or not all(isinstance(one, str) for one in given):
        raise InvalidError(
            f"{where}: expected (source type, name, target type), found {given!r:.80}"
        )
    return ",".join(given)


def only_between(given: Any, known: Sequence[EdgeType]) -> EdgeType | None:
    """The edge type that a pair of node types means: the only one between them.

    Example:
        >>> only_between(("a", "b"), [("a", "likes", "b"), ("b", "likes", "a")])
        ('a', 'likes', 'b')
        >>> only_between(("a", "b"), [("a", "likes", "b"), ("a", "owns", "b")])
    """
    if not isinstance(given, tuple | list) or len(given) != 2:
        return None
    found = [one for one in known if (one[0], one[2]) == tuple(given)]
    return found[0] if len(found) == 1 else None


def edge_type_called(given: str | Sequence[str], known: Sequence[EdgeType], where: str) -> EdgeType:
    """The edge type of a triple, or of a text such as ``author,writes,paper`` or its key.

    Raises:
        NotFoundError: it is none of those `known`; the message begins with `where` and lists them.

    Example:
        >>> edge_type_called("a,to,b", [("a", "to", "b")], "relation")
        ('a', 'to', 'b')
    """
    if not isinstance(given, str) and (between := only_between(given, known)) is not None:
        return between
    text = triple_text(given, where)
    types = {",".join(one): one for one in known}
    found = types | {edge_type_key(one): one for one in known}
    if text not in found:
        # A relation alone may be meant, too.
        meant = {triple[1]: shown for shown, triple in types.items()} if "," not in text else {}
        close = closest(text, types) or meant.get(closest(text, meant) or "")
        hint = f"there are {' and '.join(types)}" if close is None else f"did you mean `{close}`?"
        raise NotFoundError(f"{where}: there is no edge type `{text}`\nhint: {hint}")
    return found[text]


def edge_type_described(key: str, described: Mapping[str, Any]) -> EdgeType:
    """The edge type of a key of the manifest, which describes its two ends."""
    source, target = described["source"], described["target"]
    relation = key.removeprefix(f"{source}__").removesuffix(f"__{target}")
    return source, relation, target
