"""Scoring with a time limit. A component that never returns costs its rollout, not the run."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable

from training.errors import RewardFault, RewardTimeout, TiltyardError
from training.rewards.base import Episode, Score

MAX_STUCK_THREADS = 32
Scorer = Callable[[Episode], Score]


class Scoring:
    """Runs a scorer in threads of its own, one an episode.

    A Python thread cannot be ended from outside, so one that outlives its limit is left behind as a daemon; when
    ``MAX_STUCK_THREADS`` are left behind, scoring is refused instead of starting more.
    """

    def __init__(self, scorer: Scorer, timeout_s: float) -> None:
        self._scorer = scorer
        self._timeout_s = timeout_s
        self._stuck = 0

    async def score(self, episode: Episode) -> Score:
        """Score one episode. Raises ``RewardFault`` or ``RewardTimeout``."""
        if self._stuck >= MAX_STUCK_THREADS:
            raise RewardTimeout("Too many earlier scorings never returned.", hint="Mend the reward that hangs.")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Score] = loop.create_future()
        threading.Thread(target=self._work, args=(episode, loop, future), name="scoring", daemon=True).start()
        try:
            async with asyncio.timeout(self._timeout_s):
                score = await asyncio.shield(future)
        except TimeoutError as exc:
            self._stuck += 1
            future.add_done_callback(self._came_back)
            raise RewardTimeout(f"Scoring took longer than {self._timeout_s:g} s.") from exc
        if not all(math.isfinite(value) for value in (score.total, *score.parts.values())):
            raise RewardFault("The reward is not a finite number.")
        return score

    def _came_back(self, future: asyncio.Future[Score]) -> None:
        self._stuck -= 1
        if not future.cancelled():
            future.exception()  # fetched, so that asyncio does not report it as never retrieved

    def _work(self, episode: Episode, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Score]) -> None:
        outcome: Score | TiltyardError
        try:
            outcome = self._scorer(episode)
        except TiltyardError as error:
            outcome = error
        except Exception as exc:  # the boundary of reward code
            outcome = RewardFault(f"{type(exc).__name__} while scoring: {str(exc)[:300]}")

        def settle() -> None:
            if future.done():
                return
            if isinstance(outcome, TiltyardError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:
            return  # the run ended while this thread was stuck
