"""Who may ask a server from where: tokens, their scopes, and TLS."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from email.message import Message
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
import tritonclient.grpc as triton
import trustme
from tritonclient.utils import InferenceServerException

import outercore as oc
from outercore.errors import DeviceError, InvalidError, NotFoundError, UnsupportedError
from outercore.serving.server import Server, ServerConfig
from test_live import CONFIG, random_model, trained
from test_serve import ask

READ, UPDATE = "read-token-0123456789", "update-token-0123456789"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph, a run, tokens and certificates."""
    home: Path = tmp_path_factory.mktemp("access")
    trained(random_model(1, undirected=True).write(home / "graph"), "sage", home / "sage")
    (home / "tokens").write_text(f"# of the tests\nread {READ}\n\nupdate {UPDATE}\n")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(home / "root.pem"))
    for name in ("server", "other"):
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        certificate.private_key_pem.write_to_path(str(home / f"{name}.key"))
        for blob in certificate.cert_chain_pems:
            blob.write_to_path(str(home / f"{name}.pem"), append=True)
    return home


def config(home: Path) -> ServerConfig:
    return replace(
        CONFIG,
        host="0.0.0.0",
        grpc_port=0,
        tokens=home / "tokens",
        tls_cert=home / "server.pem",
        tls_key=home / "server.key",
    )


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    with Server(home / "graph", home / "sage", config(home)) as running:
        yield running


def url(server: Server) -> str:
    """By a name that the certificate has."""
    return server.url.replace("0.0.0.0", "localhost")


def client(server: Server, token: str | None) -> oc.Client:
    return oc.Client(url(server), "sage", token=token)


@pytest.fixture(autouse=True)
def trusted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python trusts the authority of the tests."""
    monkeypatch.setenv("SSL_CERT_FILE", str(home / "root.pem"))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"tokens": None}, "other machines reach 0.0.0.0, expected `tokens`, `tls_cert`"),
        ({"tls_cert": None, "tls_key": None}, "other machines reach 0.0.0.0"),
        ({"tls_key": None}, "tls_cert, tls_key: expected both"),
        ({"tls_cert": None}, "tls_cert, tls_key: expected both"),
        ({"tls_cert": "tokens"}, "tls_cert `.*tokens`: no certificate"),
        ({"tls_key": "tokens"}, "tls_key `.*tokens`"),
        ({"tls_key": "other.key"}, "tls_key `.*other.key`"),
        ({"tokens": "root.pem"}, "tokens `.*root.pem`: line 1: expected `read TOKEN`"),
    ],
)
def test_what_is_not_safe_is_refused_before_it_listens(
    changes: dict[str, str | None], text: str, home: Path
) -> None:
    files = {name: value and home / value for name, value in changes.items()}
    with pytest.raises(InvalidError, match=text):
        Server(home / "graph", home / "sage", replace(config(home), **files))


@pytest.mark.parametrize("name", ["tokens", "tls_cert", "tls_key"])
def test_a_file_that_is_not_there_is_named(name: str, home: Path) -> None:
    changed = replace(config(home), **{name: home / "nowhere"})
    with pytest.raises(NotFoundError, match=f"{name} `.*nowhere`"):
        Server(home / "graph", home / "sage", changed)


def test_a_token_allows_what_its_scope_says(server: Server) -> None:
    with client(server, READ) as reader, client(server, UPDATE) as writer:
        assert reader.predict([1, 2]).lsn == 0
        assert reader.graph()["lsn"] == 0
        for refused in (lambda: reader.add_edge(1, 2), reader.compact):
            with pytest.raises(
                UnsupportedError, match="status 403: this token is for reading alone"
            ):
                refused()
        written = writer.add_edge(1, 2)
        assert writer.predict([1, 2], min_lsn=written.lsn).lsn == written.lsn
        assert writer.compact() == written.lsn


@pytest.mark.parametrize("token", [None, "another-token-0123456789"])
def test_without_a_known_token_only_the_health_is_told(token: str | None, server: Server) -> None:
    with client(server, token) as stranger:
        assert stranger.is_ready()
        for asked in (
            lambda: stranger.predict([1]),
            stranger.graph,
            lambda: stranger.add_edge(1, 2),
        ):
            with pytest.raises(UnsupportedError, match="status 401: expected the header"):
                asked()
    status, answer = ask_other_host(server, token)
    assert status == 401
    assert answer["WWW-Authenticate"] == "Bearer"


def test_with_a_token_the_host_may_have_any_name(server: Server) -> None:
    """A proxy passes on the name that its clients use."""
    assert ask_other_host(server, READ)[0] == 200


def ask_other_host(server: Server, token: str | None) -> tuple[int, Message]:
    request = Request(f"{url(server)}/metrics", headers={"Host": "graph.example"})
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers
    except HTTPError as error:
        return error.code, error.headers


def test_grpc_has_the_same_tokens_and_certificates(server: Server, home: Path) -> None:
    assert server.grpc_address is not None
    address = server.grpc_address.replace("0.0.0.0", "localhost")
    root = str(home / "root.pem")
    nodes = triton.InferInput("node_ids", [2], "INT64")
    nodes.set_data_from_numpy(np.array([1, 2]))
    with triton.InferenceServerClient(address, ssl=True, root_certificates=root) as caller:
        assert caller.is_server_live()
        assert caller.is_server_ready()
        bearer = {"authorization": f"Bearer {READ}"}
        found = caller.infer("sage", [nodes], headers=bearer).as_numpy("prediction")
        with client(server, READ) as reader:
            assert (found == reader.predict([1, 2]).prediction).all()
        for headers in ({}, {"authorization": "Bearer another-token-0123456789"}):
            with pytest.raises(InferenceServerException, match="UNAUTHENTICATED"):
                caller.infer("sage", [nodes], headers=headers)


def test_a_client_without_tls_or_without_trust_gets_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        oc.Client(url(server).replace("https", "http"), "sage", token=READ) as plain,
        pytest.raises(DeviceError),
    ):
        plain.predict([1])
    monkeypatch.delenv("SSL_CERT_FILE")
    with client(server, READ) as doubting, pytest.raises(DeviceError, match="certificate"):
        doubting.predict([1])


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_is_1_2_or_1_3_and_names_the_protocol(version: ssl.TLSVersion, server: Server) -> None:
    context = ssl.create_default_context()
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    port = int(server.url.rsplit(":", 1)[1])
    with (
        socket.create_connection(("localhost", port), timeout=30) as connection,
        context.wrap_socket(connection, server_hostname="localhost") as encrypted,
    ):
        assert encrypted.selected_alpn_protocol() == "http/1.1"


def test_on_loopback_tokens_are_enough(home: Path) -> None:
    chosen = replace(CONFIG, tokens=home / "tokens", updates=False)
    with Server(home / "graph", home / "sage", chosen) as running:
        assert running.url.startswith("http://127.0.0.1:")
        assert ask(running, "/openapi.json")[0] == 401
        with oc.Client(running.url, "sage", token=READ) as reader:
            found = reader._ask("GET", "/openapi.json", is_read=True)
    assert found["components"]["securitySchemes"] == {
        "bearer": {"type": "http", "scheme": "bearer"}
    }
    needed = {
        path for path, item in found["paths"].items() if "security" in next(iter(item.values()))
    }
    assert set(found["paths"]) - needed == {"/v2/health/live", "/v2/health/ready"}


def test_without_tokens_the_description_asks_for_none(home: Path) -> None:
    with Server(home / "graph", home / "sage", replace(CONFIG, updates=False)) as running:
        _, found = ask(running, "/openapi.json")
    assert "securitySchemes" not in found["components"]
    assert "security" not in found["paths"]["/graph"]["get"]


def test_a_token_is_never_part_of_a_refusal(home: Path, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"reads {READ}\n")
    command = [sys.executable, "-m", "outercore", "serve", home / "graph", "--model", home / "sage"]
    done = subprocess.run(
        [*command, "--tokens", tmp_path / "tokens"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "line 1: expected `read TOKEN` or `update TOKEN`" in done.stderr
    assert READ not in done.stderr + done.stdout


def test_a_token_that_is_no_text_is_refused_by_the_client() -> None:
    with pytest.raises(InvalidError, match="token: expected printable ASCII"):
        oc.Client("https://localhost", "sage", token="a\r\nHost: b")
