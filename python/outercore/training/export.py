"""Trained models as data: what a server reads without PyTorch.

`docs/design/0019-models-as-data.md` defines the two files; `outercore-infer` reads them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from safetensors.torch import save

from outercore.base.shell import quoted
from outercore.errors import InvalidError, UnsupportedError
from outercore.files.atomic import Storage, device_errors, replace_file, temporary_path
from outercore.training.config import TrainConfig
from outercore.training.export_check import require_agreement
from outercore.training.export_parts import network_of, tensors_of
from outercore.training.exported import digest_of
from outercore.training.graph_models import GraphNetwork
from outercore.training.links.model import LinkModel
from outercore.training.model_files import EXPORTED, Model, is_exported, is_own, load_model
from outercore.training.models import Network
from outercore.training.served_options import require_expressed, rule_of
from outercore.training.tasks import Task
from outercore.training.trained_model import model_directory

_VERSION = 1
_NEWEST = 2
"""Of models with a head, or with learnt inputs."""
_MANIFEST = "model.json"
_WEIGHTS = "model.safetensors"

_KINDS = ("sage", "gcn", "gin", "gat", "mlp")
_NORMS = ("none", "batch", "layer")
_JUMPING = ("none", "cat", "max")


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
    `UnsupportedError` for a network, or an option of the training, that the format does not have;
    `InternalError` where the core computes other logits from it than PyTorch.
    """
    directory = model_directory(run)
    if is_own(directory):
        raise UnsupportedError(
            f"model `{directory}`: exported models have built-in layers, not your own network\n"
            f"hint: for predictions, `outercore evaluate {quoted(directory)} --network "
            "FILE.py:NAME --predictions FILE.parquet`"
        )
    saved = load_model(directory)
    rule = rule_of(saved.config)
    require_expressed(rule, str(directory))
    out = directory.parent / "serving" if out is None else Path(out)
    _require_free(out, overwrite=overwrite)
    trained = digest_of((directory / _WEIGHTS).read_bytes())
    # The server compares the rule with what it knows; a later release may know of more to refuse.
    kept = {"rule": json.dumps(rule, sort_keys=True), "trained": trained}
    manifest, weights = _to_bytes(saved.model, saved.task, saved.config, kept)
    storage = storage or Storage()
    with device_errors(f"model `{out}`"):
        storage.make_directory(out)
        # The manifest makes a model of the directory: it comes last.
        replace_file(storage, out / _WEIGHTS, weights)
        replace_file(storage, out / _MANIFEST, manifest)
    try:
        require_agreement(out, saved.model, _fanout(saved.model, saved.config))
    except BaseException:
        (out / _MANIFEST).unlink(missing_ok=True)
        raise
    return out


def _require_free(out: Path, *, overwrite: bool) -> None:
    """Errors: `InvalidError` where something would be lost that may not be replaced."""
    if not out.exists():
        return
    ours = {_MANIFEST, _WEIGHTS}
    ours |= {temporary_path(out / name).name for name in ours}
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
    model: Model, task: Task, config: TrainConfig, kept: dict[str, str]
) -> tuple[bytes, bytes]:
    """Manifest and weights, each with the digest of the other; the weights with what is `kept`."""
    described = _described(model, task, config)
    tensors = tensors_of(model)
    bare = save(tensors)
    described["weights"] = _digest(bare[8 + int.from_bytes(bare[:8], "little") :])
    manifest = (json.dumps(described, indent=1, allow_nan=False) + "\n").encode()
    return manifest, _sorted(save(tensors, {"manifest": _digest(manifest), **kept}))


def _sorted(weights: bytes) -> bytes:
    """The same tensors with a header in the order of names: safetensors has that of a hash."""
    length = int.from_bytes(weights[:8], "little")
    header = json.loads(weights[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + weights[8 + length :]


def _described(model: Model, task: Task, config: TrainConfig) -> dict[str, Any]:
    network, nodes = config.model, network_of(model)
    looks_at_edges = isinstance(nodes, Network)
    _require("kind", network.kind, _KINDS)
    _require("norm", network.norm, _NORMS)
    # A perceptron takes no notice of `jumping` and `heads`.
    jumping = network.jumping if looks_at_edges else "none"
    _require("jumping", jumping, _JUMPING)
    head, learnt = _head(model, config), _learnt(model)
    return {
        "format": EXPORTED,
        "version": _NEWEST if head or learnt else _VERSION,
        "network": {
            "kind": network.kind,
            "layers": nodes.layers,
            "features": nodes.features,
            "hidden": network.hidden,
            "outputs": nodes.outputs,
            "heads": network.heads if network.kind == "gat" else 1,
            "norm": network.norm,
            "jumping": jumping,
            "residual": network.residual,
        },
        **({"head": head} if head else {}),
        "task": {
            "kind": task.kind,
            # Data sets have no names of classes yet.
            "names": [],
            "means": list(task.means),
            "deviations": list(task.deviations),
        },
        "input": {
            "features": config.sampling.features,
            "fanout": list(_fanout(model, config)) if looks_at_edges else [],
            "replace": config.sampling.replace,
            **learnt,
        },
    }


def _fanout(model: Model, config: TrainConfig) -> tuple[int, ...]:
    """Neighbours of each hop; whole graphs have all of them."""
    return (-1,) * model.layers if config.of_graphs else tuple(config.sampling.fanout)


def _head(model: Model, config: TrainConfig) -> dict[str, Any] | None:
    if isinstance(model, LinkModel):
        return {"kind": "pairs", "score": config.link.head}
    if isinstance(model, GraphNetwork):
        readout = config.graph.readout
        return {"kind": "graphs", "readout": readout, "outputs": model.outputs}
    return None


def _learnt(model: Model) -> dict[str, Any]:
    """What enters the network instead of features."""
    if isinstance(model, LinkModel) and model.table_rows:
        return {"table": model.table_rows}
    if isinstance(model, GraphNetwork) and model.categories:
        degree = {"degree": True} if model.of_degrees else {}
        return {"categories": list(model.categories), **degree}
    return {}


def _require(what: str, found: str, known: Collection[str]) -> None:
    if found not in known:
        raise UnsupportedError(
            f"model.{what} `{found}`: an exported model can have {', '.join(known)}\n"
            f"hint: train again with `--set model.{what}=...`, one of these"
        )


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
