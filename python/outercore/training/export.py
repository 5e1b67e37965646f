"""Trained models as data, which a server reads without PyTorch.

`docs/design/0019-models-as-data.md` defines the two files; `outercore-infer` reads them. Each
export is checked: the core must compute the same logits from the files as PyTorch from the model.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor, nn

from outercore import _core
from outercore.base.shell import quoted
from outercore.errors import InternalError, InvalidError, UnsupportedError
from outercore.files.atomic import Storage, device_errors, replace_file, temporary_path
from outercore.training.config import TrainConfig
from outercore.training.custom_network import CustomNetwork
from outercore.training.exported import digest_of, require_expressed, rule_of
from outercore.training.graph_batches import GraphBatch
from outercore.training.links.network import LinkModel, TemporalLinkModel
from outercore.training.model_files import (
    EXPORTED,
    is_custom,
    is_exported,
    load_model,
    model_directory,
)
from outercore.training.models import GraphNetwork, Model, Network, Perceptron
from outercore.training.tasks import Task
from outercore.training.typed_network import TypedNetwork

_VERSION = 1
_NEWEST = 2
"""The format version of models with a head, or with learnt inputs."""
_MANIFEST = "model.json"
_WEIGHTS = "model.safetensors"

_KINDS = ("sage", "gcn", "gin", "gat", "mlp")
_NORMS = ("none", "batch", "layer")
_JUMPING = ("none", "cat", "max")
_EPSILON = 1e-5
"""Epsilon of the norms. The format has no field for it, so other values are refused."""
_COUNTER = "num_batches_tracked"
"""A counter of batch normalisation that only training needs."""
_NODES, _ARCS = 20, 60
"""Numbers of nodes and arcs of a hop in an `Example`."""
TOLERANCE = 1e-5
"""Largest `difference` between logits of the core and logits of PyTorch."""


def export_model(
    run: str | Path,
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
    storage: Storage | None = None,
) -> Path:
    """Writes the best model of a run as a manifest and weights, and returns their directory.

    `run` is a run of `outercore train`, or its `model` directory. `out` is the directory to write,
    by default `serving` in the run. `overwrite` replaces an exported model there. After a crash,
    the directory holds the old model, the new model, or no model that can be opened.

    Errors: `NotFoundError` for a run without a model; `InvalidError` if `out` is not empty;
    `UnsupportedError` for a network or an option that the format cannot express; `InternalError` if
    the core computes other logits than PyTorch.
    """
    directory = model_directory(run)
    if is_custom(directory):
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
    # A server refuses options that it knows to change predictions; a later release may know more.
    kept = {"rule": json.dumps(rule, sort_keys=True), "trained": trained}
    manifest, weights = _to_bytes(saved.model, saved.task, saved.config, kept)
    storage = storage or Storage()
    with device_errors(f"model `{out}`"):
        storage.make_directory(out)
        # Write the manifest last: without it, the directory is not a model.
        replace_file(storage, out / _WEIGHTS, weights)
        replace_file(storage, out / _MANIFEST, manifest)
    try:
        require_agreement(out, saved.model)
    except BaseException:
        (out / _MANIFEST).unlink(missing_ok=True)
        raise
    return out


def _require_free(out: Path, *, overwrite: bool) -> None:
    """Checks that `out` may be written. Errors: `InvalidError` if it has files that must stay."""
    if not out.exists():
        return
    ours = {_MANIFEST, _WEIGHTS}
    ours |= {temporary_path(out / name).name for name in ours}
    found = {one.name for one in out.iterdir()} if out.is_dir() else {out.name}
    if found <= ours - {_MANIFEST}:
        # Empty, or left by an export that was interrupted.
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
    """The content of manifest and weights. Each has the digest of the other.

    `kept` is stored in the header of the weights.
    """
    described = _described(model, task, config)
    tensors = tensors_of(model)
    bare = save(tensors)
    described["weights"] = digest_of(bare[8 + int.from_bytes(bare[:8], "little") :])
    manifest = (json.dumps(described, indent=1, allow_nan=False) + "\n").encode()
    return manifest, _sorted(save(tensors, {"manifest": digest_of(manifest), **kept}))


def _sorted(weights: bytes) -> bytes:
    """The same tensors with a sorted header. Safetensors writes it in the order of a hash map."""
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
    # A perceptron ignores `jumping` and `heads`.
    jumping = network.jumping if looks_at_edges else "none"
    _require("jumping", jumping, _JUMPING)
    head, learnt = _head(model, config), _learnt(model)
    # Whole graphs have all neighbours.
    fanout = [-1] * model.layers if config.of_graphs else list(config.sampling.fanout)
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
            "names": [],
            "means": list(task.means),
            "deviations": list(task.deviations),
        },
        "input": {
            "features": config.sampling.features,
            "fanout": fanout if looks_at_edges else [],
            "replace": config.sampling.replace,
            **learnt,
        },
    }


def _head(model: Model, config: TrainConfig) -> dict[str, Any] | None:
    if isinstance(model, LinkModel):
        return {"kind": "pairs", "score": config.link.head}
    if isinstance(model, GraphNetwork):
        readout = config.graph.readout
        return {"kind": "graphs", "readout": readout, "outputs": model.outputs}
    return None


def _learnt(model: Model) -> dict[str, Any]:
    """The manifest's entries for the inputs of the network, if it takes no features."""
    if _has_table(model):
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


def tensors_of(model: Model) -> dict[str, Tensor]:
    """The weights of a model by their names in the format.

    Errors: `InvalidError` for a weight that is not finite.
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
    """The part of a model that computes the states of nodes.

    Errors: `UnsupportedError` for a model of several node types, or of edges with times.
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
    if isinstance(model, CustomNetwork):
        raise InternalError("a network of the user's own has no exported form")
    if isinstance(model, LinkModel):
        return model.encoder
    nodes = model.nodes if isinstance(model, GraphNetwork) else model
    assert isinstance(nodes, Network | Perceptron)
    return nodes


def _parts(model: Model) -> Iterator[tuple[str, nn.Module | Tensor]]:
    """The modules and tensors of the model by their names in the format."""
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


@dataclass(frozen=True)
class Example:
    """A random batch in the form of a loader's batch, with inputs and in-degrees of its nodes.

    Nodes and arcs are ordered by hop. Some nodes occur twice, some have self-loops or parallel
    arcs, and some have no arc. For models of graphs, all nodes are seeds and belong to two graphs.

    Shapes: `n_id` [nodes]; `row` and `col` [arcs], local ids of source and target; `x` [nodes,
    columns], as the network takes it; `degrees` [nodes].
    """

    n_id: NDArray[np.int64]
    row: NDArray[np.int64]
    col: NDArray[np.int64]
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]
    x: NDArray[Any]
    degrees: NDArray[np.float32]
    sizes: tuple[int, ...] = ()
    """Number of nodes of each graph."""


def example(model: Model, seed: int) -> Example:
    """A random example for `model`. Equal arguments give equal examples."""
    random = np.random.default_rng(seed)
    of_graphs = isinstance(model, GraphNetwork)
    # A whole graph has all its arcs in the first hop.
    nodes = [_NODES, *[0 if of_graphs else _NODES] * model.layers]
    edges = [_ARCS, *[0 if of_graphs else _ARCS] * (model.layers - 1)]
    arcs = []
    for hop, count in enumerate(edges):
        first, last = sum(nodes[:hop]), sum(nodes[: hop + 1])
        target = np.sort(random.integers(first, max(last, first + 1), size=count))
        source = random.integers(last + nodes[hop + 1], size=count)
        # Every fifth arc is a self-loop.
        arcs.append(np.where(np.arange(count) % 5, [source, target], target))
    row, col = np.concatenate(arcs, axis=1)
    rows = sum(nodes)
    n_id = random.integers(model.table_rows if _has_table(model) else rows, size=rows)
    # Nodes have up to three neighbours in addition to the sampled ones.
    degrees = np.bincount(col, minlength=rows) + random.integers(4, size=rows)
    x: NDArray[Any] = random.normal(size=(rows, model.features)).astype(np.float32)
    if isinstance(model, GraphNetwork):
        n_id = np.arange(rows)
        counted = network_of(model).counts_loops
        degrees = np.bincount(col if counted else col[row != col], minlength=rows)
        if model.categories:
            x = np.stack([random.integers(most, size=rows) for most in model.categories], axis=1)
        if model.of_degrees:
            x = np.minimum(np.bincount(col, minlength=rows), model.categories[0] - 1)[:, None]
    sizes = (_NODES // 3, _NODES - _NODES // 3) if of_graphs else ()
    return Example(n_id, row, col, nodes, edges, x, degrees.astype(np.float32), sizes)


def network_logits(model: Model, batch: Example) -> NDArray[np.float32]:
    """The logits that PyTorch computes for seeds, pairs of seeds, or graphs; [rows, outputs]."""
    x, edge_index = torch.from_numpy(batch.x), torch.from_numpy(np.stack([batch.row, batch.col]))
    with torch.no_grad():
        if isinstance(model, GraphNetwork):
            graph = torch.arange(len(batch.sizes)).repeat_interleave(torch.tensor(batch.sizes))
            ids = torch.arange(len(batch.sizes))
            logits: Tensor = model(GraphBatch(x, edge_index, graph, ids, y=ids))
            return logits.numpy()
        sampled = SimpleNamespace(
            x=x,
            n_id=torch.from_numpy(batch.n_id),
            edge_index=edge_index,
            num_sampled_nodes=batch.num_sampled_nodes,
            num_sampled_edges=batch.num_sampled_edges,
            batch_size=batch.num_sampled_nodes[0],
        )
        states = model(sampled, torch.from_numpy(batch.degrees) if model.needs_degrees else None)
        if isinstance(model, LinkModel):
            first, second = _pairs(len(states)).T
            states = model.head(states[first], states[second]).unsqueeze(1)
        logits = states
        return logits.numpy()


def core_logits(exported: Path, model: Model, batch: Example) -> NDArray[np.float32]:
    """The logits of `network_logits`, but computed by the core from the exported model."""
    core = _core.Model(str(exported))
    hops = model.layers if isinstance(network_of(model), Network) else 0
    nodes, edges = batch.num_sampled_nodes[: hops + 1], batch.num_sampled_edges[:hops]
    rows, targets, arcs = sum(nodes), sum(nodes[:-1]), sum(edges)
    counts = np.bincount(batch.col[:arcs], minlength=targets)
    # A server looks up learned rows and categories of in-degrees.
    looked_up = _has_table(model) or (isinstance(model, GraphNetwork) and model.of_degrees)
    x = batch.x[:rows, : 0 if looked_up else None]
    states = core.forward(
        batch.n_id[:rows].astype(np.uint64),
        (nodes, edges),
        (batch.row[:arcs].astype(np.uint32), counts.astype(np.uint32)),
        np.ascontiguousarray(x, dtype=np.float32),
        np.ascontiguousarray(batch.degrees[:rows]),
    )
    if isinstance(model, LinkModel):
        pairs = [(int(first), int(second)) for first, second in _pairs(nodes[0])]
        return core.score(states, pairs).reshape(-1, 1)
    if isinstance(model, GraphNetwork):
        return core.of_graphs(states, list(batch.sizes)).reshape(-1, model.outputs)
    return states.reshape(nodes[0], model.outputs)


def _has_table(model: Model) -> TypeGuard[LinkModel]:
    return isinstance(model, LinkModel) and model.table_rows > 0


def _pairs(seeds: int) -> NDArray[np.int64]:
    """All pairs of seeds; [pairs, 2]."""
    return np.stack(np.meshgrid(np.arange(seeds), np.arange(seeds)), axis=-1).reshape(-1, 2)


def difference(found: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """The largest difference between logits, relative to the largest logit if that is above 1.

    It is not relative to each logit, because a small logit may be the sum of far larger terms.
    """
    return float(np.abs(found - expected).max() / max(1.0, float(np.abs(expected).max())))


def require_agreement(exported: Path, model: Model) -> None:
    """Checks that the exported model has the logits of the network. Errors: `InternalError`."""
    batch = example(model, seed=0)
    error = difference(core_logits(exported, model, batch), network_logits(model, batch))
    if not error <= TOLERANCE:
        raise InternalError(
            f"model `{exported}`: its logits differ by {error:.1e} from the network's, expected "
            f"{TOLERANCE:.0e} at most"
        )
