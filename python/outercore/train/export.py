"""Trained models as data: what a server reads without PyTorch.

`docs/design/0019-models-as-data.md` defines the two files; `outercore-infer` reads them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from outercore.errors import InternalError, InvalidError, UnsupportedError
from outercore.server import digest_of
from outercore.storage import Storage, device_errors, replace_file
from outercore.train.config import TrainConfig
from outercore.train.export_check import require_agreement
from outercore.train.models import Network, Perceptron
from outercore.train.run import model_directory
from outercore.train.saved import EXPORTED, is_exported, load_model
from outercore.train.tasks import Task

_VERSION = 1
_MANIFEST = "model.json"
_WEIGHTS = "model.safetensors"

_KINDS = ("sage", "gcn", "gin", "gat", "mlp")
_NORMS = ("none", "batch", "layer")
_JUMPING = ("none", "cat", "max")
_EPSILON = 1e-5
"""Of the norms; the format has no other."""

_COUNTER = "num_batches_tracked"
"""What batch normalisation keeps for training alone."""


def export_model(
    run: str | Path,
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
    storage: Storage | None = None,
) -> Path:
    """Writes the best model of a run as a manifest and weights, and returns their directory.

    `run` is a run of `outercore train` or its `model` directory; `out` is by default `serving` in
    the run; `overwrite` lets it replace a model that was exported before. After a crash the
    directory has no model that can be opened, the old one, or the new one.

    Errors: `NotFoundError` where there is no model; `InvalidError` where `out` has something in it;
    `UnsupportedError` for a network that the format does not have; `InternalError` where the core
    computes other logits from it than PyTorch.
    """
    directory = model_directory(Path(run))
    saved = load_model(directory)
    if not isinstance(saved.model, Network | Perceptron):
        raise UnsupportedError(
            f"model `{directory}`: a server answers for nodes; a model of edges cannot be exported"
        )
    out = directory.parent / "serving" if out is None else Path(out)
    _require_free(out, overwrite=overwrite)
    trained = digest_of((directory / _WEIGHTS).read_bytes())
    manifest, weights = _to_bytes(saved.model, saved.task, saved.config, trained)
    storage = storage or Storage()
    with device_errors(f"model `{out}`"):
        storage.make_directory(out)
        # The manifest makes a model of the directory: it comes last.
        replace_file(storage, out / _WEIGHTS, weights)
        replace_file(storage, out / _MANIFEST, manifest)
    try:
        require_agreement(out, saved.model, tuple(saved.config.sampling.fanout))
    except BaseException:
        (out / _MANIFEST).unlink(missing_ok=True)
        raise
    return out


def _require_free(out: Path, *, overwrite: bool) -> None:
    """Errors: `InvalidError` where something would be lost that may not be replaced."""
    if not out.exists():
        return
    ours = {_MANIFEST, _WEIGHTS, f".{_MANIFEST}.tmp", f".{_WEIGHTS}.tmp"}
    found = {one.name for one in out.iterdir()} if out.is_dir() else {out.name}
    if found <= ours - {_MANIFEST}:
        # Nothing, or what an export that was cut short has left.
        return
    if not (found <= ours and is_exported(out)):
        raise InvalidError(
            f"model `{out}`: expected an empty directory or an exported model, found something "
            "else\nhint: choose another `--out`"
        )
    if not overwrite:
        raise InvalidError(
            f"model `{out}` exists already\nhint: choose another `--out`, or `--overwrite`"
        )


def _to_bytes(
    model: Network | Perceptron, task: Task, config: TrainConfig, trained: str
) -> tuple[bytes, bytes]:
    """Manifest and weights, each with the digest of the other, and of the trained weights."""
    described = _described(model, task, config)
    tensors = _tensors(model)
    bare = save(tensors)
    described["weights"] = _digest(bare[8 + int.from_bytes(bare[:8], "little") :])
    manifest = (json.dumps(described, indent=1, allow_nan=False) + "\n").encode()
    return manifest, _sorted(save(tensors, {"manifest": _digest(manifest), "trained": trained}))


def _sorted(weights: bytes) -> bytes:
    """The same tensors with a header in the order of names: safetensors has that of a hash."""
    length = int.from_bytes(weights[:8], "little")
    header = json.loads(weights[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + weights[8 + length :]


def _described(model: Network | Perceptron, task: Task, config: TrainConfig) -> dict[str, Any]:
    network, looks_at_edges = config.model, isinstance(model, Network)
    _require("kind", network.kind, _KINDS)
    _require("norm", network.norm, _NORMS)
    # A perceptron takes no notice of `jumping` and `heads`.
    jumping = network.jumping if looks_at_edges else "none"
    _require("jumping", jumping, _JUMPING)
    return {
        "format": EXPORTED,
        "version": _VERSION,
        "network": {
            "kind": network.kind,
            "layers": model.layers,
            "features": model.features,
            "hidden": network.hidden,
            "outputs": model.outputs,
            "heads": network.heads if network.kind == "gat" else 1,
            "norm": network.norm,
            "jumping": jumping,
            "residual": network.residual,
        },
        "task": {
            "kind": task.kind,
            # Data sets have no names of classes yet.
            "names": [],
            "means": list(task.means),
            "deviations": list(task.deviations),
        },
        "input": {
            "features": config.sampling.features,
            "fanout": list(config.sampling.fanout) if looks_at_edges else [],
            "replace": config.sampling.replace,
        },
    }


def _require(what: str, found: str, known: Collection[str]) -> None:
    if found not in known:
        raise UnsupportedError(
            f"model.{what} `{found}`: an exported model can have {', '.join(known)}\n"
            f"hint: train again with another `--{what}`"
        )


def _tensors(model: Network | Perceptron) -> dict[str, Tensor]:
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


def _parts(model: Network | Perceptron) -> Iterator[tuple[str, nn.Module | Tensor]]:
    """What the network is made of, under the names that the format has for it."""
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


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
