"""The interface of one environment, and its server's reports on it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from envs.base.settings import log
from envs.wire import Baseline, Observation, StepRequest, Validation

# What one environment implements: ``reset`` and ``step`` over the wire models.


class EnvironmentRefusal(Exception):
    """The peer asked for something that cannot be done. Its text is a sentence that the client may read."""


class ToolEnvironment(ABC):
    """One session: a fresh instance for each connection, used by one caller at a time.

    ``reset`` and ``step`` may be plain functions (they run on the event loop, so they must be quick), coroutines, or,
    with ``blocking = True``, plain functions that take long and run in the server's thread pool.
    """

    blocking: ClassVar[bool] = False

    @abstractmethod
    def reset(self, task: dict[str, Any], seed: int, episode_id: str) -> Observation | Awaitable[Observation]:
        """Start an episode. The same ``task`` and ``seed`` give the same episode in every process."""

    @abstractmethod
    def step(self, request: StepRequest) -> Observation | Awaitable[Observation]:
        """Play one turn of the policy."""

    def close(self) -> None:  # noqa: B027 - most environments hold nothing that needs closing
        """Free what the session holds. Called once, from a worker thread."""


# What a server reports of its environment besides play: whether it proves itself, and what a simple policy gets.
#
# Both are computed by the environment's own code, on request or once in the background, never read from a file.

VALIDATION_KEPT_S = 60.0


@dataclass(frozen=True)
class Facts:
    """``validate`` plays a few gold and bad episodes (within seconds); ``baselines`` plays simple policies.

    ``description`` is one sentence for ``/metadata``.
    """

    deterministic: bool = True
    description: str = ""
    validate: Callable[[], Validation] | None = None
    baselines: Callable[[], list[Baseline]] | None = None


class Prover:
    """Answers with the facts of one server. Validation is repeated at most once a minute for all callers."""

    def __init__(self, facts: Facts) -> None:
        self.deterministic = facts.deterministic
        self.description = facts.description
        self.baselines: list[Baseline] = []
        self._facts = facts
        self._lock = asyncio.Lock()
        self._last: tuple[float, Validation] | None = None
        if facts.baselines is not None:
            threading.Thread(target=self._compute, name="baselines", daemon=True).start()

    async def validation(self) -> Validation:
        """The outcome of playing gold and bad answers; ``ok`` is false where the environment has no proof."""
        validate = self._facts.validate
        if validate is None:
            return Validation(ok=False, episodes=0, problems=["This environment has no validation of its own."])
        async with self._lock:
            if self._last is None or time.monotonic() - self._last[0] > VALIDATION_KEPT_S:
                self._last = (time.monotonic(), await asyncio.to_thread(_run, validate))
            return self._last[1]

    def _compute(self) -> None:
        if self._facts.baselines is None:
            return
        try:
            self.baselines = self._facts.baselines()
        except Exception:
            log(logging.ERROR, "baselines.failed", exc_info=True)


def validation_of(summary: dict[str, Any]) -> Validation:
    """The summary that an environment's ``validate()`` prints, as it travels."""
    named = {"gold_failures": "gold answer", "bad_failures": "bad answer", "not_deterministic": "not deterministic"}
    problems = [f"{label}: {name}" for key, label in named.items() for name in summary.get(key, ())]
    return Validation(
        ok=summary["ok"],
        episodes=summary["episodes"],
        gold_reward=summary["gold_score_mean"],
        bad_reward=summary["bad_score_max"],
        problems=[problem[:200] for problem in problems[:20]],
    )


def _run(validate: Callable[[], Validation]) -> Validation:
    try:
        return validate()
    except Exception as error:
        log(logging.ERROR, "validate.failed", exc_info=True)
        return Validation(ok=False, episodes=0, problems=[f"Validation failed with {type(error).__name__}."])
