"""Scoring with a time limit. A component that never returns costs its rollout, not the run."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from queue import SimpleQueue

from training.errors import RewardFault, RewardTimeout, TiltyardError
from training.rewards.base import Episode, Score
from training.rewards.text import MAX_REWARD

MAX_STUCK_THREADS = 32
Scorer = Callable[[Episode], Score]


class Scoring:
    """Runs a scorer in threads of its own, never two episodes in one thread at once.

    Idle threads are used again, because starting one costs milliseconds while the sampler computes. A Python thread
    cannot be ended from outside, so one that outlives its limit is left behind as a daemon; when ``MAX_STUCK_THREADS``
    are left behind, scoring is refused instead of starting more.
    """

    def __init__(self, scorer: Scorer, timeout_s: float) -> None:
        self._scorer = scorer
        self._timeout_s = timeout_s
        self._idle: list[_Worker] = []  # touched only by the event loop's thread
        self._stuck = 0

    async def score(self, episode: Episode) -> Score:
        """Score one episode. Raises ``RewardFault`` or ``RewardTimeout``."""
        if self._stuck >= MAX_STUCK_THREADS:
            raise RewardTimeout("Too many earlier scorings never returned.", hint="Fix the reward that hangs.")
        worker = self._idle.pop() if self._idle else _Worker(self._scorer)
        future = worker.submit(episode)
        try:
            async with asyncio.timeout(self._timeout_s):
                outcome = await asyncio.shield(future)
        except TimeoutError as exc:
            self._stuck += 1
            future.add_done_callback(lambda _: self._came_back(worker))
            raise RewardTimeout(f"Scoring took longer than {self._timeout_s:g} s.") from exc
        except asyncio.CancelledError:
            future.add_done_callback(lambda _: self._idle.append(worker))
            raise
        self._idle.append(worker)
        if isinstance(outcome, TiltyardError):
            raise outcome
        if not all(math.isfinite(value) for value in (outcome.total, *outcome.parts.values())):
            raise RewardFault("The reward is not a finite number.")
        if any(abs(value) > MAX_REWARD for value in (outcome.total, *outcome.parts.values())):
            raise RewardFault(f"The reward is larger than {MAX_REWARD:g}, or one of its parts is.")
        return outcome

    def close(self) -> None:
        """Let the idle threads end."""
        for worker in self._idle:
            worker.jobs.put(None)
        self._idle.clear()

    def _came_back(self, worker: _Worker) -> None:
        self._stuck -= 1
        self._idle.append(worker)


_Job = tuple[Episode, asyncio.AbstractEventLoop, "asyncio.Future[Score | TiltyardError]"]


class _Worker:
    """One daemon thread that scores the episodes it is given, one after another."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        threading.Thread(target=self._work, name="scoring", daemon=True).start()

    def submit(self, episode: Episode) -> asyncio.Future[Score | TiltyardError]:
        """Start scoring; the future holds the score or the typed error."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Score | TiltyardError] = loop.create_future()
        self.jobs.put((episode, loop, future))
        return future

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            episode, loop, future = job
            outcome = self._score(episode)
            try:
                loop.call_soon_threadsafe(_settle, future, outcome)
            except RuntimeError:
                return  # the event loop is closed: the run ended while this thread was stuck

    def _score(self, episode: Episode) -> Score | TiltyardError:
        try:
            return self._scorer(episode)
        except TiltyardError as error:
            return error
        except Exception as exc:  # the boundary of reward code
            return RewardFault(f"{type(exc).__name__} while scoring: {str(exc)[:300]}")


def _settle(future: asyncio.Future[Score | TiltyardError], outcome: Score | TiltyardError) -> None:
    if not future.done():
        future.set_result(outcome)
