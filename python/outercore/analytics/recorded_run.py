"""Runs of algorithms in a directory, with checkpoints and a record."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from outercore.analytics.config import (
    AnalysisConfig,
    RunConfig,
    relation_key,
    split_options,
)
from outercore.analytics.running import (
    ALGORITHMS,
    Personalization,
    Resources,
    Run,
    Teleports,
    algorithm_called,
    call_of,
    checked_options,
    compute,
    hint_of_option,
    prepared,
)
from outercore.base.fields import Configuration
from outercore.base.native import Progress
from outercore.base.shell import quoted
from outercore.data.graph import Graph, Source
from outercore.data.node_names import NodeNumbers, names_of_nodes
from outercore.data.schema import NODE, TRIPLES
from outercore.errors import DeviceError, InterruptError, InvalidError
from outercore.files.atomic import whole_file
from outercore.files.large_arrays import blocks, forget, mapped
from outercore.runs import record as records
from outercore.runs.directory import Identity, RunDirectory
from outercore.runs.places import new_run, only_run
from outercore.runs.resume import Change, require_changeable

_TOPOLOGY = ("edges/edge/offsets", "edges/edge/sources")
_Parameters = ParamSpec("_Parameters")
_Values = TypeVar("_Values", bound=NDArray[Any])
_BLOCK = 1 << 20
"""Number of values that are compared at a time."""
CHANGEABLE = ("memory", "threads", "backend", "far", "far_ratio", "scratch", "checkpoint_every")
"""Fields of `RunConfig` that a resumed run may change: its result is the same."""


class AnalysisDirectory(RunDirectory):
    """The directory of a run. It has a checkpoint until the run has ended, and then a record."""

    verb = "run"
    option = "--record"
    config_type = AnalysisConfig
    state_name = "checkpoint"
    checkpoint_names = ("checkpoint.json",)

    @staticmethod
    def identity_of(graph: Graph, config: Configuration | None = None) -> Identity:
        """The arrays that the algorithm reads: topology, or triples and names, and edge weights."""
        options, edges = {}, "edge"
        if isinstance(config, AnalysisConfig):
            options = config.options
            if config.run.relation is not None:
                edges = relation_key(graph, config.run.relation) or edges
        weights = options.get("weights")
        if not graph.schema.is_knowledge_graph:
            read = {*_TOPOLOGY}
            read |= {"edges/edge/ids", f"edges/{edges}/{weights}"} if weights else set()
        else:
            # The ids in triples have a meaning only with the names.
            read = {
                key for key in graph.arrays if key.startswith(("names/entity", "names/relation"))
            }
            read |= {TRIPLES, f"{TRIPLES}.{weights}"}
        return Identity.of(graph.arrays, lambda key: key in read, nodes=graph.num_nodes)

    def next_step(self) -> str:
        """As `RunDirectory.next_step`. A finished run cannot resume; the hint shows its record."""
        if not self.begun and (self.path / records.FILE).exists():
            return f"`outercore report {quoted(self.path)}` shows its record"
        return super().next_step()

    def command(self) -> str:
        """The command line of the run; empty if Python started it."""
        return str(self._described().get("command", ""))

    def write_teleports(self, teleports: Teleports) -> None:
        """Writes the teleport vector; does nothing if all nodes have equal weights."""
        nodes, weights = teleports
        if nodes is not None and weights is not None:
            with whole_file(self._teleports) as file:
                np.savez(file, nodes=nodes, weights=weights)

    def teleports(self) -> Teleports:
        """Reads the teleport vector."""
        if not self._teleports.exists():
            return None, None
        with np.load(self._teleports, allow_pickle=False) as arrays:
            return arrays["nodes"], arrays["weights"]

    def remove_checkpoint(self) -> None:
        """Removes the checkpoint, when the run has ended."""
        self._storage.remove_tree(self.state)
        self._teleports.unlink(missing_ok=True)

    def discard_if_unused(self) -> None:
        """Removes the files of a run that was stopped before its first checkpoint."""
        if not self.begun:
            self._teleports.unlink(missing_ok=True)
        super().discard_if_unused()

    @property
    def _teleports(self) -> Path:
        return self.path / "teleports.npz"


def run(
    algorithm: str,
    graph: Source,
    *,
    record: str | Path | None = None,
    personalization: Personalization | None = None,
    save: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Run:
    """Run an algorithm by its name, and return the values with facts, plan and counters.

    Args:
        algorithm: the name of one of the functions of `outercore.analytics`.
        graph: an opened graph or the directory of a data set.
        record: directory for the record, and for checkpoints from which `resume` continues a
            stopped run.
        personalization: distribution of restarts of ``pagerank``.
        save: save the result in the data set as a node array of this name; with several types, one
            for each node type that has values.
        overwrite: let ``save`` replace an array.
        progress: called as ``progress(phase, done, total, unit)``.
        options: arguments of the algorithm's function, and ``memory``, ``threads``, ``far`` and the
            other options of `Resources`; with ``record`` also ``checkpoint_every``.

    Raises:
        InvalidError: an unknown algorithm or option. Also the errors of the algorithm.

    Example:
        >>> import outercore as oc
        >>> done = oc.run("pagerank", tiny_dataset, damping=0.9)
        >>> done.values.shape, done.counters["passes"] > 0
        ((200,), True)
    """
    config, own = split_options(options)
    done = start(
        AnalysisConfig(algorithm, own, config, save, overwrite=overwrite),
        graph,
        record=None if record is None else Path(record),
        personalization=personalization,
        progress=progress,
        recorded=record is not None,
    )
    return _with_warnings(done)


def _with_warnings(done: Run) -> Run:
    """Issues the warnings of a run, and returns it."""
    for text in done.warnings:
        # All algorithms warn from this line, because Python shows a text once for each line.
        warnings.warn(f"{done.algorithm}: {text}", stacklevel=1)
    return done


def algorithm(function: Callable[_Parameters, _Values]) -> Callable[_Parameters, _Values]:
    """Decorates a function, so that a call runs the algorithm of its name; adds it to `ALGORITHMS`.

    The function needs no body: its name and parameters define the request to the core.

    Errors: `InvalidError` for a call that does not fit the parameters.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def values_of(*arguments: _Parameters.args, **keywords: _Parameters.kwargs) -> _Values:
        try:
            bound = signature.bind(*arguments, **keywords).arguments
        except TypeError as error:
            raise _wrong_call(function, error, keywords) from None
        resources = bound.pop("resources", {})
        values: Any = run(function.__name__, **bound, **resources).values
        return values

    ALGORITHMS[function.__name__] = values_of
    return values_of


def _wrong_call(
    function: Callable[..., Any], error: TypeError, keywords: Mapping[str, Any]
) -> InvalidError:
    algorithm, taken = function.__name__, inspect.signature(function).parameters
    call = f"\nhint: `oc.{call_of(function)}`"
    known = {*taken, *Resources.__annotations__}
    unknown = [name for name in keywords if name not in known]
    # An argument is often missing because the user called it as another library does.
    hint = hint_of_option(algorithm, unknown[0], taken) if unknown else ""
    return InvalidError(f"{algorithm}: {error}{hint or call}")


def start(
    config: AnalysisConfig,
    data_set: Source,
    *,
    record: Path | None = None,
    personalization: Personalization | None = None,
    progress: Progress | None = None,
    command: str = "",
    recorded: bool = True,
) -> Run:
    """Runs an algorithm in the directory `record`, or in `runs/DATA_SET-ALGORITHM-N`.

    The directory gets checkpoints during the run, and the record at its end. The run has no
    directory if `recorded` is false, or if `record` is `None` and no directory can be created.

    `command` is the command line of the run, for its record; empty if Python started it.

    Errors: as the algorithm. After Ctrl-C, `InterruptError` with the command that resumes.
    `InvalidError` if `record` holds a run already; `DeviceError`; `NoSpaceError`.
    """
    graph = data_set if isinstance(data_set, Graph) else Graph(data_set)
    _check_outputs(config, graph)
    # A run may resume in another working directory.
    out, scratch = (path and str(Path(path).resolve()) for path in (config.out, config.run.scratch))
    config = replace(config, out=out, run=replace(config.run, scratch=scratch))
    config, vector = prepared(config, graph, personalization)
    if not recorded:
        return run_without_directory(config, graph, vector, progress)
    stem = f"{graph.root.resolve().name}-{config.algorithm}"
    with ExitStack() as stack:
        try:
            path = stack.enter_context(new_run(record, stem, "outercore run"))
            directory = AnalysisDirectory.create(path, graph, config, more={"command": command})
        except DeviceError as error:
            if record is not None:
                raise
            done = run_without_directory(config, graph, vector, progress)
            return replace(done, note=str(error))
        stack.enter_context(directory.training(new=True))
        directory.write_teleports(vector)
        needs_record = record is not None
        return _run_in_directory(directory, config, graph, progress, needs_record=needs_record)


def run_without_directory(
    config: AnalysisConfig, graph: Graph, vector: Teleports, progress: Progress | None
) -> Run:
    """Runs an algorithm without checkpoints and record."""
    done = compute(graph, config, vector, progress=progress)
    _write_results(config, graph, done)
    return done


def resume(run: str | Path, *, progress: Progress | None = None, **options: Any) -> Run:
    """Continue a stopped run from its checkpoint.

    The result is bit-identical to an uninterrupted run.

    Args:
        run: directory of the run.
        progress: called as ``progress(phase, done, total, unit)``.
        options: new values of ``memory``, ``threads``, ``backend``, ``far``, ``far_ratio``,
            ``scratch``, ``checkpoint_every``, or of the algorithm's ``max_iterations``. No other
            option can change.

    Raises:
        NotFoundError: the directory has no run.
        InvalidError: the run has ended; an option that cannot change; the edges of the data set
            have changed.
    """
    return _with_warnings(resume_run(run, progress, options))


def resume_run(run: str | Path, progress: Progress | None, options: dict[str, Any]) -> Run:
    """As `resume`, but issues no warnings; the command line prints them."""
    path = Path(run)
    directory = AnalysisDirectory.open(path)
    config = directory.config()
    changed = _changed(config, options)
    with only_run(path, "outercore run"):
        if not directory.begun and (path / records.FILE).exists():
            raise InvalidError(
                f"run `{path}`: it has ended\n"
                f"hint: `outercore report {quoted(path)}` shows its record"
            )
        graph = Graph(directory.data_set)
        directory.require_same(graph)
        with directory.training(new=False):
            # Only options of the algorithm change the result. The others hold for this process.
            values = Change(config, changed).values
            own = {path: pair for path, pair in values.items() if path.startswith("options.")}
            if own:
                directory.change(own)
            return _run_in_directory(directory, changed, graph, progress)


def _changed(config: AnalysisConfig, options: dict[str, Any]) -> AnalysisConfig:
    """The configuration of a resumed run: `config` with the changed `options`.

    Errors: `InvalidError` for an option that cannot change, or a wrong value.
    """
    may_change = [*CHANGEABLE, *({"max_iterations"} & config.options.keys())]
    require_changeable(RunConfig, options, may_change, own=config.options)
    used = {name: value for name, value in options.items() if name in CHANGEABLE}
    own = {name: value for name, value in options.items() if name not in CHANGEABLE}
    all_options = checked_options(algorithm_called(config.algorithm), {**config.options, **own})
    return replace(config, options=all_options, run=replace(config.run, **used))


def _check_outputs(config: AnalysisConfig, graph: Graph) -> None:
    """Checks that the results can be written, so that no work is lost.

    Errors: `InvalidError`, `NotFoundError`, `DeviceError`.
    """
    if config.save is config.out is None:
        return
    # Imports PyArrow, which takes longer than a small run that writes no file.
    from outercore.data.outputs import VALUES, check_directory, check_output

    if config.save is not None:
        for node_type, _ in _parts(config, graph):
            graph.check_free(config.save, overwrite=config.overwrite, node_type=node_type)
        check_directory(graph.root)
    if config.out is not None:
        check_output(Path(config.out), VALUES, option="--out", overwrite=config.overwrite)


def _run_in_directory(
    directory: AnalysisDirectory,
    config: AnalysisConfig,
    graph: Graph,
    progress: Progress | None,
    *,
    needs_record: bool = True,
) -> Run:
    """Runs or resumes an algorithm, writes its results and its record, removes the checkpoint.

    If the record cannot be written, the run fails only if the caller `needs_record`.

    Errors: after Ctrl-C `InterruptError`, or `KeyboardInterrupt` if there is no checkpoint yet.
    """
    checkpoint = {
        "directory": str(directory.state.resolve()),
        "seconds": config.run.checkpoint_every,
        "resume": directory.begun,
    }
    try:
        vector = directory.teleports()
        done = compute(graph, config, vector, checkpoint=checkpoint, progress=progress)
    except KeyboardInterrupt:
        if not directory.begun:
            directory.discard_if_unused()
            raise
        raise InterruptError(
            f"a checkpoint is in `{directory.path}`\n"
            f"hint: resume: outercore run --resume {quoted(directory.path)}"
        ) from None
    _write_results(config, graph, done)
    try:
        directory.write_record(_record_of(done, directory, config.run, graph))
        done = replace(done, record=directory.path)
    except DeviceError as error:
        if needs_record:
            raise
        done = replace(done, note=str(error))
    # After the results are written: until then, a resumed run needs the checkpoint.
    directory.remove_checkpoint()
    return done


def _write_results(config: AnalysisConfig, graph: Graph, done: Run) -> None:
    if config.save is not None:
        for node_type, part in _parts(config, graph):
            # A run that was killed after it saved the array resumes here.
            if _has_values(graph, f"nodes/{node_type or NODE}/{config.save}", done.values[part]):
                continue
            graph.add_node_array(
                config.save,
                done.values[part],
                overwrite=config.overwrite,
                origin=done.described,
                node_type=node_type,
            )
    if config.out is not None:
        from outercore.data.outputs import write_node_values

        names = names_of_nodes(graph, config.run.relation)
        write_node_values(Path(config.out), names, done.values, of_nodes=done.of_nodes)


def _parts(config: AnalysisConfig, graph: Graph) -> list[tuple[str | None, slice]]:
    """The node types of a result with the ranges of their values.

    A graph with one type gives `None` as the type.
    """
    if not graph.is_typed:
        return [(None, slice(None))]
    numbers = NodeNumbers.of_graph(graph, config.run.relation)
    return [(name, slice(first, end)) for name, first, end in numbers.ranges()]


def _has_values(graph: Graph, key: str, values: NDArray[Any]) -> bool:
    """Whether the array `key` has exactly these values. Both arrays may exceed memory."""
    entry = graph.arrays.get(key)
    if entry is None or (entry["dtype"], tuple(entry["shape"])) != (
        values.dtype.name,
        values.shape,
    ):
        return False
    stored = mapped(graph.root, entry)
    for first, block in blocks(values, _BLOCK):
        if not np.array_equal(stored[first : first + len(block)], block, equal_nan=True):
            return False
        forget(stored)
    return True


def _record_of(
    done: Run, directory: AnalysisDirectory, run: RunConfig, graph: Graph
) -> dict[str, Any]:
    resources = run.to_dict()
    for name in ("scratch", "checkpoint_every"):
        del resources[name]
    return {
        "version": 1,
        "job": records.ALGORITHM,
        "status": "finished",
        "command": directory.command(),
        **records.opening(
            graph.root,
            {"run": resources, done.algorithm: done.options},
            {"run": str(directory.path), "algorithm": done.algorithm},
            {"nodes": graph.num_nodes, "edges": graph.num_edges},
        ),
        "plan": done.plan,
        "peak_memory_bytes": records.peak_memory(),
        "counters": done.counters,
        "result": done.facts,
    }
