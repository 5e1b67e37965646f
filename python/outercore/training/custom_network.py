"""Custom networks: a class, a function or a module of PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from outercore.errors import InvalidError
from outercore.runs.custom_code import CustomCode, custom_code, is_place, require_same_code
from outercore.training.config import ModelConfig, Norm
from outercore.training.models import Model, Network, evaluating

NetworkSource: TypeAlias = nn.Module | Callable[..., nn.Module] | str
"""A module, or a class or function that makes one; or the place `FILE.py:NAME` of one of these."""


def network_code(network: NetworkSource) -> CustomCode:
    """The code of a custom network. For `FILE.py:NAME`, runs the file.

    Errors: `NotFoundError` for a missing file or name; `InvalidError` for an object that does not
    make a network, and for a file that raises an error.
    """
    expected = "a module of PyTorch, or a function or class that makes one"
    return custom_code("model", network, "--model my_models.py:Deep", expected)


def same_network_code(
    what: str,
    made_with: tuple[str | None, str],
    network: NetworkSource | None,
    option: str = "--network",
) -> CustomCode | None:
    """Checks that the caller's `network` is the custom network that `what` was made with.

    Returns its code; `None` for a built-in model. `made_with` are the place of the original code
    (`None` for a built-in model) and its digest. The hint names the command-line `option`.

    Errors: `InvalidError`, which begins with `what`, if the network is missing, has another source
    text, or was given for a built-in model.
    """
    place, _ = made_with
    code = None if network is None else network_code(network)
    shown = place if place is not None and is_place(place) else "FILE.py:NAME"
    give = f"give it by `{option} {shown}`, in Python by `network=`"
    require_same_code(
        what,
        made_with,
        code,
        noun="the network ",
        give=give,
        leave_out="leave out `network`",
    )
    return code


class CustomNetwork(Model):
    """A custom network for nodes of one type.

    Its `forward` takes `x` float32 [nodes, features] and `edge_index` int64 [2, edges], and returns
    [nodes, outputs] or [seeds, outputs]. If it has the parameters `num_sampled_nodes_per_hop` and
    `num_sampled_edges_per_hop` of PyG's models, it also gets these values.

    It is scored with sampled neighbours, because its layers cannot be run one at a time.
    """

    def __init__(
        self, config: ModelConfig, layers: int, features: int, outputs: int, module: nn.Module
    ) -> None:
        super().__init__(layers, features, outputs)
        self.config = config
        self.module = module
        names = inspect.signature(module.forward).parameters
        self._trims = "num_sampled_nodes_per_hop" in names

    def forward(self, batch: Any, degrees: Tensor | None = None) -> Tensor:
        """Computes the logits of a batch's seeds; shapes as `Network.forward`."""
        more = {}
        if self._trims:
            more = {
                "num_sampled_nodes_per_hop": list(map(int, batch.num_sampled_nodes)),
                "num_sampled_edges_per_hop": list(map(int, batch.num_sampled_edges)),
            }
        outputs: Tensor = self.module(batch.x.float(), batch.edge_index, **more)
        return outputs[: int(batch.batch_size)]


def build_custom(
    code: CustomCode, config: ModelConfig, layers: int, features: int, outputs: int
) -> Network | CustomNetwork:
    """The network that `code` makes. PyG's `GraphSAGE` becomes a `Network`, which scores exactly.

    Errors: `InvalidError` if the network cannot be made, or fails on a small graph.
    """
    module = _made(code, config, layers, features, outputs)
    sage = _as_sage(module, config, layers, features, outputs)
    if sage is not None:
        return sage
    _check(code.place, module, features, outputs)
    return CustomNetwork(config, layers, features, outputs, module)


def _made(
    code: CustomCode, config: ModelConfig, layers: int, features: int, outputs: int
) -> nn.Module:
    if isinstance(code.value, nn.Module):
        return code.value
    known = {
        "in_channels": features,
        "hidden_channels": config.hidden,
        "out_channels": outputs,
        "num_layers": layers,
        "dropout": config.dropout,
        "heads": config.heads,
    }
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(code.value).parameters
    defaults = {name: of.default for name, of in parameters.items() if of.kind not in variable}
    empty = inspect.Parameter.empty
    unknown = [name for name, value in defaults.items() if value is empty and name not in known]
    if unknown:
        raise InvalidError(
            f"model `{code.place}`: no value is known for `{', '.join(unknown)}`\n"
            f"hint: give it a default; known are {', '.join(known)}"
        )
    try:
        # Values that `functools` has bound to parameters stay.
        open_names = defaults.keys() & known.keys() - getattr(code.value, "keywords", {}).keys()
        module = code.value(**{name: known[name] for name in open_names})
    except Exception as error:
        raise InvalidError(
            f"model `{code.place}` cannot be made: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(module, nn.Module):
        raise InvalidError(
            f"model `{code.place}`: expected a module of PyTorch, found {type(module).__name__}"
        )
    return module


def _check(place: str, module: nn.Module, features: int, outputs: int) -> None:
    """Tries the network on three nodes and two edges."""
    x, edge_index = torch.ones(3, features), torch.tensor([[1, 2], [0, 0]])
    try:
        with evaluating(module), torch.no_grad():
            result: Any = module(x, edge_index)
    except Exception as error:
        raise InvalidError(
            f"model `{place}` fails for x [3, {features}] and edge_index [2, 2]: "
            f"{type(error).__name__}: {error}\nhint: its `forward` takes `x` and `edge_index`"
        ) from error
    shape = tuple(getattr(result, "shape", ()))
    if shape != (3, outputs):
        raise InvalidError(
            f"model `{place}`: expected outputs [3, {outputs}] for 3 nodes, found "
            f"{type(result).__name__} {list(shape)}\n"
            f"hint: the data set has {outputs} outputs to learn"
        )


def _as_sage(
    module: Any, config: ModelConfig, layers: int, features: int, outputs: int
) -> Network | None:
    """Converts PyG's `GraphSAGE` to our equal network of kind `sage`; `None` for other modules."""
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
    plain = replace(
        config,
        kind="sage",
        hidden=module.hidden_channels,
        dropout=module.dropout.p,
        norm=_norm_of(module),
        residual=False,
        jumping=module.jk_mode or "none",
    )
    network = Network(plain, layers, features, outputs)
    network.gnn = module
    return network


def _is_plain(module: Any) -> bool:
    """Whether a `GraphSAGE` of PyG computes the same as our kind `sage`."""
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
