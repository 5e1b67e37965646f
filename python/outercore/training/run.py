"""Whole runs: train, resume, evaluate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.errors import CorruptError, InvalidError, UnsupportedError
from outercore.far import FarOptions
from outercore.many_graphs import Labelled, ManyGraphs
from outercore.outputs import VALUES, NodeValues, check_output, node_values
from outercore.ranks import require_one_process
from outercore.runs.places import new_run, only_run
from outercore.runs.progress import Observer
from outercore.runs.stop import StopRequest, stop_on_signals
from outercore.split_names import find_split
from outercore.training.config import TrainConfig
from outercore.training.forecast import forecast
from outercore.training.graph_work import with_inputs
from outercore.training.links.evaluate import evaluate_links
from outercore.training.links.held_out import require_topology
from outercore.training.loaders import LoaderFactory, neighbor_loader
from outercore.training.loop import Trainer, device_named
from outercore.training.metrics import Errors
from outercore.training.open_work import open_predicting
from outercore.training.opened import config_under, model_directory, open_graph, predicting
from outercore.training.options import configuration
from outercore.training.run_directory import TrainDirectory
from outercore.training.saved import load_model
from outercore.training.splits import nodes_of, with_splits
from outercore.training.temporal.work import TemporalLinkWork
from outercore.training.typed.inputs import require_model_fits
from outercore.training.work import Work

_COMMAND = "outercore train"


def train(
    data_set: str | Path,
    config: TrainConfig | Mapping[str, Any] | str | Path | None = None,
    *,
    out: str | Path | None = None,
    observer: Observer | None = None,
    command: str = "",
    open_graph: Callable[[Path], Any] = open_graph,
    open_loader: LoaderFactory = neighbor_loader,
    **options: Any,
) -> dict[str, Any]:
    """Train a network on a data set that need not fit in memory.

    Seeds PyTorch's global generator.

    Args:
        data_set: its directory.
        config: a configuration, its groups, or a JSON file of them such as `config.json` of a run.
        out: the run's directory, by default `runs/DATA_SET-MODEL-NUMBER`.
        observer: is called with batches, epochs and notes.
        command: for the record.
        open_graph, open_loader: replace `oc.open` and `oc.NeighborLoader`.
        options: single values by the names in `docs/options.md`, such as `model="gcn"`; they
            override `config`.

    Returns:
        The run record.

    Raises:
        InterruptError: after Ctrl-C or SIGTERM, with everything in a checkpoint.
        InvalidError: an unknown or wrong option.
        BudgetError: the budget is too small; the message has the least that works.
        OutercoreError: the kinds of `oc.open` and `oc.NeighborLoader`.

    Example:
        >>> import outercore as oc
        >>> options = {"model": "gcn", "fanout": (4, 3), "hidden": 8, "epochs": 1}
        >>> record = oc.train(tiny_dataset, out=tmp_path / "run", **options)
        >>> record["status"]
        'finished'
    """
    require_one_process("outercore train")
    chosen, observer = configuration(config, options), observer or Observer()
    graph = open_graph(Path(data_set))
    chosen = _with_inputs(graph, chosen, observer)
    name = f"{Path(graph.root).resolve().name}-{chosen.model.kind}"
    with new_run(None if out is None else Path(out), name, _COMMAND) as path:
        run = TrainDirectory.create(path, graph, chosen)
        with run.training(new=True):
            return _fit(graph, chosen, run, observer, command, open_loader)


def plan(
    data_set: str | Path,
    config: TrainConfig | Mapping[str, Any] | str | Path | None = None,
    *,
    observer: Observer | None = None,
    open_graph: Callable[[Path], Any] = open_graph,
    open_loader: LoaderFactory = neighbor_loader,
    **options: Any,
) -> dict[str, Any]:
    """How a training divides its memory, and what an epoch will read and take.

    Opens the topology, runs the cache over batches of two epochs, or the first ones, and times each
    stage on a few; trains nothing. Arguments as those of `train`.

    Returns:
        `memory`, `validation_memory` and what is reserved (`in_degrees_memory`,
        `embeddings_memory`, `edges_memory`) in bytes; `training`: the record's `plan` of a run with
        these options; `forecast`: what
        `NeighborLoader.forecast` says with the training step, empty for whole graphs and edges.

    Raises:
        BudgetError: the budget is too small; the message has the least that works.
        UnsupportedError: the task `link` without times, whose graph is made by the run itself.
    """
    chosen, observer = configuration(config, options), observer or Observer()
    if chosen.of_links and chosen.sampling.time is None:
        raise UnsupportedError("a plan for the task `link`: the run itself makes its graph")
    graph = open_graph(Path(data_set))
    chosen = _with_inputs(graph, chosen, observer)
    open_work = TemporalLinkWork if chosen.of_links else open_predicting
    work = open_work(graph, chosen, open_loader=open_loader, note=observer.note)
    with closing(work.loaders) as loaders:
        loaders.training()
        work.prepare()
        expected = forecast(work, chosen, device_named(chosen.run.device))
        return {**loaders.shares, "training": loaders.training_plan, "forecast": expected}


def _with_inputs(graph: Any, config: TrainConfig, observer: Observer) -> TrainConfig:
    """The configuration with the splits and features that the data set has."""
    require_model_fits(graph, config)
    if config.of_links:
        require_topology(graph)
        return config
    labelled: Labelled = graph
    if config.of_graphs:
        labelled, config = ManyGraphs(graph), with_inputs(graph, config)
    return replace(config, sampling=with_splits(labelled, config.sampling, observer.note))


def resume(
    run: str | Path,
    *,
    far: FarOptions | Literal[False] | None = None,
    observer: Observer | None = None,
    command: str = "",
    open_graph: Callable[[Path], Any] = open_graph,
    open_loader: LoaderFactory = neighbor_loader,
) -> dict[str, Any]:
    """Goes on with a run from its last checkpoint, to the bits it would have had uninterrupted.

    A run that has come to its end stays as it is, and its record is returned.

    `far` is another memory server than the run had, `False` for none.

    Errors: `InvalidError` where an array that the run reads changed since, or another process
    trains the run; else as `train`.
    """
    require_one_process("outercore train")
    directory = TrainDirectory.open(Path(run))
    observer = observer or Observer()
    with only_run(directory.path, _COMMAND):
        graph = open_graph(directory.data_set)
        directory.require_same(graph)
        if directory.finished and _intact(directory, observer):
            observer.note(f"run {directory.path} is finished: there is nothing to resume")
            return directory.record()
        config = directory.config()
        if far is not None:
            config = replace(config, budget=replace(config.budget, far=far or None))
        with directory.training(new=False):
            return _fit(graph, config, directory, observer, command, open_loader)


def _intact(run: TrainDirectory, observer: Observer) -> bool:
    """Whether the model of a finished run is as it was written; if not, says so."""
    try:
        load_model(run.model)
    except CorruptError as error:
        first = str(error).partition("\n")[0]
        observer.note(f"warning: {first}; it is written again from the last checkpoint")
        return False
    return True


def evaluate(
    model: str | Path,
    data_set: str | Path | None = None,
    *,
    split: str = "test",
    memory: str | None = None,
    far: FarOptions | None = None,
    validation: str = "full",
    predictions: str | Path | None = None,
    logits: str | Path | None = None,
    overwrite: bool = False,
    observer: Observer | None = None,
    open_graph: Callable[[Path], Any] = open_graph,
    open_loader: LoaderFactory = neighbor_loader,
) -> dict[str, Any]:
    """Scores a trained model on a split, by exact inference or with sampled neighbours.

    `model` is a run or its `model` directory; `data_set` by default the run's own; split `all`
    stands for every node, in order. `predictions` and `logits` name files to write, one row a node
    of the split, in its order: `.npy`, or `.parquet` and `.csv` with the node's id or name;
    `overwrite` lets them replace files. `far` is used where it holds the data set for good.

    Errors: `NotFoundError` for a missing model, split or directory; `InvalidError` for a data set
    or a run of `outercore embed` in place of a model, for a file that is there already, and where
    the data set's features do not fit.
    """
    for option, file in (("predictions", predictions), ("logits", logits)):
        if file is not None:
            check_output(Path(file), VALUES, option=option, overwrite=overwrite)
    if predictions is not None and predictions == logits:
        raise InvalidError(f"predictions and logits: expected two files, found `{logits}` twice")
    directory = model_directory(Path(model))
    saved = load_model(directory)
    sampled = validation == "sampled" or saved.config.sampling.time is not None
    if validation == "sampled" and saved.config.of_graphs:
        what = "a network of whole graphs takes all neighbours, and samples none"
        raise InvalidError(f"model `{model}`: {what}\nhint: leave `--sampled` out")
    graph = open_graph(Path(data_set or _data_set_of(directory)))
    config = config_under(saved, graph, memory, far)
    observer = observer or Observer()
    if saved.task.kind == "links":
        return evaluate_links(
            saved,
            directory,
            graph,
            config,
            part=split,
            sampled=sampled,
            outputs=predictions is not None or logits is not None,
            observer=observer,
            open_loader=open_loader,
        )
    ready = predicting(saved, directory, graph, config, observer=observer, open_loader=open_loader)
    with ExitStack() as stack:
        work, open_predictor = stack.enter_context(ready)
        nodes = _nodes(work.labelled, split)
        metric = saved.task.metric()
        predictor = open_predictor()
        labels_out, logits_out = _outputs(stack, work, len(nodes), predictions, logits)
        for prediction in predictor.sampled(nodes) if sampled else predictor.exact(nodes):
            saved.task.update(metric, prediction.logits, prediction.labels)
            if labels_out is not None:
                labels_out.append(prediction.nodes, saved.task.predictions(prediction.logits))
            if logits_out is not None:
                logits_out.append(prediction.nodes, saved.task.scores(prediction.logits))
    return {
        "model": str(directory),
        "data_set": str(Path(graph.root).resolve()),
        "split": split,
        work.rows: len(nodes),
        "neighbours": "sampled" if sampled else "all",
        "metric": metric.name,
        "score": metric.value(),
        **(metric.values() if isinstance(metric, Errors) else {}),
    }


def _data_set_of(model: Path) -> Path:
    """The data set that a run's model was trained on."""
    if not (model.parent / "config.json").exists():
        raise InvalidError(f"model `{model}` names no data set\nhint: add `--data DATASET`")
    return TrainDirectory.open(model.parent).data_set


def _fit(
    graph: Any,
    config: TrainConfig,
    run: TrainDirectory,
    observer: Observer | None,
    command: str,
    open_loader: LoaderFactory,
) -> dict[str, Any]:
    stop = StopRequest()
    with stop_on_signals(stop):
        trainer = Trainer(
            graph,
            config,
            run,
            observer=observer,
            stop=stop,
            open_loader=open_loader,
            command=command,
        )
        return trainer.fit()


def _nodes(graph: Labelled, split: str) -> NDArray[np.int64]:
    if split == "all" and find_split(split, graph.splits) is None:
        return np.arange(graph.num_nodes)
    return nodes_of(graph, split)


def _outputs(
    stack: ExitStack,
    work: Work,
    rows: int,
    predictions: str | Path | None,
    logits: str | Path | None,
) -> tuple[NodeValues | None, NodeValues | None]:
    labels_out = logits_out = None
    graph, task = work.labelled, work.task
    if predictions is not None:
        writer = node_values(Path(predictions), graph, task.shape(rows), task.dtype)
        labels_out = stack.enter_context(writer)
    if logits is not None:
        shape = (rows, task.outputs)
        logits_out = stack.enter_context(node_values(Path(logits), graph, shape, np.float32))
    return labels_out, logits_out
