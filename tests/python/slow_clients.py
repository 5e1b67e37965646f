"""Slow clients of every kind, and a good client that measures the latency of a server."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urlsplit

import numpy as np

SERVICE = "/inference.GRPCInferenceService/"

Opened = Callable[[], socket.socket]
Step = Callable[[socket.socket], None]


@dataclass(frozen=True)
class Slow:
    """A kind of slow client: its first step, and a step that it repeats."""

    name: str
    begin: Step
    renew: Step
    is_grpc: bool = False


def _nothing(_: socket.socket) -> None:
    pass


def _send(content: bytes) -> Step:
    return lambda connection: connection.sendall(content)


def _post(path: str, length: int, begun: bytes, token: str | None = None) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"Content-Length: {length}"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join([*lines, "", ""]).encode() + begun


def kinds(model: str, most_body: int, token: str | None = None) -> list[Slow]:
    """All kinds of slow clients; `most_body` is the largest body of an inference request."""
    infer = f"/v2/models/{model}/infer"
    get = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n"
    get += f"Authorization: Bearer {token}\r\n\r\n" if token else "\r\n"
    large = b'{"inputs":[' + b" " * (most_body - 12)
    call = _headers(SERVICE + "ModelInfer", token)
    whole = _data(1, _message(model), ends=True)
    return [
        Slow("idle connections", _nothing, _nothing),
        Slow("slow headers", _send(b"GET /v2 HTTP/1.1\r\nHost:"), _send(b"x")),
        Slow("slow small bodies", _send(_post(infer, 100, b"{", token)), _send(b" ")),
        Slow("slow large bodies", _send(_post(infer, most_body, large, token)), _nothing),
        Slow(
            "slow updates", _send(_post("/graph/updates", 1 << 24, b"{" * (1 << 20))), _send(b" ")
        ),
        Slow("slow chunks", _send(_chunked(infer, token)), _send(b"1\r\n \r\n")),
        Slow("slow readers", _send(100 * get.encode()), _nothing),
        Slow("unfinished calls", _calls(call, b"\0\0\0\1\0", ends=False), _ping, is_grpc=True),
        Slow("unread answers", _unread(call, whole), _ping, is_grpc=True),
        Slow("slow handshakes", _send(b"\x16\x03\x01\x02\x00\x01\x00"), _send(b"\0")),
    ]


def _chunked(path: str, token: str | None) -> bytes:
    head = _post(path, 0, b"", token).decode()
    return head.replace("Content-Length: 0", "Transfer-Encoding: chunked").encode() + b"1\r\n{\r\n"


# HTTP/2, by hand: no client library sends half a call.

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
STREAMS = 100


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    head = len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + content


def _headers(path: str, token: str | None) -> bytes:
    """Headers in HPACK, without a table and without compression."""
    pairs = [(":method", "POST"), (":scheme", "http"), (":path", path)]
    pairs += [(":authority", "localhost"), ("content-type", "application/grpc"), ("te", "trailers")]
    pairs += [("authorization", f"Bearer {token}")] if token else []
    texts = [text.encode() for pair in pairs for text in pair]
    coded = [bytes([len(text)]) + text for text in texts]
    return b"".join(
        b"\0" + name + value for name, value in zip(coded[::2], coded[1::2], strict=True)
    )


def _data(stream: int, content: bytes, *, ends: bool) -> bytes:
    return _frame(0, int(ends), stream, content)


def _calls(call: bytes, content: bytes, *, ends: bool, settings: bytes = b"") -> Step:
    streams = range(1, 2 * STREAMS, 2)
    sent = b"".join(_frame(1, 4, at, call) + _data(at, content, ends=ends) for at in streams)
    return _send(PREFACE + _frame(4, 0, 0, settings) + sent)


def _unread(call: bytes, whole: bytes) -> Step:
    """Complete calls of a client with a flow-control window of 0, so that it accepts no answers."""
    no_window = (4).to_bytes(2, "big") + (0).to_bytes(4, "big")
    return _calls(call, whole[9:], ends=True, settings=no_window)


def _ping(connection: socket.socket) -> None:
    """Sends an acknowledgement and a ping, as a live connection does."""
    connection.sendall(_frame(4, 1, 0, b"") + _frame(6, 0, 0, bytes(8)))


def _field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def _message(model: str) -> bytes:
    """A request for the prediction of node 1."""
    tensor = _field(1, b"node_ids") + _field(2, b"INT64") + _field(3, b"\x01")
    request = _field(1, model.encode()) + _field(5, tensor)
    request += _field(7, (1).to_bytes(8, "little"))
    return b"\0" + len(request).to_bytes(4, "big") + request


class Attack:
    """Slow clients of one kind; they reconnect when the server closes a connection."""

    def __init__(self, slow: Slow, count: int, opened: Opened, pause_s: float = 0.5) -> None:
        self.begun = 0
        self._slow, self._opened, self._pause_s = slow, opened, pause_s
        self._stop = threading.Event()
        self._open: list[socket.socket | None] = [None] * count
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Attack:
        self._round()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        for connection in self._open:
            if connection is not None:
                connection.close()

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s):
            self._round()

    def _round(self) -> None:
        for place, connection in enumerate(self._open):
            try:
                if connection is not None:
                    self._slow.renew(connection)
                    continue
                connection = self._opened()
                # A connection that the server does not read must not block the others.
                connection.settimeout(0.2)
                self._open[place] = connection
                self.begun += 1
                self._slow.begin(connection)
            except TimeoutError:
                continue
            except OSError:
                if connection is not None:
                    connection.close()
                self._open[place] = None


@dataclass(frozen=True)
class Latency:
    """Latency of the good client, in milliseconds."""

    p50: float
    p99: float
    largest: float


class GoodClient:
    """Requests predictions one after the other, over one connection.

    It reconnects when the server closes the connection.
    """

    def __init__(self, url: str, model: str, *, token: str | None = None, root: str | None = None):
        self._address = urlsplit(url)
        self._path = f"/v2/models/{model}/infer"
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._trusted = ssl.create_default_context(cafile=root) if root else None
        ids = {"name": "node_ids", "datatype": "INT64", "shape": [4], "data": [1, 2, 3, 4]}
        self._body = json.dumps({"inputs": [ids]})

    def latency(self, requests: int, pause_s: float = 0.005) -> Latency:
        """The latency over a number of requests; asserts status 200 for each."""
        took = []
        with self._connection() as connection:
            for _ in range(requests):
                began = time.perf_counter()
                connection.request("POST", self._path, self._body, self._headers)
                answer = connection.getresponse()
                content = answer.read()
                took.append(1e3 * (time.perf_counter() - began))
                assert answer.status == 200, content
                time.sleep(pause_s)
        p50, p99 = np.percentile(took, [50, 99])
        return Latency(float(p50), float(p99), max(took))

    @contextmanager
    def _connection(self) -> Iterator[http.client.HTTPConnection]:
        host, port = self._address.hostname, self._address.port
        assert host is not None
        with ExitStack() as stack:
            if self._trusted is None:
                connection = http.client.HTTPConnection(host, port, timeout=30)
            else:
                connection = http.client.HTTPSConnection(
                    host, port, timeout=30, context=self._trusted
                )
            stack.callback(connection.close)
            yield connection
