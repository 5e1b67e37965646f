"""A tensor of another shape or type than a request needs is refused, or means the same.

What may not happen is an answer to another question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

import outercore as oc
from multigraph import imported
from outercore.serving.server import Server, ServerConfig
from served_models import message, send
from test_serve import ask, outputs
from test_served_answers import node_run

CONFIG = ServerConfig(port=0, grpc_port=0, memory="64MiB", deadline_ms=60_000)
WIDTH = 4
RAW = {"INT64": np.int64, "INT32": np.int32, "UINT32": np.uint32, "FP32": np.float32}
RAW |= {"FP64": np.float64, "INT8": np.int8, "UINT64": np.uint64}
CONTENTS = {
    **dict.fromkeys(("INT8", "INT32"), "int_contents"),
    **{"INT64": "int64_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents"},
    **{"FP32": "fp32_contents", "FP64": "fp64_contents"},
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    return imported(tmp_path_factory.mktemp("shapes") / "graph", nodes=60, edges=250)


@pytest.fixture(scope="module")
def server(graph: oc.Graph, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    run = node_run(tmp_path_factory.mktemp("runs") / "run", "sage", "classes", 2)
    with Server(graph.root, run, CONFIG) as running:
        yield running


Tensor = tuple[str, list[int], np.ndarray]
"""Datatype, shape, and values in the order in which they are sent."""


def by_json(server: Server, tensors: dict[str, Tensor]) -> dict[str, np.ndarray] | str:
    inputs = [
        {"name": name, "datatype": datatype, "shape": shape, "data": values.ravel().tolist()}
        for name, (datatype, shape, values) in tensors.items()
    ]
    status, answer = ask(server, f"/v2/models/{server.name}/infer", {"inputs": inputs})
    return outputs(answer) if status == 200 else str(answer["error"])


def by_messages(
    server: Server, tensors: dict[str, Tensor], *, raw: bool
) -> dict[str, np.ndarray] | str:
    request = service_pb2.ModelInferRequest(model_name=server.name)
    for name, (datatype, shape, values) in tensors.items():
        tensor = request.inputs.add(name=name, datatype=datatype, shape=shape)
        typed = values.ravel().astype(RAW[datatype])
        if raw:
            request.raw_input_contents.append(typed.tobytes())
        else:
            getattr(tensor.contents, CONTENTS[datatype]).extend(typed.tolist())
    try:
        return send(server, request)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.INVALID_ARGUMENT:
            raise
        return str(error.details())


WAYS: dict[str, Any] = {
    "HTTP": by_json,
    "gRPC": lambda server, tensors: by_messages(server, tensors, raw=True),
    "gRPC with contents": lambda server, tensors: by_messages(server, tensors, raw=False),
}


def reshaped(random: np.random.Generator, tensor: Tensor) -> Tensor:
    """The tensor with its axes, its shape or its type changed."""
    datatype, shape, values = tensor
    size = int(np.prod(shape))
    match random.integers(6):
        case 0:
            values = np.moveaxis(values.reshape(shape), 0, -1)
            shape = list(values.shape)
        case 1:
            shape = [int(extent) for extent in random.permutation(shape)]
        case 2:
            first = int(random.choice([d for d in range(1, size + 1) if size % d == 0]))
            shape = [first, size // first]
        case 3:
            shape = [size] if random.random() < 0.5 else [*shape, 1]
        case 4:
            place = int(random.integers(len(shape)))
            shape = list(shape)
            shape[place] += int(random.choice([-1, 1]))
        case 5:
            kinds = [kind for kind in RAW if (values.astype(RAW[kind]) == values).all()]
            datatype = str(random.choice(kinds))
    return datatype, shape, values


@pytest.mark.parametrize("way", WAYS)
def test_a_reshaped_request_is_refused_or_means_the_same(way: str, server: Server) -> None:
    random = np.random.default_rng(11)
    x = random.normal(size=(3, WIDTH)).astype(np.float32)
    edges = np.array([[7, 9, -1, 12, 40], [-1, -2, -3, -1, -3]])
    requests: list[dict[str, Tensor]] = [
        {"node_ids": ("INT64", [6], np.array([5, 9, 5, 40, 2, 31]))},
        {"x": ("FP32", [3, WIDTH], x), "edge_index": ("INT64", [2, 5], edges)},
    ]
    refused = same = 0
    for number, request in enumerate(requests):
        wanted = WAYS[way](server, request)
        assert isinstance(wanted, dict), wanted
        for step in range(60):
            changed = dict(request)
            name = str(random.choice(list(request)))
            changed[name] = reshaped(random, request[name])
            found = WAYS[way](server, changed)
            if isinstance(found, str):
                refused += 1
                continue
            same += 1
            said = f"seed 11, request {number}, step {step}: {name} as {changed[name][:2]}"
            for output, values in wanted.items():
                np.testing.assert_array_equal(found[output], values, err_msg=said)
    assert refused
    assert same


def test_values_beside_their_datatype_are_refused(server: Server) -> None:
    request = message(server, {"node_ids": np.array([5, 9])}, {})
    send(server, request)
    for field, value in [("int_contents", 3), ("fp32_contents", 3.0), ("bool_contents", True)]:
        wrong = service_pb2.ModelInferRequest.FromString(request.SerializeToString())
        getattr(wrong.inputs[0].contents, field).append(value)
        with pytest.raises(grpc.RpcError, match=f"{field}, expected int64_contents"):
            send(server, wrong)
    both = service_pb2.ModelInferRequest.FromString(request.SerializeToString())
    both.raw_input_contents.append(np.array([7, 8]).tobytes())
    with pytest.raises(grpc.RpcError, match="expected either contents or raw_input_contents"):
        send(server, both)


X = {"x": ("FP32", [1, 4], [0.5, 1, 2, 3])}


@pytest.mark.parametrize(
    ("tensors", "text"),
    [
        ({**X, "edge_index": ("UINT32", [2, 1], [7, -1])}, "edge_index: -1 is no UINT32"),
        ({"node_ids": ("INT32", [1], [2**40])}, "node_ids: 1099511627776, expected a node"),
        ({"node_ids": ("INT64", [2, 2], [1, 2, 3, 4])}, "expected .n."),
        ({"x": ("INT64", [1, 4], [0.5, 1, 2, 3])}, "x: 0.5 is no INT64"),
        ({"x": ("BOOL", [1, 4], [True, False, True, True])}, "x: datatype BOOL, expected FP32"),
        ({"x": ("BYTES", [1, 4], [1, 2, 3, 4])}, "x: datatype BYTES, expected FP32"),
    ],
)
def test_values_that_are_none_of_their_datatype_are_refused(
    tensors: dict[str, Any], text: str, server: Server
) -> None:
    inputs = [
        {"name": name, "datatype": datatype, "shape": shape, "data": data}
        for name, (datatype, shape, data) in tensors.items()
    ]
    status, answer = ask(server, f"/v2/models/{server.name}/infer", {"inputs": inputs})
    assert status == 400
    assert re.search(text, answer["error"]), answer
