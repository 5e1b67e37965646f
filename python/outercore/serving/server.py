"""A server of predictions over HTTP and gRPC."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from outercore import _core
from outercore.base.options import Option
from outercore.base.sizes import parse_size
from outercore.training.exported import model_of, require_known_options


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Addresses, limits and memory of a server."""

    updates: Annotated[bool, Option("Let clients change the graph.")] = False
    """A server with updates locks the data set."""
    analyses: Annotated[
        str | int | None,
        Option(
            "Let clients run graph algorithms within this memory, in addition to --memory. By "
            "default, they cannot."
        ),
    ] = None
    precision: Annotated[
        Literal["float32", "int8"], Option("Compute the network in `float32` or `int8`.")
    ] = "float32"
    """At its start, the server compares the predictions of int8 with those of float32."""
    most_loss: Annotated[
        float,
        Option(
            "Refuse int8 if its score is more than this many points worse than the score of "
            "float32.",
            least=0,
        ),
    ] = 0.5
    """See `Server.loss`."""
    memory: Annotated[
        str | int,
        Option(
            "Memory budget for data: a size such as `8GiB`, `25%` of the machine's memory, or "
            "`auto` for half of the free memory.",
            size=True,
        ),
    ] = "1GiB"
    threads: Annotated[
        int | None, Option("Number of threads. The default is one for each core.")
    ] = None
    """Threads that sample and compute."""
    host: Annotated[
        str, Option("Listen on this address. Addresses other than loopback need tokens and TLS.")
    ] = "127.0.0.1"
    port: Annotated[
        int, Option("Listen on this port. 0 picks a free port.", least=0, most=65535)
    ] = 8100
    grpc_port: Annotated[
        int | None,
        Option("Also serve gRPC, on this port. 0 picks a free port.", least=0, most=65535),
    ] = None
    tokens: Annotated[
        os.PathLike[str] | str | None,
        Option("Require a token from this file, which has lines `read TOKEN` or `update TOKEN`."),
    ] = None
    """With this file, every request needs a token. A `read` token cannot change the graph."""
    tls_cert: Annotated[
        os.PathLike[str] | str | None, Option("PEM file with the certificates of the server.")
    ] = None
    """The file has the certificate of the server and its chain. With it, clients use TLS."""
    tls_key: Annotated[
        os.PathLike[str] | str | None, Option("PEM file with the private key of the server.")
    ] = None
    queue: Annotated[
        int,
        Option("Let at most this many requests wait. Further requests get status 429.", least=1),
    ] = 256
    most_nodes: Annotated[int, Option("Accept at most this many nodes in a request.", least=1)] = (
        256
    )
    deadline_ms: Annotated[
        int,
        Option(
            "Answer a request within this many milliseconds, including its wait in the queue.",
            least=1,
        ),
    ] = 1000
    """A request may ask for a shorter time."""
    reorder: bool = True
    """Whether the queue is ordered so that requests with common nodes run together (GLIST
    paper, section 4.2.1). This field and the next two change no answer; benchmarks compare them."""
    group: int = 0
    """Maximum number of requests whose rows are read together. 0: as many as the budget allows."""
    states: str | int | None = None
    """Part of the budget for first-layer states that later requests reuse. 0 stores none; `None`
    takes an eighth of the budget, or less if the rest would be too small."""

    def native(self) -> dict[str, Any]:
        """The configuration for the core."""
        states = parse_size(self.states, "states") if self.states else self.states
        analyses = None if self.analyses is None else parse_size(self.analyses, "analyses")
        sizes = {"memory": parse_size(self.memory), "states": states, "analyses": analyses}
        fields = {**self.__dict__, **sizes, "threads": self.threads or 0}
        return {
            name: os.fspath(value) if isinstance(value, os.PathLike) else value
            for name, value in fields.items()
        }


@dataclass(frozen=True, kw_only=True)
class Loss:
    """How much worse a model predicts with int8 than with float32."""

    measure: str
    """`accuracy`, `f1_micro`, `roc_auc` or `rmse` if labels are known. Without labels: `changed`,
    the share of predictions that differ, or `difference` of predicted numbers."""
    points: float
    """The loss in hundredths of the score, or in percent; above 0 if int8 is worse."""
    sample: int
    """Number of compared nodes, pairs or graphs."""
    text: str
    """The loss as a sentence for people."""


class Server:
    """Serves a trained model within this process until it is stopped; a context manager.

    Requests follow the Open Inference Protocol 2: `POST /v2/models/NAME/infer` with the input
    `node_ids`. With `updates`, `POST /graph/updates` changes the graph.

    Source: the GLIST paper, section 3 and table 3.
    """

    def __init__(
        self,
        data_set: str | os.PathLike[str],
        run: str | os.PathLike[str],
        config: ServerConfig | None = None,
    ) -> None:
        """Load the model, fill the caches within the budget, and listen.

        Args:
            data_set: the data set of the training, or another with the same features.
            run: run directory of `outercore train`, whose name is the model's, or the directory of
                an exported model. A run without an export is exported first, which needs
                PyTorch.
            config: see `ServerConfig`.

        Raises:
            NotFoundError: a run without a model.
            UnsupportedError: the model was trained with an option that servers do not support.
            InvalidError: the model does not fit the data set; int8 loses too much; the host needs
                tokens and TLS; a file of tokens or certificates is malformed.
            BudgetError: the budget is too small; the message names a sufficient one.
            DeviceError: the port is taken.
        """
        self.name, model = model_of(Path(run))
        require_known_options(model)
        chosen = config or ServerConfig()
        self._core = _core.Server(os.fspath(data_set), os.fspath(model), self.name, chosen.native())
        # `stop` waits for threads, which a forked child does not have.
        self._process = os.getpid()

    @property
    def url(self) -> str:
        """HTTP address, such as `http://127.0.0.1:8100`."""
        scheme = "https" if self._core.is_encrypted() else "http"
        return f"{scheme}://{self._core.address()}"

    @property
    def grpc_address(self) -> str | None:
        """gRPC address, such as `127.0.0.1:8101`."""
        return self._core.grpc_address()

    @property
    def plan(self) -> dict[str, Any]:
        """The parts of the memory budget, in bytes."""
        return self._core.plan()

    @property
    def loss(self) -> Loss | None:
        """Loss of int8 against float32 on a sample of the data set; `None` for float32."""
        loss = self._core.loss()
        return loss and Loss(**loss[0], text=loss[1])

    @property
    def ended(self) -> bool:
        """Whether the server has ended. After a failure `stop` raises the reason."""
        return self._core.has_ended()

    @property
    def notice(self) -> str | None:
        """A warning for the operator, such as why a layout of the features is not used."""
        return self._core.notice()

    def take_failures(self) -> list[str]:
        """The failures since the last call, with details that clients do not get."""
        return self._core.take_failures()

    def stop(self) -> None:
        """Refuse new requests, answer the waiting requests, and free all memory.

        Does nothing in a forked copy of the server's process.
        """
        if self._process == os.getpid():
            self._core.stop()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
