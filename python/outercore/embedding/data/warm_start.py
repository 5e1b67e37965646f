"""Starts a run from the tables of another run: with new triples, new entities, or new relations.

Entities and relations that both data sets have start with their old rows. They are matched by name
or id. All other entities and relations start with the initial values of any run. The optimiser
state is new, so training disturbs the old rows during the first one or two epochs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from outercore.data.outputs import arrow_names
from outercore.embedding.use.embedding import Embedding, has_names
from outercore.errors import InvalidError

if TYPE_CHECKING:
    import os

    from outercore.data.graph import Graph
    from outercore.data.names import Names
    from outercore.embedding.config import ModelConfig

_BLOCK = 1 << 16


def match_names(old: Names, new: Names) -> NDArray[np.int64]:
    """The old id of each new id; -1 for new names.

    Shapes: int64 [new ids].

    Cost: reads both dictionaries once in the order of names, with a block of each in memory.
    """
    old_of_new = np.full(len(new), -1, np.int64)
    for start in range(0, len(new), _BLOCK):
        ids, names = _ranked(new, start, min(start + _BLOCK, len(new)))
        # Both dictionaries are sorted, so candidates among the old names form a range.
        first = old.place(names[0].as_py().encode())
        last = min(old.place(names[-1].as_py().encode()) + 1, len(old))
        for begin in range(first, last, _BLOCK):
            old_ids, old_names = _ranked(old, begin, min(begin + _BLOCK, last))
            places = pc.index_in(names, value_set=old_names)
            hits = pc.is_valid(places).to_numpy(zero_copy_only=False)
            old_of_new[ids[hits]] = old_ids[places.drop_null().to_numpy()]
    return old_of_new


def match(what: str, old: Names | int, new: Names | int) -> NDArray[np.int64]:
    """The old id of each new id; -1 for new entities or relations.

    `old` and `new` are names, or the number of ids without names; `what` is for the message.

    Errors: `InvalidError` if only one data set has names.
    """
    if isinstance(old, int) and isinstance(new, int):
        ids = np.arange(new)
        # Without names, an id means the same entity in both data sets. Higher ids are new.
        ids[old:] = -1
        return ids
    if isinstance(old, int) or isinstance(new, int):
        with_names, without = ("new", "old") if isinstance(old, int) else ("old", "new")
        raise InvalidError(
            f"{what}: the {with_names} data set has names, the {without} one has not, so that "
            "nobody can say which is which"
        )
    return match_names(old, new)


def _ranked(names: Names, start: int, stop: int) -> tuple[NDArray[np.int64], pa.Array]:
    """Ids and names at the places `start` to `stop` in the order of names."""
    ids = names.ranked(start, stop)
    if np.array_equal(ids, np.arange(start, stop)):
        return ids, arrow_names(names, start, stop)
    return ids, pa.array(names.names(ids), pa.large_string())


class WarmStart:
    """Initial rows of a run from the tables of another run.

    A call with entities of the new data set returns their initial rows. A row of NaN means that the
    entity does not have an old row.

    Shapes: entities int64 [n]; rows float32 [n, width].

    Cost: a pass over the old rows; 8 bytes of memory per entity. A call reads the old rows of its
    entities.
    """

    def __init__(self, embedding: Embedding, graph: Graph, model: ModelConfig) -> None:
        """Prepares a start from `embedding` with the data set `graph`.

        Raises:
            InvalidError: the model or its dimension differs, only one data set has names, or the
                data sets do not share any entity.
            NotFoundError: the old data set with its names is missing.
            CorruptError: the old rows are damaged.
        """
        _require_same_model(embedding, model)
        embedding.verify()
        self._embedding = embedding
        old = embedding.graph
        self._entities = match(
            "entities",
            old.entities if embedding.named else embedding.num_entities,
            graph.entities if has_names(graph) else graph.num_nodes,
        )
        if not (self._entities >= 0).any():
            raise InvalidError(
                f"embedding `{embedding.root}`: data set `{graph.root}` has none of its "
                f"{embedding.num_entities:,} entities\nhint: leave out `--from`"
            )
        relations = match(
            "relations",
            old.relations if has_names(old, "relation") else embedding.num_relations,
            graph.relations if has_names(graph, "relation") else embedding.num_relations,
        )
        self.relations = _relation_rows(embedding, relations, reciprocal=model.reciprocal)
        """float32 [relation rows, relation width]; NaN for relations without an old row."""

    @property
    def memory(self) -> int:
        """Bytes of memory of this object."""
        return self._entities.nbytes + self.relations.nbytes

    def __call__(self, entities: ArrayLike) -> NDArray[np.float32]:
        """The initial rows of these entities; see the class."""
        places = self._entities[np.asarray(entities, np.int64)]
        # Entities without an old row read row 0 first, which saves a second copy.
        rows = np.asarray(self._embedding.entities[places.clip(0)], np.float32)
        rows[places < 0] = np.nan
        return rows


def warm_start(
    run: str | os.PathLike[str],
    graph: Graph,
    model: ModelConfig,
    *,
    data_set: str | os.PathLike[str] | None = None,
) -> WarmStart:
    """The initial rows of a run on `graph` from the rows of `run`; see `WarmStart`.

    `data_set` is the new directory of the old data set, if it was moved.
    """
    return WarmStart(Embedding.open(Path(run), data_set=data_set), graph, model)


def _relation_rows(
    embedding: Embedding, places: NDArray[np.int64], *, reciprocal: bool
) -> NDArray[np.float32]:
    old = embedding.relations
    halves = 2 if reciprocal else 1
    rows = np.full((halves * len(places), old.shape[1]), np.nan, np.float32)
    known = np.flatnonzero(places >= 0)
    rows[known] = old[places[known]]
    if reciprocal and embedding.reciprocal:
        rows[len(places) + known] = old[embedding.num_relations + places[known]]
    return rows


def _require_same_model(embedding: Embedding, model: ModelConfig) -> None:
    old = embedding.model
    for name in ("kind", "dim", "norm", "relation_dim"):
        if name == "norm" and model.kind != "transe":
            continue
        before, now = getattr(old, name), getattr(model, name)
        if before != now:
            raise InvalidError(
                f"embedding `{embedding.root}`: its model.{name} is {before}, that of the new run "
                f"{now}\nhint: the same model and dimension go on"
            )
