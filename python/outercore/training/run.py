"""Whole runs: train, resume, evaluate."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.base.display import Forecast
from outercore.base.fields import one_of
from outercore.base.plan_display import LoaderPlan, TrainPlan
from outercore.data.data_set import require_edges
from outercore.data.far import FarOptions
from outercore.data.graph import Graph, Source, root_of
from outercore.data.many_graphs import Labelled, ManyGraphs
from outercore.data.outputs import VALUES, NodeValues, check_output, node_values
from outercore.data.split_names import find_split, normal_split
from outercore.errors import CorruptError, InvalidError, NotFoundError, UnsupportedError
from outercore.loading.ranks import require_one_process
from outercore.runs.custom_code import CustomCode
from outercore.runs.places import new_run, only_run
from outercore.runs.progress import Observer
from outercore.runs.resume import Change
from outercore.runs.stop import StopRequest, stop_on_signals
from outercore.training.config import CHANGEABLE, TrainConfig, configuration
from outercore.training.custom_network import NetworkSource, network_code, same_network_code
from outercore.training.forecast import forecast
from outercore.training.graph_work import with_inputs
from outercore.training.inference import Context
from outercore.training.links.data import require_topology
from outercore.training.links.work import LinkWork
from outercore.training.loaders import LoaderFactory, neighbor_loader
from outercore.training.loop import Trainer
from outercore.training.metrics import Errors
from outercore.training.model_files import load_model
from outercore.training.open_work import open_work, require_model_fits, unused_times
from outercore.training.record import TrainRecord
from outercore.training.run_directory import TrainDirectory
from outercore.training.splits import nodes_of, with_splits
from outercore.training.temporal.work import TemporalLinkWork
from outercore.training.trained_model import model_directory, opened_work
from outercore.training.work import PredictingWork, Work, samples_only

_COMMAND = "outercore train"


def train(
    data_set: Source,
    config: TrainConfig | Mapping[str, Any] | str | Path | None = None,
    *,
    out: str | Path | None = None,
    network: NetworkSource | None = None,
    observer: Observer | None = None,
    command: str = "",
    open_graph: Callable[[Path], Any] = Graph,
    open_loader: LoaderFactory = neighbor_loader,
    **options: Any,
) -> TrainRecord:
    """Train a network on a data set that need not fit in memory.

    Seeds PyTorch's global generator.

    Args:
        data_set: its directory, or an opened graph.
        config: a configuration, its groups, or a JSON file of them such as `config.json` of a run.
        out: the run's directory, by default `runs/DATA_SET-MODEL-NUMBER`.
        network: a custom network, for the labels of nodes of one type: a module of PyTorch,
            which is trained as it is; a class or function that makes one from `in_channels`,
            `hidden_channels`, `num_layers`, `out_channels`, `dropout` and `heads`, as far as it
            takes them; or `FILE.py:NAME` of either. `model=` takes the same. Its `forward` takes
            `x` and `edge_index`; see `outercore.training.custom_network.CustomNetwork`.
        observer: is called with batches, epochs and notes.
        command: for the record.
        open_graph, open_loader: replace `oc.open` and `oc.NeighborLoader`.
        options: single values by the names in `docs/options.md`, such as `model="gcn"`; they
            override `config`.

    Returns:
        The run record, a dictionary; printed, it shows the scores.

    Raises:
        InterruptError: after Ctrl-C, SIGTERM or SIGHUP, with everything in a checkpoint.
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
    code, options = _custom_network(network, options)
    chosen = configuration(config, options)
    _require_code(chosen, code)
    graph = open_graph(root_of(data_set))
    chosen = _with_inputs(graph, chosen, observer or Observer())
    if (lost := unused_times(graph, chosen)) is not None:
        if observer is None:
            warnings.warn(lost, stacklevel=2)
        else:
            observer.note(f"warning: {lost}")
    observer = observer or Observer()
    name = f"{Path(graph.root).resolve().name}-{chosen.model.kind.rpartition(':')[2]}"
    with new_run(None if out is None else Path(out), name, _COMMAND) as path:
        more = {} if code is None else {"network": code.place, "network_digest": code.digest}
        run = TrainDirectory.create(path, graph, chosen, more=more)
        with run.training(new=True):
            return _fit(graph, chosen, run, observer, command, open_loader, code)


def plan(
    data_set: Source,
    config: TrainConfig | Mapping[str, Any] | str | Path | None = None,
    *,
    network: NetworkSource | None = None,
    observer: Observer | None = None,
    open_graph: Callable[[Path], Any] = Graph,
    open_loader: LoaderFactory = neighbor_loader,
    **options: Any,
) -> TrainPlan:
    """The memory plan of a training, and the reads and seconds expected for an epoch.

    Opens the topology, runs the cache over batches of two epochs, or the first ones, and times each
    stage on a few. Trains nothing. The arguments are the same as for `train`.

    Returns:
        `memory`, `validation_memory` and reserved memory (`in_degrees_memory`, `embeddings_memory`,
        `edges_memory`) in bytes; `all_rows_memory`: a budget that holds all
        feature rows, `None` where it is not known; `training`: the record's `plan` of a run with
        these options; `forecast`: what
        `NeighborLoader.forecast` says with the training step, empty for whole graphs and edges.

    Raises:
        BudgetError: the budget is too small; the message has the least that works.
        UnsupportedError: the task `link` without times, whose graph is made by the run itself.
    """
    code, options = _custom_network(network, options)
    chosen, observer = configuration(config, options), observer or Observer()
    _require_code(chosen, code)
    if chosen.of_links and chosen.sampling.time is None:
        raise UnsupportedError("a plan for the task `link`: the run itself makes its graph")
    graph = open_graph(root_of(data_set))
    chosen = _with_inputs(graph, chosen, observer)
    work = open_work(graph, chosen, open_loader=open_loader, note=observer.note, code=code)
    with closing(work.loaders) as loaders:
        loaders.training()
        work.prepare()
        expected = forecast(work, chosen, chosen.run.torch_device())
        planned = LoaderPlan(loaders.training_plan)
        return TrainPlan(
            {
                **loaders.shares,
                "all_rows_memory": loaders.all_rows_memory(),
                "training": planned,
                "forecast": Forecast(expected),
            }
        )


def _with_inputs(graph: Any, config: TrainConfig, observer: Observer) -> TrainConfig:
    """The configuration with the splits and features that the data set has."""
    require_model_fits(graph, config)
    if config.of_links:
        require_topology(graph)
        return config
    require_edges(graph)
    labelled: Labelled = graph
    if config.of_graphs:
        labelled, config = ManyGraphs(graph), with_inputs(graph, config)
    return replace(config, sampling=with_splits(labelled, config.sampling, observer.note))


def resume(
    run: str | Path,
    *,
    far: FarOptions | Literal[False] | None = None,
    network: NetworkSource | None = None,
    observer: Observer | None = None,
    command: str = "",
    open_graph: Callable[[Path], Any] = Graph,
    open_loader: LoaderFactory = neighbor_loader,
    **options: Any,
) -> TrainRecord:
    """Resumes a run from its last checkpoint. The bits are those of an uninterrupted run.

    A finished run continues when `epochs` or `patience` is larger than before; only these `options`
    may change. Otherwise its record is returned.

    `far` replaces the memory server of the run; `False` uses none. `network` is the code of a
    custom network.

    Errors: `InvalidError` if an array that the run reads, or its network, has changed; if nothing
    is left to train; if another process trains the run; else as `train`.
    """
    require_one_process("outercore train")
    directory = TrainDirectory.open(Path(run))
    observer = observer or Observer()
    with only_run(directory.path, _COMMAND):
        graph = open_graph(directory.data_set)
        directory.require_same(graph)
        what = f"run `{directory.path}`"
        code = same_network_code(what, directory.code("network"), network, "--model")
        change = Change.of(directory.config(), options, CHANGEABLE)
        config = change.after
        if change.values:
            if directory.finished:
                change.require_more(*directory.epochs)
            directory.change(change.values)
        elif _is_over(directory, config) and _intact(directory, network, observer):
            observer.note(f"run {directory.path} is finished: there is nothing to resume")
            return TrainRecord(directory.record())
        if far is not None:
            config = replace(config, budget=replace(config.budget, far=far or None))
        with directory.training(new=False):
            return _fit(graph, config, directory, observer, command, open_loader, code)


def _is_over(run: TrainDirectory, config: TrainConfig) -> bool:
    # One that got more epochs and was stopped before the next one ended is not.
    return run.finished and config.optimiser.is_over(*run.epochs)


def _custom_network(
    network: NetworkSource | None, options: Mapping[str, Any]
) -> tuple[CustomCode | None, dict[str, Any]]:
    """The custom network, by `network` or as the option `model`; and the options."""
    given = options.get("model")
    if isinstance(given, str) and ":" not in given:
        given = None
    if network is not None and given is not None and network is not given:
        raise InvalidError("network: found a network as `model`, too\nhint: give one of them")
    chosen = given if network is None else network
    if chosen is None:
        return None, dict(options)
    code = network_code(chosen)
    return code, {**options, "model": code.place}


def _require_code(config: TrainConfig, code: CustomCode | None) -> None:
    if config.model.is_custom and code is None:
        raise InvalidError(
            f"model `{config.model.kind}`: the code of a custom network has to be given again\n"
            f"hint: give it again by `--model {config.model.kind}`"
        )


def _intact(run: TrainDirectory, network: NetworkSource | None, observer: Observer) -> bool:
    """Whether the model of a finished run is undamaged; a note names the damage."""
    try:
        load_model(run.model, network)
    except CorruptError as error:
        first = str(error).partition("\n")[0]
        observer.note(f"warning: {first}; it is written again from the last checkpoint")
        return False
    return True


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
    """Scores a trained model on a split, by exact inference or with sampled neighbours.

    `model` is a run or its `model` directory; `data_set` by default the run's own; split `all`
    stands for every node, in order. `network` is the code of a custom network. `validation` says
    whether all neighbours count, or those sampled with the training fan-outs. `predictions` and
    `logits` name files to write, a row for each node of the split, in its order: `.npy`, or
    `.parquet` and `.csv` with the node's id or name. `overwrite` lets them replace files. `far` is
    used if it holds the data set permanently.

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
    observer = observer or Observer()
    of_links = saved.task.kind == "links"
    if of_links and not (predictions is None and logits is None):
        raise UnsupportedError(
            "predictions: a model of edges has no predictions of nodes\n"
            "hint: leave `--predictions` and `--logits` out"
        )
    opening = opened_work(
        saved, directory, graph, memory, far, observer=observer, open_loader=open_loader
    )
    with ExitStack() as stack:
        work, ready = stack.enter_context(opening)
        described = {"model": str(directory), "data_set": str(Path(graph.root).resolve())}
        neighbours = "sampled" if sampled else "all"
        if isinstance(work, LinkWork | TemporalLinkWork):
            return described | _scores_of_links(work, ready, directory, split, neighbours)
        assert isinstance(work, PredictingWork)
        nodes = _nodes(work.labelled, split)
        metric = saved.task.metric()
        predictor = work.predictor(ready())
        labels_out, logits_out = _outputs(stack, work, len(nodes), predictions, logits)
        for prediction in predictor.sampled(nodes) if sampled else predictor.exact(nodes):
            saved.task.update(metric, prediction.logits, prediction.labels)
            if labels_out is not None:
                labels_out.append(prediction.nodes, saved.task.predictions(prediction.logits))
            if logits_out is not None:
                logits_out.append(prediction.nodes, saved.task.scores(prediction.logits))
    return {
        **described,
        "split": split,
        work.rows: len(nodes),
        "neighbours": neighbours,
        "metric": metric.name,
        "score": metric.value(),
        **(metric.values() if isinstance(metric, Errors) else {}),
    }


def _scores_of_links(
    work: LinkWork | TemporalLinkWork,
    ready: Callable[[], Context],
    model: Path,
    split: str,
    neighbours: str,
) -> dict[str, Any]:
    """All metrics of the held-out edges `valid` or `test`.

    Errors: `NotFoundError` for a part that the run does not have.
    """
    part, links = normal_split(split), work.links
    if part not in links.parts:
        raise NotFoundError(
            f"run `{model.parent}`: no held-out edges `{part}`; it has "
            f"{', '.join(f'`{name}`' for name in links.parts) or 'none'}\n"
            "hint: `--split` takes `valid` or `test`"
        )
    scores = work.scoring(ready()).scores(part, sampled=neighbours == "sampled")
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
    code: CustomCode | None,
) -> TrainRecord:
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
            code=code,
        )
        return TrainRecord(trainer.fit())


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
