"""verl's sampler behind our ``Engine``: the servers that its client deals turns to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from training.config import JobConfig
from training.errors import PolicyFault, ProcessLost, SamplerDied
from training.policy.engine import EngineFigures, Sample, SamplingParams
from training.rollout.tokens import ChatTemplate
from training.words import _, sentence

HINT = "The log of the verl job says how its sampler ended."


class Client(Protocol):
    """What verl's ``LLMServerClient`` has. Turns of one ``request_id`` go to the same server."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        """``token_ids``, ``log_probs`` of each, ``stop_reason``, and ``global_steps`` of the weights among
        ``extra_fields``."""
        ...


class ServerEngine:
    """Samples the turns of one process. Its version is verl's: how many samplings the weights were
    trained on."""

    def __init__(
        self,
        client: Client,
        params: SamplingParams,
        ends: Collection[int],
        turn_timeout_s: float,
        lost: tuple[type[Exception], ...] = (),
    ) -> None:
        """``ends`` are the ids at which a turn stops. ``lost`` says that the server's process is gone."""
        self._client, self._limit_s, self._lost = client, turn_timeout_s, lost
        self._ends = frozenset(ends)
        self._fixed = {
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k or -1,
            "repetition_penalty": 1.0,
            "logprobs": True,
            "stop_token_ids": sorted(self._ends),
        }
        self._version = 0
        self._asking, self._since, self._busy_s = 0, 0.0, 0.0
        self._turns = self._tokens = 0

    @classmethod
    def of(
        cls, client: Client, config: JobConfig, template: ChatTemplate, lost: tuple[type[Exception], ...]
    ) -> ServerEngine:
        """The engine of a job. ``lost`` as above."""
        chosen = config.rollout
        params = SamplingParams(chosen.temperature, chosen.top_p, chosen.top_k)
        return cls(client, params, template.stop_ids, config.vllm.turn_timeout_s, lost)

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Sample:
        """See ``Engine.generate``."""
        wanted = self._fixed | {"max_tokens": max_tokens, "seed": seed}
        self._begin()
        try:
            async with asyncio.timeout(self._limit_s):
                found = await self._client.generate(episode, prompt_ids=prompt_ids, sampling_params=wanted)
        except TimeoutError as exc:
            raise SamplerDied(f"The sampler did not answer a turn within {self._limit_s:g} s.", hint=HINT) from exc
        except self._lost as exc:
            text = _("A process of the job was lost: a sampler ({why}).")
            raise ProcessLost(sentence(text, why=" ".join(str(exc).split())[:200])) from exc
        finally:
            self._end()
        ids, logprobs = list(found.token_ids), list(found.log_probs or [])
        if not ids or found.stop_reason in ("abort", "aborted"):
            raise PolicyFault("The sampler gave up the turn.")
        if len(logprobs) != len(ids):
            raise PolicyFault(f"The sampler gave {len(ids)} tokens and {len(logprobs)} log-probabilities.")
        self._version = int(found.extra_fields.get("global_steps") or 0)
        self._turns += 1
        self._tokens += len(ids)
        return Sample(ids, logprobs, finished=ids[-1] in self._ends, version=self._version)

    def _begin(self) -> None:
        if not self._asking:
            self._since = time.monotonic()
        self._asking += 1

    def _end(self) -> None:
        self._asking -= 1
        if not self._asking:
            self._busy_s += time.monotonic() - self._since

    def release(self, episode: str) -> None:
        """The servers forget an episode by themselves."""

    def sampling(self) -> AbstractContextManager[None]:
        """verl wakes its servers and lets them sleep."""
        return nullcontext()

    def weights_changed(self) -> int:
        """verl hands the weights over; each turn says with which ones it was sampled."""
        return self._version

    @property
    def version(self) -> int:
        """That of the last turn."""
        return self._version

    @property
    def figures(self) -> EngineFigures:
        """The turns of this process, and how long it waited for at least one of them."""
        running = time.monotonic() - self._since if self._asking else 0.0
        return EngineFigures(self._busy_s + running, self._turns, self._tokens)

    def close(self) -> None:
        """verl ends its servers."""
