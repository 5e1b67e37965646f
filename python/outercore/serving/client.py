"""A client of `outercore serve`: NumPy in, NumPy out, and the errors of this package."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from io import BytesIO
from typing import Any, Literal
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outercore.base.display import ShortRepr
from outercore.errors import (
    BudgetError,
    DeviceError,
    InternalError,
    InvalidError,
    NoSpaceError,
    NotFoundError,
    OutercoreError,
    UnsupportedError,
)

_MOST_PAUSE_S = 1.0
"""Longest pause between two requests for the progress of an analysis."""

_DTYPES = {"INT64": np.int64, "FP32": np.float32}

_ERRORS: dict[int, type[OutercoreError]] = {
    400: InvalidError,
    401: UnsupportedError,
    403: UnsupportedError,
    404: NotFoundError,
    405: UnsupportedError,
    408: DeviceError,
    409: InvalidError,
    412: InvalidError,
    413: InvalidError,
    415: InvalidError,
    429: BudgetError,
    503: DeviceError,
    504: DeviceError,
    507: NoSpaceError,
}


@dataclass(frozen=True, repr=False)
class Prediction(ShortRepr):
    """Predictions for nodes, edges or graphs, and the version of the graph."""

    outputs: dict[str, NDArray[Any]]
    """Arrays by name. The model decides which of `prediction`, `probability`, `score` it has."""
    seed: int
    lsn: int
    """Number of the last update that the prediction includes."""
    version: str
    """Version of the model."""
    age_ms: int | None = None
    """Milliseconds since a server without updates read the graph. `None` for a server with updates:
    its predictions include all of them."""

    @property
    def prediction(self) -> NDArray[Any]:
        """A class, labels or numbers for each node or graph."""
        return self.outputs["prediction"]

    @property
    def probability(self) -> NDArray[Any]:
        """The probability of each class, label or edge, float32."""
        return self.outputs["probability"]

    @property
    def score(self) -> NDArray[Any]:
        """The score of each edge, float32. A likelier edge has a higher score."""
        return self.outputs["score"]


@dataclass(frozen=True)
class Acknowledged:
    """The answer to a request with updates. It arrives when they are durable."""

    lsn: int
    """Number of the updates. A prediction with this `min_lsn` includes them."""
    results: list[dict[str, Any]]
    """A dictionary for each update. It has the new id as `node` or `edge`, the ids `graph` and
    `first_node` of a new graph, the number of `removed` edges, or `updated`."""


@dataclass(frozen=True, repr=False)
class Analysis(ShortRepr):
    """The result of an algorithm on the whole graph."""

    values: NDArray[Any]
    """One value a node, by node id, in the dtype of the function in `outercore.analytics`."""
    facts: dict[str, Any]
    """Further results, such as iterations and components."""
    lsn: int
    """Number of the last update that the result includes."""


class Client:
    """Asks a server for predictions, and changes its graph; a context manager.

    It keeps one connection open, so only one thread may use it at a time.

    Example:
        with oc.Client("http://127.0.0.1:8100", "first") as client:
            written = client.add_edge(7, 9)
            classes = client.predict([7, 9], min_lsn=written.lsn).prediction
    """

    def __init__(
        self, url: str, model: str, *, token: str | None = None, timeout_s: float = 60.0
    ) -> None:
        """Makes a client. It connects to the server at its first request.

        Args:
            url: address of the server, such as `http://127.0.0.1:8100`.
            model: name of the model.
            token: the secret of this client, for a server with `tokens`. The certificate of an
                `https://` server is checked against the certificates that Python trusts, or against
                `SSL_CERT_FILE`.
            timeout_s: seconds to wait if the server sends nothing.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidError(f"url: expected `http://HOST:PORT`, found `{url}`")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise InvalidError("token: expected printable ASCII characters")
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=timeout_s)
        self._url = url
        self._path = parts.path.rstrip("/")
        self._model = model
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._input: str | None = None

    def predict(
        self,
        ids: ArrayLike | None = None,
        *,
        x: ArrayLike | None = None,
        edge_index: ArrayLike | None = None,
        batch: ArrayLike | None = None,
        edge_directions: Literal["one", "both"] | None = None,
        seed: int = 0,
        min_lsn: int = 0,
        deadline_ms: int | None = None,
    ) -> Prediction:
        """Predicts for nodes, edges or graphs. The training of the model decides which.

        `x`, `edge_index` and `batch` add inline nodes, edges and graphs, which only this prediction
        sees. In `edge_index` and `ids`, inline node k has the id `-1 - k`, in NumPy `~k`. If the
        model predicts graphs, it has the id k in `edge_index`, as in PyG.

        Args:
            ids: ids of nodes or graphs, or pairs of nodes for edges, n x 2. By default all inline
                nodes or graphs are predicted.
            x: features of inline nodes, n x columns, float32 or int64 categories.
            edge_index: sources and targets of inline edges, 2 x m; one end is an inline node.
            batch: number of the graph of each inline node, ascending from 0. By default all inline
                nodes are in one graph.
            edge_directions: how `edge_index` lists the edges of an undirected data set. `"both"`:
                each edge in both directions, as in PyG. `"one"`: each edge once. Required if an
                edge is listed in both directions.
            seed: seed of the sampler. The same seed and graph give the same answer, bit for bit.
            min_lsn: number of an update that the answer must include: `Acknowledged.lsn`.
            deadline_ms: longest time for the answer; by default the limit of the server.

        Raises:
            NotFoundError: an unknown model, or a removed node.
            InvalidError: a node out of range, tensors of another shape or type than the model's, or
                a graph that is older than `min_lsn`.
            BudgetError: too many requests wait.
            DeviceError: the deadline passed; no connection.
        """
        inputs = {"ids": ids, "x": x, "edge_index": edge_index, "batch": batch}
        tensors = {name: np.asarray(value) for name, value in inputs.items() if value is not None}
        for name, tensor in tensors.items():
            if name != "x" and not np.issubdtype(tensor.dtype, np.integer):
                raise InvalidError(
                    f"{name}: expected whole numbers, found {tensor.dtype} {tensor.shape}"
                )
        path = f"/v2/models/{quote(self._model, safe='')}"
        if self._input is None:
            self._input = self._ask("GET", path, is_read=True)["inputs"][0]["name"]
        parameters = {
            "seed": seed,
            "min_lsn": min_lsn,
            "deadline_ms": deadline_ms,
            "edge_directions": edge_directions,
        }
        body = {
            "parameters": {key: value for key, value in parameters.items() if value is not None},
            "inputs": [
                _tensor(self._input if name == "ids" else name, tensor)
                for name, tensor in tensors.items()
            ],
        }
        answer = self._ask("POST", f"{path}/infer", body, is_read=True)
        return Prediction(
            outputs={output["name"]: _array(output) for output in answer["outputs"]},
            seed=answer["parameters"]["seed"],
            lsn=answer["parameters"]["lsn"],
            version=answer["model_version"],
            age_ms=answer["parameters"].get("age_ms"),
        )

    def update(
        self, updates: Sequence[Mapping[str, Any]], *, key: str | None = None
    ) -> Acknowledged:
        """Changes the graph. All updates take effect together, and are durable afterwards.

        Args:
            updates: dictionaries such as `{"op": "remove_node", "node": 7}`; the guide on serving
                lists them.
            key: a unique name for this request, at most 64 bytes. If a request has the key of an
                earlier one, the server repeats its first answer and changes nothing. So you can
                safely repeat a request after a lost connection.

        Raises:
            InvalidError: an update is wrong; nothing has changed.
            NotFoundError: a removed node or graph; nothing has changed.
            UnsupportedError: the server takes no updates, or none with this token.
            BudgetError: too many updates wait; nothing has changed.
            NoSpaceError: the disk is full; nothing has changed.
            DeviceError: the disk or the connection failed. Without an answer, or if the message
                says so, the updates may have taken effect.
        """
        named = {} if key is None else {"key": key}
        answer = self._ask("POST", "/graph/updates", {"updates": list(updates), **named})
        return Acknowledged(answer["lsn"], answer["results"])

    def add_edge(
        self, source: int, target: int, values: Mapping[str, ArrayLike] | None = None
    ) -> Acknowledged:
        """Adds an edge, with its `values` by array name; see `update`."""
        edge = {"source": source, "target": target, "values": values or {}}
        return self.update([{"op": "add_edge", **edge}])

    def remove_edge(self, source: int, target: int) -> Acknowledged:
        """Removes all edges from `source` to `target`; see `update`."""
        return self.update([{"op": "remove_edge", "source": source, "target": target}])

    def add_node(
        self, values: Mapping[str, ArrayLike], *, graph: int | None = None
    ) -> Acknowledged:
        """Adds a node, with its features and other `values` by array name; see `update`.

        `graph` is the id of its graph, in a data set of many graphs.
        """
        joined = {} if graph is None else {"graph": graph}
        return self.update([{"op": "add_node", "values": values, **joined}])

    def remove_node(self, node: int) -> Acknowledged:
        """Removes a node and its edges; see `update`."""
        return self.update([{"op": "remove_node", "node": node}])

    def update_node(self, node: int, values: Mapping[str, ArrayLike]) -> Acknowledged:
        """Replaces values of a node; `values` has them by array name. See `update`."""
        return self.update([{"op": "update_node", "node": node, "values": values}])

    def register_graph(
        self,
        nodes: Sequence[Mapping[str, ArrayLike]],
        edges: ArrayLike,
        values: Mapping[str, ArrayLike] | None = None,
    ) -> Acknowledged:
        """Adds a graph to a data set of many graphs; see `update`. The result has its id, `graph`.

        Args:
            nodes: for each node, its values by array name; `{}` for a node without values.
            edges: positions of both ends of each edge in `nodes`, m x 2. For edges with values
                call `update`.
            values: values of the graph by array name, such as its label `y`.
        """
        ends = np.asarray(edges, np.int64).reshape(-1, 2).tolist()
        graph = {
            "values": values or {},
            "nodes": list(nodes),
            "edges": [{"source": source, "target": target} for source, target in ends],
        }
        return self.update([{"op": "register_graph", **graph}])

    def unregister_graph(self, graph: int) -> Acknowledged:
        """Removes a graph with its nodes and edges, in a data set of many graphs; see `update`."""
        return self.update([{"op": "unregister_graph", "graph": graph}])

    def analyse(
        self,
        algorithm: str,
        *,
        progress: Callable[[str, int, int, str], None] | None = None,
        **options: Any,
    ) -> Analysis:
        """Runs an algorithm over the whole current graph on the server, and returns its result.

        Ctrl-C, or an error in `progress`, cancels the analysis on the server.

        Args:
            algorithm: name of a function of `outercore.analytics`, such as `"pagerank"`.
            progress: called during the analysis as `progress(phase, done, total, unit)`.
            options: options of this function, such as `damping=0.85`.

        Raises:
            InvalidError: an unknown algorithm or option, a value out of range, a failed analysis.
            UnsupportedError: the server takes no analyses, or none with this token.
            BudgetError: too many analyses wait.
            DeviceError: no connection.
        """
        path = "/graph/analyses"
        path = f"{path}/{self._ask('POST', path, {'algorithm': algorithm, **options})['id']}"
        try:
            analysis = self._awaited(path, progress)
            content = self._content(f"{path}/values")
        finally:
            self._send("DELETE", path, None, is_read=False)
        values = np.load(BytesIO(content), allow_pickle=False)
        return Analysis(values, analysis.get("facts", {}), analysis["lsn"])

    def _awaited(
        self, path: str, progress: Callable[[str, int, int, str], None] | None
    ) -> dict[str, Any]:
        """Waits for the end of the analysis at `path`, and returns its state."""
        pause_s = 0.01
        while True:
            state: dict[str, Any] = self._ask("GET", path, is_read=True)
            if state["state"] == "done":
                return state
            if state["state"] == "failed":
                raise InvalidError(f"{path}: {state['error']}")
            if progress is not None and "progress" in state:
                progress(*(state["progress"][key] for key in ("phase", "done", "total", "unit")))
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    def graph(self) -> dict[str, Any]:
        """The size and state of the graph. `lsn` is the number of the last durable update."""
        described: dict[str, Any] = self._ask("GET", "/graph", is_read=True)
        return described

    def compact(self) -> int:
        """Writes all acknowledged updates into the arrays; returns the number of the last one."""
        return int(self._ask("POST", "/graph/compact", {})["lsn"])

    def load(self) -> str:
        """Makes the server read its model again, and returns the new version of the model.

        The server reads the new weights from the directory that it was started with.
        `outercore export-model RUN --out DIRECTORY --overwrite` writes them there.

        Raises:
            InvalidError: the directory has no complete model, or a model of another shape. Such a
                model needs a new server.
            UnsupportedError: the token is only for reading.
            DeviceError: no connection, or the server is stopping.
        """
        self._ask("POST", f"/v2/repository/models/{quote(self._model, safe='')}/load", {})
        (model,) = self._ask("POST", "/v2/repository/index", {}, is_read=True)
        version: str = model["version"]
        return version

    def is_ready(self) -> bool:
        """Whether the server takes requests.

        Raises:
            DeviceError: no connection.
        """
        status, _ = self._send("GET", "/v2/health/ready", None, is_read=True)
        return status == 200

    def close(self) -> None:
        """Closes the connection. A later request opens a new one."""
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, method: str, path: str, body: Any = None, *, is_read: bool = False) -> Any:
        text = None if body is None else json.dumps(body, default=_plain).encode()
        status, content = self._send(method, path, text, is_read=is_read)
        return json.loads(_content_of(path, status, content))

    def _content(self, path: str) -> bytes:
        return _content_of(path, *self._send("GET", path, None, is_read=True))

    def _send(
        self, method: str, path: str, body: bytes | None, *, is_read: bool
    ) -> tuple[int, bytes]:
        """Sends a request and returns status and content of the answer.

        Repeats a read once if the connection was lost.
        """
        is_open = self._connection.sock is not None
        if is_open and select.select([self._connection.sock], [], [], 0)[0]:
            # A readable idle connection was closed by the server, which would not answer.
            self.close()
            is_open = False
        may_repeat = is_read and is_open
        kind = {"Content-Type": "application/json"} if body is not None else {}
        while True:
            try:
                self._connection.request(method, self._path + path, body, self._headers | kind)
                answer = self._connection.getresponse()
                return answer.status, answer.read()
            except (HTTPException, OSError) as error:
                self.close()
                if not (may_repeat and isinstance(error, ConnectionError)):
                    raise DeviceError(f"{self._url}: {error or type(error).__name__}") from error
                may_repeat = False


def _content_of(path: str, status: int, content: bytes) -> bytes:
    """The content of an answer. Raises the error for the status of a refused request."""
    if 200 <= status < 300:
        return content
    try:
        reason = json.loads(content)["error"]
    except (ValueError, TypeError, KeyError):
        reason = content[:200].decode(errors="replace") or "no reason was given"
    raise _ERRORS.get(status, InternalError)(f"{path}: status {status}: {reason}")


def _array(output: Mapping[str, Any]) -> NDArray[Any]:
    return np.array(output["data"], _DTYPES[output["datatype"]]).reshape(output["shape"])


def _tensor(name: str, values: NDArray[Any]) -> dict[str, Any]:
    datatype = {"i": "INT64", "u": "UINT64", "b": "BOOL"}.get(values.dtype.kind, "FP32")
    return {
        "name": name,
        "datatype": datatype,
        "shape": list(values.shape),
        "data": values.ravel().tolist(),
    }


def _plain(value: Any) -> Any:
    """Converts a mapping, or a value of NumPy, for JSON."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise InvalidError(f"expected a value for JSON, found {value!r:.80}")
