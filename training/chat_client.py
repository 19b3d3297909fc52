"""Asks OpenAI-compatible endpoints for chat completions: checked addresses, a bounded answer, one time limit for all.

The number of requests at once is one number for each endpoint. An endpoint that is too busy (429, or any refusal with
``Retry-After``) is asked again within the time limit, with growing pauses or after the time that it names; meanwhile it
is not asked. Other refusals count as attempts. Judges and endpoints that play are asked here; every failure is a typed
``EndpointFault``: one that lasts until a person acts (``EndpointRefused``), one that may pass by itself
(``EndpointAway``), or one of this request alone.

A caller that wants to read along gets the text as it is written, from servers that stream; others answer in one piece.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from training.addresses import parse_place
from training.chat_reply import UNREADABLE, Refused, Reply, Streamed, read_reply
from training.connections import HttpAnswer, HttpClient, HttpFailed, TooLarge, Why, allow_list, own_access
from training.errors import (
    EndpointAway,
    EndpointBusy,
    EndpointFault,
    EndpointKeyRefused,
    EndpointRefused,
    EndpointTimeout,
    TiltyardError,
)
from training.redaction import redact, without_bytes

INSTEAD = {"empty": ": it is empty", "html": ": it is a web page (HTML)", "other": ""}
NOT_COMPATIBLE = "Is it an OpenAI-compatible server?"
MAX_REPLY_BYTES = 1 << 20
MAX_STREAM_BYTES = 16 << 20
"""Of a streamed reply, whose pieces wrap each token in some 200 bytes."""
CONNECT_LIMIT_S = 10.0
RETRY_BASE_S, RETRY_CAP_S = 0.5, 8.0
BUSY = 429
RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504})
JUDGE = "The judge"
NO_KEY = 401
SECRET_CHARS = 16
"""From this length on a key is one, and no word such as `ollama` that servers without keys are given."""
REFUSED = frozenset({NO_KEY, 402, 403, 404})
UNKNOWN_OPTION = frozenset({400, 422})
OnText = Callable[[str], None]
AWAY = frozenset({502, 503, 504})


@dataclass(frozen=True)
class Endpoint:
    """Where an endpoint is and how it is asked. ``key`` is the key itself, or ``key_variable`` names the variable that
    holds it; ``who`` is what sentences call it."""

    url: str
    model: str
    key_variable: str = ""
    concurrency: int = 8
    timeout_s: float = 25.0
    attempts: int = 2
    max_tokens: int = 300
    who: str = JUDGE
    key: str = field(default="", repr=False)


class Usage:
    """The use of the endpoints of this process: requests, failures, cached replies, tokens; by model."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}
        self._lock = threading.Lock()

    def add(self, model: str, **counts: float) -> None:
        """Count something."""
        with self._lock:
            self._counts.setdefault(model, Counter()).update(counts)

    def total(self) -> Counter[str]:
        """Counts so far of all of them together."""
        with self._lock:
            return sum(self._counts.values(), Counter())

    def of(self, model: str) -> dict[str, float]:
        """Counts so far: requests, failures, cached, prompt_tokens, completion_tokens, cost."""
        with self._lock:
            return dict(self._counts.get(model, Counter()))


usage = Usage()


async def complete(endpoint: Endpoint, body: dict[str, Any], on_text: OnText | None = None) -> Reply:
    """One chat completion. ``body`` is the request without its model; ``on_text`` hears the text as it is written.

    Raises ``EndpointFault``.
    """
    until = asyncio.get_running_loop().time() + endpoint.timeout_s
    try:
        async with asyncio.timeout_at(until), _slot(endpoint), _client(endpoint) as client:
            return await _tries(client, endpoint, {"model": endpoint.model, **body}, until, on_text)
    except TimeoutError as exc:
        raise EndpointTimeout(
            f"{endpoint.who} {endpoint.model} did not answer within {endpoint.timeout_s:g} s.",
            hint="Raise its time limit, or ask fewer at once.",
        ) from exc
    except HttpFailed as exc:
        kind = EndpointRefused if exc.why is Why.ADDRESS else EndpointAway
        text = f"{endpoint.who} cannot be reached: {str(exc)[:200].rstrip('.')}."
        raise kind(text, hint="Fix its address, or start it.") from exc
    except TiltyardError as exc:
        if isinstance(exc, EndpointFault):
            raise
        raise EndpointRefused(f"{endpoint.who} cannot be asked: {exc.message}", hint=exc.hint) from exc


_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[object, ...], HttpClient]] = WeakKeyDictionary()


def keep_clients(loop: asyncio.AbstractEventLoop) -> None:
    """Let all requests of this loop to one endpoint share a client, until ``drop_clients``: over a network a connection
    of its own costs each turn more than we do."""
    _clients.setdefault(loop, {})


async def drop_clients() -> None:
    """Close what the running loop has kept."""
    for client in _clients.pop(asyncio.get_running_loop(), {}).values():
        await client.close()


@asynccontextmanager
async def _client(endpoint: Endpoint) -> AsyncIterator[HttpClient]:
    """A client of the endpoint: the one that the loop keeps, or one for this request."""
    headers = _key_header(endpoint)
    kept = _clients.get(asyncio.get_running_loop()) if own_access() else None
    if kept is None:
        async with HttpClient(CONNECT_LIMIT_S, headers=headers) as client:
            yield client
        return
    key = (endpoint.url, endpoint.concurrency, *headers.values())
    if key not in kept:
        most = endpoint.concurrency
        kept[key] = HttpClient(CONNECT_LIMIT_S, headers=headers, connections=most, repeats=True)
    yield kept[key]


_Key = tuple[str, str, str]
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, tuple[int, asyncio.Semaphore]]] = WeakKeyDictionary()
_rests_until: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, float]] = WeakKeyDictionary()
"""When an endpoint that was too busy may be asked again, in the time of the event loop."""


def _key(endpoint: Endpoint) -> _Key:
    """An endpoint as one event loop knows it."""
    return endpoint.who, endpoint.url, endpoint.model


def _slot(endpoint: Endpoint) -> asyncio.Semaphore:
    """The endpoint's own count of requests at once; a changed number starts a new count."""
    key, slots = _key(endpoint), _slots.setdefault(asyncio.get_running_loop(), {})
    if key not in slots or slots[key][0] != endpoint.concurrency:
        slots[key] = (endpoint.concurrency, asyncio.Semaphore(endpoint.concurrency))
    return slots[key][1]


class _Answer(NamedTuple):
    """A whole answer; ``wait_s`` is what its ``Retry-After`` asks for."""

    status: int
    data: bytes
    wait_s: float | None
    reply: Reply | None = None


async def _tries(
    client: HttpClient, endpoint: Endpoint, body: dict[str, Any], until: float, on_text: OnText | None
) -> Reply:
    """Ask again after a refusal that may pass, with growing pauses."""
    failed = 0
    for pause in _pauses():
        await _rest(endpoint, until)
        try:
            answer = await _post(client, endpoint, body, on_text)
        except HttpFailed as exc:
            failed += 1
            if failed >= endpoint.attempts or exc.why is Why.ADDRESS:
                raise
        else:
            if answer.status == 200:
                return answer.reply or _parse_reply(endpoint, answer.data)
            if answer.status in UNKNOWN_OPTION and on_text is not None:
                on_text = None  # perhaps it does not stream: once more, in one piece
                continue
            if answer.status == BUSY or (answer.status in RETRIED and answer.wait_s is not None):
                _busy(endpoint, max(pause, answer.wait_s or 0.0))
                continue
            failed += 1
            if failed >= endpoint.attempts or answer.status not in RETRIED:
                raise _refusal(endpoint, answer)
        await asyncio.sleep(pause)
    raise AssertionError("unreachable: the pauses never end")


def _refusal(endpoint: Endpoint, answer: _Answer) -> EndpointFault:
    """The error for an answer other than 200."""
    kind: type[EndpointFault] = EndpointFault
    if answer.status in REFUSED:
        kind = EndpointKeyRefused if answer.status == NO_KEY else EndpointRefused
    elif answer.status in AWAY:
        kind = EndpointAway
    text = f"{endpoint.who} answered with HTTP {answer.status}{_excerpt(endpoint, answer.data)}."
    found = kind(text, hint="Look at its address, model and key.")
    found.status = answer.status
    return found


def _excerpt(endpoint: Endpoint, data: bytes) -> str:
    """What an endpoint says of its refusal, where it says it as OpenAI does; a judge's stays its own."""
    if endpoint.who == JUDGE:
        return ""
    try:
        text = json.loads(data)["error"]["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return f": {redact(str(text), _secrets(endpoint))[:200].rstrip('.')}"


def _pauses() -> Iterator[float]:
    """Growing pauses up to a cap, spread so that those who were refused together do not ask together."""
    for number in itertools.count():
        ceiling = min(RETRY_CAP_S, RETRY_BASE_S * 2 ** min(number, 16))
        yield ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries, guards nothing


def _busy(endpoint: Endpoint, seconds: float) -> None:
    loop, key = asyncio.get_running_loop(), _key(endpoint)
    rests = _rests_until.setdefault(loop, {})
    rests[key] = max(rests.get(key, 0.0), loop.time() + seconds)


async def _rest(endpoint: Endpoint, until: float) -> None:
    """Wait until the endpoint may be asked. Raises ``EndpointBusy`` when that is later than the limit."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    left = _rests_until.get(loop, {}).get(_key(endpoint), 0.0) - now
    if now + left >= until:
        busy = EndpointBusy(
            f"{endpoint.model} is too busy (HTTP 429): it may be asked again in {left:.0f} s, beyond its limit.",
            hint="Ask fewer at once, or raise its time limit.",
        )
        busy.status, busy.wait_s = BUSY, left
        raise busy
    if left > 0:
        await asyncio.sleep(left)


async def _post(client: HttpClient, endpoint: Endpoint, body: dict[str, Any], on_text: OnText | None) -> _Answer:
    if on_text is not None:
        body = body | {"stream": True, "stream_options": {"include_usage": True}}
    content, typed = json.dumps(body).encode(), {"Content-Type": "application/json"}
    url = f"{endpoint.url.rstrip('/')}/chat/completions"
    async with client.stream("POST", url, content=content, headers=typed) as answer:
        try:
            if on_text is not None and answer.status == 200 and _streams(answer):
                return _Answer(answer.status, b"", None, await _streamed(endpoint, answer, on_text))
            data = b"".join([chunk async for chunk in answer.chunks(MAX_REPLY_BYTES)])
        except TooLarge as exc:
            raise EndpointFault(f"{endpoint.who}'s answer is larger than 1 MB.") from exc
        return _Answer(
            answer.status,
            _without_key(endpoint, data),
            retry_after(answer.headers.get("retry-after"), time.time()),
        )


def _streams(answer: HttpAnswer) -> bool:
    return answer.headers.get("content-type", "").strip().lower().startswith("text/event-stream")


async def _streamed(endpoint: Endpoint, answer: HttpAnswer, on_text: OnText) -> Reply:
    """Read along. Once a person has seen a piece, nothing is asked again: they would see it twice."""
    seen = Streamed(on_text, _secrets(endpoint))
    try:
        async for chunk in answer.chunks(MAX_STREAM_BYTES):
            seen.feed(chunk)
        seen.end()
    except Refused as exc:
        message = redact(str(exc), _secrets(endpoint))[:200].rstrip(".")
        raise EndpointFault(f"{endpoint.who} ended its answer with an error: {message}.") from exc
    except UNREADABLE as exc:
        raise EndpointFault(f"{endpoint.who}'s answer is no chat completion.", hint=NOT_COMPATIBLE) from exc
    except HttpFailed as exc:
        if not seen.begun:
            raise
        raise EndpointFault(f"{endpoint.who} broke off in the middle of its answer.") from exc
    if not seen.whole:
        raise EndpointFault(f"{endpoint.who} broke off in the middle of its answer.")
    return seen.reply


def _without_key(endpoint: Endpoint, data: bytes) -> bytes:
    """Some repeat the key that they refuse; it may not be kept."""
    return without_bytes(data, _secrets(endpoint))


def _secrets(endpoint: Endpoint) -> tuple[str, ...]:
    """Its key, where that is one."""
    key = _key_of(endpoint)
    return (key,) if len(key) >= SECRET_CHARS else ()


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


def _parse_reply(endpoint: Endpoint, data: bytes) -> Reply:
    try:
        return read_reply(data)
    except UNREADABLE as exc:
        instead = _instead(data)
        text = f"{endpoint.who}'s answer is no chat completion{INSTEAD[instead]}."
        fault = EndpointFault(text, hint=NOT_COMPATIBLE)
        fault.instead = instead
        raise fault from exc


def _instead(data: bytes) -> str:
    """What came in a completion's place."""
    text = data.lstrip()[:15].lower()
    if not text:
        return "empty"
    return "html" if text.startswith((b"<!doctype", b"<html")) else "other"


def _key_header(endpoint: Endpoint) -> dict[str, str]:
    """The key, if one is given or named. Where addresses are checked, a named one goes only to the host that the
    operator set with it.

    Otherwise the author of a reward spec could send the operator's key anywhere.
    """
    key = _key_of(endpoint)
    if endpoint.key or not endpoint.key_variable:
        return {"Authorization": f"Bearer {key}"} if key else {}
    if not key:
        raise EndpointRefused(f"The variable {endpoint.key_variable} is not set.", hint="Set it to the key.")
    if allow_list() is not None:
        allowed = os.environ.get(f"{endpoint.key_variable}_HOST", "")
        if parse_place(endpoint.url).host.lower() != allowed.strip().lower():
            raise EndpointRefused(
                f"{endpoint.key_variable} may not be sent to this address.",
                hint=f"The operator sets {endpoint.key_variable}_HOST to its host.",
            )
    return {"Authorization": f"Bearer {key}"}


def _key_of(endpoint: Endpoint) -> str:
    """The key that is given or named; empty where there is none."""
    return endpoint.key or (os.environ.get(endpoint.key_variable, "") if endpoint.key_variable else "")
