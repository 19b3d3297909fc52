"""Steps a second of environment servers: ``python benchmarks/envs.py [--names tools toolbench bfcl webshop]``.

Each server runs in a process of its own on one core, the clients on another; prints JSON. What is played: ``tools`` a
calculator call ten times an episode; ``toolbench`` the recorded calls of a query, twice; ``bfcl`` the gold calls of all
800 entries, resets included; ``webshop`` on 1,000 generated products twice a search, the first hit, its
description and back, then a purchase. At the end 2,048 sessions are open at once, each for one episode.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import environment_server  # noqa: E402

STEPS_PER_EPISODE = 10
OPEN_LIMIT_S, ANSWER_LIMIT_S = 60, 30
COMPLETE_TARGET = 0.995
TARGETS = {"tools": 2500, "toolbench": 1000, "bfcl": 1000, "webshop": 800}  # steps a second with 256 sessions
ASIN = re.compile(r"\b(?=[A-Z]*[0-9])[A-Z0-9]{10}\b")


class Seen:
    """The last answer of a session, for episodes that act on what they see."""

    def __init__(self) -> None:
        self.answer = ""


def tools_episode(number: int, seen: Seen) -> Iterator[dict[str, Any]]:
    """A drawn task and ten calls of the calculator."""
    yield {"task": {}, "seed": 1}
    call = {"id": "1", "name": "calculator", "arguments": {"expression": "37 + 48"}}
    for _ in range(STEPS_PER_EPISODE):
        yield {"tool_calls": [call]}


def toolbench_episode(number: int, seen: Seen) -> Iterator[dict[str, Any]]:
    """The gold calls of one query of the own world, each twice, all of them recorded; the last one is Finish."""
    yield {"task": {"index": number}, "seed": 0}
    *calls, finish = _planned(number)
    for call in [*calls, *calls, finish]:
        yield {"tool_calls": [call]}


@cache
def _planned(number: int) -> list[dict[str, Any]]:
    from envs.toolbench.world import draw_task, gold_calls

    return [{"id": "1", "name": call.function, "arguments": call.arguments} for call in gold_calls(draw_task(number))]


def bfcl_episode(number: int, seen: Seen) -> Iterator[dict[str, Any]]:
    """The gold calls of one entry."""
    names = list(_gold())
    name = names[number * 7 % len(names)]
    yield {"task": {"id": name}, "seed": 0}
    yield from _gold()[name]


@cache
def _gold() -> dict[str, list[dict[str, Any]]]:
    from envs.bfcl.application import gold_steps
    from envs.bfcl.package import entries
    from envs.bfcl.tasks import read_row, resolve

    return {
        name: [step.model_dump(mode="json") for step in gold_steps(resolve(read_row({"id": name}), 0))]
        for name in entries()
    }


def webshop_episode(number: int, seen: Seen) -> Iterator[dict[str, Any]]:
    """Look for what the instruction wants, look at the first hit, buy it."""
    yield {"task": {"session_id": number % 3000}, "seed": 0}
    wanted = seen.answer.partition("Instruction: [SEP] ")[2][:120]
    for _ in range(2):
        yield {"message": f"search[{re.sub(r'[^a-zA-Z ]', ' ', wanted)}]"}
        found = ASIN.search(seen.answer)
        yield {"message": f"click[{found[0] if found else 'next >'}]"}
        yield {"message": "click[description]"}
        yield {"message": "click[< prev]"}
    yield {"message": "click[buy now]"}


EPISODES: dict[str, Callable[[int, Seen], Iterator[dict[str, Any]]]] = {
    "tools": tools_episode,
    "toolbench": toolbench_episode,
    "bfcl": bfcl_episode,
    "webshop": webshop_episode,
}


async def _session(name: str, number: int, url: str, ends_at: float, latencies: list[float]) -> None:
    async with connect(url, compression=None, ping_interval=None, max_size=None) as websocket:
        while time.perf_counter() < ends_at:
            seen, kind = Seen(), "reset"
            for data in EPISODES[name](number, seen):
                started = time.perf_counter()
                seen.answer = await _ask(websocket, json.dumps({"type": kind, "data": data}))
                if kind == "step":
                    latencies.append(time.perf_counter() - started)
                kind = "step"
            number += 256


async def _ask(websocket: ClientConnection, frame: str) -> str:
    await websocket.send(frame)
    answer = str(await websocket.recv())
    if '"observation"' not in answer[:30]:
        raise RuntimeError(f"the server answered {answer[:200]!r}")
    return answer


async def _episode(name: str, number: int, url: str, everyone: asyncio.Barrier, latencies: list[float]) -> bool:
    """One episode after all sessions are open; whether it came to its end."""
    try:
        connection = await connect(url, compression=None, ping_interval=None, max_size=None, open_timeout=OPEN_LIMIT_S)
    except (OSError, TimeoutError, WebSocketException):
        await everyone.wait()
        return False
    async with connection as websocket:
        await everyone.wait()
        seen, kind = Seen(), "reset"
        try:
            for data in EPISODES[name](number, seen):
                started = time.perf_counter()
                async with asyncio.timeout(ANSWER_LIMIT_S):
                    seen.answer = await _ask(websocket, json.dumps({"type": kind, "data": data}))
                latencies.append(time.perf_counter() - started)
                kind = "step"
        except (OSError, TimeoutError, RuntimeError, WebSocketException):
            return False
    return True


async def _open_at_once(name: str, url: str, sessions: int) -> dict[str, Any]:
    """So many sessions open at the same moment, each playing one episode."""
    latencies: list[float] = []
    everyone = asyncio.Barrier(sessions)
    address = f"{url.replace('http', 'ws', 1)}/ws"
    started = time.perf_counter()
    ended = await asyncio.gather(*(_episode(name, n, address, everyone, latencies) for n in range(sessions)))
    cuts = statistics.quantiles(latencies, n=100)
    return {
        "benchmark": f"envs.{name}.open",
        "sessions": sessions,
        "episodes_complete": sum(ended) / sessions,
        "target": COMPLETE_TARGET,
        "steps": len(latencies),
        "seconds": round(time.perf_counter() - started, 2),
        "p95_ms": round(cuts[94] * 1000, 2),
        "p99_ms": round(cuts[98] * 1000, 2),
    }


def measure_open(name: str, sessions: int) -> dict[str, Any]:
    """Start one server with as many slots and open them all."""
    _raise_descriptor_limit(sessions)
    with environment_server(name, "--slots", str(sessions)) as server:
        return asyncio.run(_open_at_once(name, server.url, sessions))


def _raise_descriptor_limit(sessions: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = sessions * 2 + 256
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


async def _measure(name: str, url: str, sessions: int, seconds: float) -> dict[str, Any]:
    latencies: list[float] = []
    started = time.perf_counter()
    address = f"{url.replace('http', 'ws', 1)}/ws"
    await asyncio.gather(*(_session(name, number, address, started + seconds, latencies) for number in range(sessions)))
    elapsed = time.perf_counter() - started
    cuts = statistics.quantiles(latencies, n=100)
    return {
        "sessions": sessions,
        "steps": len(latencies),
        "steps_per_s": round(len(latencies) / elapsed),
        "p50_ms": round(cuts[49] * 1000, 2),
        "p95_ms": round(cuts[94] * 1000, 2),
        "p99_ms": round(cuts[98] * 1000, 2),
    }


def _pin(process_id: int, core: int) -> None:
    if hasattr(os, "sched_setaffinity") and core in os.sched_getaffinity(0):
        os.sched_setaffinity(process_id, {core})


def measure(name: str, sessions: list[int], seconds: float) -> dict[str, Any]:
    """Start one server, measure each number of sessions, stop it."""
    with environment_server(name) as server:
        started = {"start_s": round(server.start_s, 2), "resident_mb": round(server.resident_mb)}
        _pin(server.pid, 0)
        _pin(0, 1)
        results = [asyncio.run(_measure(name, server.url, count, seconds)) for count in sessions]
    return {
        "benchmark": f"envs.{name}",
        "load": round(os.getloadavg()[0], 1),
        "target": TARGETS[name],
        **started,
        "results": results,
    }


def main() -> int:
    """Measure the servers one after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", nargs="+", choices=list(EPISODES), default=list(EPISODES))
    parser.add_argument("--sessions", type=int, nargs="+", default=[16, 256])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--open", type=int, default=2048, help="sessions open at once on the tools server; 0 skips it")
    options = parser.parse_args()
    for name in options.names:
        print(json.dumps(measure(name, options.sessions, options.seconds)), flush=True)
    if options.open:
        print(json.dumps(measure_open("tools", options.open)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
