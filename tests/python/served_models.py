"""Models with random weights, their outputs by PyG, and requests by every protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import torch
import tritonclient.grpc
import tritonclient.http
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import GCNConv, global_add_pool, global_max_pool, global_mean_pool
from tritonclient.grpc import service_pb2, service_pb2_grpc

import outercore as oc
from outercore.serving.server import Server
from outercore.training.config import TrainConfig
from outercore.training.links.network import LinkModel
from outercore.training.model_files import load_model, save_model
from outercore.training.models import GraphNetwork, Model, Network, Perceptron
from outercore.training.tasks import Task

TOLERANCE = 1e-5
POOLS = {"sum": global_add_pool, "mean": global_mean_pool, "max": global_max_pool}
Tensors = Mapping[str, np.ndarray]


def randomised(model: Any, seed: int) -> Any:
    """The model with weights far from zero, and running statistics that change the output."""
    draws = torch.Generator().manual_seed(seed)
    for name, value in model.state_dict().items():
        if value.dtype == torch.float32:
            value.normal_(0.0, 0.4, generator=draws)
            if name.endswith("running_var"):
                value.abs_().add_(0.5)
    return model.eval()


def saved_run(home: Path, model: Model, task: Task, config: TrainConfig) -> Path:
    """A run directory with this model, for `predict`, `export` and `serve`."""
    save_model(home / "model", model, model.state_dict(), task, config, {})
    return home


def pyg_states(network: Network | Perceptron, x: Tensor, edge_index: Tensor) -> Tensor:
    """The outputs of all nodes by PyG's own convolutions over all edges."""
    if isinstance(network, Perceptron):
        for index, linear in enumerate(network.linears):
            state = linear(x)
            if index < network.layers - 1:
                state = state + network.skips[index](x) if network.config.residual else state
                state = functional.relu(network.norms[index](state))
            x = state
        return x
    states = []
    for index in range(network.layers):
        conv: Any = network.gnn.convs[index]
        if network.config.kind == "gcn":
            # The network's convolution takes normalised weights; PyG's computes them.
            own, conv = conv, GCNConv(conv.in_channels, conv.out_channels)
            conv.lin.weight, conv.bias = own.lin.weight, own.bias
        state = conv(x, edge_index)
        if network.config.residual:
            state = state + network.skips[index](x)
        if index < network.layers - 1 or network.jumping:
            state = functional.relu(network.gnn.norms[index](state))
        states.append(state)
        x = state
    return network.gnn.lin(network.gnn.jk(states)) if network.jumping else x


@torch.no_grad()
def pyg_nodes(model: Any, x: Tensor, edge_index: Tensor) -> Tensor:
    """Logits of nodes."""
    return pyg_states(model, x.float(), edge_index)


@torch.no_grad()
def pyg_pairs(model: LinkModel, x: Tensor | None, edge_index: Tensor, pairs: np.ndarray) -> Tensor:
    """Scores of pairs of nodes."""
    if x is None:
        assert model.table is not None
        x = model.table.weight
    states = pyg_states(model.encoder, x.float(), edge_index)
    product = states[pairs[:, 0]] * states[pairs[:, 1]]
    if model.head.diagonal is not None:
        return (product * model.head.diagonal).sum(1)
    if not len(model.head.linears):
        return product.sum(1)
    first, second = model.head.linears
    return second(functional.relu(first(product)))[:, 0]


@torch.no_grad()
def pyg_graphs(model: GraphNetwork, x: Tensor | None, edge_index: Tensor, batch: Tensor) -> Tensor:
    """Logits of graphs."""
    if model.of_degrees:
        x = torch.bincount(edge_index[1], minlength=len(batch)).unsqueeze(1)
        x = x.clamp(max=model.categories[0] - 1)
    assert x is not None
    if model.categories:
        x = sum(table(column) for table, column in zip(model.embeddings, x.long().T, strict=True))
    states = POOLS[model.readout](pyg_states(model.nodes, x.float(), edge_index), batch)
    return model.head(states)


def outputs_of(task: Task, logits: Tensor) -> dict[str, np.ndarray]:
    """The expected outputs of a server and of a table of predictions for a task."""
    if task.kind == "classes":
        return {"probability": logits.softmax(1).numpy()}
    if task.kind == "labels":
        return {"probability": logits.sigmoid().numpy()}
    if task.kind == "links":
        return {"score": logits.numpy(), "probability": logits.sigmoid().numpy()}
    wide = logits.double().numpy()
    return {"prediction": wide * np.array(task.deviations) + np.array(task.means)}


def predicted(
    data_set: Path, run: Path, task: Task, out: Path, pairs: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """The predictions of `outercore predict`, under the names of a server's outputs."""
    edges = None
    if pairs is not None:
        edges = out.with_suffix(".npy")
        np.save(edges, pairs)
    oc.predict(data_set, run, out, edges=edges, overwrite=True)
    import pyarrow.parquet as pq

    table = pq.read_table(out)

    def columns(prefix: str) -> np.ndarray:
        names = [name for name in table.column_names if name.startswith(prefix)]
        return np.stack([table[name].to_numpy() for name in names], axis=1)

    if task.kind == "links":
        return {"score": table["score"].to_numpy()}
    if task.kind == "values":
        return {"prediction": columns("prediction")}
    outputs = {"probability": columns("probability_")}
    whole = columns("prediction")
    return {**outputs, "prediction": whole[:, 0] if task.kind == "classes" else whole}


def require_close(
    found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], what: str
) -> None:
    """Asserts that common outputs agree to 1e-5 of the largest value, or of 1."""
    for name in wanted.keys() & found.keys():
        left, right = found[name].astype(np.float64), wanted[name].astype(np.float64)
        assert left.size == right.size, f"{what}: {name}: {left.shape} and {right.shape}"
        scale = max(1.0, float(np.abs(right).max(initial=0.0)))
        error = float(np.abs(left.ravel() - right.ravel()).max(initial=0.0)) / scale
        assert error <= TOLERANCE, f"{what}: {name} differs by {error:.1e}"


def require_consistent(task: Task, found: Mapping[str, np.ndarray]) -> None:
    """Asserts that classes and labels agree with the probabilities."""
    if task.kind == "classes":
        np.testing.assert_array_equal(found["prediction"], found["probability"].argmax(1))
    if task.kind == "labels":
        np.testing.assert_array_equal(found["prediction"], found["probability"] > 0.5)


DATATYPES = {"i": "INT64", "u": "UINT8", "f": "FP32", "b": "BOOL"}


def _inputs(kind: Any, tensors: Tensors) -> list[Any]:
    inputs = []
    for name, values in tensors.items():
        datatype = DATATYPES[values.dtype.kind]
        dtype = {"INT64": np.int64, "FP32": np.float32, "UINT8": np.uint8, "BOOL": np.bool_}
        tensor = kind.InferInput(name, list(values.shape), datatype)
        tensor.set_data_from_numpy(np.ascontiguousarray(values, dtype[datatype]))
        inputs.append(tensor)
    return inputs


def _by_json(server: Server, tensors: Tensors, parameters: dict[str, Any]) -> dict[str, Any]:
    inputs = dict(tensors)
    ids = next((inputs.pop(name) for name in list(inputs) if name.endswith("_ids")), None)
    with oc.Client(server.url, server.name) as client:
        return client.predict(ids, **inputs, **parameters).outputs


def _by_bytes(server: Server, tensors: Tensors, parameters: dict[str, Any]) -> dict[str, Any]:
    url = server.url.removeprefix("http://")
    with tritonclient.http.InferenceServerClient(url, network_timeout=90) as client:
        inputs = _inputs(tritonclient.http, tensors)
        answer = client.infer(server.name, inputs, parameters=parameters)
        names = [output["name"] for output in answer.get_response()["outputs"]]
        return {name: answer.as_numpy(name) for name in names}


def _by_grpc(server: Server, tensors: Tensors, parameters: dict[str, Any]) -> dict[str, Any]:
    with tritonclient.grpc.InferenceServerClient(str(server.grpc_address)) as client:
        inputs = _inputs(tritonclient.grpc, tensors)
        answer = client.infer(server.name, inputs, parameters=parameters)
        names = [output.name for output in answer.get_response().outputs]
        return {name: answer.as_numpy(name) for name in names}


CONTENTS = {"INT64": "int64_contents", "FP32": "fp32_contents", "UINT8": "uint_contents"}


def message(server: Server, tensors: Tensors, parameters: dict[str, Any]) -> Any:
    """A request with its values in the typed fields of the tensors."""
    request = service_pb2.ModelInferRequest(model_name=server.name)
    for name, values in tensors.items():
        datatype = DATATYPES[values.dtype.kind]
        tensor = request.inputs.add(name=name, datatype=datatype, shape=list(values.shape))
        getattr(tensor.contents, CONTENTS[datatype]).extend(values.ravel().tolist())
    for name, value in parameters.items():
        if isinstance(value, str):
            request.parameters[name].string_param = value
        else:
            request.parameters[name].int64_param = value
    return request


def send(server: Server, request: Any) -> dict[str, np.ndarray]:
    """The answer to a message."""
    with grpc.insecure_channel(server.grpc_address) as channel:
        answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
    dtypes = {"INT64": np.int64, "FP32": np.float32}
    return {
        output.name: np.frombuffer(raw, dtypes[output.datatype]).reshape(output.shape)
        for output, raw in zip(answer.outputs, answer.raw_output_contents, strict=True)
    }


def _by_contents(server: Server, tensors: Tensors, parameters: dict[str, Any]) -> dict[str, Any]:
    return send(server, message(server, tensors, parameters))


PROTOCOLS: dict[str, Callable[[Server, Tensors, dict[str, Any]], dict[str, Any]]] = {
    "HTTP": _by_json,
    "HTTP with bytes": _by_bytes,
    "gRPC": _by_grpc,
    "gRPC with contents": _by_contents,
}


def answers(server: Server, tensors: Tensors, **parameters: Any) -> dict[str, np.ndarray]:
    """The answer over HTTP; asserts that the other protocols give the same."""
    answers = {name: ask(server, tensors, parameters) for name, ask in PROTOCOLS.items()}
    first, *others = answers
    for name in others:
        assert answers[name].keys() == answers[first].keys()
        for output, values in answers[first].items():
            same = np.asarray(answers[name][output]).reshape(values.shape)
            np.testing.assert_array_equal(same, values, err_msg=f"{name}: {output}")
    return answers[first]


def arcs_of(graph: oc.Graph) -> Tensor:
    """int64 [2, arcs]: all arcs of a data set."""
    offsets = graph.array("edges/edge/offsets").astype(np.int64)
    sources = graph.array("edges/edge/sources").astype(np.int64)
    targets = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return torch.from_numpy(np.stack([sources, targets]))


def task_of(run: Path) -> Task:
    """The task of a saved run."""
    return load_model(run / "model").task
