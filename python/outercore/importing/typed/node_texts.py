"""Texts of the nodes of several types, such as titles: columns of their tables."""

from __future__ import annotations

from outercore.errors import InvalidError
from outercore.importing.graph import NodeArray
from outercore.importing.splits import require_once
from outercore.importing.table.columns import NodeColumns
from outercore.importing.table.rows import Reading
from outercore.importing.texts import require_text_name, table_texts
from outercore.importing.typed.labels import label_column
from outercore.importing.typed.tables import NodeTable

_OPTION = "--text"


def text_columns(given: tuple[str, ...], nodes: dict[str, NodeTable]) -> dict[str, list[str]]:
    """The columns of each type that are kept as text, given as `TYPE.COLUMN`.

    Errors: `InvalidError` for another form; `NotFoundError` for a column that is not there.
    """
    require_once(_OPTION, list(given))
    found: dict[str, list[str]] = {}
    for text in given:
        if "=" in text:
            raise InvalidError(
                f"{_OPTION}: expected TYPE.COLUMN, found `{text}`\n"
                "hint: `outercore add DATASET --text TYPE/NAME=FILE:COLUMN` takes another file"
            )
        node_type, column = label_column(text, nodes, _OPTION)
        require_text_name(column)
        found.setdefault(node_type, []).append(column)
    return found


def open_node_texts(
    given: tuple[str, ...], nodes: dict[str, NodeTable], reading: Reading
) -> list[NodeArray]:
    """The texts that `text_columns` finds, each called as its column.

    Errors: as `text_columns`.
    """
    found = []
    for node_type, columns in text_columns(given, nodes).items():
        one = nodes[node_type]
        assert one.table is not None
        assert one.spec is not None
        for column in columns:
            of_one = NodeColumns(None, [column])
            found += table_texts(column, node_type, one.spec, one.table, of_one, reading, one.files)
    return found


def columns_besides(
    label: str | None, texts: tuple[str, ...], nodes: dict[str, NodeTable]
) -> dict[str, set[str]]:
    """The columns of each type that are no features: labels and texts.

    Errors: as `text_columns` and `label_column`.
    """
    found = {name: set(columns) for name, columns in text_columns(texts, nodes).items()}
    if label is not None and "=" not in label:
        node_type, column = label_column(label, nodes)
        found.setdefault(node_type, set()).add(column)
    return found
