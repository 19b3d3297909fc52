"""One step's rollouts: all of them at once, each scored as it ends, every event journalled as it happens.

1. ``collect`` starts one task for each rollout; none waits for another.
2. A rollout that ends is scored at once, in a thread with a time limit; a failure excludes it.
3. When the last rollout of a group is scored its advantages are journalled (at the end of the step where they hang
   on the whole batch: ``batch`` scaling and ``normalize_then_sum``).
4. A rollout that lost its environment, or never got it, waits until it is back and begins again with the same seeds
   (``training/rollout/holding.py``). One that loses it ``MAX_LOSSES`` times in mid-episode is excluded.
5. A watcher looks at the stop flag every ``WATCH_S`` and cancels all tasks; ``StopRequested`` leaves ``collect``.
6. Too many failures over too many steps in a row pause the run with the boundary that failed most. A bad step that took
   less than ``BAD_STEP_S`` is followed by a wait for the rest, so that an outage of seconds costs no run.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from envs.wire import Message
from training.chat_client import usage
from training.config import JobConfig, Signal
from training.data import Row
from training.errors import (
    Boundary,
    BudgetSpent,
    EndpointAway,
    EndpointRefused,
    SamplerDied,
    SamplerDisagrees,
    StopRequested,
    StorageFull,
    TiltyardError,
    TooManyFailures,
)
from training.journal import (
    Event,
    GroupScored,
    Held,
    Journal,
    PhaseChanged,
    RolloutFinished,
    RolloutStarted,
    TurnAdded,
)
from training.rewards.advantages import GroupStatistics, group_statistics, reward_std
from training.rewards.combining import advantages, terms_of
from training.rewards.registry import default_components
from training.rollout.figures import judge_figures, step_figures
from training.rollout.finished import Rollout, StepRollouts
from training.rollout.holding import Hold
from training.rollout.offered import Offered
from training.rollout.scoring import Scorer, Scoring
from training.rollout.signal import teaches, without_signal
from training.rollout.trajectory import Player, Task, Trajectory

WATCH_S = 0.05
BAD_STEP_S = 20.0
MAX_LOSSES = 3
HOPELESS = (BudgetSpent, EndpointRefused, EndpointAway, SamplerDied, SamplerDisagrees)
"""Every further rollout would end so too: the run pauses at once."""
TASK_TEXT_CHARS = 200


class Collector:
    """Collects the rollouts of a run's steps. Not thread-safe: one step at a time, always from the same thread."""

    def __init__(
        self,
        config: JobConfig,
        rows: Sequence[Row],
        player: Player,
        scorer: Scorer,
        journal: Journal,
        stop: threading.Event,
        attempt: int = 1,
    ) -> None:
        self._config = config
        self._rows = rows
        self._player = player
        self._scoring = Scoring(scorer, config.rewards.score_timeout_s)
        self._journal = journal
        self._stop = stop
        self._attempt = attempt
        self._hold = Hold(config.environment, self._write)
        self._fatal: TiltyardError | None = None
        self._bad_steps: list[Counter[Boundary]] = []
        self._runner = asyncio.Runner()
        self._offered = Offered()

    def close(self) -> None:
        """End the scoring threads and the event loop."""
        self._scoring.close()
        self._runner.close()

    def collect(self, step: int, row_indices: Sequence[int]) -> StepRollouts:
        """Play one rollout for each entry of ``row_indices``, in groups of ``group_size`` equal ones.

        Raises ``StopRequested``, ``StorageFull`` or an error that pauses the run: ``TooManyFailures``, or that of an
        environment which stayed away. Failures of single rollouts are data.
        """
        began = time.monotonic()
        self._hold.step = step
        self._write(PhaseChanged(phase="generating", step=step))
        result = self._runner.run(self._collect(step, row_indices))
        self._check_failures(step, result.rollouts, time.monotonic() - began)
        return result

    async def _collect(self, step: int, row_indices: Sequence[int]) -> StepRollouts:
        work = Step(self, step, row_indices)
        tasks = [asyncio.create_task(work.run_one(position)) for position in range(len(row_indices))]
        watcher = asyncio.create_task(self._watch(tasks))
        busy_before, began = self._player.engine.figures.busy_seconds, time.monotonic()
        asked_before = usage.total()
        try:
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            watcher.cancel()
        if self._fatal is not None:
            raise self._fatal
        if self._stop.is_set():
            raise StopRequested("The run was asked to stop.")
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        rollouts = [outcome for outcome in outcomes if isinstance(outcome, Rollout)]
        groups = work.close_groups(rollouts)
        busy = self._player.engine.figures.busy_seconds - busy_before
        played = work.last_played - began
        figures = step_figures(rollouts, groups) | judge_figures(asked_before, usage.total())
        figures |= {
            "timing/generation": min(busy, played),
            "timing/environment": max(0.0, played - busy),
            "timing/scoring": time.monotonic() - work.last_played,
        }
        return StepRollouts(rollouts, groups, figures)

    async def _watch(self, tasks: list[asyncio.Task[Rollout]]) -> None:
        # Polled because a signal handler sets the flag, and that may not touch the loop.
        while not (self._stop.is_set() or self._fatal is not None):  # noqa: ASYNC110
            await asyncio.sleep(WATCH_S)
        for task in tasks:
            task.cancel()

    def _check_failures(self, step: int, rollouts: list[Rollout], took_s: float) -> None:
        errors = [r.trajectory.error for r in rollouts if r.trajectory.error is not None]
        limit = self._config.rollout
        if len(errors) <= limit.failure_pause_share * len(rollouts):
            self._bad_steps.clear()
            return
        self._bad_steps.append(Counter(error.boundary for error in errors))
        if len(self._bad_steps) >= limit.failure_pause_steps:
            raise self._too_many(errors[0])
        if took_s < BAD_STEP_S:
            self._hold_back(step, errors[0], BAD_STEP_S - took_s)

    def _too_many(self, example: TiltyardError) -> TooManyFailures:
        worst, count = sum(self._bad_steps, Counter()).most_common(1)[0]
        error = TooManyFailures(
            f"More than {self._config.rollout.failure_pause_share:.0%} of the rollouts failed "
            f"in {len(self._bad_steps)} steps in a row; "
            f"{count} failures at the boundary '{worst}'. One of the last: {example.message}",
            hint=example.hint or f"Fix the {worst}, then resume the run.",
        )
        error.boundary = worst
        return error

    def _hold_back(self, step: int, example: TiltyardError, seconds: float) -> None:
        """Wait after a step that failed at once: what made it fail may pass, and the next one would fail as well."""
        left = self._config.rollout.failure_pause_steps - len(self._bad_steps)
        patience_s = (left - 1) * BAD_STEP_S
        tries = len(self._bad_steps)
        self._write(Held(step=step, error=example.info, tries=tries, next_try_s=seconds, patience_left_s=patience_s))
        if self._stop.wait(seconds):
            raise StopRequested("The run was asked to stop.")
        self._write(Held(step=step))

    def _write(self, event: Event) -> None:
        """Journal an event. A full disk must end the run, not exclude the rollout that happened to write."""
        try:
            self._journal.write(event)
        except OSError as exc:
            self._fatal = StorageFull(
                f"The journal cannot be written: {exc}", hint="Free space in the run directory, then resume."
            )


class Step:
    """The rollouts of one step while they run."""

    mark = "s"

    def __init__(self, collector: Collector, step: int, row_indices: Sequence[int]) -> None:
        self._c = collector
        self.step = step
        self._indices = row_indices
        self._size = collector._config.group_size
        self._open: dict[int, dict[int, Rollout]] = {}
        self._playing = len(row_indices)
        self._statistics: dict[int, GroupStatistics] = {}
        self.last_played = time.monotonic()

    async def run_one(self, position: int) -> Rollout:
        """Play, score and journal the rollout at a position of the step."""
        started, task = self._begin(position)
        self._c._write(started)
        rollout = await self._once(started, task)
        self._played()
        self._finish(rollout, started.group, started.index)
        return rollout

    def _begin(self, position: int) -> tuple[RolloutStarted, Task]:
        group, index = divmod(position, self._size)
        row_index = self._indices[position]
        row = self._c._rows[row_index]
        config = self._c._config
        started = RolloutStarted(
            rollout=f"a{self._c._attempt}-{self.mark}{self.step}-g{group}-i{index}",
            step=self.step,
            group=group,
            index=index,
            row=self._row(row_index),
            task=_task_text(row.messages),
            policy=config.policies[index] if config.policies else "",
        )
        episode_seed, sample_seed = self._seeds(row_index, group, index)
        task = Task(
            row=row_index,
            messages=list(row.messages),
            tools=row.tools,
            task=row.raw,
            episode_seed=episode_seed,
            sample_seed=sample_seed,
            episode_id=started.rollout,
            policy=started.policy,
        )
        return started, task

    def _row(self, row_index: int) -> int | None:
        """The row's place in the dataset, if there is one."""
        return None if self._c._config.draws_tasks else row_index

    def _seeds(self, row_index: int, group: int, index: int) -> tuple[int, int]:
        """Seeds of the episode, which its group shares, and of the sampling."""
        seed = self._c._config.run.seed
        return mix_seed(seed, self.step, group) % 2**31, mix_seed(seed, self.step, group, index)

    async def _once(self, started: RolloutStarted, task: Task) -> Rollout:
        """Play and score it."""
        rollout = Rollout(started.rollout, task.row, await self._play(task, started))
        if rollout.trajectory.error is None:
            await self._score(rollout, task.task)
        return rollout

    async def _play(self, task: Task, started: RolloutStarted) -> Trajectory:
        """Play to the rollout's own end: while the environment is away, wait and begin again."""
        hold, losses, failures = self._c._hold, 0, 0
        latencies: list[float] = []
        while True:
            turns = _TurnWriter(self._c, task.episode_id)
            trajectory = await self._c._player.play(task, turns)
            trajectory.env_errors += failures
            trajectory.latencies[:0] = latencies
            error = trajectory.error
            losses += turns.count > 0
            if error is None or losses > MAX_LOSSES or not await hold.away(error):
                return trajectory
            try:
                await hold.wait(error)
            except TiltyardError as spent:
                self._c._fatal = spent
                raise
            failures, latencies = trajectory.env_errors, trajectory.latencies
            if turns.count:
                self._c._write(started.model_copy(update={"again": losses}))

    def _played(self) -> None:
        self._playing -= 1
        self.last_played = time.monotonic()
        if self._playing == 0:
            self._c._write(PhaseChanged(phase="scoring", step=self.step))

    async def _score(self, rollout: Rollout, row: dict[str, Any]) -> None:
        try:
            score = await self._c._scoring.score(rollout.trajectory.episode(row))
        except TiltyardError as error:
            rollout.trajectory.exclude(error)
            return
        rollout.parts, rollout.reward = dict(score.parts), score.total

    def _finish(self, rollout: Rollout, group: int, index: int) -> None:
        trajectory = rollout.trajectory
        if isinstance(trajectory.error, HOPELESS):
            self._c._fatal = trajectory.error
        calls, failed_calls = trajectory.tool_calls()
        self._c._write(
            RolloutFinished(
                rollout=rollout.name,
                status=trajectory.status,
                reward=rollout.reward,
                parts=dict(rollout.parts or {}),
                env_reward=trajectory.env_reward,
                env_parts=trajectory.env_parts,
                parse_errors=trajectory.parse_errors,
                error=trajectory.error.info if trajectory.error is not None else None,
                turns=trajectory.turns,
                tokens=trajectory.sampled_tokens,
                seconds=trajectory.seconds,
                calls=calls,
                failed_calls=failed_calls,
                cost=trajectory.cost,
            )
        )
        members = self._open.setdefault(group, {})
        members[index] = rollout
        config = self._c._config
        waits = config.gradient.scale_rewards == "batch" or config.rewards.aggregation == "normalize_then_sum"
        if len(members) == self._size and not waits:
            self._close_group(group, None)

    def close_groups(self, rollouts: list[Rollout]) -> list[GroupStatistics]:
        """Statistics of all groups in order; journals those that waited for the whole batch."""
        batch_std = reward_std([rollout.reward for rollout in rollouts])
        combined = self._combined(rollouts)
        for group in sorted(self._open):
            begin = group * self._size
            self._close_group(group, batch_std, combined[begin : begin + self._size] if combined else None)
        return [self._statistics[group] for group in sorted(self._statistics)]

    def _combined(self, rollouts: list[Rollout]) -> list[float | None] | None:
        """Advantages of the whole batch under ``normalize_then_sum``, else ``None``."""
        rewards = self._c._config.rewards
        if rewards.aggregation == "sum_then_normalize":
            return None
        chosen = rewards.components or default_components()
        terms = [None if r.parts is None else terms_of(r.parts, chosen, self.step) for r in rollouts]
        return advantages(terms, chosen, self._size, aggregation=rewards.aggregation)

    @property
    def _signal(self) -> Signal:
        """Which groups count: only what is learned from is left out."""
        config = self._c._config
        return config.rewards.signal if config.method.learns_from == "rollouts" else "all"

    def _close_group(self, group: int, batch_std: float | None, combined: list[float | None] | None = None) -> None:
        members = [rollout for _, rollout in sorted(self._open.pop(group).items())]
        rewards = [rollout.reward for rollout in members]
        result = group_statistics(rewards, scale=self._c._config.gradient.scale_rewards, batch_std=batch_std)
        if combined is not None:
            result = result._replace(advantages=combined)
        if not teaches(members, result, self._signal):
            result = without_signal(result)
        self._statistics[group] = result
        self._say_group(
            GroupScored(
                step=self.step,
                group=group,
                rollouts=[rollout.name for rollout in members],
                advantages=result.advantages,
                reward_mean=result.mean,
                reward_std=result.std,
                zero_variance=result.zero_variance,
                **self._c._offered.of(members),
            )
        )

    def _say_group(self, event: GroupScored) -> None:
        self._c._write(event)


class _TurnWriter:
    """Journals the turns of one rollout, numbered from 0 (the prompt). The first one tells that its episode began."""

    def __init__(self, collector: Collector, name: str) -> None:
        self._collector = collector
        self._name = name
        self.count = 0

    def __call__(self, messages: list[Message], tokens: int, seconds: float) -> None:
        if not self.count:
            self._collector._hold.answered()
        self._collector._write(
            TurnAdded(rollout=self._name, turn=self.count, messages=messages, tokens=tokens, seconds=seconds)
        )
        self.count += 1


def mix_seed(*parts: int) -> int:
    """A 56-bit seed from several numbers, the same on every machine."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")


def _task_text(messages: Sequence[Message]) -> str:
    users = [message.content for message in messages if message.role == "user"]
    return users[-1][:TASK_TEXT_CHARS] if users else ""
