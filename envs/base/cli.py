"""The command line that every environment server shares: ``python -m envs.<name> --port N``."""

from __future__ import annotations

import argparse
import logging
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.base.environment import Facts, ToolEnvironment
from envs.base.settings import (
    MAX_FRAME_BYTES,
    ServerSettings,
    SettingsError,
    check_exposure,
    configure,
    log,
    read_token,
)

if TYPE_CHECKING:
    from fastapi import FastAPI

EXIT_BAD_OPTIONS = 2
# Sockets get this long to close after SIGTERM; the process is gone within 2 s.
SHUTDOWN_GRACE_S = 1
SPARE_DESCRIPTORS = 256


def add_server_options(parser: argparse.ArgumentParser, *, port: int, slots: int) -> None:
    """Declare the options of a server, with the environment's own defaults."""
    parser.add_argument("--port", type=int, default=port, help=f"TCP port, 0 for a free one (default {port})")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--slots", type=int, default=slots, help=f"sessions open at once (default {slots})")
    parser.add_argument("--token-file", type=Path, help="file with the bearer token that clients must send")
    parser.add_argument("--insecure", action="store_true", help="allow a host other than loopback without a token")
    parser.add_argument(
        "--delay-ms", type=int, default=0, help="each step takes this much longer; for benchmarks and tests (default 0)"
    )
    parser.add_argument("--idle-s", type=float, default=600.0, help="close a session idle for this long (default 600)")
    parser.add_argument("--ping-s", type=float, default=10.0, help="seconds between pings of a client (default 10)")
    parser.add_argument(
        "--ping-timeout-s", type=float, default=45.0, help="a client silent for this long has vanished (default 45)"
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")


def serve(
    options: argparse.Namespace,
    factory: Callable[[], ToolEnvironment],
    *,
    name: str,
    version: str,
    facts: Facts | None = None,
) -> int:
    """Check the options, listen, and run until SIGTERM."""

    def create(settings: ServerSettings) -> FastAPI:
        from envs.base.server import create_server

        return create_server(factory, settings, facts)

    return serve_application(options, create, name=name, version=version)


def serve_application(
    options: argparse.Namespace, create: Callable[[ServerSettings], FastAPI], *, name: str, version: str
) -> int:
    """As ``serve``, for a server with routes of its own. ``create`` may raise ``SettingsError``."""
    configure(name, options.log_level)
    try:
        token = read_token(options.token_file)
        check_exposure(options.host, token, options.insecure)
        settings = ServerSettings(
            name=name,
            version=version,
            slots=options.slots,
            token=token,
            delay_ms=options.delay_ms,
            idle_s=options.idle_s,
            ping_interval_s=options.ping_s,
            ping_timeout_s=options.ping_timeout_s,
        )
        listener = _listen(options.host, options.port)
        # Made after the port is taken: bad options are answered at once, OpenEnv takes a second to import.
        application = create(settings)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_BAD_OPTIONS
    _raise_descriptor_limit(settings.slots)
    return _run(listener, application, settings)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise SettingsError(f"Cannot listen on {host}:{port}: {error}.") from error


def _run(listener: socket.socket, application: FastAPI, settings: ServerSettings) -> int:
    import uvicorn

    from envs.base.connections import HttpConnection, SocketConnection

    options: dict[str, Any] = {
        "http": HttpConnection,
        "ws": SocketConnection,
        "ws_max_size": MAX_FRAME_BYTES,
        "ws_ping_interval": settings.ping_interval_s,
        "ws_ping_timeout": settings.ping_timeout_s,
        # Frames are small and local: compressing them costs more than it saves.
        "ws_per_message_deflate": False,
        "timeout_graceful_shutdown": SHUTDOWN_GRACE_S,
        "server_header": False,
        "access_log": False,
        "log_config": None,
    }
    server = uvicorn.Server(uvicorn.Config(application, **options))
    host, port = listener.getsockname()[:2]
    log(logging.INFO, "server.listening", host=host, port=port, slots=settings.slots, token=settings.token is not None)
    server.run(sockets=[listener])
    return 0


def _raise_descriptor_limit(slots: int) -> None:
    """Each session is one file descriptor; the usual soft limit of 1,024 is soon reached."""
    try:
        import resource
    except ImportError:  # not a Unix
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = slots * 2 + SPARE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
