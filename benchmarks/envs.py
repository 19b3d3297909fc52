"""Steps a second of the tools environment: ``python benchmarks/envs.py [--sessions 16 256] [--seconds 5]``.

The server runs in a process of its own on one core, the clients on another; prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT_S = 60
STEP = json.dumps(
    {
        "type": "step",
        "data": {"tool_calls": [{"id": "1", "name": "calculator", "arguments": {"expression": "37 + 48"}}]},
    }
)
RESET = json.dumps({"type": "reset", "data": {"task": {}, "seed": 1}})
STEPS_PER_EPISODE = 10


async def _session(url: str, ends_at: float, latencies: list[float]) -> None:
    async with connect(url, compression=None, ping_interval=None) as websocket:
        while time.perf_counter() < ends_at:
            await _ask(websocket, RESET)
            for _ in range(STEPS_PER_EPISODE):
                started = time.perf_counter()
                await _ask(websocket, STEP)
                latencies.append(time.perf_counter() - started)


async def _ask(websocket: ClientConnection, frame: str) -> None:
    await websocket.send(frame)
    answer = await websocket.recv()
    if '"observation"' not in answer[:30]:
        raise RuntimeError(f"the server answered {answer[:200]!r}")


async def _measure(port: int, sessions: int, seconds: float) -> dict[str, Any]:
    latencies: list[float] = []
    started = time.perf_counter()
    url = f"ws://127.0.0.1:{port}/ws"
    await asyncio.gather(*(_session(url, started + seconds, latencies) for _ in range(sessions)))
    elapsed = time.perf_counter() - started
    cuts = statistics.quantiles(latencies, n=100)
    return {
        "sessions": sessions,
        "steps": len(latencies),
        "steps_per_s": round(len(latencies) / elapsed),
        "p50_ms": round(cuts[49] * 1000, 2),
        "p99_ms": round(cuts[98] * 1000, 2),
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _wait_until_healthy(port: int, server: subprocess.Popen[bytes]) -> None:
    ends_at = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < ends_at and server.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
            return
        time.sleep(0.2)
    raise RuntimeError("the server did not start")


def _pin(process_id: int, core: int) -> None:
    if hasattr(os, "sched_setaffinity") and core in os.sched_getaffinity(0):
        os.sched_setaffinity(process_id, {core})


def main() -> int:
    """Start a server, measure each number of sessions, stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, nargs="+", default=[16, 256])
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    port = _free_port()
    command = [sys.executable, "-m", "envs.tools", "--port", str(port), "--log-level", "warning"]
    server = subprocess.Popen(command, cwd=ROOT)
    try:
        _wait_until_healthy(port, server)
        _pin(server.pid, 0)
        _pin(0, 1)
        results = [asyncio.run(_measure(port, count, options.seconds)) for count in options.sessions]
    finally:
        server.terminate()
        server.wait(10)
    print(json.dumps({"benchmark": "envs.tools", "results": results}, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
