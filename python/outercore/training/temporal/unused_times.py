"""Times that a run does not look at: what is predicted may see what comes after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outercore.base.shell import quoted
from outercore.data.how_to_add import how_to_add
from outercore.data.time_arrays import time_arrays
from outercore.training.temporal.nodes import BY_DEGREE

if TYPE_CHECKING:
    from outercore.data.graph import Graph
    from outercore.training.config import TrainConfig

_OF_LINKS = ("sage", "gat")
"""Models that learn edges by time."""


def unused_times(graph: Graph, config: TrainConfig) -> str | None:
    """Says in a line that a run without `--time` may see the future, and what to pass.

    `None` where the data set has no times, and where no model looks at neighbours.
    """
    kind, sampling = config.model.kind, config.sampling
    if sampling.time is not None or config.of_graphs or kind == "mlp":
        return None
    learnt = (sampling.labels, sampling.features)
    found = [(of, name) for of, name in time_arrays(graph) if name not in learnt]
    if not found:
        return None
    names = list(dict.fromkeys(name for _, name in found))
    listed = ", ".join(f"`{name}`" for name in names[:3]) + (", ..." if len(names) > 3 else "")
    if config.of_links:
        what, seeds, models = "edges", graph.manifest["edge_types"], _OF_LINKS
    else:
        labelled = graph.labelled_type or "node"
        what, seeds, models = f"nodes of type `{labelled}`", (labelled,), None
    said = (
        f"the data set has times ({listed}); without `--time` {what} are predicted from what "
        "comes after them as well"
    )
    usable = [name for of, name in found if of in seeds]
    if usable:
        fits = kind in models if models is not None else kind not in BY_DEGREE
        model = "" if fits else " --model sage"
        name = usable[0]
        return f"{said}: pass `--time {quoted(name)}{model}`, in Python `time={name!r}`"
    name = names[0]
    option, of_type = ("--edge-array", None) if config.of_links else ("--array", labelled)
    adds = how_to_add(graph.root, option, f"{name}=FILE", of_type)
    return f"{said}: with times of their own ({adds}), pass `--time {quoted(name)}`"
