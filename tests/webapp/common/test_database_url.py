"""What ``DATABASE_URL`` says about its connection arrives there: as libpq itself sees it, through a server with TLS."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from tests.certificates import certificate
from tests.servers import make_child_env
from webapp.common.env import database_from_url, database_parameters
from webapp.ops.database import postgres_env

ROOT = Path(__file__).resolve().parents[3]
SSL_REQUEST = struct.pack("!ii", 8, 80877103)
LOOK = "from django.db import connection as c; c.ensure_connection(); print(c.connection.pgconn.ssl_in_use)"


def test_a_url_is_read() -> None:
    found = database_from_url("postgresql://a%40b:c%2Fd@db.internal:5433/t%20y?sslmode=require")
    assert (found["USER"], found["PASSWORD"], found["HOST"]) == ("a@b", "c/d", "db.internal")
    assert (found["PORT"], found["NAME"]) == ("5433", "t y")
    assert database_from_url("postgresql://a@/t?host=%2Frun%2Fpg&sslmode=disable")["HOST"] == "/run/pg"


def test_its_parameters_reach_connections_and_postgresqls_own_programs() -> None:
    url = "postgresql://a@b/t?host=/run/pg&sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem"
    assert database_parameters(url) == {"sslmode": "verify-full", "sslrootcert": "/etc/ca.pem"}
    env = postgres_env(url)
    assert (env["PGSSLMODE"], env["PGSSLROOTCERT"], env["PGHOST"]) == ("verify-full", "/etc/ca.pem", "/run/pg")
    assert database_parameters("postgresql://a@b/t") == {}


@pytest.mark.parametrize("query", ["ssl_mode=verify-full", "sslmode=require&options=-c%20x", "SSLMODE=require"])
def test_a_parameter_that_is_not_known_stops_the_start(query: str) -> None:
    """It would be left out, and the connection be open to all on its way."""
    with pytest.raises(ImproperlyConfigured, match="which is not known; it may have host, sslmode"):
        database_parameters(f"postgresql://a@b/t?{query}")


def test_a_link_that_is_cut_is_noticed() -> None:
    """The seconds until a question fails that nothing answers: sent data, and the wait for an answer."""
    options = settings.DATABASES["default"]["OPTIONS"]
    assert options["tcp_user_timeout"] == 20_000
    assert options["keepalives_idle"] + options["keepalives_interval"] * options["keepalives_count"] == 20


Front = Callable[[ssl.SSLContext | None], int]


@pytest.fixture
def front(db: None) -> Iterator[Front]:
    """A server on 127.0.0.1 that has PostgreSQL behind it, with TLS or without; its port."""
    there = connection.settings_dict
    listeners: list[socket.socket] = []

    def reach() -> socket.socket:
        if not there["HOST"].startswith("/"):
            return socket.create_connection((there["HOST"], int(there["PORT"] or 5432)))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{there['HOST']}/.s.PGSQL.{there['PORT'] or 5432}")
        return server

    def pipe(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError), other:
            while data := one.recv(65536):
                other.sendall(data)

    def talk(peer: socket.socket, context: ssl.SSLContext | None) -> None:
        assert peer.recv(8) == SSL_REQUEST, "it asks for TLS before anything else"
        peer.sendall(b"S" if context else b"N")
        with suppress(OSError):  # it does not trust us
            secure = context.wrap_socket(peer, server_side=True) if context else peer
            server = reach()
            threading.Thread(target=pipe, args=(server, secure), daemon=True).start()
            pipe(secure, server)

    def listen(listener: socket.socket, context: ssl.SSLContext | None) -> None:
        with suppress(OSError):
            while True:
                peer, _address = listener.accept()
                threading.Thread(target=talk, args=(peer, context), daemon=True).start()

    def start(context: ssl.SSLContext | None) -> int:
        listeners.append(socket.create_server(("127.0.0.1", 0)))
        threading.Thread(target=listen, args=(listeners[-1], context), daemon=True).start()
        return int(listeners[-1].getsockname()[1])

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)  # a thread that waits for a peer does not notice a close
        listener.close()


def connect(host: str, port: int, query: str) -> tuple[str, str]:
    """What Tiltyard's own connection says of itself, in a process of its own, and its error."""
    there = connection.settings_dict
    url = f"postgresql://{there['USER']}:{there['PASSWORD']}@{host}:{port}/{there['NAME']}?{query}"
    argv = [sys.executable, "manage.py", "shell", "--no-imports", "--command", LOOK]
    env = make_child_env() | {"PGHOSTADDR": "127.0.0.1", "DATABASE_URL": url}
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    return done.stdout.strip(), done.stderr


def test_a_server_is_trusted_only_with_its_certificate_and_name(front: Front, tmp_path: Path) -> None:
    proof, key = certificate(tmp_path, "db.internal")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(proof, key)
    port = front(context)
    shown, error = connect("db.internal", port, f"sslmode=verify-full&sslrootcert={proof}")
    assert shown == "True", error[-600:]
    for host, query, why in (
        ("other.internal", f"sslmode=verify-full&sslrootcert={proof}", "does not match host name"),
        ("db.internal", "sslmode=verify-full&sslrootcert=system", "certificate verify failed"),
    ):
        shown, error = connect(host, port, query)
        assert shown == "" and why in error, error[-600:]


def test_a_server_without_tls_is_refused_where_it_is_asked_for(front: Front) -> None:
    port = front(None)
    shown, error = connect("localhost", port, "sslmode=prefer")
    assert shown == "False", error[-600:]
    shown, error = connect("localhost", port, "sslmode=require")
    assert shown == "" and "server does not support SSL" in error, error[-600:]
