"""What the outbound client says, takes and refuses, by value: its request, TLS with a checked name, each sentence."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.utils import translation

from tests.certificates import certificate
from training import connections
from training.errors import EnvironmentProtocolError, EnvironmentTimeout, EnvironmentUnreachable, TiltyardError
from webapp.common import outbound
from webapp.common.outbound import OutboundRefused, access, fetch, target_of

Serve = Callable[..., int]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def heard() -> list[bytes]:
    """The requests that servers of the test have read."""
    return []


@pytest.fixture
def serve(heard: list[bytes], settings: Any) -> Iterator[Serve]:
    """``serve(answer, tls)``: a server on 127.0.0.1 that may be reached; returns its port."""
    listeners: list[socket.socket] = []
    settings.OUTBOUND_ALLOW = []

    def talk(listener: socket.socket, answer: bytes, context: ssl.SSLContext | None) -> None:
        while True:
            try:
                peer, _address = listener.accept()
                with context.wrap_socket(peer, server_side=True) if context else peer as stream:
                    request = b""
                    while b"\r\n\r\n" not in request and (part := stream.recv(65536)):
                        request += part
                    heard.append(request)
                    stream.sendall(answer)
            except ssl.SSLError:
                continue
            except OSError:
                return

    def make(answer: bytes = OK, context: ssl.SSLContext | None = None) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threading.Thread(target=talk, args=(listener, answer, context), daemon=True).start()
        port: int = listener.getsockname()[1]
        settings.OUTBOUND_ALLOW = [*settings.OUTBOUND_ALLOW, f"127.0.0.1:{port}", f"tls.example:{port}"]
        return port

    yield make
    for listener in listeners:
        listener.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """Every request that would go out; each is answered, and nothing is connected."""
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, stream=httpx.ByteStream(b"ok"))

    monkeypatch.setattr(connections, "_transport", lambda *_given: httpx.MockTransport(answer))
    return requests


def _here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def test_the_request_is_this_and_nothing_else(serve: Serve, heard: list[bytes]) -> None:
    port = serve()
    reply = fetch(f"http://127.0.0.1:{port}/health", token="secret")
    assert reply[:2] == (200, b"ok")
    assert heard == [
        f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept-Encoding: identity\r\n"
        "User-Agent: tiltyard\r\nConnection: close\r\nAccept: application/json\r\n"
        "Authorization: Bearer secret\r\n\r\n".encode()
    ]
    fetch(f"http://127.0.0.1:{port}/")
    assert b"Authorization" not in heard[1]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://a.example/", "a.example"),
        ("http://a.example:8000/", "a.example:8000"),
        ("https://a.example/", "a.example"),
        ("https://a.example:80/", "a.example:80"),
        ("http://[::1]/", "[::1]"),
        ("http://[::1]:8000/", "[::1]:8000"),
    ],
)
def test_the_host_is_named_with_its_port_where_it_is_unusual(
    url: str, host: str, asked: list[httpx.Request], settings: Any
) -> None:
    settings.OUTBOUND_ALLOW = ["[::1]:80", "[::1]:8000"]
    assert fetch(url, resolve=lambda host, port: ["93.184.215.14"])[:2] == (200, b"ok")
    assert asked[0].headers["host"] == host and asked[0].url.host in ("93.184.215.14", "::1")


@pytest.mark.parametrize(("status", "body"), [(400, b"what"), (404, b"gone"), (500, b""), (200, b"x" * 1024**2)])
def test_what_a_server_answers_is_given_back(serve: Serve, status: int, body: bytes) -> None:
    port = serve(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    assert fetch(f"http://127.0.0.1:{port}/")[:2] == (status, body)


REDIRECTS = "The server redirects elsewhere, and redirects are not followed."


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (b"nonsense\r\n\r\n", EnvironmentProtocolError, "The server's answer is not HTTP."),
        (b"HTTP/1.1 300 X\r\n\r\n", EnvironmentProtocolError, REDIRECTS),
        (b"HTTP/1.1 399 X\r\n\r\n", EnvironmentProtocolError, REDIRECTS),
        (
            b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (1024**2 + 1),
            EnvironmentProtocolError,
            "The server's answer is larger than 1 MB.",
        ),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 40_000, EnvironmentProtocolError, "The server's answer is not HTTP."),
    ],
)
def test_each_refusal_has_its_sentence(serve: Serve, answer: bytes, error: type[TiltyardError], message: str) -> None:
    with pytest.raises(error) as caught:
        fetch(f"http://127.0.0.1:{serve(answer)}/")
    assert caught.value.message == message


def test_an_answer_that_never_comes_is_too_slow(serve: Serve, settings: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        settings.OUTBOUND_ALLOW = [f"127.0.0.1:{port}"]
        with pytest.raises(EnvironmentTimeout) as caught:
            fetch(f"http://127.0.0.1:{port}/", total_s=0.2)
    assert caught.value.message == "The server did not answer in time."


def test_a_connection_that_breaks_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset")

    monkeypatch.setattr(connections, "_transport", lambda *_given: httpx.MockTransport(broken))
    with pytest.raises(EnvironmentUnreachable) as caught:
        fetch("http://93.184.215.14/")
    assert caught.value.message == "The connection broke before the answer was complete."


def test_names_are_looked_up_once_and_unusable_answers_are_left_out(settings: Any) -> None:
    settings.OUTBOUND_ALLOW = []
    asked: list[tuple[str, int]] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["93.184.215.14", "fe80::1%eth0", "93.184.215.14", "93.184.215.15"]

    target = target_of("https://a.example/x", resolve=resolve)
    assert asked == [("a.example", 443)]
    assert target == ("https", "a.example", 443, "/x", target.addresses)
    assert [str(address) for address in target.addresses] == ["93.184.215.14", "93.184.215.15"]
    assert [str(found) for found in target_of("http://8.8.8.8/", resolve=resolve).addresses] == ["8.8.8.8"]

    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    for bad in (unknown, lambda host, port: [], lambda host, port: ["fe80::1%eth0"]):
        with pytest.raises(EnvironmentUnreachable) as caught:
            target_of("http://a.example/", resolve=bad)
        assert caught.value.message == "The host name is not known."


def test_a_lookup_that_hangs_is_given_up(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.OUTBOUND_ALLOW = []
    monkeypatch.setattr(outbound, "CONNECT_LIMIT_S", 0.1)
    release = threading.Event()
    with pytest.raises(EnvironmentTimeout) as caught:
        target_of("http://a.example/", resolve=lambda host, port: [str(release.wait(5))])
    release.set()
    assert caught.value.message == "The host name could not be looked up in time."


def test_the_system_is_asked_for_streams() -> None:
    assert set(outbound._system_resolve("localhost", 80)) <= {"127.0.0.1", "::1"}
    assert len(outbound._system_resolve("127.0.0.1", 80)) == 1


def test_the_first_address_that_accepts_is_used_of_four(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[str, Any]] = []
    wanted = ["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4", "1.1.1.5"]
    settings.OUTBOUND_ALLOW = []
    errors: list[type[Exception]] = [httpx.ConnectError]

    def refuse(request: httpx.Request) -> httpx.Response:
        tried.append((request.url.host, request.extensions["timeout"]["connect"]))
        raise errors[0]("refused")

    monkeypatch.setattr(connections, "_transport", lambda *_given: httpx.MockTransport(refuse))
    with pytest.raises(EnvironmentUnreachable) as caught:
        fetch("http://a.example/", resolve=lambda host, port: wanted)
    assert caught.value.message == "Nothing accepts connections at this address."
    assert tried == [(text, 5.0) for text in wanted[:4]]
    errors[0] = httpx.ConnectTimeout
    with pytest.raises(EnvironmentTimeout, match="did not answer in time"):
        fetch("http://a.example/", resolve=lambda host, port: wanted)


def test_another_peer_than_the_checked_one_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    port, real = serve(), socket.socket.connect
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: real(self, ("127.0.0.1", port)))
    with pytest.raises(OutboundRefused) as caught:
        fetch("http://a.example/", resolve=lambda host, port: ["93.184.215.14"])
    assert caught.value.message == "The connection reached another address than the one that was checked."


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def test_tls_needs_a_certificate_that_is_trusted_and_names_the_host(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof, key = certificate(tmp_path, "tls.example")
    port = serve(OK, _context(proof, key))
    url = f"https://tls.example:{port}/"
    with pytest.raises(EnvironmentUnreachable) as caught:
        fetch(url, resolve=_here)
    assert caught.value.message == "The server's TLS certificate or handshake was not accepted."
    monkeypatch.setenv("SSL_CERT_FILE", str(proof))
    monkeypatch.setattr(connections, "tls", connections.tls.__wrapped__)  # read again, not once a process
    assert fetch(url, resolve=_here).body == b"ok"
    assert fetch(f"https://tls.example.:{port}/", resolve=_here).body == b"ok"
    with pytest.raises(EnvironmentUnreachable, match="TLS certificate"):
        fetch(f"https://127.0.0.1:{port}/")  # its certificate is for another name


def test_a_handshake_that_never_ends_is_too_slow(settings: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        settings.OUTBOUND_ALLOW = [f"127.0.0.1:{port}"]
        with pytest.raises(EnvironmentTimeout, match="did not answer in time"):
            fetch(f"https://127.0.0.1:{port}/", total_s=0.2)


def test_servers_of_ours_may_be_private_and_only_they(settings: Any) -> None:
    settings.OUTBOUND_ALLOW = ["10.1.0.0/16"]
    ours = frozenset({("127.0.0.1", 8101)})
    assert target_of("http://127.0.0.1:8101/", ours=ours).port == 8101
    assert target_of("http://10.1.2.3/", ours=ours).port == 80
    with pytest.raises(OutboundRefused):
        target_of("http://127.0.0.1:8102/", ours=ours)
    with pytest.raises(OutboundRefused):
        target_of("http://127.0.0.1:8101/")
    given = access("token", ours)
    given.allowed.check(outbound.plain_address("127.0.0.1"), "127.0.0.1", 8101)
    assert given.token == "token"


def test_refusals_are_in_the_readers_language(settings: Any) -> None:
    settings.OUTBOUND_ALLOW = []
    refusals = {}
    for language in ("en", "zh-hans"):
        with translation.override(language), pytest.raises(OutboundRefused) as caught:
            target_of("http://10.0.0.1/")
        refusals[language] = (caught.value.message, caught.value.info.hint)
    assert refusals["en"][0] == "This address is private to the server and may not be reached."
    assert refusals["en"][1] and refusals["en"][1] != refusals["zh-hans"][1]
    assert any("\u4e00" <= sign <= "\u9fff" for sign in refusals["zh-hans"][0])
