"""Table of arguments of PyG's loaders and PyTorch's ``DataLoader`` that our loaders lack.

Arguments that our loaders have, such as ``batch_size``, are not in the table.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Number
from typing import Any

from outercore.base.likeness import closest
from outercore.errors import InvalidError, UnsupportedError


@dataclass(frozen=True)
class Argument:
    """An argument that our loaders accept only with its default value."""

    default: Any
    because: str = ""
    """Why another value has no effect. Empty if another value is an error."""
    instead: str = ""
    """Hint for the error of loaders of nodes."""
    instead_of_links: str = ""
    """Hint for loaders of links, if it differs from `instead`."""


_NO_WORKERS = "the core has threads of its own, see `threads`"

ARGUMENTS: Mapping[str, Argument] = {
    "num_workers": Argument(0, _NO_WORKERS),
    "persistent_workers": Argument(False, _NO_WORKERS),
    "worker_init_fn": Argument(None, _NO_WORKERS),
    "multiprocessing_context": Argument(None, _NO_WORKERS),
    "timeout": Argument(0, _NO_WORKERS),
    "filter_per_worker": Argument(None, _NO_WORKERS),
    "prefetch_factor": Argument(None, "batches are made ahead, see `look_ahead`"),
    "in_order": Argument(True, "batches always come in order"),
    "is_sorted": Argument(False, "the edges of a data set are sorted"),
    "dataset": Argument(None, "as in PyG; the data set is `data`"),
    "collate_fn": Argument(None, "as in PyG; `transform` is called with every batch"),
    "pin_memory_device": Argument("", "`pin_memory` is for the current device"),
    "directed": Argument(
        True, instead="`subgraph_type='induced'` has all edges between the nodes of a batch"
    ),
    "generator": Argument(None, instead="`seed=generator.initial_seed()`"),
    "transform_sampler_output": Argument(
        None,
        instead="`transform=lambda batch: batch` gets `edge_index`, `n_id`, `e_id` and `x`",
    ),
    "neighbor_sampler": Argument(
        None,
        instead="`torch_geometric.loader.NodeLoader(graph.pyg(), neighbor_sampler, input_nodes)`",
        instead_of_links=(
            "`torch_geometric.loader.LinkLoader(graph.pyg(), neighbor_sampler, "
            "(None, edge_label_index))`"
        ),
    ),
    "custom_cls": Argument(
        None, instead="`transform=lambda batch: custom_cls.from_dict(batch.to_dict())`"
    ),
    "input_id": Argument(None, instead="`input_id[batch.input_id]` are those of a batch"),
    "sampler": Argument(
        None,
        instead="`input_nodes=input_nodes[list(sampler)]` is visited in the order of the sampler",
        instead_of_links=(
            "`edge_label_index=edge_label_index[:, list(sampler)]` is visited in the order of the "
            "sampler"
        ),
    ),
    "batch_sampler": Argument(
        None,
        instead="`input_nodes=input_nodes[sum(batch_sampler, [])]` with `batch_size`",
        instead_of_links=(
            "`edge_label_index=edge_label_index[:, sum(batch_sampler, [])]` with `batch_size`"
        ),
    ),
}
"""Arguments by name. The guide `docs/guides/pyg.md` shows this table."""


def check_arguments(given: Mapping[str, Any], loader: type, *, of_links: bool) -> None:
    """Checks arguments of PyG and PyTorch that our loaders lack.

    Default values are accepted. A warning names arguments that have no effect in our loaders.

    Args:
        given: the arguments by name.
        loader: the class of the loader, for messages.
        of_links: whether the seeds are links.

    Errors: `UnsupportedError` for an unsupported argument; `InvalidError` for an argument that is
    unknown to PyG and PyTorch, too.
    """
    without_effect: dict[str, list[str]] = {}
    for name, value in given.items():
        argument = ARGUMENTS.get(name)
        if argument is None:
            raise _unknown(name, loader)
        if value is argument.default or _equal(value, argument.default):
            continue
        if argument.instead:
            instead = (argument.instead_of_links if of_links else "") or argument.instead
            raise UnsupportedError(f"`{name}` is not supported\nhint: {instead}")
        without_effect.setdefault(argument.because, []).append(f"`{name}`")
    for because, names in without_effect.items():
        # All loaders warn from this line, so that Python shows each text once.
        warnings.warn(f"{', '.join(names)}: no effect, {because}", stacklevel=1)


def refuse_arguments(given: Mapping[str, Any], loader: type, instead: Mapping[str, str]) -> None:
    """Refuses the arguments in `instead`, which maps names to hints. Errors: `InvalidError`."""
    for name in given:
        if name in instead:
            raise InvalidError(
                f"{loader.__name__}: unknown argument `{name}`\nhint: {instead[name]}"
            )


def _unknown(name: str, loader: type) -> InvalidError:
    known = sorted({*inspect.signature(loader).parameters} - {"options", "others"})
    guess = closest(name, [*known, *ARGUMENTS])
    hint = f"did you mean `{guess}`?" if guess else f"known: {', '.join(known)}"
    return InvalidError(f"{loader.__name__}: unknown argument `{name}`\nhint: {hint}")


def _equal(value: Any, default: Any) -> bool:
    """Whether a number or a string equals the default; false for other types."""
    return isinstance(value, (Number, str)) and bool(value == default)
