"""``python webapp/ops/gate.py NAME:PORT …``: passes connections on to services of docker-compose.yml, each on its port.

``NAME:FIRST-LAST`` are several ports of one. The service `gate` publishes them on the private address of a web host
(docs/scale.md). So the services themselves stay in networks without a way out, and an environment reaches neither the
database nor the broker.

1. A connection to port P goes to the service that listens on P; bytes pass both ways until both sides have ended.
2. Where the service does not answer, the connection is closed at once: the other side tries again by itself.
3. It listens in the one network that leads out, where nothing else is, and to its own healthcheck: an environment,
   which shares another network with it, finds no port open.
4. A host that is gone without a word is noticed within two minutes (keepalive), and its connections are closed on both
   sides, so PostgreSQL holds no session and no lock of it.

It imports nothing but Python itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence

SELF, OUT = "127.0.0.1", ("192.0.2.1", 9)  # no packet is sent there
WORD = re.compile(r"(.+):([0-9]{1,5})(?:-([0-9]{1,5}))?")
CONNECT_S = 5.0
CHUNK_BYTES = 1 << 18
IDLE_S, PROBE_EVERY_S, PROBES = 60, 15, 4
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, (IDLE_S + PROBE_EVERY_S * PROBES) * 1000),
)


def places_of(words: Sequence[str]) -> list[tuple[str, int]]:
    """``name:port`` and ``name:first-last`` words as pairs, one a port.

    ``ValueError`` for a word of another form, or a port that is named twice.
    """
    places = []
    for word in words:
        found = WORD.fullmatch(word)
        ports = range(int(found[2]), int(found[3] or found[2]) + 1) if found else ()
        if not found or not ports:
            raise ValueError(f"{word!r} is neither NAME:PORT nor NAME:FIRST-LAST")
        places += [(found[1], port) for port in ports]
    if len({port for _name, port in places}) < len(places):
        raise ValueError("a port is named twice")
    return places


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Until the source ends; its end is passed on too."""
    while data := await source.read(CHUNK_BYTES):
        target.write(data)
        await target.drain()
    target.write_eof()


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    peer = writer.get_extra_info("socket")
    for level, option, value in KEEPALIVE:
        peer.setsockopt(level, option, value)


async def _serve(name: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    there: asyncio.StreamWriter | None = None
    try:
        _keep_alive(writer)
        async with asyncio.timeout(CONNECT_S):
            back, there = await asyncio.open_connection(name, port)
        _keep_alive(there)
        async with asyncio.TaskGroup() as ways:
            ways.create_task(_pass_on(reader, there))
            ways.create_task(_pass_on(back, writer))
    except* OSError:  # away, refused, reset or silent: both sides are closed below
        pass
    finally:
        for side in (writer, there):
            if side is not None:
                side.close()
                with contextlib.suppress(OSError):
                    await side.wait_closed()


def outward() -> str:
    """Our address in the network that leads out. ``OSError`` where none does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(OUT)
        return str(probe.getsockname()[0])


async def listen(places: Sequence[tuple[str, int]], addresses: Sequence[str]) -> list[asyncio.Server]:
    """One server for each place, on its port of these addresses."""

    def serving(name: str, port: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        return lambda reader, writer: _serve(name, port, reader, writer)

    return [await asyncio.start_server(serving(name, port), addresses, port) for name, port in places]


async def _forever(places: Sequence[tuple[str, int]]) -> None:
    servers = await listen(places, [SELF, outward()])
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_forever(places_of(sys.argv[1:])))
