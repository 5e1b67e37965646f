"""Predictions over HTTP, next to the data."""

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
    """Where a server listens, and what it takes."""

    updates: Annotated[bool, Option("Let clients change the graph.")] = False
    """The data set is held by this server then."""
    analyses: Annotated[
        str | int | None,
        Option("Memory for algorithms over the graph, beside --memory; none without."),
    ] = None
    precision: Annotated[
        Literal["float32", "int8"], Option("Numbers of the network: `float32` or `int8`.")
    ] = "float32"
    """int8 is compared with float32 at the start."""
    most_loss: Annotated[
        float, Option("Most points that int8 may lose beside float32.", least=0)
    ] = 0.5
    """See `Server.loss`."""
    memory: Annotated[
        str | int, Option("Memory budget: `8GiB`, `25%` of the machine, or `auto`.", size=True)
    ] = "1GiB"
    threads: Annotated[int | None, Option("Threads; all cores by default.")] = None
    """Those that sample and compute."""
    host: Annotated[
        str, Option("Address to listen on; others than loopback need tokens and TLS.")
    ] = "127.0.0.1"
    port: Annotated[int, Option("Port; 0 picks a free one.", least=0, most=65535)] = 8100
    grpc_port: Annotated[
        int | None, Option("Port for gRPC, too; 0 picks a free one.", least=0, most=65535)
    ] = None
    tokens: Annotated[
        os.PathLike[str] | str | None, Option("File of lines `read TOKEN` or `update TOKEN`.")
    ] = None
    """With it every request needs one of these; those of `read` cannot change the graph."""
    tls_cert: Annotated[os.PathLike[str] | str | None, Option("PEM file of the certificates.")] = (
        None
    )
    """The server's, and those that lead to its root; clients speak TLS."""
    tls_key: Annotated[os.PathLike[str] | str | None, Option("PEM file of the private key.")] = None
    queue: Annotated[int, Option("Requests that may wait; more get status 429.", least=1)] = 256
    most_nodes: Annotated[int, Option("Most nodes of a request.", least=1)] = 256
    deadline_ms: Annotated[
        int, Option("Longest time for a request in ms, waiting included.", least=1)
    ] = 1000
    """A request may ask for less."""
    reorder: bool = True
    """Whether waiting requests are answered in an order that brings common nodes together (GLIST
    4.2.1). No answer depends on this or on the next two; they are there to be measured."""
    group: int = 0
    """Most requests whose rows are read together; 0 means as many as the budget has room for."""
    states: str | int | None = None
    """Part of the budget for first-layer states that later requests use again; 0 keeps none, None
    means an eighth, or less where the rest would be too small."""

    def native(self) -> dict[str, Any]:
        """The options as the core takes them."""
        states = parse_size(self.states, "states") if self.states else self.states
        analyses = None if self.analyses is None else parse_size(self.analyses, "analyses")
        sizes = {"memory": parse_size(self.memory), "states": states, "analyses": analyses}
        values = {**self.__dict__, **sizes, "threads": self.threads or 0}
        return {
            name: os.fspath(value) if isinstance(value, os.PathLike) else value
            for name, value in values.items()
        }


@dataclass(frozen=True, kw_only=True)
class Loss:
    """How much worse int8 answers than float32."""

    measure: str
    """`accuracy`, `f1_micro`, `roc_auc` or `rmse` where labels are known; else `changed` for the
    share of predictions that differ, or `difference` for numbers."""
    points: float
    """Hundredths of the score, or percent; above 0 where int8 is worse."""
    sample: int
    """Nodes, pairs or graphs that were compared."""
    text: str
    """For people."""


class Server:
    """Serves a trained model within this process until it is stopped; a context manager.

    Requests follow the Open Inference Protocol 2: `POST /v2/models/NAME/infer` with the input
    `node_ids`. With `updates`, `POST /graph/updates` changes the graph.

    Source: GLIST 3 and table 3.
    """

    def __init__(
        self,
        data_set: str | os.PathLike[str],
        run: str | os.PathLike[str],
        config: ServerConfig | None = None,
    ) -> None:
        """Load the model, keep what the budget has room for, and listen.

        Args:
            data_set: what the model was trained on, or another one with the same features.
            run: run directory of `outercore train`, whose name is the model's, or the directory of
                an exported model. A run that was not exported yet is exported first, which needs
                PyTorch.
            config: see `ServerConfig`.

        Raises:
            NotFoundError: the run has no model.
            UnsupportedError: the model was trained with an option that a server does not know.
            InvalidError: the model does not fit the data set; int8 loses more than it may; the host
                needs tokens and TLS; what should be tokens or certificates is something else.
            BudgetError: the budget is too small; the message says what would do.
            DeviceError: the port is taken.
        """
        self.name, model = model_of(Path(run))
        self._is_checked = require_known_options(model)
        self._model = model
        chosen = config or ServerConfig()
        self._core = _core.Server(os.fspath(data_set), os.fspath(model), self.name, chosen.native())
        # A forked child has none of the threads that `stop` waits for.
        self._process = os.getpid()

    @property
    def url(self) -> str:
        """Where it answers, such as `http://127.0.0.1:8100`."""
        scheme = "https" if self._core.is_encrypted() else "http"
        return f"{scheme}://{self._core.address()}"

    @property
    def grpc_address(self) -> str | None:
        """Where it answers over gRPC, such as `127.0.0.1:8101`."""
        return self._core.grpc_address()

    @property
    def plan(self) -> dict[str, Any]:
        """How the budget is divided, in bytes."""
        return self._core.plan()

    @property
    def loss(self) -> Loss | None:
        """What int8 loses beside float32 on a sample of the data set; `None` for float32."""
        found = self._core.loss()
        return found and Loss(**found[0], text=found[1])

    @property
    def ended(self) -> bool:
        """Whether it has ended; where it did so by itself, `stop` raises why."""
        return self._core.has_ended()

    @property
    def notice(self) -> str | None:
        """What the operator should know: why a layout of the features is not used, or that the
        model says nothing of the options of its training."""
        unknown = (
            f"model `{self._model}` was exported by an earlier release, which dropped `--time` in "
            "silence: if it was trained by times, its answers are wrong; export it again to be "
            "sure"
        )
        found = [self._core.notice(), None if self._is_checked else unknown]
        return "; ".join(filter(None, found)) or None

    def take_failures(self) -> list[str]:
        """What went wrong since the last call; clients are told only that something did."""
        return self._core.take_failures()

    def stop(self) -> None:
        """Take no new requests, answer those that wait, and free everything.

        Does nothing in a process forked from the server's.
        """
        if self._process == os.getpid():
            self._core.stop()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
