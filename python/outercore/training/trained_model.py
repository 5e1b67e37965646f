"""Use of a trained model on a data set: scores on a split, and predictions as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from outercore.base.fields import one_of
from outercore.data.far import FarOptions
from outercore.data.graph import Graph, Source, root_of
from outercore.data.many_graphs import Labelled
from outercore.data.names import Names
from outercore.data.node_names import names_of_items
from outercore.data.outputs import (
    TABLES,
    VALUES,
    arrow_ids,
    arrow_names_of,
    check_output,
    node_values,
    table_file,
    type_of_ids,
)
from outercore.data.split_names import find_split, normal_split
from outercore.errors import CorruptError, InvalidError, NotFoundError, UnsupportedError
from outercore.files.atomic import scratch_directory
from outercore.importing.table.pairs import PairList
from outercore.runs.progress import Observer
from outercore.runs.record import Timeline
from outercore.runs.stop import StopRequest, stop_on_signals
from outercore.training.checkpoint import Position
from outercore.training.custom_network import NetworkSource
from outercore.training.inference import Context, Prediction
from outercore.training.links.work import LinkPlace, LinkWork, TemporalLinkWork
from outercore.training.loaders import LoaderFactory, neighbor_loader
from outercore.training.model_files import SavedModel, load_model, model_directory
from outercore.training.open_work import open_work, require_model_fits
from outercore.training.run_directory import TrainDirectory
from outercore.training.tasks import Task, nodes_of
from outercore.training.work import PredictingWork, Work, samples_only

_GROUP = 1 << 16
"""Minimum number of rows in a row group of a table, except for the last group."""

Columns: TypeAlias = dict[str, Any]


def evaluate(
    model: str | Path,
    data_set: Source | None = None,
    *,
    split: str = "test",
    memory: str | None = None,
    far: FarOptions | None = None,
    network: NetworkSource | None = None,
    validation: Literal["full", "sampled"] = "full",
    predictions: str | Path | None = None,
    logits: str | Path | None = None,
    overwrite: bool = False,
    observer: Observer | None = None,
    open_graph: Callable[[Path], Any] = Graph,
    open_loader: LoaderFactory = neighbor_loader,
) -> dict[str, Any]:
    """Score a trained model on a split, by exact inference or with sampled neighbours.

    Args:
        model: a run of `oc.train`, or its `model` directory.
        data_set: directory of the data set, or an opened graph; by default the run's data set.
        split: name of the split; `all` stands for every node, in order.
        memory: budget, by default the budget of the training.
        far: memory server. It is used if it holds the data set permanently.
        network: the code of a custom network: a module, a class, or `FILE.py:NAME`.
        validation: `"full"` takes all neighbours if the model allows it; `"sampled"` samples
            neighbours with the training fan-outs.
        predictions, logits: files to write, with a row for each node of the split, in its order:
            `.npy`, or `.parquet` and `.csv` with ids or names of the nodes.
        overwrite: whether these files may replace existing files.
        observer: receives the progress.
        open_graph, open_loader: functions to call instead of `oc.open` and `oc.NeighborLoader`.

    Errors: `NotFoundError` for a missing model, split or directory; `InvalidError` for a data set
    or a run of `outercore embed` instead of a model, for a file that exists already, and for a data
    set whose features do not fit.
    """
    one_of("validation", validation, ("full", "sampled"))
    for option, file in (("predictions", predictions), ("logits", logits)):
        if file is not None:
            check_output(Path(file), VALUES, option=option, overwrite=overwrite)
    if predictions is not None and predictions == logits:
        raise InvalidError(f"predictions and logits: expected two files, found `{logits}` twice")
    directory = model_directory(model)
    saved = load_model(directory, network)
    sampled = validation == "sampled" or samples_only(saved.config, saved.model)
    if validation == "sampled" and saved.config.of_graphs:
        what = "a network of whole graphs takes all neighbours, and samples none"
        raise InvalidError(f"model `{model}`: {what}\nhint: leave `--sampled` out")
    graph = open_graph(_data_set_of(directory) if data_set is None else root_of(data_set))
    if saved.task.kind == "links" and not (predictions is None and logits is None):
        raise UnsupportedError(
            "predictions: a model of edges has no predictions of nodes\n"
            "hint: leave `--predictions` and `--logits` out"
        )
    described = {"model": str(directory), "data_set": str(Path(graph.root).resolve())}
    neighbours = "sampled" if sampled else "all"

    def require_split(work: Work) -> None:
        if isinstance(work, LinkWork | TemporalLinkWork):
            _held_out(work, directory, split)
        elif isinstance(work, PredictingWork):
            _nodes(work.labelled, split)

    opening = opened_work(
        saved,
        directory,
        graph,
        memory,
        far,
        require_split,
        observer=observer,
        open_loader=open_loader,
    )
    with ExitStack() as stack:
        work, context = stack.enter_context(opening)
        if isinstance(work, LinkWork | TemporalLinkWork):
            return described | _scores_of_links(work, context, directory, split, neighbours)
        assert isinstance(work, PredictingWork)
        task, metric, nodes = saved.task, saved.task.metric(), _nodes(work.labelled, split)
        outputs = (
            (predictions, task.shape(len(nodes)), task.dtype, task.predictions),
            (logits, (len(nodes), task.outputs), np.float32, task.scores),
        )
        names = names_of_items(work.labelled)
        writers = [
            (stack.enter_context(node_values(Path(file), names, shape, dtype)), values)
            for file, shape, dtype, values in outputs
            if file is not None
        ]
        predictor = work.predictor(context)
        for prediction in predictor.sampled(nodes) if sampled else predictor.exact(nodes):
            task.update(metric, prediction.logits, prediction.labels)
            for writer, values in writers:
                writer.append(prediction.nodes, values(prediction.logits))
    return {
        **described,
        "split": split,
        work.rows: len(nodes),
        "neighbours": neighbours,
        "metric": metric.name,
        "score": metric.value(),
        **metric.values(),
    }


def _scores_of_links(
    work: LinkWork | TemporalLinkWork,
    context: Context,
    model: Path,
    split: str,
    neighbours: str,
) -> dict[str, Any]:
    """All metrics of the held-out edges `valid` or `test`. Errors: as `_held_out`."""
    part, links = _held_out(work, model, split), work.links
    scores = work.scoring(context).scores(part, sampled=neighbours == "sampled")
    edges, negatives = links.sizes(part)
    return {
        "split": part,
        "edges": edges,
        "negatives": negatives,
        "neighbours": neighbours,
        "metric": scores.name,
        "score": scores.value(),
        **scores.values(),
    }


def _held_out(work: LinkWork | TemporalLinkWork, model: Path, split: str) -> str:
    """The name of the held-out edges to score: `valid` or `test`.

    Errors: `NotFoundError` if the run did not hold out such edges.
    """
    part, parts = normal_split(split), work.links.parts
    if part not in parts:
        raise NotFoundError(
            f"run `{model.parent}`: no held-out edges `{part}`; it has "
            f"{', '.join(f'`{name}`' for name in parts) or 'none'}\n"
            "hint: `--split` takes `valid` or `test`"
        )
    return part


def _data_set_of(model: Path) -> Path:
    """The data set on which a run's model was trained."""
    if not (model.parent / "config.json").exists():
        raise InvalidError(f"model `{model}` names no data set\nhint: add `--data DATASET`")
    return TrainDirectory.open(model.parent).data_set


def _nodes(graph: Labelled, split: str) -> NDArray[np.int64]:
    if split == "all" and find_split(split, graph.splits) is None:
        return np.arange(graph.schema.num_labelled)
    return nodes_of(graph, split)


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

    Predictions are exact: they use all neighbours. Only models with times, and custom networks, use
    sampled neighbours. Rows are written as they are computed. The file gets its name when it is
    complete.

    **Shapes** of the table. Rows are in the order of node ids. `id`: int64 id in the imported
    files, or the name of the node. `prediction`: the class as int64 or by name, or a number as
    float32; several labels or numbers are in `prediction_0` and so on, labels as uint8.
    `probability_0` and so on: float32 for each class or label. With `edges`, rows are in the order
    of the list: `source`, `target`, and `score` float32, higher for likelier edges.

    Args:
        data_set: directory of the data set, or an opened graph. Labels are not needed.
        model: a run of `oc.train`, or its `model` directory.
        out: the `.parquet`, `.csv` or `.tsv` file to write.
        edges: the pairs to score, for a model of edges: a text file, Parquet, or `.npy` with ids or
            names. `FILE:SOURCE,TARGET` chooses columns.
        memory: budget, by default the budget of the training.
        network: the code of a custom network: a module, a class, or `FILE.py:NAME`.
        overwrite: whether `out` may replace an existing file.
        observer: receives the progress.
        open_graph, open_loader: functions to call instead of `oc.open` and `oc.NeighborLoader`.

    Returns:
        A dictionary: `model`, `data_set`, `out`, `task`, `neighbours` (`all` or `sampled`), and the
        number of `nodes`, `graphs` or `edges`.

    Raises:
        InvalidError: the model does not fit the data set; `edges` for a model of nodes; a wrong
            pair in the list (the message has its row); `out` exists already.
        UnsupportedError: a model of edges with times.
        NotFoundError: an unknown model, data set or list; an unknown name (the message has its
            row).
        InterruptError: after Ctrl-C, SIGTERM or SIGHUP. No file is left behind.

    Example:
        >>> import outercore as oc
        >>> options = {"fanout": (4, 3), "hidden": 8, "epochs": 1}
        >>> record = oc.train(tiny_dataset, out=tmp_path / "run", **options)
        >>> found = oc.predict(tiny_dataset, tmp_path / "run", tmp_path / "scores.parquet")
        >>> found["nodes"], found["task"]
        (200, 'classification')
    """
    out = Path(out)
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
    pairs = PairList.parse(str(edges), names_of_items(graph)) if of_links else None
    opening = opened_work(
        saved, directory, graph, memory, observer=observer, open_loader=open_loader
    )
    with opening as (work, context):
        if isinstance(work, PredictingWork):
            count = _write_rows(out, work, context)
        else:
            assert isinstance(work, LinkWork)
            assert pairs is not None
            count = _write_pairs(out, work, context, pairs)
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


def _write_rows(out: Path, work: PredictingWork, context: Context) -> int:
    """Writes the predictions of all nodes or graphs, and returns their number."""
    table = _NodeTable(work.labelled, work.task)
    with _table(out, table.columns) as append:
        for prediction in work.predictor(context).exact(None):
            append(table.rows(prediction))
    return work.labelled.schema.num_labelled


def _write_pairs(out: Path, work: LinkWork, context: Context, pairs: PairList) -> int:
    """Writes the scores of a list of pairs, and returns their number."""
    # Read the whole list first, so that a wrong pair is found before any work.
    ends = np.zeros(work.labelled.num_nodes, np.bool_)
    count = 0
    for some in pairs.chunks():
        ends[some] = True
        count += len(some)
    ids = names_of_items(work.labelled)
    columns = {"source": type_of_ids(ids), "target": type_of_ids(ids), "score": pa.float32()}
    scoring = work.scoring(context)
    with _table(out, columns) as append, scoring.embedded(np.flatnonzero(ends)) as scored:
        context.observer.evaluation_started("scores", count, 0)
        for some in pairs.chunks():
            sources, targets = (arrow_ids(ids, column) for column in some.T)
            append({"source": sources, "target": targets, "score": scored(some)})
            context.observer.evaluation_advanced(len(some))
    return count


class _NodeTable:
    """Converts predictions of nodes or graphs to the columns of a table."""

    def __init__(self, labelled: Labelled, task: Task) -> None:
        self._task = task
        self._ids = names_of_items(labelled)
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
        """The columns for some nodes or graphs."""
        predicted: Any = self._task.predictions(prediction.logits)
        if self._classes is not None:
            predicted = [arrow_names_of(self._classes, predicted)]
        else:
            predicted = list(predicted.T) if predicted.ndim == 2 else [predicted]
        columns: Columns = {"id": arrow_ids(self._ids, prediction.nodes)}
        columns |= dict(zip(self._predictions, predicted, strict=True))
        if self._scores:
            probabilities = self._task.probabilities(prediction.logits)
            columns |= dict(zip(self._scores, probabilities.T, strict=True))
        return columns


def _class_names(labelled: Labelled, task: Task) -> Names | None:
    """The names of the classes, if the data set has a name for each class."""
    if task.kind != "classes":
        return None
    try:
        names = Names(Path(labelled.root), labelled.schema.arrays, "class")
    except (NotFoundError, CorruptError):
        return None
    return names if len(names) == task.outputs else None


@contextmanager
def _table(path: Path, columns: dict[str, pa.DataType]) -> Iterator[Callable[[Columns], None]]:
    """Context with a function that adds rows to a table file, given as columns.

    After an error in the block, there is no file.
    """
    waiting: list[pa.RecordBatch] = []

    def write() -> None:
        rows = pa.Table.from_batches(waiting)
        table.append({name: rows[name].combine_chunks() for name in rows.column_names})
        waiting.clear()

    def append(columns: Columns) -> None:
        waiting.append(table.batch(columns))
        if sum(map(len, waiting)) >= _GROUP:
            write()

    with table_file(path, columns) as table:
        yield append
        if any(map(len, waiting)):
            write()


@contextmanager
def opened_work(
    saved: SavedModel,
    directory: Path,
    graph: Graph,
    memory: str | None,
    far: FarOptions | None = None,
    check: Callable[[Work], None] = lambda work: None,
    *,
    observer: Observer | None,
    open_loader: LoaderFactory,
) -> Iterator[tuple[Work, Context]]:
    """Context with the work of a trained model in `directory`, which is ready to score.

    Scoring has the whole budget: `memory`, or the budget of the training. A signal stops it.

    `check` raises the errors of a wrong request, before in-degrees or edges are read.

    Errors: as `require_model_fits` and `open_work`; for a model of edges, `InvalidError` if the
    data set is another one or has changed.
    """
    observer = observer or Observer()
    # The memory server of the training does not belong to the model.
    budget = replace(saved.config.budget, far=far)
    if memory is not None:
        budget = replace(budget, memory=memory)
    config = replace(saved.config, budget=budget)
    require_model_fits(graph, config)
    stop, scratch = StopRequest(), directory / "scratch"
    place = None
    if config.of_links:
        run = _run_of(directory, graph)
        run.require_same(graph)
        place = LinkPlace(run.links, Position, stop)
    work = open_work(
        graph, config, open_loader=open_loader, note=observer.note, place=place, saved=saved
    )
    with ExitStack() as stack:
        stack.callback(_remove_empty, scratch)
        stack.callback(work.loaders.close)
        stack.enter_context(stop_on_signals(stop))
        own = scratch
        if place is not None:
            scratch.mkdir(exist_ok=True)
            # Another process may use the same model, so each has a separate directory.
            own = stack.enter_context(scratch_directory(scratch, "links-"))
        check(work)
        work.loaders.release_training()
        work.prepare(Timeline([]))
        yield work, Context(own, torch.device("cpu"), observer, stop)


def _run_of(model: Path, graph: Graph) -> TrainDirectory:
    """The run of a model of edges. It has the edges to score.

    Errors: `InvalidError` for a model outside of a run, and for another data set.
    """
    if not (model.parent / "config.json").exists():
        raise InvalidError(
            f"model `{model}`: a model of edges needs the edges of its run\n"
            "hint: give the run directory"
        )
    run = TrainDirectory.open(model.parent)
    if run.data_set != Path(graph.root).resolve():
        raise InvalidError(
            f"data set `{graph.root}`: a model of edges scores those of its run's data set, "
            f"`{run.data_set}`\nhint: give that one"
        )
    return run


def _remove_empty(directory: Path) -> None:
    """Removes a directory if it is empty."""
    # It is not empty if another evaluation of the same model is running.
    with suppress(OSError):
        directory.rmdir()
