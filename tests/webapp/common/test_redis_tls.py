"""Redis with TLS (``rediss://``): who is trusted, and the sentence for each failure."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from tests.certificates import certificate
from tests.servers import make_child_env
from webapp.common.broker import redis_problem
from webapp.common.env import redis_url

ROOT = Path(__file__).resolve().parents[3]
Front = Callable[..., str]
LOOK = """
import asyncio, json, uuid
from channels.layers import get_channel_layer
from django.conf import settings
from webapp.celery import app
from webapp.site.monitoring.views import _messages
from webapp.site.workers import _broker_answers

async def live():
    layer = get_channel_layer()
    await layer.send("tls", {"type": "x"})
    return (await layer.receive("tls"))["type"]

def celery():
    with app.connection_for_write() as connection, connection.SimpleQueue(f"tls-{uuid.uuid4()}") as queue:
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=5)
        queue.put("y")
        message = queue.get(timeout=5)
        message.ack()
        return message.payload

found, asks = {}, {"celery": celery, "live": lambda: asyncio.run(live()), "messages": lambda: len(list(_messages()))}
for name, ask in asks.items():
    try:
        found[name] = ask()
    except Exception as exc:
        found[name] = f"{type(exc).__name__}: {exc}"
print(json.dumps(found | {"health": _broker_answers()}))
"""


@pytest.fixture
def front() -> Iterator[Front]:
    """``front(context, scheme)``: the URL of a server on 127.0.0.1 with TLS that has the tests' Redis behind it."""
    there, listeners = urlsplit(settings.REDIS_URL), list[socket.socket]()

    def pipe(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError), other:
            while data := one.recv(65536):
                other.sendall(data)

    def talk(peer: socket.socket, context: ssl.SSLContext) -> None:
        with suppress(OSError), peer:  # it does not trust us, or speaks no TLS
            secure = context.wrap_socket(peer, server_side=True)
            server = socket.create_connection((there.hostname, there.port))
            threading.Thread(target=pipe, args=(server, secure), daemon=True).start()
            pipe(secure, server)

    def listen(listener: socket.socket, context: ssl.SSLContext) -> None:
        with suppress(OSError):
            while True:
                peer, _address = listener.accept()
                threading.Thread(target=talk, args=(peer, context), daemon=True).start()

    def start(context: ssl.SSLContext, scheme: str = "rediss", host: str = "localhost") -> str:
        listeners.append(socket.create_server(("127.0.0.1", 0)))
        threading.Thread(target=listen, args=(listeners[-1], context), daemon=True).start()
        return f"{scheme}://:{there.password}@{host}:{listeners[-1].getsockname()[1]}{there.path}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)  # a thread that waits for a peer does not notice a close
        listener.close()


def served(folder: Path, *names: str) -> tuple[ssl.SSLContext, Path]:
    """The TLS of a server with a certificate for these names, and that certificate."""
    proof, key = certificate(folder, *names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(proof, key)
    return context, proof


def asked(url: str) -> dict[str, object]:
    """What everything of Tiltyard that opens Redis gets there, in a process of its own."""
    argv = [sys.executable, "manage.py", "shell", "--no-imports", "--command", LOOK]
    env = make_child_env() | {"REDIS_URL": url, "DATABASE_URL": settings.DATABASE_URL}
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-900:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_everything_that_opens_redis_does_so_over_tls(front: Front, tmp_path: Path) -> None:
    context, proof = served(tmp_path, "localhost")
    url = f"{front(context)}?ssl_ca_certs={proof}"
    assert redis_problem(url, 5) == ""
    found = asked(url)
    assert found.pop("messages", 0) and found == {"celery": "y", "live": "x", "health": True}


def test_nothing_that_opens_redis_trusts_a_certificate_of_another(front: Front, tmp_path: Path) -> None:
    """Celery by itself would take any certificate, and give the password to any server."""
    found = asked(front(served(tmp_path, "localhost")[0]))
    assert found.pop("health") is False
    assert len(found) == 3 and all("CERTIFICATE_VERIFY_FAILED" in str(error) for error in found.values()), found


def test_each_failure_has_a_sentence(front: Front, tmp_path: Path) -> None:
    context, proof = served(tmp_path, "other.internal")
    url = front(context)
    place = f"localhost:{urlsplit(url).port}"
    untrusted = f"The certificate of Redis at {place} is not trusted: "
    advice = ". REDIS_URL may name its authority: rediss://…?ssl_ca_certs=/path/ca.pem"
    assert redis_problem(url, 5) == f"{untrusted}self-signed certificate{advice}"
    name = "Hostname mismatch, certificate is not valid for 'localhost'"
    assert redis_problem(f"{url}?ssl_ca_certs={proof}", 5) == f"{untrusted}{name}{advice}"
    plain = "ends the connection: if it wants TLS, REDIS_URL has to begin with rediss://."
    assert redis_problem(url.replace("rediss://", "redis://"), 5) == f"Redis at {place} {plain}"


def test_a_redis_without_tls_or_with_another_password_has_a_sentence() -> None:
    there = urlsplit(settings.REDIS_URL)
    place = f"{there.hostname}:{there.port}"
    assert redis_problem(settings.REDIS_URL, 5) == ""
    plain = "has no TLS: REDIS_URL has to begin with redis://, or to name another server."
    assert redis_problem(settings.REDIS_URL.replace("redis://", "rediss://"), 1) == f"Redis at {place} {plain}"
    assert there.password is not None
    other = settings.REDIS_URL.replace(there.password, "other")
    assert redis_problem(other, 5) == f"Redis at {place} refuses the password of REDIS_URL."
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        for scheme in ("redis", "rediss"):
            said = redis_problem(f"{scheme}://127.0.0.1:{port}", 5)
            assert said.startswith(f"Redis at 127.0.0.1:{port} does not answer: ")
    assert redis_problem("http://127.0.0.1", 5).startswith("Redis at 127.0.0.1:6379 does not answer: ")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("rediss://a?ssl_ca_cert=/ca.pem", "ssl_ca_cert, which is not known; it may have ssl_ca_certs"),
        ("rediss://a?sslmode=verify-full", "sslmode, which is not known"),
        ("redis://a?ssl_ca_certs=/ca.pem", "ssl_ca_certs, which needs rediss://, not redis://"),
        ("redis://a?ssl_cert_reqs=", "ssl_cert_reqs, which needs rediss://"),
    ],
)
def test_options_that_would_leave_the_way_open_are_refused(url: str, why: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=why):
        redis_url(url)


@pytest.mark.parametrize(
    "url", ["", "redis://:p@a:1/0", "rediss://a?ssl_ca_certs=/c&ssl_keyfile=k", "redis://a?protocol=3"]
)
def test_other_urls_are_taken_as_they_are(url: str) -> None:
    assert redis_url(url) == url
