"""Predictions of a trained model for all nodes, all graphs or listed edges, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from outercore.data.file_ids import names_of_nodes
from outercore.data.graph import Graph, Source, root_of
from outercore.data.many_graphs import Labelled
from outercore.data.names import Names
from outercore.data.outputs import (
    TABLES,
    TableWriter,
    arrow_ids,
    arrow_names_of,
    check_output,
    table_file,
    type_of_ids,
)
from outercore.errors import CorruptError, InvalidError, NotFoundError, UnsupportedError
from outercore.importing.table.pairs import PairList
from outercore.runs.progress import Observer
from outercore.training.custom_network import NetworkSource
from outercore.training.inference import Context, Prediction
from outercore.training.links.work import LinkWork
from outercore.training.loaders import LoaderFactory, neighbor_loader
from outercore.training.model_files import load_model
from outercore.training.tasks import Task
from outercore.training.trained_model import model_directory, opened_work
from outercore.training.work import PredictingWork, samples_only

_GROUP = 1 << 16
"""Least rows of a row group, but for the last one."""

Columns: TypeAlias = dict[str, Any]


def predict(
    data_set: Source,
    model: str | Path,
    out: str | Path,
    *,
    edges: str | Path | None = None,
    memory: str | None = None,
    network: NetworkSource | None = None,
    overwrite: bool = False,
    observer: Observer | None = None,
    open_graph: Callable[[Path], Any] = Graph,
    open_loader: LoaderFactory = neighbor_loader,
) -> dict[str, Any]:
    """Write the predictions of a trained model for all nodes, all graphs, or a list of edges.

    Exact: all neighbours count; of a model of nodes with times, those sampled of the past. Rows are
    written as they are computed, and the file appears under its name once it is complete.

    **Shapes** of the table, in the order of ids: `id` int64 as the imported files have it, or the
    name where the nodes have names; `prediction` int64 the class, or its name, or float32 the
    number, or uint8 `prediction_0` ... of several labels; `probability_0` ... float32 of each class
    or label. With `edges`, in the order of the list: `source`, `target`, and `score` float32, more
    for likelier edges.

    Args:
        data_set: its directory; labels are not needed there.
        model: a run of `oc.train`, or its `model` directory.
        out: the `.parquet`, `.csv` or `.tsv` to write.
        edges: of a model of edges, the pairs to score: a text, Parquet, or `.npy` of ids or names;
            `FILE:SOURCE,TARGET` chooses columns.
        memory: budget, by default the budget of the training.
        network: the code of a custom network: a module, a class, or `FILE.py:NAME`.
        overwrite: replace a file.
        observer: is called with the progress.
        open_graph, open_loader: replace `oc.open` and `oc.NeighborLoader`.

    Returns:
        `model`, `data_set`, `out`, `task`, `neighbours` (`all` or `sampled`), and the number of
        `nodes`, `graphs` or `edges`.

    Raises:
        InvalidError: the model does not fit the data set; `edges` for a model of nodes; a wrong
            pair of the list, with its row; a file that exists already.
        UnsupportedError: a model of edges by time.
        NotFoundError: no such model, data set or list; a name that no node has, with its row.
        InterruptError: after Ctrl-C, SIGTERM or SIGHUP; nothing is left.

    Example:
        >>> import outercore as oc
        >>> options = {"fanout": (4, 3), "hidden": 8, "epochs": 1}
        >>> record = oc.train(tiny_dataset, out=tmp_path / "run", **options)
        >>> found = oc.predict(tiny_dataset, tmp_path / "run", tmp_path / "scores.parquet")
        >>> found["nodes"], found["task"]
        (200, 'classification')
    """
    out, observer = Path(out), observer or Observer()
    check_output(out, TABLES, option="out", overwrite=overwrite)
    directory = model_directory(model)
    saved = load_model(directory, network)
    if saved.task.kind == "links" and saved.config.sampling.time is not None:
        raise UnsupportedError(
            f"model `{directory}`: a model of edges by time scores an edge at its time, and a list "
            "of edges has none\nhint: `outercore evaluate` scores the edges of its run"
        )
    of_links = saved.task.kind == "links"
    if of_links != (edges is not None):
        raise InvalidError(_about_edges(directory, of_links))
    graph = open_graph(root_of(data_set))
    pairs = PairList.parse(str(edges), names_of_nodes(graph)) if of_links else None
    opening = opened_work(
        saved, directory, graph, memory, observer=observer, open_loader=open_loader
    )
    with opening as (work, ready):
        if isinstance(work, PredictingWork):
            count = _write_rows(out, work, ready)
        else:
            assert isinstance(work, LinkWork)
            assert pairs is not None
            count = _write_pairs(out, work, ready, pairs, observer)
    return {
        "model": str(directory),
        "data_set": str(Path(graph.root).resolve()),
        "out": str(out),
        "task": saved.task.name,
        "neighbours": "sampled" if samples_only(saved.config, saved.model) else "all",
        work.rows: count,
    }


def _about_edges(model: Path, of_links: bool) -> str:
    if of_links:
        return (
            f"model `{model}`: a model of edges scores pairs, and no list of them is given\n"
            "hint: add `--edges FILE`"
        )
    return (
        f"edges: model `{model}` predicts no edges\n"
        "hint: leave `--edges` out, or give a run of `outercore train --task link`"
    )


def _write_rows(out: Path, work: PredictingWork, ready: Callable[[], Context]) -> int:
    """Writes the predictions of all nodes, or graphs; returns how many."""
    table = _NodeTable(work.labelled, work.task)
    with _grouped(out, table.columns) as rows:
        for prediction in work.predictor(ready()).exact(None):
            rows.append(table.rows(prediction))
    return work.labelled.schema.num_labelled


def _write_pairs(
    out: Path,
    work: LinkWork,
    ready: Callable[[], Context],
    pairs: PairList,
    observer: Observer,
) -> int:
    """Writes the scores of a list of pairs; returns how many."""
    # The whole list is checked before the work.
    ends = np.zeros(work.labelled.num_nodes, np.bool_)
    count = 0
    for some in pairs.chunks():
        ends[some] = True
        count += len(some)
    ids = names_of_nodes(work.labelled)
    columns = {"source": type_of_ids(ids), "target": type_of_ids(ids), "score": pa.float32()}
    scoring = work.scoring(ready())
    with _grouped(out, columns) as rows, scoring.embedded(np.flatnonzero(ends)) as scored:
        observer.evaluation_started("scores", count, 0)
        for some in pairs.chunks():
            sources, targets = (arrow_ids(ids, column) for column in some.T)
            rows.append({"source": sources, "target": targets, "score": scored(some)})
            observer.evaluation_advanced(len(some))
    return count


class _NodeTable:
    """The columns of the predictions of nodes, or graphs."""

    def __init__(self, labelled: Labelled, task: Task) -> None:
        self._task = task
        self._ids = names_of_nodes(labelled)
        self._classes = _class_names(labelled, task)
        one = pa.large_string() if self._classes is not None else pa.from_numpy_dtype(task.dtype)
        places = range(task.outputs)
        several = len(task.shape(1)) == 2
        self._predictions = [f"prediction_{at}" for at in places] if several else ["prediction"]
        self._scores = [f"probability_{at}" for at in places] if task.kind != "values" else []
        self.columns = {
            "id": type_of_ids(self._ids),
            **dict.fromkeys(self._predictions, one),
            **dict.fromkeys(self._scores, pa.float32()),
        }

    def rows(self, prediction: Prediction) -> Columns:
        """The columns of some nodes."""
        predicted: Any = self._task.predictions(prediction.logits)
        if self._classes is not None:
            predicted = [arrow_names_of(self._classes, predicted)]
        elif len(self._predictions) > 1 or predicted.ndim == 2:
            predicted = list(predicted.T)
        else:
            predicted = [predicted]
        columns: Columns = {"id": arrow_ids(self._ids, prediction.nodes)}
        columns |= dict(zip(self._predictions, predicted, strict=True))
        if self._scores:
            probabilities = self._task.probabilities(prediction.logits)
            columns |= dict(zip(self._scores, probabilities.T, strict=True))
        return columns


def _class_names(labelled: Labelled, task: Task) -> Names | None:
    """The names of the classes, if the data set has a name for each."""
    if task.kind != "classes":
        return None
    try:
        names = Names(Path(labelled.root), labelled.schema.arrays, "class")
    except (NotFoundError, CorruptError):
        return None
    return names if len(names) == task.outputs else None


class _Groups:
    """Collects rows of a table and writes a row group at a time."""

    def __init__(self, table: TableWriter) -> None:
        self._table = table
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def append(self, columns: Columns) -> None:
        """Adds rows, as columns."""
        batch = self._table.batch(columns)
        self._waiting.append(batch)
        self._rows += len(batch)
        if self._rows >= _GROUP:
            self.flush()

    def flush(self) -> None:
        """Writes the collected rows."""
        if self._rows:
            joined = pa.Table.from_batches(self._waiting).combine_chunks()
            self._table.append(
                {name: joined[name].combine_chunks() for name in joined.column_names}
            )
            self._waiting, self._rows = [], 0


@contextmanager
def _grouped(path: Path, columns: dict[str, pa.DataType]) -> Iterator[_Groups]:
    """A table to fill within the block; an error leaves no file."""
    with table_file(path, columns) as table:
        groups = _Groups(table)
        yield groups
        groups.flush()
