"""Asks an OpenAI-compatible endpoint: checked addresses, a bounded answer, one time limit for all of it.

Scoring runs in threads; all asking happens on one event loop in a thread of its own, so that the number of requests at
once is one number for each endpoint. Every failure is a typed reward error: the rollout is missing, never 0.

A judge that is too busy (429, or any refusal with ``Retry-After``) is asked again within the time limit, with growing
pauses or after the time that it names; meanwhile nobody asks that endpoint. Other refusals count as attempts.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import itertools
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, NamedTuple

from training.addresses import parse_place
from training.connections import HttpClient, HttpFailed, TooLarge, Why, allow_list
from training.errors import RewardFault, RewardTimeout, TiltyardError

MAX_REPLY_BYTES = 1 << 20
CONNECT_LIMIT_S = 10.0
RETRY_BASE_S, RETRY_CAP_S = 0.5, 8.0
BUSY = 429
RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Endpoint:
    """Where the judge is and how it is asked. ``key_variable`` names the variable that holds the key."""

    url: str
    model: str
    key_variable: str = ""
    concurrency: int = 8
    timeout_s: float = 25.0
    attempts: int = 2
    max_tokens: int = 300


class Usage:
    """What the judges of this process were asked: requests, failures, cached replies, tokens; by model."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}
        self._lock = threading.Lock()

    def add(self, model: str, **counts: float) -> None:
        """Count something."""
        with self._lock:
            self._counts.setdefault(model, Counter()).update(counts)

    def total(self) -> Counter[str]:
        """Counts so far of all judges together."""
        with self._lock:
            return sum(self._counts.values(), Counter())

    def of(self, model: str) -> dict[str, float]:
        """Counts so far: requests, failures, cached, prompt_tokens, completion_tokens, cost."""
        with self._lock:
            return dict(self._counts.get(model, Counter()))


usage = Usage()


def ask(endpoint: Endpoint, messages: list[dict[str, str]]) -> tuple[str, dict[str, int]]:
    """The judge's text and its token counts. Raises ``RewardFault`` or ``RewardTimeout``."""
    usage.add(endpoint.model, requests=1)
    context = contextvars.copy_context()
    future: concurrent.futures.Future[tuple[str, dict[str, int]]] = concurrent.futures.Future()
    loop = _loop()
    loop.call_soon_threadsafe(lambda: _start(loop, endpoint, messages, future, context))
    try:
        # The task has the same limit and always ends; the second is for the loop to say so.
        return future.result(timeout=endpoint.timeout_s + 1)
    except (TimeoutError, concurrent.futures.TimeoutError) as exc:
        usage.add(endpoint.model, failures=1)
        raise RewardTimeout(
            f"The judge {endpoint.model} did not answer within {endpoint.timeout_s:g} s.",
            hint="Raise its time limit, or ask fewer at once.",
        ) from exc
    except TiltyardError:
        usage.add(endpoint.model, failures=1)
        raise


@lru_cache(maxsize=1)
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="judge", daemon=True).start()
    return loop


def _start(
    loop: asyncio.AbstractEventLoop,
    endpoint: Endpoint,
    messages: list[dict[str, str]],
    future: concurrent.futures.Future[tuple[str, dict[str, int]]],
    context: contextvars.Context,
) -> None:
    """Begin asking in the caller's context, which may carry the addresses that it may reach."""
    task = loop.create_task(_ask(endpoint, messages), context=context)
    _asking.add(task)
    task.add_done_callback(lambda done: _settle(done, future))


_asking: set[asyncio.Task[Any]] = set()
_slots: dict[tuple[str, str], tuple[int, asyncio.Semaphore]] = {}
_rests_until: dict[tuple[str, str], float] = {}
"""When an endpoint that was too busy may be asked again, in the time of the event loop."""


def _settle(done: asyncio.Task[Any], future: concurrent.futures.Future[Any]) -> None:
    _asking.discard(done)
    if (error := done.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(done.result())


def _slot(endpoint: Endpoint) -> asyncio.Semaphore:
    """The endpoint's own count of requests at once; a changed number starts a new count."""
    key = (endpoint.url, endpoint.model)
    if key not in _slots or _slots[key][0] != endpoint.concurrency:
        _slots[key] = (endpoint.concurrency, asyncio.Semaphore(endpoint.concurrency))
    return _slots[key][1]


async def _ask(endpoint: Endpoint, messages: list[dict[str, str]]) -> tuple[str, dict[str, int]]:
    body = {
        "model": endpoint.model,
        "messages": messages,
        "temperature": 0,
        "max_tokens": endpoint.max_tokens,
    }
    until = asyncio.get_running_loop().time() + endpoint.timeout_s
    async with asyncio.timeout_at(until), _slot(endpoint):
        try:
            async with HttpClient(CONNECT_LIMIT_S, headers=_key_header(endpoint)) as client:
                return await _tries(client, endpoint, body, until)
        except TiltyardError as exc:
            if isinstance(exc, (RewardFault, RewardTimeout)):
                raise
            raise RewardFault(f"The judge cannot be asked: {exc.message}", hint=exc.hint) from exc
        except HttpFailed as exc:
            raise RewardFault(
                f"The judge cannot be reached: {str(exc)[:200].rstrip('.')}.", hint="Fix its address, or start it."
            ) from exc


class _Answer(NamedTuple):
    """A whole answer; ``wait_s`` is what its ``Retry-After`` asks for."""

    status: int
    data: bytes
    wait_s: float | None


async def _tries(
    client: HttpClient, endpoint: Endpoint, body: dict[str, Any], until: float
) -> tuple[str, dict[str, int]]:
    """Ask again after a refusal that may pass, with growing pauses."""
    failed = 0
    for pause in _pauses():
        await _rest(endpoint, until)
        try:
            answer = await _post(client, f"{endpoint.url.rstrip('/')}/chat/completions", body)
        except HttpFailed as exc:
            failed += 1
            if failed >= endpoint.attempts or exc.why is Why.ADDRESS:
                raise
        else:
            if answer.status == 200:
                return _read(answer.data)
            if answer.status == BUSY or (answer.status in RETRIED and answer.wait_s is not None):
                _busy(endpoint, max(pause, answer.wait_s or 0.0))
                continue
            failed += 1
            if failed >= endpoint.attempts or answer.status not in RETRIED:
                raise RewardFault(
                    f"The judge answered with HTTP {answer.status}.", hint="Look at its address, model and key."
                )
        await asyncio.sleep(pause)
    raise AssertionError("unreachable: the pauses never end")


def _pauses() -> Iterator[float]:
    """Growing pauses up to a cap, spread so that those who were refused together do not ask together."""
    for number in itertools.count():
        ceiling = min(RETRY_CAP_S, RETRY_BASE_S * 2 ** min(number, 16))
        yield ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries, guards nothing


def _busy(endpoint: Endpoint, seconds: float) -> None:
    key = (endpoint.url, endpoint.model)
    _rests_until[key] = max(_rests_until.get(key, 0.0), asyncio.get_running_loop().time() + seconds)


async def _rest(endpoint: Endpoint, until: float) -> None:
    """Wait until the endpoint may be asked. Raises ``RewardFault`` when that is later than the limit."""
    now = asyncio.get_running_loop().time()
    left = _rests_until.get((endpoint.url, endpoint.model), 0.0) - now
    if now + left >= until:
        raise RewardFault(
            f"{endpoint.model} is too busy (HTTP 429): it may be asked again in {left:.0f} s, beyond its limit.",
            hint="Ask fewer at once, or raise its time limit.",
        )
    if left > 0:
        await asyncio.sleep(left)


async def _post(client: HttpClient, url: str, body: dict[str, Any]) -> _Answer:
    content, typed = json.dumps(body).encode(), {"Content-Type": "application/json"}
    async with client.stream("POST", url, content=content, headers=typed) as answer:
        try:
            data = b"".join([chunk async for chunk in answer.chunks(MAX_REPLY_BYTES)])
        except TooLarge as exc:
            raise RewardFault("The judge's answer is larger than 1 MB.") from exc
        return _Answer(answer.status, data, retry_after(answer.headers.get("retry-after"), time.time()))


def retry_after(value: str | None, now: float) -> float | None:
    """The seconds that a ``Retry-After`` asks for: a number or a date; ``None`` without a readable one."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


def _read(data: bytes) -> tuple[str, dict[str, int]]:
    try:
        value = json.loads(data)
        text = value["choices"][0]["message"]["content"]
        counted = value.get("usage") or {}
        tokens = {name: int(counted.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")}
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as exc:
        raise RewardFault(
            "The judge's answer is no chat completion.", hint="Is it an OpenAI-compatible server?"
        ) from exc
    if not isinstance(text, str):
        raise RewardFault("The judge answered without text.")
    return text, tokens


def _key_header(endpoint: Endpoint) -> dict[str, str]:
    """The key, if one is named. Where addresses are checked it goes only to the host that the operator set beside it.

    Otherwise whoever writes a reward spec could send the operator's key anywhere.
    """
    if not endpoint.key_variable:
        return {}
    key = os.environ.get(endpoint.key_variable, "")
    if not key:
        raise RewardFault(f"The variable {endpoint.key_variable} is not set.", hint="Set it to the judge's key.")
    if allow_list() is not None:
        allowed = os.environ.get(f"{endpoint.key_variable}_HOST", "")
        if parse_place(endpoint.url).host.lower() != allowed.strip().lower():
            raise RewardFault(
                f"{endpoint.key_variable} may not be sent to this judge.",
                hint=f"The operator sets {endpoint.key_variable}_HOST to the judge's host.",
            )
    return {"Authorization": f"Bearer {key}"}
