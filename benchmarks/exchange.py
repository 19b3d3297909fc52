"""What does one request to an endpoint, a judge or vLLM cost us? ``python benchmarks/exchange.py``.

A server of its own process answers at once, over loopback. For 16, 64 and 256 requests at once, in turns: processor
time of this process for one exchange (request, answer read whole) by a client that keeps its connections
(``training/connections.py``), by one made for each request, and by httpx's own pool. Prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import httpx  # noqa: E402

from training.connections import IDLE_S, HttpClient, tls  # noqa: E402

ASKED = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 800}]}).encode()
ANSWER = json.dumps({"choices": [{"message": {"content": "hello " * 50}}], "usage": {"completion_tokens": 50}}).encode()
JSON = {"Content-Type": "application/json"}
Exchange = Callable[[], Awaitable[object]]


class Server(asyncio.Protocol):
    """Answers each request with the same text."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._read = transport, b""

    def data_received(self, data: bytes) -> None:
        self._read += data
        while len(self._read) > (end := self._read.find(b"\r\n\r\n") + 4) > 3:
            if len(self._read) < end + len(ASKED):
                return
            self._read = self._read[end + len(ASKED) :]
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
            self._transport.write(head + ANSWER)  # type: ignore[attr-defined]


def serve(port: Connection) -> None:
    """Until it is ended."""

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


async def cost_ms(exchange: Exchange, at_once: int, exchanges: int) -> float:
    """Processor milliseconds of one, after as many as there are at once."""

    async def drive(count: int) -> None:
        left = iter(range(count))

        async def one() -> None:
            for _ in left:
                await exchange()

        await asyncio.gather(*(one() for _ in range(at_once)))

    await drive(at_once)
    began = time.process_time()
    await drive(exchanges)
    return 1000 * (time.process_time() - began) / exchanges


async def measure(url: str, at_once: int, rounds: int) -> dict[str, float]:
    """The three ways in turns; medians."""
    kept = HttpClient(5, connections=at_once)
    limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once, keepalive_expiry=IDLE_S)
    pool = httpx.AsyncHTTPTransport(verify=tls(), limits=limits)
    pooled = httpx.AsyncClient(transport=pool, trust_env=False, timeout=None)  # noqa: S113 - as our client

    async def by(client: HttpClient) -> None:
        async with client.stream("POST", url, content=ASKED, headers=JSON) as answer:
            b"".join([chunk async for chunk in answer.chunks(1 << 20)])

    async def fresh() -> None:
        async with HttpClient(5) as client:
            await by(client)

    ways: dict[str, Exchange] = {
        "kept": lambda: by(kept),
        "a_client_each": fresh,
        "httpx_pool": lambda: pooled.post(url, content=ASKED, headers=JSON),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, exchange in ways.items():
            found[name].append(await cost_ms(exchange, at_once, max(1000, 4 * at_once)))
    await kept.close()
    await pooled.aclose()
    return {name: round(statistics.median(values), 2) for name, values in found.items()}


def main() -> None:
    """Measure all numbers and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of which the median is taken (default 3)")
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}/v1/chat/completions"
    rows = {str(at_once): asyncio.run(measure(url, at_once, options.rounds)) for at_once in (16, 64, 256)}
    server.terminate()
    about = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    print(json.dumps({"benchmark": "exchange", **about, "cpu_ms_an_exchange": rows}))


if __name__ == "__main__":
    main()
