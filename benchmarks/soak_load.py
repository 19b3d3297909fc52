"""The people of ``benchmarks/soak.py`` who only look: open tabs and requests.

A process of its own: its orders come as a line of JSON on the standard input; when that closes, it prints what it saw.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import time
from collections import Counter, defaultdict
from itertools import cycle
from statistics import median, quantiles
from typing import Any

import httpx
import websockets

RECONNECT_S = (0.5, 8.0)  # as the page's script does it: the pause doubles
ANSWER_LIMIT_S = 60.0
DOOR = 20  # tabs that open at the same moment
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")


class Load:
    """Tabs that stay open and people who ask for something once a second."""

    def __init__(self, orders: dict[str, Any]) -> None:
        self.orders = orders
        self.statuses: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.took: list[float] = []
        self.took_when_open: list[float] = []  # asked for while all tabs were open
        self.of_kind: defaultdict[str, list[float]] = defaultdict(list)
        self.tabs: Counter[str] = Counter()
        self.open_now = self.most_open = self.frames = self.bytes = 0
        self.closed: Counter[str] = Counter()
        self.ended = asyncio.Event()

    async def run(self) -> dict[str, Any]:
        """All at once until the input closes; the figures."""
        began = time.monotonic()
        door = asyncio.Semaphore(DOOR)
        jobs = [asyncio.create_task(self._tab(tab, door)) for tab in self.orders["tabs"]]
        jobs += [asyncio.create_task(self._person(place, cookie)) for place, cookie in enumerate(self.orders["people"])]
        await asyncio.to_thread(sys.stdin.read)
        self.ended.set()
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        seconds = time.monotonic() - began
        return {
            "requests": len(self.took),
            "requests_a_second": round(len(self.took) / seconds, 1),
            "statuses": dict(self.statuses),
            "wrong": dict(self.wrong.most_common(20)),
            "answer_s": spread(self.took),
            "answer_s_when_all_tabs_are_open": spread(self.took_when_open),
            "answer_s_of": {kind: spread(took) for kind, took in sorted(self.of_kind.items())},
            "tabs": {
                "most_open": self.most_open,
                "opened": self.tabs["opened"],
                "not_opened": {name: n for name, n in self.tabs.items() if name != "opened"},
                "closed_by_us": dict(self.closed),
                "frames": self.frames,
                "megabytes": round(self.bytes / 1e6),
            },
        }

    async def _tab(self, tab: dict[str, str], door: asyncio.Semaphore) -> None:
        """An open page: it reads, and opens its socket again when that has closed."""
        pause = RECONNECT_S[0]
        while not self.ended.is_set():
            try:
                async with door:
                    line = await websockets.connect(
                        tab["socket"],
                        additional_headers={"Cookie": tab["cookie"]},
                        origin=self.orders["origin"],
                        max_size=None,
                        open_timeout=ANSWER_LIMIT_S,
                    )
            except (OSError, TimeoutError, websockets.exceptions.InvalidHandshake) as exc:
                self.tabs[_why(exc)] += 1
                await asyncio.sleep(pause)
                pause = min(2 * pause, RECONNECT_S[1])
                continue
            pause = RECONNECT_S[0]
            await self._read(line)

    async def _read(self, line: Any) -> None:
        self.tabs["opened"] += 1
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            async for text in line:
                self.frames += 1
                self.bytes += len(text)
        except websockets.exceptions.ConnectionClosed:
            pass
        finally:
            self.open_now -= 1
            if not self.ended.is_set():
                self.closed[str(line.close_code)] += 1
            await line.close()

    async def _person(self, place: int, cookie: str) -> None:
        """Ask for one address after another, a second apart; a person who waits longer asks more rarely."""
        addresses = self.orders["addresses"]
        turn = cycle([*addresses[place % len(addresses) :], *addresses[: place % len(addresses)]])
        await asyncio.sleep(place / max(1, len(self.orders["people"])))
        async with httpx.AsyncClient(
            base_url=self.orders["origin"], headers={"Cookie": cookie}, timeout=ANSWER_LIMIT_S
        ) as browser:
            for address in turn:
                began = time.monotonic()
                await self._ask(browser, address)
                await asyncio.sleep(max(0.0, 1 - (time.monotonic() - began)))

    async def _ask(self, browser: httpx.AsyncClient, address: str) -> None:
        began, all_open = time.monotonic(), self.open_now == len(self.orders["tabs"])
        try:
            answer = await browser.get(address)
        except httpx.TimeoutException:
            self.statuses["no answer in time"] += 1
            self.wrong[f"{address} no answer in {ANSWER_LIMIT_S:g} s"] += 1
        except httpx.HTTPError:
            self.statuses["no connection"] += 1  # the web server itself is being started again
        else:
            self.took.append(time.monotonic() - began)
            self.of_kind[_ID.sub("<id>", address)].append(self.took[-1])
            if all_open:
                self.took_when_open.append(self.took[-1])
            self.statuses[str(answer.status_code)] += 1
            if answer.status_code != 200:
                self.wrong[f"{address} {answer.status_code} {named(answer)}"] += 1


def spread(seconds: list[float]) -> dict[str, float]:
    """How long answers took, and of how many."""
    cuts = quantiles(seconds, n=100) if len(seconds) > 1 else [0.0] * 99
    return {
        "n": len(seconds),
        "p50": round(median(seconds or [0.0]), 3),
        "p95": round(cuts[94], 3),
        "p99": round(cuts[98], 3),
        "max": round(max(seconds, default=0.0), 2),
    }


def named(answer: httpx.Response) -> str:
    """How an answer names its failure: the code in its JSON, or the checks of ``/readyz`` that failed; of a page,
    whether it says when to come again."""
    with contextlib.suppress(ValueError, AttributeError):
        found = answer.json()
        return str(found.get("code") or ", ".join(name for name, value in found.items() if value is False))
    return "come again" if "Retry-After" in answer.headers else answer.headers.get("Location", "")[:60]


def _why(exc: BaseException) -> str:
    if isinstance(exc, websockets.exceptions.InvalidStatus):
        return f"HTTP {exc.response.status_code}"
    return type(exc).__name__


def main() -> int:
    """Read the orders, look until the input closes, and print what was seen."""
    orders = json.loads(sys.stdin.readline())
    print(json.dumps(asyncio.run(Load(orders).run())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
