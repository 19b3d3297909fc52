"""What we ask of one vLLM server over HTTP, and how its end is told from one bad request.

All requests run in a thread with an event loop of its own: turns are awaited from whichever loop plays the rollouts,
and weights are handed over from where none runs.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from training.addresses import AddressRefused
from training.connections import HttpClient, HttpFailed, TooLarge
from training.errors import EnvironmentUnreachable, PolicyFault

CONNECT_S, HEALTH_S = 10.0, 20.0
MOST_BYTES = 256 << 20
SHOWN = 300
T = TypeVar("T")


class Gone(Exception):
    """The server is down, hangs, or answers what no working one does. Its text says what was seen."""


class Hung(Gone):
    """It did not answer in time."""


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm-client", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it there, and wait for it here."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it there, and await it here. Cancelling here cancels there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        """End what still runs there, and the thread. Calling it twice does nothing."""
        if self._loop.is_closed():
            return
        self.call(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @staticmethod
    async def _cancel_all() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class VllmClient:
    """One server. ``name`` is what messages call it; ``socket`` is that of one we started, whatever ``url`` says.

    ``limit_s`` bounds a turn and the taking of weights, ``connections`` how many turns are asked for at once.
    """

    def __init__(self, loop: Loop, url: str, *, socket: Path | None = None, limit_s: float, connections: int) -> None:
        self.name = "vLLM" if socket is not None else f"vLLM at {url}"
        self._url = url.rstrip("/")
        self._loop = loop
        self._limit_s = limit_s
        self._http = HttpClient(CONNECT_S, path=socket, connections=connections + 2)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something of this client's where no event loop runs."""
        return self._loop.call(work)

    async def healthy(self) -> bool:
        """Whether it says that it works."""
        with suppress(Gone):
            status, _body = await self._request("GET", "/health", None, HEALTH_S)
            return status == 200
        return False

    async def get(self, path: str) -> dict[str, Any]:
        """An answer of JSON. Raises ``Gone``."""
        return self._json_body(path, *await self._request("GET", path, None, HEALTH_S))

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """An answer of JSON, or nothing where it is a plain text. Raises ``Gone`` for anything but success."""
        return self._json_body(path, *await self._request("POST", path, body, self._limit_s))

    async def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """One sampled turn. Raises ``PolicyFault`` where only this request is refused, else ``Gone``.

        What broke is asked for once more if the server says that it works: a connection may close as it is used, and a
        seeded turn is the same turn again.
        """
        try:
            status, answer = await self._request("POST", "/v1/completions", body, self._limit_s)
            again = status >= 500 and await self.healthy()
        except Hung:
            raise
        except Gone:
            if not await self.healthy():
                raise
            again = True
        if again:
            status, answer = await self._request("POST", "/v1/completions", body, self._limit_s)
        # 404: it has no such model, so it was started anew and has lost the adapter.
        if status != 200 and status != 404 and (status < 500 or await self.healthy()):
            raise PolicyFault(f"{self.name} refuses the turn ({status}): {_shown(answer)}")
        return self._json_body("/v1/completions", status, answer)

    async def close(self) -> None:
        """Drop the connections."""
        await self._http.close()

    def _json_body(self, path: str, status: int, answer: bytes) -> dict[str, Any]:
        if status != 200:
            raise Gone(f"{self.name} answers {status} at {path}: {_shown(answer)}")
        try:
            found = json.loads(answer) if answer else {}
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    async def _request(self, method: str, path: str, body: dict[str, Any] | None, limit_s: float) -> tuple[int, bytes]:
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with (
                asyncio.timeout(limit_s),
                self._http.stream(method, self._url + path, content=content, headers=headers) as answer,
            ):
                return answer.status, b"".join([chunk async for chunk in answer.chunks(MOST_BYTES)])
        except TimeoutError as exc:
            raise Hung(f"{self.name} did not answer at {path} within {limit_s:g} s.") from exc
        except (HttpFailed, TooLarge, AddressRefused, EnvironmentUnreachable) as exc:
            raise Gone(f"{self.name} could not be asked at {path}: {str(exc) or type(exc).__name__}.") from exc


def _shown(answer: bytes) -> str:
    text = answer[: 4 * SHOWN].decode("utf-8", "replace")
    with suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(answer)["error"]["message"])
    return " ".join(text.split())[:SHOWN]
