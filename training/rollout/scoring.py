"""The earnings of rollouts: their scores, and the credit of each turn."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from training.config import JobConfig, RewardComponent
from training.config.learning import PpoConfig
from training.errors import RewardFault, RewardTimeout, TiltyardError
from training.rewards.base import Episode, Score
from training.rewards.combining import GroupStatistics, mean_of
from training.rewards.text import MAX_REWARD
from training.rewards.turns import gains_of, turn_credit
from training.rollout.trajectory import Rollout

# Scoring with a time limit. A component that never returns costs its rollout, not the run.

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


# Credit to turns on the way from a finished group to the trainer, and its figures. The arithmetic is
# ``training/rewards/turns.py``.

TURN_SHARE, SILENT_SHARE = "credit/turn_share", "credit/silent_share"
LEAST_SPREAD = 1e-12
"""Variance of advantages below which they are equal, and have no share."""


def give_credit(
    members: Sequence[Rollout],
    result: GroupStatistics,
    config: JobConfig,
    components: Sequence[RewardComponent],
    step: int,
    batch_std: float | None,
) -> None:
    """Fill in what the turns of a group's rollouts gained, and their credit where groups are compared. ``components``
    are the job's, of all its parts."""
    chosen = config.gradient
    if chosen.credit == "rollout" or config.method.learns_from != "rollouts" or not result.teaches:
        return
    for rollout in members:
        if rollout.parts is not None:
            played = rollout.trajectory
            rollout.gains = gains_of(played.turn_rewards, played.turns, components, rollout.parts, step)
    if isinstance(chosen, PpoConfig):
        return
    found = turn_credit(
        [rollout.reward for rollout in members],
        result.advantages,
        [rollout.gains for rollout in members],
        weight=chosen.credit_weight,
        discount=chosen.credit_discount,
        scale=chosen.scale_rewards,
        batch_std=batch_std,
    )
    for rollout, credit in zip(members, found, strict=True):
        rollout.credit = credit


def turn_advantages(members: Sequence[Rollout], result: GroupStatistics) -> list[list[float] | None] | None:
    """The advantages of the turns of a group's rollouts; ``None`` where turns have no credit of their own, as a whole
    or of a rollout."""
    pairs = zip(members, result.advantages, strict=True)
    found = [
        None if rollout.credit is None or advantage is None else rollout.credit.of(advantage)
        for rollout, advantage in pairs
    ]
    return found if any(row is not None for row in found) else None


def token_credit(rollout: Rollout) -> dict[str, Any] | None:
    """What the trainer needs to lay a rollout's credit over its tokens: where turns begin and end among them, and
    either what is taken off each (``less``), or the ``gains`` of each but the last."""
    played = rollout.trajectory
    ends = [*played.turn_starts[1:], len(played.completion_ids)]
    turns = {"starts": played.turn_starts, "ends": ends}
    if rollout.credit is not None:
        return turns | {"less": rollout.credit.less}
    return turns | {"gains": rollout.gains} if rollout.gains else None


def credit_figures(rollouts: Sequence[Rollout], groups: Sequence[GroupStatistics]) -> dict[str, float]:
    """Of a step's rollouts that are learned from: the share of the variance of turns' advantages that lies within
    rollouts, and the share of rollouts with several turns whose environment paid nothing before the end."""
    size = len(rollouts) // len(groups)
    learned = [
        (rollout, groups[place // size].advantages[place % size])
        for place, rollout in enumerate(rollouts)
        if rollout.parts is not None and groups[place // size].teaches
    ]
    figures: dict[str, float] = {}
    several = [rollout.gains is None for rollout, _advantage in learned if rollout.trajectory.turns > 1]
    if several:
        figures[SILENT_SHARE] = sum(several) / len(several)
    rows = [
        [advantage] * rollout.trajectory.turns if rollout.credit is None else rollout.credit.of(advantage)
        for rollout, advantage in learned
        if advantage is not None
    ]
    share = share_within([row for row in rows if row])
    return figures if share is None else figures | {TURN_SHARE: share}


def share_within(rows: Sequence[Sequence[float]]) -> float | None:
    """The share of the values' variance that lies within rows, 0 to 1; ``None`` where they do not vary."""
    values = [value for row in rows for value in row]
    if not values:
        return None
    mean = mean_of(values)
    whole = sum((value - mean) ** 2 for value in values)
    differing = [(row, mean_of(row)) for row in rows if max(row) > min(row)]  # of equal ones rounding would be left
    within = sum((value - of_row) ** 2 for row, of_row in differing for value in row)
    return None if whole / len(values) < LEAST_SPREAD else within / whole
