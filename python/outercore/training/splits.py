"""Which splits of a data set a training uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from outercore.base.likeness import closest
from outercore.data.how_to_add import how_to_add
from outercore.data.many_graphs import FIRST, Labelled
from outercore.data.split_names import find_split
from outercore.errors import InvalidError, NotFoundError
from outercore.training.config import SamplingConfig


def with_splits(
    graph: Labelled, sampling: SamplingConfig, note: Callable[[str], None] = lambda _: None
) -> SamplingConfig:
    """The configuration with the names that the splits have in the data set.

    `note` is called with missing splits, and with splits that a training does not use.

    Errors: `NotFoundError` without a split to train on, `InvalidError` for an empty one.
    """
    wanted = (sampling.train, sampling.valid, sampling.test)
    train, valid, test = (find_split(name, graph.splits) for name in wanted)
    if train is None:
        raise _missing(graph, sampling.train)
    used = [name for name in (train, valid, test) if name is not None]
    for name in used:
        nodes_of(graph, name)
    if valid is None:
        note(
            f"no split `{sampling.valid}`: nothing is validated, no epoch ends the training early, "
            "and the last one counts"
        )
    unused = [f"`{name}`" for name in graph.splits if name not in used]
    if unused:
        note(f"splits that training does not use: {', '.join(unused)}")
    return replace(sampling, train=train, valid=valid or sampling.valid, test=test or sampling.test)


def nodes_of(graph: Labelled, name: str) -> NDArray[np.int64]:
    """The nodes of a split.

    Errors: `NotFoundError` for an unknown split, `InvalidError` for an empty one.
    """
    split = find_split(name, graph.splits)
    if split is None:
        raise _missing(graph, name)
    nodes: NDArray[np.int64] = graph.split(split)
    if not len(nodes):
        raise InvalidError(
            f"data set `{graph.root}`: split `{split}` is empty, expected at least one node\n"
            "hint: import the data set again with nodes in it, or without this split"
        )
    return nodes


def _missing(graph: Labelled, name: str) -> NotFoundError:
    if FIRST in graph.schema.arrays:
        return NotFoundError(
            f"data set `{graph.root}`: no split `{name}` of nodes, its splits are those of graphs\n"
            "hint: `--task graph` learns from whole graphs"
        )
    known = ", ".join(f"`{split}`" for split in graph.splits) or "none"
    close = closest(name, graph.splits)
    adds = how_to_add(graph.root, "--split", f"{name}=FILE")
    return NotFoundError(
        f"data set `{graph.root}`: no split `{name}`; it has {known}\n"
        f"hint: {adds if close is None else f'did you mean `{close}`?'}"
    )
