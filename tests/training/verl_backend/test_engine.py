"""verl's sampler as an engine: what it is asked, what it answers, and its ways to fail."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from training.errors import PolicyFault, ProcessLost, SamplerDied
from training.policy.engine import SamplingParams
from training.verl_backend import engine as module
from training.verl_backend.engine import ServerEngine


class Client:
    """Answers with ``ids`` and ``logprobs``; remembers what it was asked."""

    def __init__(
        self, ids: list[int], logprobs: list[float] | None, reason: str = "completed", wait_s: float = 0
    ) -> None:
        self._answer = ids, logprobs, reason
        self._wait_s = wait_s
        self.asked: list[tuple[str, list[int], dict[str, Any]]] = []

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        self.asked.append((request_id, prompt_ids, dict(sampling_params)))
        sampling_params.clear()  # as vLLM's server does with what it is given
        await asyncio.sleep(self._wait_s)
        ids, logprobs, reason = self._answer
        extra = {"global_steps": 3}
        return SimpleNamespace(token_ids=ids, log_probs=logprobs, stop_reason=reason, extra_fields=extra)


class Gone(Exception):
    """As Ray says that a process has died."""


def engine(client: Any, limit_s: float = 5) -> ServerEngine:
    return ServerEngine(client, SamplingParams(0.7, 1.0, 0), {9, 8}, limit_s, (Gone,))


def ask(made: ServerEngine, seed: int = 5) -> Any:
    return asyncio.run(made.generate([1, 2], max_tokens=6, seed=seed, episode="a1-s1-g0-i0"))


def test_a_turn_by_value() -> None:
    client = Client([4, 9], [-0.5, -0.25])
    made = engine(client)
    sample = ask(made)
    assert (sample.ids, sample.logprobs, sample.finished, sample.version) == ([4, 9], [-0.5, -0.25], True, 3)
    ask(made, seed=6)
    (episode, prompt, first), (_again, _prompt, second) = client.asked
    assert (episode, prompt) == ("a1-s1-g0-i0", [1, 2])
    assert first == {
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": -1,
        "repetition_penalty": 1.0,
        "logprobs": True,
        "stop_token_ids": [8, 9],
        "max_tokens": 6,
        "seed": 5,
    }
    assert second == first | {"seed": 6}
    assert (made.figures.turns, made.figures.tokens, made.version) == (2, 4, 3)


def test_a_turn_that_a_limit_cut_is_not_finished() -> None:
    assert ask(engine(Client([4, 5], [-0.5, -0.25]))).finished is False


@pytest.mark.parametrize(
    ("client", "says"),
    [
        (Client([], []), "gave up the turn"),
        (Client([4], [-0.5], "aborted"), "gave up the turn"),
        (Client([4], [-0.5], "abort"), "gave up the turn"),
        (Client([4, 5], [-0.5]), "2 tokens and 1 log-probabilities"),
        (Client([4], None), "1 tokens and 0 log-probabilities"),
    ],
)
def test_a_turn_without_what_is_learned_from_is_a_fault(client: Client, says: str) -> None:
    with pytest.raises(PolicyFault, match=says):
        ask(engine(client))


def test_a_sampler_that_hangs_is_dead_after_the_limit() -> None:
    made = engine(Client([4], [-0.5], wait_s=5), limit_s=0.05)
    with pytest.raises(SamplerDied, match=r"did not answer a turn within 0\.05 s"):
        ask(made)
    assert made.figures.turns == 0 and made.version == 0


def test_the_time_of_turns_at_once_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first turn takes from 10 to 13, the second from 12 to 15, the third from 20 to 21."""
    clock, moments = [0.0], {1: (10, 13), 2: (12, 15), 3: (20, 21)}
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    made, busy = engine(Client([], [])), []
    for at in range(25):
        clock[0] = float(at)
        for begins, ends in moments.values():
            if at == begins:
                made._begin()
            if at == ends:
                made._end()
        busy.append(made.figures.busy_seconds)
    assert [busy[at] for at in (9, 10, 11, 13, 15, 19, 21, 24)] == [0, 0, 1, 3, 5, 5, 6, 6]


@pytest.mark.parametrize(
    ("error", "raised"), [(Gone("died on\n192.0.2.9"), ProcessLost), (ValueError("no"), ValueError)]
)
def test_a_sampler_that_is_gone_ends_the_attempt_and_other_errors_stay(
    error: Exception, raised: type[Exception]
) -> None:
    """Its rollouts are no rollouts that failed: those that ended before it are a biased batch."""
    with pytest.raises(raised) as caught:
        ask(engine(SimpleNamespace(generate=AsyncMock(side_effect=error))))
    if raised is ProcessLost:
        assert str(caught.value) == "A process of the job was lost: a sampler (died on 192.0.2.9)."
