"""Custom networks: a class, a function or a module of PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from outercore.errors import InvalidError
from outercore.runs.custom_code import CustomCode, custom_code, is_place, require_same_code
from outercore.training.config import ModelConfig, Norm
from outercore.training.models import Network, evaluating

Given: TypeAlias = nn.Module | Callable[..., nn.Module] | str
"""A module; a class or a function that makes one; or `FILE.py:NAME` of either."""


OwnCode: TypeAlias = CustomCode
"""A class or a function that makes a network, or a module itself."""


def own_code(given: Given) -> OwnCode:
    """The code of a network, given as an object or as `FILE.py:NAME`. Runs the file.

    Errors: `NotFoundError` for the file or the name; `InvalidError` for an object
    that makes no network, and for a file that fails.
    """
    expected = "a module of PyTorch, or a function or class that makes one"
    return custom_code("model", given, "--model my_models.py:Deep", expected)


def own_again(
    what: str, described: Mapping[str, str] | None, network: Given | None, option: str = "--network"
) -> OwnCode | None:
    """The network that `what` was made with, given again; `described` has its place and digest.

    Errors: `InvalidError`, which begins with `what`, where the network is missing, has another
    text, or was given for a built-in model.
    """
    place, digest = (None, "") if described is None else (described["place"], described["digest"])
    own = None if network is None else own_code(network)
    shown = place if place is not None and is_place(place) else "FILE.py:NAME"
    give = f"give it by `{option} {shown}`, in Python by `network=`"
    require_same_code(
        what,
        (place, digest),
        own,
        noun="the network ",
        give=give,
        leave_out="leave out `network`",
    )
    return own


class OwnNetwork(nn.Module):
    """A custom network for nodes of one type.

    Its `forward` takes `x` float32 [nodes, features] and `edge_index` int64 [2, edges], and returns
    [nodes, outputs] or [seeds, outputs]. Where it has parameters `num_sampled_nodes_per_hop` and
    `num_sampled_edges_per_hop`, as PyG's models, it gets these, too.

    It is scored with sampled neighbours, because its layers cannot be run one at a time.
    """

    needs_degrees = False

    def __init__(
        self, config: ModelConfig, layers: int, features: int, outputs: int, module: nn.Module
    ) -> None:
        super().__init__()
        self.config, self.layers = config, layers
        self.features, self.outputs = features, outputs
        self.module = module
        names = inspect.signature(module.forward).parameters
        self._trims = "num_sampled_nodes_per_hop" in names

    def forward(self, batch: Any, degrees: Tensor | None = None) -> Tensor:
        """Logits of a batch's seeds; shapes as `Network.forward`."""
        more = {}
        if self._trims:
            more = {
                "num_sampled_nodes_per_hop": list(map(int, batch.num_sampled_nodes)),
                "num_sampled_edges_per_hop": list(map(int, batch.num_sampled_edges)),
            }
        found: Tensor = self.module(batch.x.float(), batch.edge_index, **more)
        return found[: int(batch.batch_size)]


def build_own(
    own: OwnCode, config: ModelConfig, layers: int, features: int, outputs: int
) -> Network | OwnNetwork:
    """The network that `own` makes; a `GraphSAGE` of PyG is one of ours, and is scored exactly.

    Errors: `InvalidError` where it cannot be made, or fails on a small graph.
    """
    module = _made(own, config, layers, features, outputs)
    found = _as_sage(module, config, layers, features, outputs)
    if found is not None:
        return found
    _check(own.place, module, layers, features, outputs)
    return OwnNetwork(config, layers, features, outputs, module)


def _made(own: OwnCode, config: ModelConfig, layers: int, features: int, outputs: int) -> nn.Module:
    if isinstance(own.value, nn.Module):
        return own.value
    known = {
        "in_channels": features,
        "hidden_channels": config.hidden,
        "out_channels": outputs,
        "num_layers": layers,
        "dropout": config.dropout,
        "heads": config.heads,
    }
    # A partial function has decided these.
    bound = getattr(own.value, "keywords", {})
    parameters = inspect.signature(own.value).parameters.values()
    named = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    names = [one.name for one in named if one.name not in bound]
    unknown = [one.name for one in named if one.default is one.empty and one.name not in known]
    if unknown:
        raise InvalidError(
            f"model `{own.place}`: no value is known for `{', '.join(unknown)}`\n"
            f"hint: give it a default; known are {', '.join(known)}"
        )
    try:
        module = own.value(**{name: known[name] for name in names if name in known})
    except Exception as error:
        raise InvalidError(
            f"model `{own.place}` cannot be made: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(module, nn.Module):
        raise InvalidError(
            f"model `{own.place}`: expected a module of PyTorch, found {type(module).__name__}"
        )
    return module


def _check(place: str, module: nn.Module, layers: int, features: int, outputs: int) -> None:
    """Tries the network on three nodes and two edges."""
    x, edge_index = torch.ones(3, features), torch.tensor([[1, 2], [0, 0]])
    try:
        with evaluating(module), torch.no_grad():
            found: Any = module(x, edge_index)
    except Exception as error:
        raise InvalidError(
            f"model `{place}` fails for x [3, {features}] and edge_index [2, 2]: "
            f"{type(error).__name__}: {error}\nhint: its `forward` takes `x` and `edge_index`"
        ) from error
    shape = tuple(getattr(found, "shape", ()))
    if shape != (3, outputs):
        raise InvalidError(
            f"model `{place}`: expected outputs [3, {outputs}] for 3 nodes, found "
            f"{type(found).__name__} {list(shape)}\n"
            f"hint: the data set has {outputs} outputs to learn"
        )


def _as_sage(
    module: Any, config: ModelConfig, layers: int, features: int, outputs: int
) -> Network | None:
    """PyG's `GraphSAGE` as the network of kind `sage` that it is; `None` for anything else."""
    from torch_geometric.nn import models

    if type(module) is not models.GraphSAGE or not _is_plain(module):
        return None
    sizes = (module.num_layers, module.in_channels, module.out_channels)
    if sizes != (layers, features, outputs):
        raise InvalidError(
            f"model GraphSAGE: expected {layers} layers from {features} features to {outputs} "
            f"outputs, found {sizes[0]} from {sizes[1]} to {sizes[2]}\n"
            "hint: `--fanout` has a number for each layer"
        )
    own = replace(
        config,
        kind="sage",
        hidden=module.hidden_channels,
        dropout=module.dropout.p,
        norm=_norm_of(module),
        residual=False,
        jumping=module.jk_mode or "none",
    )
    network = Network(own, layers, features, outputs)
    network.gnn = module
    return network


def _is_plain(module: Any) -> bool:
    """Whether it computes what the kind `sage` does."""
    convs = all(
        conv.root_weight
        and not conv.normalize
        and not conv.project
        and type(conv.aggr_module).__name__ == "MeanAggregation"
        and conv.lin_l.bias is not None
        for conv in module.convs
    )
    acts = isinstance(module.act, nn.ReLU) and not module.act_first
    return convs and acts and module.jk_mode in (None, "cat", "max") and _norm_of(module) != ""


def _norm_of(module: Any) -> Norm | Any:
    kinds = {type(norm).__name__ for norm in module.norms} - {"Identity"}
    layer = all(getattr(norm, "mode", "node") == "node" for norm in module.norms)
    if not kinds:
        return "none"
    if kinds == {"BatchNorm"}:
        return "batch"
    return "layer" if kinds == {"LayerNorm"} and layer else ""
