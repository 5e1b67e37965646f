"""Whole runs: train, plan and resume."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from outercore.base.display import Forecast
from outercore.base.plan_display import LoaderPlan, TrainPlan
from outercore.data.data_set import require_edges
from outercore.data.far import FarOptions
from outercore.data.graph import Graph, Source, root_of
from outercore.data.many_graphs import Labelled, ManyGraphs
from outercore.errors import CorruptError, InvalidError, UnsupportedError
from outercore.loading.ranks import require_one_process
from outercore.runs.custom_code import CustomCode
from outercore.runs.places import new_run, only_run
from outercore.runs.progress import Observer
from outercore.runs.record import Timeline
from outercore.runs.resume import Change
from outercore.runs.stop import StopRequest, stop_on_signals
from outercore.training.config import CHANGEABLE, TrainConfig, configuration
from outercore.training.custom_network import NetworkSource, network_code, same_network_code
from outercore.training.forecast import forecast
from outercore.training.links.data import require_topology
from outercore.training.loaders import LoaderFactory, neighbor_loader
from outercore.training.loop import Trainer
from outercore.training.model_files import load_model
from outercore.training.open_work import open_work, require_model_fits, unused_times
from outercore.training.record import TrainRecord
from outercore.training.run_directory import TrainDirectory
from outercore.training.tasks import with_splits
from outercore.training.work import with_inputs

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
        data_set: directory of the data set, or an opened graph.
        config: a configuration, a dictionary of its groups, or a JSON file of them such as
            `config.json` of a run.
        out: directory of the run, by default `runs/DATA_SET-MODEL-NUMBER`.
        network: a custom network for labels of nodes, in a graph with one type. It is a PyTorch
            module, which is trained as it is; or a class or function that makes a module; or the
            place `FILE.py:NAME` of one of these. A class or function may take the arguments
            `in_channels`, `hidden_channels`, `num_layers`, `out_channels`, `dropout` and `heads`,
            or only some of them. The module's `forward` takes `x` and `edge_index`; see
            `outercore.training.custom_network.CustomNetwork`. `model=` takes the same values.
        observer: receives batches, epochs and notes.
        command: command line for the run record; empty if Python started the run.
        open_graph, open_loader: functions to call instead of `oc.open` and `oc.NeighborLoader`.
        options: single options by their names in `docs/options.md`, such as `model="gcn"`. They
            override `config`.

    Returns:
        The run record, a dictionary. If you print it, it shows the scores.

    Raises:
        InterruptError: after Ctrl-C, SIGTERM or SIGHUP; all progress is in a checkpoint.
        InvalidError: an unknown or wrong option.
        BudgetError: the budget is too small; the message names the smallest sufficient budget.
        OutercoreError: other errors of `oc.open` and `oc.NeighborLoader`.

    Example:
        >>> import outercore as oc
        >>> options = {"model": "gcn", "fanout": (4, 3), "hidden": 8, "epochs": 1}
        >>> record = oc.train(tiny_dataset, out=tmp_path / "run", **options)
        >>> record["status"]
        'finished'
    """
    require_one_process("outercore train")
    chosen, code = _configured(config, network, options)
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
    """The memory plan of a training, and the expected reads and seconds of an epoch.

    It trains nothing. It opens the topology, simulates the cache over the batches of two epochs (or
    the first batches), and measures each stage on a few batches. The arguments are the same as for
    `train`.

    Returns:
        A dictionary. `memory`, `validation_memory` and reserved memory (`in_degrees_memory`,
        `embeddings_memory`, `edges_memory`) are in bytes. `all_rows_memory` is a budget that holds
        all feature rows, `None` if it is not known. `training` is the `plan` in the record of a run
        with these options. `forecast` is the result of `NeighborLoader.forecast` with the training
        step; it is empty for whole graphs and edges.

    Raises:
        BudgetError: the budget is too small; the message names the smallest sufficient budget.
        UnsupportedError: the task `link` without times. Its graph does not exist before the run.
    """
    chosen, code = _configured(config, network, options)
    observer = observer or Observer()
    if chosen.of_links and chosen.sampling.time is None:
        raise UnsupportedError("a plan for the task `link`: the run itself makes its graph")
    graph = open_graph(root_of(data_set))
    chosen = _with_inputs(graph, chosen, observer)
    work = open_work(graph, chosen, open_loader=open_loader, note=observer.note, code=code)
    with closing(work.loaders) as loaders:
        loaders.training()
        work.prepare(Timeline([]))
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
    """Replaces the splits and features in a configuration by their names in the data set."""
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
    """Resumes a run from its last checkpoint. The result is bit-identical to an uninterrupted run.

    A finished run continues when `epochs` or `patience` is larger than before; only these `options`
    may change. Without such an option, the record of a finished run is returned.

    `far` replaces the memory server of the run; `False` uses none. `network` is the code of a
    custom network.

    Errors: `InvalidError` if an array that the run reads, or its network, has changed; if nothing
    is left to train; if another process trains the run. Other errors are the same as for `train`.
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
    # A finished run that got more epochs, but was stopped in the next epoch, is not over.
    return run.finished and config.optimiser.is_over(*run.epochs)


def _configured(
    config: TrainConfig | Mapping[str, Any] | str | Path | None,
    network: NetworkSource | None,
    options: Mapping[str, Any],
) -> tuple[TrainConfig, CustomCode | None]:
    """The configuration, and the custom network, which is given as `network` or option `model`."""
    model = options.get("model")
    if isinstance(model, str) and ":" not in model:
        model = None
    if network is not None and model is not None and network is not model:
        raise InvalidError("network: found a network as `model`, too\nhint: give one of them")
    source = model if network is None else network
    code = None if source is None else network_code(source)
    chosen = configuration(config, options if code is None else {**options, "model": code.place})
    if chosen.model.is_custom and code is None:
        kind = chosen.model.kind
        raise InvalidError(
            f"model `{kind}`: the code of a custom network has to be given again\n"
            f"hint: give it again by `--model {kind}`"
        )
    return chosen, code


def _intact(run: TrainDirectory, network: NetworkSource | None, observer: Observer) -> bool:
    """Whether the model of a finished run is undamaged. The observer gets a note of the damage."""
    try:
        load_model(run.model, network)
    except CorruptError as error:
        first = str(error).partition("\n")[0]
        observer.note(f"warning: {first}; it is written again from the last checkpoint")
        return False
    return True


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
