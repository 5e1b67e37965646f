"""Memory of a server: bodies of every kind and size, one and many at once."""

from __future__ import annotations

import http.client
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import grpc
import pytest

from outercore.serving.server import Server
from slow_clients import GoodClient
from test_live import CONFIG, random_model, trained
from test_serve_slow import MOST_P99_MS, SLACK, Running, started

MIB = 1 << 20
MOST_GROWTH = (64 + 48) * MIB
"""Of a server with a budget of 64 MiB, from its memory when it has answered a first request."""
MOST_NODES = 8192
"""With it a body of inference may be as long as any."""
SIZES = [64 << 10, 1 << 20, (16 << 20) - 4096, (16 << 20) + 1]
UPDATES, INFER, ANALYSES = "/graph/updates", "/v2/models/sage/infer", "/graph/analyses"
CALL = "/inference.GRPCInferenceService/ModelInfer"


def repeated(head: bytes, part: bytes, tail: bytes) -> Callable[[int], bytes]:
    """A body of about so many bytes."""
    return lambda size: head + part * ((size - len(head) - len(tail)) // len(part)) + tail


def row(part: bytes, tail: bytes) -> Callable[[int], bytes]:
    head = b'{"updates":[{"op":"update_node","node":1,"values":{"x":'
    return repeated(head, part, tail + b"}}]}")


def tensor(name: str, shape: list[int], part: bytes, tail: bytes) -> Callable[[int], bytes]:
    described = {"name": name, "datatype": "INT64", "shape": shape}
    head = json.dumps({"inputs": [described]})[:-3].encode() + b',"data":['
    return repeated(head, part, tail + b"]}]}")


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def message(inner: Callable[[int], bytes]) -> Callable[[int], bytes]:
    return lambda size: field(1, b"sage") + inner(size - 32)


def contents(number: int) -> Callable[[int], bytes]:
    name = field(1, b"node_ids") + field(2, b"INT64")
    return lambda size: field(5, name + field(5, field(number, b"\1" * (size - 64))))


@dataclass(frozen=True)
class Kind:
    """A way to write bodies."""

    name: str
    path: str
    body: Callable[[int], bytes]


ADD = b'{"op":"add_edge","source":1,"target":2},'
NODE = b'{"op":"update_node","node":1,"values":{"y":1}},'
KINDS = [
    Kind("numbers of a row", UPDATES, row(b"1,", b"1]")),
    Kind("lists of a row", UPDATES, row(b"[],", b"1]")),
    Kind("deep lists", UPDATES, row(b"[", b"")),
    Kind("digits", UPDATES, row(b"1", b"")),
    Kind("a string", UPDATES, repeated(b'{"updates":"', b"a", b'"}')),
    Kind("an escaped string", UPDATES, repeated(b'{"updates":"', b"\\n", b'"}')),
    Kind("updates", UPDATES, repeated(b'{"updates":[', ADD, ADD[:-1] + b"]}")),
    Kind("rows", UPDATES, repeated(b'{"updates":[', NODE, NODE[:-1] + b"]}")),
    Kind("empty updates", UPDATES, repeated(b'{"updates":[', b"{},", b"{}]}")),
    Kind(
        "nodes of a graph",
        UPDATES,
        repeated(b'{"updates":[{"op":"register_graph","nodes":[', b"{},", b"{}]}]}"),
    ),
    Kind("names of arrays", UPDATES, repeated(b'{"updates":[{"op":', b'"a":1,', b'"b":1}]}')),
    Kind("ids", INFER, tensor("node_ids", [1], b"1,", b"1")),
    Kind("nested ids", INFER, tensor("node_ids", [1], b"[1],", b"[1]")),
    Kind("pairs", INFER, tensor("edge_index", [2, 1], b"1,", b"1")),
    Kind("features", INFER, tensor("x", [1, 5], b"1,", b"1")),
    Kind("a shape", INFER, repeated(b'{"inputs":[{"name":"x","shape":[', b"1,", b"1]}]}")),
    Kind("inputs", INFER, repeated(b'{"inputs":[', b"{},", b"{}]}")),
    Kind("outputs", INFER, repeated(b'{"outputs":[', b'{"name":"a"},', b'{"name":"a"}]}')),
    Kind("parameters", INFER, repeated(b'{"parameters":{', b'"a":1,', b'"b":1}}')),
    Kind("a parameter", INFER, repeated(b'{"parameters":{"seed":[', b"1,", b"1]}}")),
    Kind("an id", INFER, repeated(b'{"id":"', b"a", b'"}')),
    Kind("nodes of an option", ANALYSES, repeated(b'{"sources":[', b"1,", b'1],"algorithm":"bc"}')),
    Kind("an unknown option", ANALYSES, repeated(b'{"a":[', b"[],", b'1],"algorithm":"wcc"}')),
    Kind("blanks", UPDATES, repeated(b"", b" ", b"{}")),
]
CALLS = [
    Kind("raw bytes", CALL, message(lambda size: field(5, b"") + field(7, bytes(size - 16)))),
    Kind("whole numbers", CALL, message(contents(3))),
    Kind("unsigned numbers", CALL, message(contents(4))),
    Kind("truth values", CALL, message(contents(1))),
    Kind(
        "strings", CALL, message(lambda size: field(5, field(5, field(8, b"") * (size // 2 - 16))))
    ),
    Kind("tensors", CALL, message(lambda size: field(5, b"") * (size // 2))),
    Kind("outputs", CALL, message(lambda size: field(6, b"") * (size // 2))),
    Kind("parameters", CALL, message(lambda size: field(4, b"") * (size // 2))),
    Kind("a shape", CALL, message(lambda size: field(5, field(3, b"\1" * (size - 16))))),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("memory")
    run = trained(random_model(1, undirected=True).write(home / "graph"), "sage", home / "sage")
    shutil.copytree(home / "graph", home / "copy")
    with Server(home / "copy", run, replace(CONFIG, updates=False)):
        # The first start exports the model.
        pass
    options = ["--most-nodes", MOST_NODES, "--analyses", "8MiB"]
    with started(home / "graph", run, *options) as running:
        GoodClient(running.url, "sage").latency(20)
        yield running


@pytest.fixture(scope="module")
def idle(server: Running) -> int:
    """Bytes of the server before it has seen any of these bodies."""
    return 1024 * server.status_kib("VmRSS:")


def post(server: Running, kind: Kind, body: bytes) -> int:
    """The status."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    try:
        connection.request("POST", kind.path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def call(server: Running, kind: Kind, body: bytes) -> Any:
    """The code."""
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(server.grpc, options=options) as channel:
        sent = channel.unary_unary(
            kind.path, request_serializer=lambda body: body, response_deserializer=bytes
        )
        try:
            sent(body, timeout=60)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def check_peak(
    server: Running, idle: int, name: str, record: Callable[[str, object], None]
) -> None:
    growth = 1024 * server.status_kib("VmHWM:") - idle
    record("growth_mib", growth / MIB)
    sys.stdout.write(f"{name}: {growth / MIB:.1f} MiB above {idle / MIB:.1f} MiB" + "\n")
    assert growth <= MOST_GROWTH, f"{name}: {growth / MIB:.1f} MiB"
    assert server.process.poll() is None


@pytest.mark.parametrize("kind", [*KINDS, *CALLS], ids=lambda kind: f"{kind.path} {kind.name}")
def test_a_body_of_any_size_stays_within_the_budget_and_48_mib(
    kind: Kind, server: Running, idle: int, record_property: Callable[[str, object], None]
) -> None:
    for size in SIZES:
        body = kind.body(size)
        if kind in CALLS:
            found = call(server, kind, body)
            assert found in (
                grpc.StatusCode.INVALID_ARGUMENT,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                grpc.StatusCode.OK,
            ), (size, found)
        else:
            status = post(server, kind, body)
            assert status in (200, 202, 400, 413), (size, status)
    check_peak(server, idle, kind.name, record_property)


@pytest.mark.parametrize("name", ["numbers of a row", "rows", "pairs", "whole numbers"])
def test_many_large_bodies_at_once_neither_fill_the_memory_nor_hold_others_up(
    name: str, server: Running, idle: int, record_property: Callable[[str, object], None]
) -> None:
    (kind,) = (kind for kind in [*KINDS, *CALLS] if kind.name == name)
    send = call if kind in CALLS else post
    good = GoodClient(server.url, "sage")
    bodies = [kind.body(size) for size in (4 << 20, (16 << 20) - 4096)] * 4
    with ThreadPoolExecutor(len(bodies)) as pool:
        sent = [pool.submit(send, server, kind, body) for body in bodies]
        seen = good.latency(50)
        # Some are refused for others: by a status, or over a connection that is closed meanwhile.
        for one in sent:
            with suppress(BrokenPipeError, ConnectionResetError):
                one.result()
    record_property("p99_ms", seen.p99)
    sys.stdout.write(f"{name}: {seen}" + "\n")
    assert seen.p99 < SLACK * MOST_P99_MS, seen
    check_peak(server, idle, name, record_property)
