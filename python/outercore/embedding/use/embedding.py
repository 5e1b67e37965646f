"""A finished embedding: its tables and the names of their rows, opened for reading.

This module does not need PyTorch. `neighbours`, `predict`, `export` and other functions of
`outercore.embedding` take an `Embedding`.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from outercore.base.fields import build
from outercore.base.shell import quoted
from outercore.data.edge_types import edge_type_called
from outercore.data.graph import Graph
from outercore.data.names import Names
from outercore.data.node_names import NodeNumbers
from outercore.data.outputs import arrow_names_of
from outercore.embedding.config import DataConfig, EmbedConfig, ModelConfig
from outercore.embedding.data.parts import data_of
from outercore.embedding.gradients.custom import require_same_score
from outercore.embedding.run_directory import DESCRIPTION, DESCRIPTION_VERSION, EmbedDirectory
from outercore.errors import CorruptError, InvalidError, NotFoundError
from outercore.files.checked_json import read_checked_json
from outercore.files.npy import map_table

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from outercore.embedding.gradients.models import Model, ScoreFunction

Kind = Literal["entities", "relations"]
Named = Literal["entity", "relation"]
_NEEDED = ("model", "entities", "relations", "width", "data_set")
BLOCK_BYTES = 8 << 20
"""Bytes of one read in a pass over a table, if the caller does not choose a number of rows."""


class Embedding:
    """The tables of a finished run of `outercore embed`. Opening reads only the description.

    Rows are in the order of ids: entity `i` has row `i`. With reciprocal relations, the table of
    relations has a second half, for the prediction of heads. Rows of `complex` and `rotate` hold
    all real parts, then all imaginary parts.

    Example:
        >>> import outercore as oc
        >>> embedding = oc.Embedding.open(tiny_embedding)
        >>> embedding
        Embedding(model='dot', entities=200, relations=1, width=8)
        >>> embedding.rows([3, 5]).shape
        (2, 8)
    """

    def __init__(
        self,
        root: Path,
        description: dict[str, Any],
        data_set: str | os.PathLike[str] | None,
        score: ScoreFunction | str | None,
    ) -> None:
        self.root = root
        self.description = description
        """The content of `embedding.json`."""
        try:
            self.model = build(ModelConfig, description["model"], "model")
        except InvalidError as error:
            raise CorruptError(f"embedding `{root}`: {error}\nhint: {_again(root)}") from None
        self.num_entities = int(description["entities"])
        self.num_relations = int(description["relations"])
        """Number of relations, without the additional rows of reciprocal relations."""
        self.width = int(description["width"])
        self.metrics: list[dict[str, Any]] = description.get("metrics", [])
        """The metrics of the run, each with its protocol."""
        self.data_set = Path(description["data_set"] if data_set is None else data_set)
        self._checksums: dict[str, int] = description.get("checksums", {})
        self._verified = False
        self.score = score
        """The custom score function of the run, or its place `FILE.py:NAME`. Needed for scores."""

    @classmethod
    def open(
        cls,
        run: str | os.PathLike[str],
        *,
        data_set: str | os.PathLike[str] | None = None,
        score: ScoreFunction | str | None = None,
    ) -> Embedding:
        """Opens the embedding in the run directory `run`.

        Args:
            run: the run directory; `outercore embed` prints it.
            data_set: the new directory of the run's data set, if it was moved.
            score: the custom score function of the run, if any. Needed for predictions and metrics.

        Raises:
            NotFoundError: the run lacks an embedding, for example because it has not finished.
            VersionError: another version of Outercore wrote the embedding.
            CorruptError: the description is incomplete, or a table contradicts it.
        """
        root = Path(run)
        path = root / DESCRIPTION
        if not path.exists() and (root / "model").exists():
            raise NotFoundError(
                f"embedding `{root}`: it is a run of `outercore train`\n"
                f"hint: `outercore evaluate {quoted(root)}` scores it"
            )
        if not path.exists():
            way = "give the run directory of an `outercore embed` that has ended"
            if (root / "config.json").exists():
                way = f"it has not ended: `outercore embed --resume {quoted(root)}` resumes it"
            raise NotFoundError(f"embedding `{root}`: no `{DESCRIPTION}` there\nhint: {way}")
        described = read_checked_json(path, DESCRIPTION_VERSION, _NEEDED, hint=_again(root))
        embedding = cls(root, described, data_set, score)
        embedding._require_table(root / "entities.npy", embedding.num_entities, embedding.width)
        return embedding

    @property
    def reciprocal(self) -> bool:
        """Whether relations have a second row, for the prediction of heads."""
        return self.model.reciprocal

    @cached_property
    def entities(self) -> NDArray[np.float32]:
        """The table of entities, mapped: accessing a row reads its pages from the disk.

        Shapes: float32 [entities, width].
        """
        return self._mapped(self.root / "entities.npy")

    @cached_property
    def relations(self) -> NDArray[np.float32]:
        """The table of relations, in memory.

        Shapes: float32 [relation rows, relation width].

        Raises:
            CorruptError: the file is damaged.
        """
        path = self.root / "relations.npy"
        rows = self.num_relations * (2 if self.reciprocal else 1)
        # A model without relations has empty rows, which cannot be mapped.
        table = np.array(self._require_table(path, rows, None))
        self._require_checksum(path, zlib.crc32(table.reshape(-1).view(np.uint8).data))
        return table

    def rows(self, entities: ArrayLike) -> NDArray[np.float32]:
        """A copy of the rows of `entities`, in the order of these ids.

        Shapes: `entities` integers [n]; result float32 [n, width].

        Raises:
            InvalidError: an id is out of range.
        """
        return np.array(self.entities[self._checked(entities, "entity")])

    def blocks(self, rows: int | None = None) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Iterates over the table of entities in pieces: (first entity, rows).

        The first complete pass verifies the checksum at its end. A piece is valid until the next
        piece is requested. `rows` is the number of rows per piece.

        Shapes: rows float32 [n, width].

        Cost: one sequential read of the table.

        Raises:
            CorruptError: the file is damaged or too short.
        """
        step = rows or max(1, BLOCK_BYTES // (4 * max(self.width, 1)))
        buffer = np.empty((min(step, self.num_entities), self.width), np.float32)
        path = self.root / "entities.npy"
        with path.open("rb") as file:
            # An empty array is not mapped, so it lacks an offset.
            file.seek(getattr(self.entities, "offset", 0))
            total = 0
            for first in range(0, self.num_entities, step):
                piece = buffer[: min(step, self.num_entities - first)]
                if file.readinto(piece.data.cast("B")) != piece.nbytes:
                    raise self._damaged(f"array `{path}`: row {first}: the file ends too early")
                if not self._verified:
                    total = zlib.crc32(piece.data.cast("B"), total)
                yield first, piece
        if not self._verified:
            self._require_checksum(path, total)
            self._verified = True

    def verify(self) -> None:
        """Verifies the checksum of the table of entities, once.

        Reads of single rows (`rows`, `entities`) do not verify it.

        Cost: one sequential read of the table.

        Raises:
            CorruptError: the file is damaged.
        """
        if not self._verified:
            for _ in self.blocks():
                pass

    @cached_property
    def digest(self) -> str:
        """A digest of about a thousand rows, to distinguish this table from others."""
        every = max(1, self.num_entities // 1024)
        rows = np.ascontiguousarray(self.entities[::every])
        return hashlib.sha256(rows.tobytes() + str(self.num_entities).encode()).hexdigest()

    @cached_property
    def graph(self) -> Graph:
        """The data set that was embedded.

        Raises:
            NotFoundError: the data set is missing.
            InvalidError: the data set changed after the embedding was trained.
        """
        try:
            graph = Graph(self.data_set)
        except NotFoundError:
            raise NotFoundError(
                f"embedding `{self.root}`: its data set `{self.data_set}` is gone\n"
                "hint: say by `--data` (of `embed`: `--from-data`) where it is now"
            ) from None
        counts = {"entities": (graph.num_nodes, self.num_entities)}
        if has_names(graph, "relation"):
            counts["relations"] = (len(graph.relations), self.num_relations)
        changes = [
            f"{found:,} {what} now, the embedding {expected:,}"
            for what, (found, expected) in counts.items()
            if found != expected
        ]
        fingerprint = self.description.get("fingerprint")
        if fingerprint and fingerprint != EmbedDirectory.identity_of(graph).digest:
            changes.append("other triples, links or names now")
        if changes:
            raise InvalidError(
                f"embedding `{self.root}`: its data set `{graph.root}` has {changes[0]}\n"
                "hint: say by `--data` (of `embed`: `--from-data`) where the one is that was "
                "embedded"
            )
        return graph

    @cached_property
    def config(self) -> EmbedConfig | None:
        """The configuration of the run; `None` for tables that were copied without their run."""
        try:
            return EmbedDirectory.open(self.root).config()
        except NotFoundError:
            return None

    @cached_property
    def seen(self) -> NDArray[np.bool_] | None:
        """Mask of the entities in training triples. Other rows still have their initial values.

        It is `None` if the data set is missing.

        Shapes: bool [entities].

        Cost: one pass over all triples or links, and one pass over the training triples.
        """
        config = self.config or EmbedConfig(data=DataConfig(held_out=0.0))
        try:
            return data_of(self.graph, config).degrees() > 0
        except (InvalidError, NotFoundError):
            return None

    @property
    def named(self) -> bool:
        """Whether entities have names. Entities without names are identified by ids."""
        return has_names(self.graph)

    @cached_property
    def first_id(self) -> int:
        """The id of entity 0 in the imported files; 0 for entities with names."""
        return 0 if self.named or self.typed else self.graph.first_id

    @property
    def typed(self) -> bool:
        """Whether the graph has several node types. Names of entities are then like `author:17`."""
        return self._types is not None

    def entity_ids(
        self, entities: str | int | Iterable[str | int], *, by_id: bool = False
    ) -> NDArray[np.int64]:
        """Row numbers of entities by name, or by id.

        With `by_id`, `entities` are row numbers. Without names, a string is an id of the imported
        files, and an integer is a row number. In a graph with several types, names are like
        `author:17` for entities and `author,writes,paper` for relations.

        Shapes: int64 [n].

        Raises:
            NotFoundError: an unknown name.
            InvalidError: an id is not a number, or out of range.
        """
        return self._ids(entities, "entity", by_id=by_id)

    def relation_ids(
        self, relations: str | int | Iterable[str | int], *, by_id: bool = False
    ) -> NDArray[np.int64]:
        """Row numbers of relations; see `entity_ids`."""
        return self._ids(relations, "relation", by_id=by_id)

    def entity_names(self, ids: ArrayLike) -> list[str]:
        """Names of entities, or their ids in the imported files as strings.

        In a graph with several types, names are like `author:17`.
        """
        return self._names(ids, "entity")

    def relation_names(self, ids: ArrayLike) -> list[str]:
        """Names of relations; see `entity_names`."""
        return self._names(ids, "relation")

    def labels(self, rows: ArrayLike, kind: Named = "entity", *, by_id: bool = False) -> pa.Array:
        """Names of rows for an output, or their ids in the files; with `by_id`, row numbers."""
        rows = np.asarray(rows, np.int64)
        if by_id or not (self.named or self.typed):
            return pa.array(rows + (self.first_id if kind == "entity" and not by_id else 0))
        if (names := self._dictionary(kind)) is not None:
            return arrow_names_of(names, rows)
        return pa.array(self._names(rows, kind), pa.large_string())

    def build_model(self) -> Model:
        """The score function. Needs PyTorch.

        Raises:
            InvalidError: the custom score function of the run is missing or has changed.
        """
        from outercore.embedding.gradients.models import build_model

        made_with = self.description.get("score"), self.description.get("score_digest", "")
        code = require_same_score(f"embedding `{self.root}`", made_with, self.score)
        return build_model(self.model, code and code.value)

    def _ids(
        self, wanted: str | int | Iterable[str | int], kind: Named, *, by_id: bool
    ) -> NDArray[np.int64]:
        items = [wanted] if isinstance(wanted, (str, int, np.integer)) else list(wanted)
        if not by_id and (names := self._dictionary(kind)) is not None:
            return names.ids(items)
        ids = np.empty(len(items), np.int64)
        are_texts = bool(items) and all(isinstance(item, str) for item in items)
        first = self.first_id if are_texts and not by_id and kind == "entity" else 0
        for place, item in enumerate(items):
            typed = None if by_id else self._typed_id(item, kind)
            try:
                ids[place] = int(item) - first if typed is None else typed
            except ValueError:
                raise InvalidError(f"{kind}: expected an id, found `{item}`") from None
            except OverflowError:
                raise InvalidError(
                    f"{kind} {item}: expected {first} to {self._count(kind) - 1 + first}"
                ) from None
        return self._checked(ids, kind, first)

    def _names(self, ids: ArrayLike, kind: Named) -> list[str]:
        if (names := self._dictionary(kind)) is not None:
            return names.names(ids)
        checked = self._checked(ids, kind)
        if self._types is not None and kind == "entity":
            return self._types.names(checked)
        if self._types is not None:
            return [",".join(self.graph.edge_types[place]) for place in checked.tolist()]
        first = self.first_id if kind == "entity" else 0
        return [str(number + first) for number in checked.tolist()]

    @cached_property
    def _types(self) -> NodeNumbers | None:
        return NodeNumbers.of_graph(self.graph, None) if self.graph.is_typed else None

    def _typed_id(self, item: str | int, kind: Named) -> int | None:
        """The row number of `author:17` or `author,writes,paper`; `None` for another form.

        Errors: `NotFoundError`, `InvalidError` for an unknown type or id.
        """
        types = self._types
        if types is None or not isinstance(item, str) or item.isdigit():
            return None
        if kind == "entity":
            return types.id(item)
        known = self.graph.edge_types
        return known.index(edge_type_called(item, known, "relation"))

    def _dictionary(self, kind: Named) -> Names | None:
        if not has_names(self.graph, kind):
            return None
        return self.graph.entities if kind == "entity" else self.graph.relations

    def _checked(self, ids: ArrayLike, kind: Named, first: int = 0) -> NDArray[np.int64]:
        """Checks ids, and returns them as integers. Messages count them from `first`."""
        rows = np.asarray(ids)
        if rows.size and rows.dtype.kind not in "iu":
            raise InvalidError(f"{kind} ids: type {rows.dtype}, expected integers")
        rows = rows.reshape(-1).astype(np.int64)
        bad = rows[(rows < 0) | (rows >= self._count(kind))]
        if bad.size:
            last = self._count(kind) - 1 + first
            raise InvalidError(f"{kind} {bad[0] + first}: expected {first} to {last}")
        return rows

    def _count(self, kind: Named) -> int:
        return self.num_entities if kind == "entity" else self.num_relations

    def _require_checksum(self, path: Path, found: int) -> None:
        expected = self._checksums.get(path.name, found)
        if found != expected:
            raise self._damaged(
                f"array `{path}`: found checksum {found:08x}, expected {expected:08x}"
            )

    def _damaged(self, what: str) -> CorruptError:
        return CorruptError(f"{what}\nhint: {_again(self.root)}")

    def _mapped(self, path: Path) -> NDArray[np.float32]:
        table = map_table(path, _again(self.root))
        if table.dtype != np.float32 or not table.flags.c_contiguous:
            raise self._damaged(f"array `{path}`: expected float32 by rows, found {table.dtype}")
        return table

    def _require_table(self, path: Path, rows: int, width: int | None) -> NDArray[np.float32]:
        if not path.exists():
            raise self._damaged(f"embedding `{self.root}`: `{path.name}` is missing")
        table = self._mapped(path)
        if table.ndim != 2 or len(table) != rows or width not in (None, table.shape[1]):
            shape = f"[{rows}, {width if width is not None else 'width'}]"
            raise self._damaged(
                f"array `{path}`: expected float32 {shape}, found {table.dtype} {list(table.shape)}"
            )
        return table

    def __repr__(self) -> str:
        return (
            f"Embedding(model={self.model.kind!r}, entities={self.num_entities}, "
            f"relations={self.num_relations}, width={self.width})"
        )


def has_names(graph: Graph, kind: Named = "entity") -> bool:
    """Whether a data set has names. Only knowledge graphs have names of relations."""
    return f"names/{kind}.offsets" in graph.arrays


def _again(root: Path) -> str:
    return (
        f"`outercore embed --resume {quoted(root)}` writes the file again while the run has its "
        "`table`; restore it from a copy otherwise"
    )
