"""The tensors of a trained model under the names that the exported format has for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from outercore.errors import InternalError, InvalidError, UnsupportedError
from outercore.training.custom_network import OwnNetwork
from outercore.training.graph_models import GraphNetwork
from outercore.training.links.model import LinkModel
from outercore.training.model_files import Model
from outercore.training.models import Network, Perceptron
from outercore.training.temporal.network import TemporalLinkModel
from outercore.training.typed.models import TypedNetwork

_EPSILON = 1e-5
"""Of the norms; the format has no other."""

_COUNTER = "num_batches_tracked"
"""What batch normalisation keeps for training alone."""


def tensors_of(model: Model) -> dict[str, Tensor]:
    """The weights by their names in the format.

    Errors: `InvalidError` for a number that is not finite.
    """
    tensors = {
        name: tensor.detach().to("cpu", torch.float32).contiguous()
        for place, part in _parts(model)
        for name, tensor in _named(place, part)
    }
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise InvalidError(
                f"tensor `{name}`: expected finite weights, found one that is not\n"
                "hint: the training diverged: train again with a lower `--learning-rate`"
            )
    found = sum(tensor.numel() for tensor in tensors.values())
    state = model.state_dict().items()
    expected = sum(tensor.numel() for name, tensor in state if not name.endswith(_COUNTER))
    if found != expected:
        raise InternalError(f"export: expected {expected} weights of the network, found {found}")
    return tensors


def network_of(model: Model) -> Network | Perceptron:
    """The network over nodes in a model.

    Errors: `UnsupportedError` for a model of several node types, or of times.
    """
    if isinstance(model, TemporalLinkModel):
        raise UnsupportedError(
            "a model of edges with times: the format of exported models has no times\n"
            "hint: `outercore evaluate` scores it"
        )
    if isinstance(model, TypedNetwork):
        raise UnsupportedError(
            f"model `{model.config.kind}` of a graph with several types: the format of exported "
            "models has none\nhint: `outercore evaluate --predictions FILE` writes its predictions"
        )
    if isinstance(model, OwnNetwork):
        raise InternalError("a network of the user's own has no exported form")
    if isinstance(model, LinkModel):
        return model.encoder
    return model.nodes if isinstance(model, GraphNetwork) else model


def _parts(model: Model) -> Iterator[tuple[str, nn.Module | Tensor]]:
    """What the model is made of, under the names that the format has for it."""
    yield from _network_parts(network_of(model))
    if isinstance(model, LinkModel):
        if model.table is not None:
            yield "table", model.table.weight
        if model.head.diagonal is not None:
            yield "pairs.diagonal", model.head.diagonal
        for name, linear in zip(("first", "second"), model.head.linears, strict=False):
            yield f"pairs.{name}", linear
    elif isinstance(model, GraphNetwork):
        for column, embedding in enumerate(model.embeddings):
            assert isinstance(embedding, nn.Embedding)
            yield f"categories.{column}", embedding.weight
        yield "graphs.first", model.head[0]
        yield "graphs.second", model.head[3]


def _network_parts(model: Network | Perceptron) -> Iterator[tuple[str, nn.Module | Tensor]]:
    for index in range(model.layers):
        layer = _layer(model, index) if isinstance(model, Network) else _plain_layer(model, index)
        for name, part in layer.items():
            yield f"layers.{index}.{name}", part
    if isinstance(model, Network) and model.jumping:
        yield "head", model.gnn.lin


def _layer(model: Network, index: int) -> dict[str, nn.Module | Tensor]:
    conv: Any = model.gnn.convs[index]
    parts: dict[str, nn.Module | Tensor]
    match model.config.kind:
        case "sage":
            parts = {"neighbours": conv.lin_l, "own": conv.lin_r}
        case "gcn":
            parts = {"linear": conv.lin, "linear.bias": conv.bias}
        case "gin":
            first, second = conv.nn.lins
            parts = {"eps": conv.eps, "first": first, "second": second}
            parts["inner_norm"] = conv.nn.norms[0]
        case "gat":
            parts = {"linear": conv.lin, "bias": conv.bias}
            parts["source_attention"] = conv.att_src[0]
            parts["target_attention"] = conv.att_dst[0]
        case kind:
            raise InternalError(f"model `{kind}` has no convolution")
    if model.config.residual:
        parts["skip"] = model.skips[index]
    return {**parts, "norm": model.gnn.norms[index]}


def _plain_layer(model: Perceptron, index: int) -> dict[str, nn.Module | Tensor]:
    parts: dict[str, nn.Module | Tensor] = {"linear": model.linears[index]}
    if index < model.layers - 1:
        parts["norm"] = model.norms[index]
        if model.config.residual:
            parts["skip"] = model.skips[index]
    return parts


def _named(place: str, part: nn.Module | Tensor) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a part, under the names that the format has for them."""
    if isinstance(part, Tensor):
        yield place, part
        return
    names = {"running_mean": "mean", "running_var": "variance"}
    for module in part.modules():
        epsilon = getattr(module, "eps", _EPSILON)
        if epsilon != _EPSILON:
            raise UnsupportedError(f"`{place}`: expected eps {_EPSILON}, found {epsilon}")
    for name, tensor in part.state_dict().items():
        # PyG's batch normalisation wraps PyTorch's.
        last = name.removeprefix("module.")
        if last != _COUNTER:
            yield f"{place}.{names.get(last, last)}", tensor
