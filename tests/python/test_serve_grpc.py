"""The protocol as its public clients speak it: gRPC, and tensors as bytes over HTTP."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from outercore.serving.server import Server
from test_live import CONFIG, random_model, trained, update
from test_serve import ask, infer, outputs
from test_serve_metrics import scrape


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("grpc")
    trained(random_model(1, undirected=True).write(root / "graph"), "sage", root / "sage")
    shutil.copytree(root / "graph", root / "copy")
    return root


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    with Server(home / "graph", home / "sage", replace(CONFIG, grpc_port=0)) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with triton_grpc.InferenceServerClient(server.grpc_address) as found:
        yield found


def node_ids(nodes: list[int], datatype: str = "INT64", *, of: Any = triton_grpc) -> Any:
    dtype = {"INT64": np.int64, "INT32": np.int32, "UINT32": np.uint32, "FP32": np.float32}
    tensor = of.InferInput("node_ids", [len(nodes)], datatype)
    tensor.set_data_from_numpy(np.array(nodes, dtype[datatype]))
    return tensor


@pytest.mark.parametrize("datatype", ["INT64", "INT32", "UINT32"])
def test_answers_over_grpc_are_those_over_http(datatype: str, server: Server, client: Any) -> None:
    expected = infer(server, [7, 9, 7], seed=5)
    found = client.infer("sage", [node_ids([7, 9, 7], datatype)], parameters={"seed": 5})
    for name, values in outputs(expected).items():
        np.testing.assert_array_equal(
            found.as_numpy(name), values.astype(found.as_numpy(name).dtype)
        )
    assert found.as_numpy("probability").dtype == np.float32
    answer = found.get_response()
    assert answer.model_version == expected["model_version"]
    assert answer.parameters["seed"].int64_param == 5
    assert answer.parameters["lsn"].int64_param == expected["parameters"]["lsn"]


def test_numbers_in_messages_and_chosen_outputs_are_understood(server: Server) -> None:
    import grpc
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    request = service_pb2.ModelInferRequest(model_name="sage", id="mine")
    tensor = request.inputs.add(name="node_ids", datatype="INT64", shape=[2])
    tensor.contents.int64_contents.extend([7, 9])
    request.outputs.add(name="prediction")
    with grpc.insecure_channel(server.grpc_address) as channel:
        answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
    assert answer.id == "mine"
    assert [output.name for output in answer.outputs] == ["prediction"]
    expected = outputs(infer(server, [7, 9]))["prediction"]
    found = np.frombuffer(answer.raw_output_contents[0], np.int64)
    np.testing.assert_array_equal(found, expected)


def test_the_server_and_the_model_describe_themselves_over_grpc(
    server: Server, client: Any
) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("sage")
    assert client.get_server_metadata().name == "outercore"
    found = client.get_model_metadata("sage", as_json=True)
    expected = ask(server, "/v2/models/sage")[1]
    assert (found["name"], found["versions"]) == ("sage", expected["versions"])
    for kind in ("inputs", "outputs"):
        shapes = [
            {**tensor, "shape": [str(n) for n in tensor["shape"]]} for tensor in expected[kind]
        ]
        assert found[kind] == shapes


@pytest.mark.parametrize(
    ("model", "nodes", "parameters", "code", "text"),
    [
        ("other", [1], {}, "NOT_FOUND", "no model `other`; there is `sage`"),
        ("sage", [40], {}, "INVALID_ARGUMENT", "expected a node below 40"),
        ("sage", [], {}, "INVALID_ARGUMENT", "0 nodes, expected 1 to 256"),
        ("sage", [1], {"fanout": 3}, "INVALID_ARGUMENT", "parameter `fanout`"),
        ("sage", [1], {"min_lsn": 10**6}, "FAILED_PRECONDITION", "the graph is at update"),
        ("sage", [1], {"deadline_ms": 0}, "DEADLINE_EXCEEDED", "the deadline passed"),
    ],
)
def test_a_wrong_call_is_told_why(
    model: str, nodes: list[int], parameters: dict[str, int], code: str, text: str, client: Any
) -> None:
    with pytest.raises(InferenceServerException, match=text) as refused:
        client.infer(model, [node_ids(nodes)], parameters=parameters)
    assert refused.value.status() == f"StatusCode.{code}"


def test_calls_that_the_protocol_has_and_the_server_has_not_are_refused(client: Any) -> None:
    with pytest.raises(InferenceServerException) as refused:
        client.unload_model("sage")
    assert refused.value.status() == "StatusCode.UNIMPLEMENTED"
    with pytest.raises(InferenceServerException, match="datatype FP32") as refused:
        client.infer("sage", [node_ids([1], "FP32")])
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
    with pytest.raises(InferenceServerException) as refused:
        client.infer("sage", [node_ids([1])], compression_algorithm="gzip")
    assert refused.value.status() == "StatusCode.UNIMPLEMENTED"


def test_more_calls_than_may_wait_are_refused_at_once(home: Path) -> None:
    config = replace(CONFIG, grpc_port=0, queue=1)
    answers: Queue[Any] = Queue()
    nodes = node_ids(list(range(40)) * 6)
    with (
        Server(home / "copy", home / "sage", config) as busy,
        triton_grpc.InferenceServerClient(busy.grpc_address) as client,
    ):
        for _ in range(200):
            client.async_infer("sage", [nodes], lambda result, error: answers.put(error))
        errors = [answers.get(timeout=60) for _ in range(200)]
    codes = {None if error is None else error.status() for error in errors}
    assert codes == {None, "StatusCode.RESOURCE_EXHAUSTED"}


def test_calls_are_counted_by_method_and_code(server: Server, client: Any) -> None:
    key = "outercore_requests_total{{path={},protocol=grpc,status={}}}"
    before = scrape(server)
    client.is_server_live()
    with pytest.raises(InferenceServerException):
        client.infer("other", [node_ids([1])])
    after = scrape(server)
    for path, status in [("ServerLive", "Ok"), ("ModelInfer", "NotFound")]:
        name = key.format(path, status)
        assert after[name] == before.get(name, 0) + 1


def test_triton_s_http_client_sends_and_gets_tensors_as_bytes(server: Server) -> None:
    expected = outputs(infer(server, [7, 9], seed=5))
    with triton_http.InferenceServerClient(server.url.removeprefix("http://")) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("sage")
        assert client.get_model_metadata("sage")["name"] == "sage"
        assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
        ids = node_ids([7, 9], of=triton_http)
        wanted = [
            None,
            [triton_http.InferRequestedOutput("probability")],
            [triton_http.InferRequestedOutput("probability", binary_data=False)],
        ]
        for some in wanted:
            found = client.infer("sage", [ids], outputs=some, parameters={"seed": 5})
            probability = expected["probability"].astype(np.float32)
            np.testing.assert_array_equal(found.as_numpy("probability"), probability)
            assert (found.as_numpy("prediction") is None) == (some is not None)
        with pytest.raises(InferenceServerException, match="expected a node below 40"):
            client.infer("sage", [node_ids([40], of=triton_http)])


@pytest.mark.parametrize(
    ("header", "parameters", "tail", "text"),
    [
        (None, {"binary_data_size": 8}, b"", "expected bytes that the body has"),
        (0, {"binary_data_size": 16}, bytes(8), "expected bytes that the body has"),
        (0, {"binary_data_size": 7}, bytes(7), "7 bytes, which are no INT64"),
        (0, {"binary_data_size": 8}, bytes(9), "1 bytes that belong to no input"),
        (10**6, {"binary_data_size": 8}, bytes(8), "expected a length within the body"),
    ],
)
def test_bytes_that_are_no_tensors_are_refused(
    header: int | None, parameters: dict[str, int], tail: bytes, text: str, server: Server
) -> None:
    tensor = {"name": "node_ids", "datatype": "INT64", "shape": [1], "parameters": parameters}
    body = json.dumps({"inputs": [tensor]}).encode()
    length = {} if header is None else {"Inference-Header-Content-Length": str(header or len(body))}
    kind = {"Content-Type": "application/octet-stream"}
    request = Request(server.url + "/v2/models/sage/infer", body + tail, headers=length | kind)
    with pytest.raises(OSError, match="400") as refused:
        urlopen(request, timeout=30)
    assert text in json.loads(refused.value.read())["error"]


def test_a_call_sees_the_update_that_it_asks_for(server: Server, client: Any) -> None:
    changed = {"op": "update_node", "node": 3, "values": {"x": [0.5] * 5}}
    _, written = update(server, changed)
    found = client.infer("sage", [node_ids([3])], parameters={"min_lsn": written["lsn"]})
    assert found.get_response().parameters["lsn"].int64_param >= written["lsn"]
