"""Turns of vLLM: who may pass while weights change, and a turn out of a server's answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from training.errors import SamplerDisagrees
from training.policy.engine import Sample

RESUME_HINT = "Nothing was learned from this step. Resume plays it again; what is trained is kept."


class Gate:
    """Turns pass together, a change of weights alone. For the tasks of one event loop."""

    def __init__(self) -> None:
        self._entry = asyncio.Lock()
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Beside others like it."""
        async with self._entry:
            self._inside += 1
            self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @asynccontextmanager
    async def change(self) -> AsyncIterator[None]:
        """Once those inside have left; new ones wait."""
        async with self._entry:
            await self._empty.wait()
            yield


def sample_of(answer: dict[str, Any], prompt: list[int], stop_ids: frozenset[int]) -> Sample:
    """A turn out of an answer. Raises ``SamplerDisagrees`` where it is no turn after ``prompt``."""
    try:
        choice = answer["choices"][0]
        ids = [int(token) for token in choice["token_ids"]]
        logprobs = [float(value) for value in choice["logprobs"]["token_logprobs"]]
        echo = choice.get("prompt_token_ids")
    except (KeyError, IndexError, TypeError, ValueError) as exc:
        raise SamplerDisagrees("vLLM answered no token ids with log-probabilities.", hint=RESUME_HINT) from exc
    if echo is not None and list(echo) != prompt:
        raise SamplerDisagrees("vLLM answered another prompt than it was asked.", hint=RESUME_HINT)
    if not ids or len(ids) != len(logprobs):
        text = f"vLLM answered {len(ids)} tokens with {len(logprobs)} log-probabilities."
        raise SamplerDisagrees(text, hint=RESUME_HINT)
    return Sample(ids, logprobs, ids[-1] in stop_ids)
