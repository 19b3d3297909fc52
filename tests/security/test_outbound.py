"""No address that a person types leads where it must not, and no server holds us for long."""

from __future__ import annotations

import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from training.errors import TiltyardError
from webapp.common import outbound
from webapp.common.outbound import OutboundRefused, fetch, target_of
from webapp.engine.trainer import trainer_env
from webapp.launch import preflight

INTERNAL_HOSTS = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "0",
    "0.0.0.0",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "127.0.0.1.",
    "localhost",
    "localhost.",
    "LOCALHOST",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]",
    "[2001:0:7f00:1::]",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "[::ffff:169.254.169.254]",
    "[fe80::1]",
    "[fe80::1%25eth0]",
    "[fe80::1%eth0]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fec0::1]",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "192.88.99.1",
    "224.0.0.1",
    "239.255.255.250",
    "[ff02::1]",
    "240.0.0.1",
    "255.255.255.255",
    "[100::1]",
    "[2001:db8::1]",
    "[2001:2::1]",
    "[3fff::1]",
    "[5f00::1]",
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "ⓛocalhost",
]
HOSTILE_URLS = [
    *[f"http://{host}/" for host in INTERNAL_HOSTS],
    "http://user:pass@8.8.8.8/",
    "http://8.8.8.8@127.0.0.1/",
    "http://127.0.0.1@8.8.8.8/",
    "http://8.8.8.8\\@127.0.0.1/",
    "http://8.8.8.8#@127.0.0.1/",
    "http://8.8.8.8?@127.0.0.1/",
    "http://127.0.0.1\t.example.org/",
    "http://127.0.0.1\r\nHost: x/",
    "http://127.0.0.1%2f@8.8.8.8/",
    "http://[::1/",
    "http://]/",
    "http:///health",
    "http://",
    "http:127.0.0.1",
    "//127.0.0.1/",
    "127.0.0.1",
    "",
    "gopher://127.0.0.1:6379/_INFO",
    "file:///etc/passwd",
    "ftp://8.8.8.8/",
    "dict://127.0.0.1:11211/",
    "ws://127.0.0.1/",
    "javascript:alert(1)",
    "data:text/plain,x",
    "HTTP+UNIX://x/",
    "http://8.8.8.8:6379/",
    "http://8.8.8.8:5432/",
    "http://8.8.8.8:2375/",
    "http://8.8.8.8:22/",
    "http://8.8.8.8:0/",
    "http://8.8.8.8:99999/",
    "http://8.8.8.8:-1/",
    "http://8.8.8.8:８０/",
    "http://a..b/",
    "http://-a.example/",
    "http://exa mple.org/",
    "http://example.org/\x00",
    "http://" + "a" * 600 + ".org/",
    "http://%31%32%37.0.0.1/",
    "http://127.0.0.1;x/",
    "http://0x7f.0x0.0x0.0x1/",
    "http://00000177.0.0.1/",
]


@pytest.fixture(autouse=True)
def _nothing_allowed(settings: Any) -> None:
    settings.OUTBOUND_ALLOW = []


class Listener:
    """A server that must not be reached; counts who does."""

    def __init__(self, handle: Callable[[socket.socket], None] | None = None) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.count = 0
        self.handle = handle
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _address = self.socket.accept()
            except OSError:
                return
            self.count += 1
            threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        try:
            if self.handle:
                self.handle(peer)
        except OSError:
            pass
        finally:
            peer.close()


@pytest.fixture
def listen() -> Iterator[Callable[..., Listener]]:
    made: list[Listener] = []

    def make(handle: Callable[[socket.socket], None] | None = None) -> Listener:
        made.append(Listener(handle))
        return made[-1]

    yield make
    for item in made:
        item.socket.close()


def test_corpus_is_large_enough() -> None:
    assert len(set(HOSTILE_URLS)) >= 60


@pytest.mark.parametrize("url", HOSTILE_URLS, ids=lambda url: ascii(url)[:60])
def test_hostile_url_is_refused_with_a_sentence(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[Any] = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: connected.append(address))
    started = time.monotonic()
    with pytest.raises(TiltyardError) as caught:
        fetch(url)
    assert not connected
    assert time.monotonic() - started < 11
    assert len(caught.value.message) > 15 and caught.value.message.endswith(".")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "127.1", "2130706433"])
def test_a_loopback_listener_is_never_reached(host: str, listen: Callable[..., Listener]) -> None:
    server = listen()
    with pytest.raises(TiltyardError):
        fetch(f"http://{host}:{server.port}/health")
    time.sleep(0.05)
    assert server.count == 0


def test_every_resolved_address_must_be_public(listen: Callable[..., Listener]) -> None:
    with pytest.raises(OutboundRefused):
        target_of("http://two.example/", resolve=lambda host, port: ["93.184.215.14", "10.0.0.7"])
    with pytest.raises(OutboundRefused):
        target_of("http://cname.example/", resolve=lambda host, port: ["::ffff:10.0.0.7"])
    assert target_of("http://ok.example/", resolve=lambda host, port: ["93.184.215.14"]).port == 80


def test_rebinding_name_is_resolved_once_and_the_checked_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([["93.184.215.14"], ["127.0.0.1"], ["127.0.0.1"]])
    asked: list[str] = []
    reached: list[Any] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return next(answers)

    def connect(self: socket.socket, address: tuple[str, int]) -> None:
        reached.append(address)
        raise OSError("no route in a test")

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(TiltyardError):
        fetch("http://rebind.example/health", resolve=resolve)
    assert asked == ["rebind.example"]
    assert reached == [("93.184.215.14", 80)]


def test_peer_that_is_not_the_checked_address_is_refused(
    listen: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bytes] = []
    server, real = listen(lambda peer: heard.append(peer.recv(4096))), socket.socket.connect
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: real(self, ("127.0.0.1", server.port)))
    with pytest.raises(OutboundRefused):
        fetch("http://moved.example/", resolve=lambda host, port: ["93.184.215.14"], token="secret")
    time.sleep(0.05)
    assert heard in ([], [b""])  # nothing was sent, least of all the token


def _allow(settings: Any, *servers: Listener) -> None:
    settings.OUTBOUND_ALLOW = [f"127.0.0.1:{server.port}" for server in servers]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status: int, listen: Callable[..., Listener], settings: Any) -> None:
    secret = listen()

    def redirect(peer: socket.socket) -> None:
        peer.recv(4096)
        where = f"http://127.0.0.1:{secret.port}/"
        peer.sendall(f"HTTP/1.1 {status} X\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode())

    server = listen(redirect)
    _allow(settings, server, secret)
    with pytest.raises(TiltyardError, match="redirect"):
        fetch(f"http://127.0.0.1:{server.port}/health")
    assert secret.count == 0


def test_dripping_servers_are_cut_off(listen: Callable[..., Listener], settings: Any) -> None:
    def drip_head(peer: socket.socket) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nX: " + b"a" * 1000:
            peer.sendall(bytes([byte]))
            time.sleep(0.05)

    def drip_body(peer: socket.socket) -> None:
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(1000):
            peer.sendall(b"x")
            time.sleep(0.05)

    servers = [listen(drip_head), listen(drip_body), listen(lambda peer: time.sleep(30))]
    _allow(settings, *servers)
    for server in servers:
        started = time.monotonic()
        with pytest.raises(TiltyardError, match="in time"):
            fetch(f"http://127.0.0.1:{server.port}/health", total_s=0.6)
        assert time.monotonic() - started < 1.5


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_of_two_gigabytes_is_cut_off(announced: bool, listen: Callable[..., Listener], settings: Any) -> None:
    sent = 0

    def flood(peer: socket.socket) -> None:
        nonlocal sent
        length = b"Content-Length: 2147483648\r\n" if announced else b""
        peer.sendall(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n")
        for _ in range(2048):
            peer.sendall(b"x" * 1024**2)
            sent += 1024**2

    server = listen(flood)
    _allow(settings, server)
    with pytest.raises(TiltyardError, match="1 MB"):
        fetch(f"http://127.0.0.1:{server.port}/health")
    assert sent < 64 * 1024**2


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0-OpenSSH_9\r\n", b"+PONG\r\n", b"\x00" * 100, b"HTTP/1.1 200 OK\r\n\r"]
)
def test_what_is_not_http_ends_with_a_sentence(answer: bytes, listen: Callable[..., Listener], settings: Any) -> None:
    server = listen(lambda peer: peer.sendall(answer) if answer else None)
    _allow(settings, server)
    with pytest.raises(TiltyardError) as caught:
        fetch(f"http://127.0.0.1:{server.port}/health")
    assert caught.value.message.endswith(".") and "Traceback" not in caught.value.message


def test_proxies_of_the_environment_are_ignored(
    listen: Callable[..., Listener], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = listen()
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")

    def answer(peer: socket.socket) -> None:
        peer.recv(65536)  # hanging up with the request unread would reset the connection, and with it the answer
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    server = listen(answer)
    _allow(settings, server)
    assert fetch(f"http://127.0.0.1:{server.port}/health").body == b"ok"
    assert proxy.count == 0


def test_slow_lookup_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "CONNECT_LIMIT_S", 0.2)
    started = time.monotonic()
    with pytest.raises(TiltyardError, match="in time"):
        fetch("http://slow.example/", resolve=lambda host, port: time.sleep(2) or [])  # type: ignore[func-returns-value]
    assert time.monotonic() - started < 1.5


def test_allow_list_takes_host_and_port_or_networks(settings: Any) -> None:
    settings.OUTBOUND_ALLOW = ["127.0.0.1:8700", "10.1.0.0/16", "tools:8700", "[fd00::5]:9000"]
    inside = {"tools": ["172.18.0.5"], "db": ["10.1.2.3"], "evil": ["169.254.169.254"]}

    def resolve(host: str, port: int) -> list[str]:
        return inside[host]

    for url in (
        "http://127.0.0.1:8700",
        "http://10.1.2.3",
        "http://tools:8700",
        "http://db:8000",
        "http://[fd00::5]:9000",
    ):
        assert target_of(url, resolve=resolve)
    for url in (
        "http://127.0.0.1:8701",
        "http://10.2.0.1",
        "http://tools:8701",
        "http://db:6379",
        "http://[fd00::5]:9001",
    ):
        with pytest.raises(OutboundRefused):
            target_of(url, resolve=resolve)
    settings.OUTBOUND_ALLOW = ["169.254.0.0/16", "evil:80", "169.254.169.254:80"]
    for url in ("http://169.254.169.254/", "http://evil/"):
        with pytest.raises(OutboundRefused):
            target_of(url, resolve=resolve)


def test_the_trainer_and_its_preflight_are_given_the_allow_list(settings: Any) -> None:
    settings.OUTBOUND_ALLOW = ["127.0.0.1:8700", "", "10.1.0.0/16"]
    own = {"TILTYARD_OUTBOUND_ALLOW": "127.0.0.1:8105"}
    for access, allowed in (({}, "127.0.0.1:8700,10.1.0.0/16"), (own, "127.0.0.1:8700,10.1.0.0/16,127.0.0.1:8105")):
        for environment in (trainer_env(3, access), preflight.child_environment(access)):
            assert environment["TILTYARD_OUTBOUND_ALLOW"] == allowed


def test_a_real_small_document_is_read(settings: Any) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"host": self.headers["Host"], "path": self.path}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            return

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    settings.OUTBOUND_ALLOW = [f"127.0.0.1:{server.server_port}"]
    reply = fetch(f"http://localhost:{server.server_port}/health", resolve=lambda host, port: ["127.0.0.1"])
    server.shutdown()
    assert reply.status == 200
    assert json.loads(reply.body) == {"host": f"localhost:{server.server_port}", "path": "/health"}
