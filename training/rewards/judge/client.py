"""Asks a judge: ``training/chat_client.py`` from the threads that score.

Scoring runs in threads; all asking happens on one event loop in a thread of its own, so that the number of requests at
once is one number for each judge. Every failure is a typed reward error: the rollout is missing, never 0.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from functools import lru_cache
from typing import Any

from training.chat_client import Endpoint, complete, keep_clients, usage
from training.errors import EndpointFault, EndpointTimeout, RewardFault, RewardTimeout, TiltyardError


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
    keep_clients(loop)
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
    task = loop.create_task(_ask_judge(endpoint, messages), context=context)
    _asking.add(task)
    task.add_done_callback(lambda done: _settle(done, future))


_asking: set[asyncio.Task[Any]] = set()


def _settle(done: asyncio.Task[Any], future: concurrent.futures.Future[Any]) -> None:
    _asking.discard(done)
    if (error := done.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(done.result())


async def _ask_judge(endpoint: Endpoint, messages: list[dict[str, str]]) -> tuple[str, dict[str, int]]:
    body = {"messages": messages, "temperature": 0, "max_tokens": endpoint.max_tokens}
    try:
        reply = await complete(endpoint, body)
    except EndpointTimeout as exc:
        raise RewardTimeout(exc.message, hint=exc.hint) from exc
    except EndpointFault as exc:
        raise RewardFault(exc.message, hint=exc.hint) from exc
    if not isinstance(reply.message.get("content"), str):
        raise RewardFault("The judge answered without text.")
    return reply.text, reply.tokens
