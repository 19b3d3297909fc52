"""One step's rollouts: all of them at once, each scored as it ends, every event journalled as it happens.

1. ``collect`` starts one task for each rollout; none waits for another.
2. A rollout that ends is scored at once, in a thread with a time limit; a failure excludes it.
3. When the last rollout of a group is scored its advantages are journalled (at the end of the step where they depend on
   the whole batch: ``batch`` scaling and ``normalize_then_sum``).
4. A rollout that lost its environment, or never got it, waits until it is back and begins again with the same seeds
   (``training/rollout/holding.py``). One that loses it ``MAX_LOSSES`` times in mid-episode is excluded.
5. A watcher looks at the stop flag every ``WATCH_S`` and cancels all tasks; ``StopRequested`` leaves ``collect``.
6. Too many failures over too many steps in a row pause the run (``training/rollout/holding.py``).
7. A person may end a rollout, or mark it as failed (``training/rollout/orders.py``).
8. A step's groups of zero variance may be played again with other tasks (``rollout.refill_rounds``).
"""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

from training import lanes
from training.chat_client import drop_clients, keep_clients, usage
from training.config import JobConfig, Signal
from training.data import Row
from training.errors import DataError, StopRequested, TiltyardError
from training.journal import ORDERS_NAME, Event, GroupScored, Journal, PhaseChanged, RolloutStarted
from training.machine import journal_fault
from training.rewards.combining import SCHEDULES_ENDED
from training.rewards.scoring import components_of
from training.rollout.figures import judge_figures, part_figures, step_figures
from training.rollout.holding import BAD_STEP_S, FailureShare, Hold
from training.rollout.orders import Order, Orders, too_late
from training.rollout.players import Ground, Offered, Part, grounds_of
from training.rollout.rewinding import Past, mix_seed
from training.rollout.scoring import Scorer, Scoring
from training.rollout.step import HOPELESS, Refill, Step
from training.rollout.trajectory import Player, Rollout, StepRollouts, Task

WATCH_S = 0.05


def _unknown(_version: int) -> None:
    """The updates of these weights are not counted."""


class Collector:
    """Collects the rollouts of a run's steps. Not thread-safe: one step at a time, always from the same thread."""

    mark = "s"

    def __init__(
        self,
        config: JobConfig,
        rows: Sequence[Row],
        player: Player,
        scorer: Scorer,
        journal: Journal,
        stop: threading.Event,
        attempt: int = 1,
        *,
        ahead: bool = False,
        trained: Callable[[int], int | None] = _unknown,
        spare: Sequence[int] | None = None,
        parts: Sequence[Part] = (),
    ) -> None:
        """``ahead``: steps are played while others are trained on, so their phases are not the run's. ``trained`` gives
        the steps that the weights of a version were trained for. ``spare`` are the rows that a refill may play: all,
        where nothing is said. ``parts``: each row is played and scored by the part that it is of, in place of
        ``player`` and ``scorer``.
        """
        self._spare = range(len(rows)) if spare is None else spare
        self._ahead, self._trained = ahead, trained
        self._abandoned = threading.Event()
        self.config = config
        self.rows = rows
        self.player = player
        self.scoring = Scoring(scorer, config.rewards.score_timeout_s)
        self._journal = journal
        self._stop = stop
        self.attempt = attempt
        self.hold = Hold(config.environment, self.write)
        self.components = components_of([part.config for part in parts] or [config])
        self._grounds = grounds_of(parts, self.write)
        self.fatal: TiltyardError | None = None
        self._failures = FailureShare(config.rollout, self.write, self._rest)
        self._runner = asyncio.Runner()
        keep_clients(self._runner.get_loop())
        self.offered = Offered()
        self.orders = Orders(journal.path.parent / ORDERS_NAME, self.mark, self._too_late)

    def abandon(self) -> None:
        """End what is being played soon, from any thread: ``collect`` raises ``StopRequested``."""
        self._abandoned.set()

    def close(self) -> None:
        """End the scoring threads and the event loop."""
        for scoring in (self.scoring, *(ground.scoring for ground in self._grounds)):
            scoring.close()
        self._runner.run(drop_clients())
        self._runner.close()

    def ground_of(self, row: int) -> Ground:
        """See ``Shared``."""
        if not self._grounds:
            return Ground("", 0, self.player, self.hold, self.scoring)
        return self._grounds[bisect_right(self._grounds, row, key=lambda ground: ground.begin) - 1]

    @property
    def _holds(self) -> list[Hold]:
        return [self.hold, *(ground.hold for ground in self._grounds)]

    def _part_of(self, row: int) -> str:
        return self.ground_of(row).name

    def holds(self, step: int) -> None:
        """Rollouts that wait from now on wait in this step."""
        for hold in self._holds:
            hold.step = step

    def collect(self, step: int, row_indices: Sequence[int], drawn: Sequence[int] | None = None) -> StepRollouts:
        """Play one rollout for each entry of ``row_indices``, in groups of ``group_size`` equal ones.

        A refill plays the rows of ``drawn`` in their order, or where there are none, some of those that are spare.
        Raises ``StopRequested``, ``StorageFull`` or an error that pauses the run: ``TooManyFailures``, or that of an
        environment which stayed away. Failures of single rollouts are data.
        """
        began = time.monotonic()
        self.holds(step)
        self.phase("generating", step)
        result = self._runner.run(self._collect(step, row_indices, drawn))
        self._failures.check(step, result.played or result.rollouts, time.monotonic() - began)
        return result

    async def _collect(self, step: int, row_indices: Sequence[int], drawn: Sequence[int] | None) -> StepRollouts:
        work = Step(self, step, row_indices)
        busy_before, began = self.player.engine.figures.busy_seconds, time.monotonic()
        asked_before, began_at = usage.total(), lanes.now()
        played = await self._play_all(work, range(len(row_indices)))
        refill = Refill(self.config, step, row_indices, self._spare, drawn, self._part_of)
        while more := refill.next(played):
            played += await self._play_all(work, work.extend(more))
        for hold in self._holds:
            await hold.learned()
        batch = refill.batch(played)
        groups = work.close_groups(batch, refill.kept)
        busy = self.player.engine.figures.busy_seconds - busy_before
        took = work.last_played - began
        figures = step_figures(played, groups) | judge_figures(asked_before, usage.total()) | refill.figures
        if self._grounds:
            figures |= part_figures([ground.name for ground in self._grounds], self._part_of, batch, played)
        figures |= {
            "timing/generation": min(busy, took),
            "timing/environment": max(0.0, took - busy),
            "timing/scoring": time.monotonic() - work.last_played,
        }
        tried = [rollout.trajectory for rollout in played]
        sampled = [turn for trajectory in tried for turn in trajectory.sampled]
        spans = lanes.played_spans(sampled, [trajectory.ended for trajectory in tried], began_at, lanes.now())
        return StepRollouts(batch, [groups[group] for group in refill.kept], figures, played, spans)

    async def _play_all(self, work: Step, positions: range) -> list[Rollout]:
        """Play the rollouts at some positions of a step. Raises what ends the run."""
        tasks = [asyncio.create_task(work.run_one(position)) for position in positions]
        watcher = asyncio.create_task(self._watch(tasks))
        try:
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            watcher.cancel()
        if self.fatal is not None:
            raise self.fatal
        if self._ending:
            raise StopRequested("The run was asked to stop.")
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome for outcome in outcomes if isinstance(outcome, Rollout)]

    async def _watch(self, tasks: list[asyncio.Task[Rollout]]) -> None:
        # Polled because a signal handler sets the flag, and that may not touch the loop.
        while not (self._ending or self.fatal is not None):
            self.orders.look()
            await asyncio.sleep(WATCH_S)
        for task in tasks:
            task.cancel()

    def _too_late(self, order: Order) -> None:
        self.write(too_late(order))

    @property
    def _ending(self) -> bool:
        return self._stop.is_set() or self._abandoned.is_set()

    def phase(self, phase: Literal["generating", "scoring"], step: int) -> None:
        """See ``Shared``."""
        if not self._ahead:
            self.write(PhaseChanged(phase=phase, step=step))

    def _rest(self, seconds: float) -> bool:
        """Wait; whether the run was asked to stop, or the collector to end."""
        if not self._ahead:
            return self._stop.wait(seconds)
        ends = time.monotonic() + seconds  # two flags may end this wait
        while not self._ending and (left := ends - time.monotonic()) > 0:
            self._abandoned.wait(min(left, WATCH_S))
        return self._ending

    def trained_of(self, version: int | None) -> int | None:
        """See ``Shared``."""
        return None if version is None else self._trained(version)

    def write(self, event: Event) -> None:
        """Journal an event. A disk that takes nothing must end the run, not exclude the rollout that wrote."""
        try:
            self._journal.write(event)
        except OSError as exc:
            self.fatal = journal_fault(exc, self._journal.path)


# An evaluation's rollouts: step after step without a pause between them, each task with seeds of its own.
#
# 1. At most ``in_flight`` rollouts are played at once; the next step begins while slow rollouts of the last ones
#    continue.
# 2. The seeds of a task depend on the task and its try alone, so every contestant meets the same episodes.
# 3. Rollouts that continue from a recorded one (``evaluate.continue_from``) have its episode's seed.
# 4. A rollout that fails outside the policy is played again, up to ``evaluate.replays`` times, before it is missing.

Steps = Iterable[tuple[int, Sequence[int]]]
OnStep = Callable[[int, StepRollouts], None]


class StreamingCollector(Collector):
    """A collector whose steps overlap."""

    past: Past | None = None

    def _step(self, step: int, rows: Sequence[int]) -> TaskStep:
        return TaskStep(self, step, rows)

    def stream(self, steps: Steps, *, in_flight: int, finished: OnStep) -> None:
        """Play all steps; ``finished`` is called with each, in their order. Raises as ``collect`` does."""
        self._runner.run(_Stream(self, in_flight, finished).play(steps))


class _Stream:
    def __init__(self, collector: StreamingCollector, in_flight: int, finished: OnStep) -> None:
        self._c = collector
        self._slots = asyncio.Semaphore(in_flight)
        self._finished = finished
        self._open: deque[tuple[TaskStep, list[asyncio.Task[Rollout]]]] = deque()
        self._tasks: list[asyncio.Task[Rollout]] = []
        self._asked = usage.total()

    async def play(self, steps: Steps) -> None:
        watcher = asyncio.create_task(self._c._watch(self._tasks))
        try:
            for step, rows in steps:
                if self._ending:
                    break
                await self._start_step(step, rows)
            while self._open and not self._ending:
                await asyncio.wait(self._open[0][1])
                self._close_ended()
        finally:
            watcher.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._c.fatal is not None:
            raise self._c.fatal
        if self._c._ending:
            raise StopRequested("The run was asked to stop.")

    @property
    def _ending(self) -> bool:
        return self._c.fatal is not None or self._c._ending

    async def _start_step(self, step: int, rows: Sequence[int]) -> None:
        """Start a step's rollouts as slots become free."""
        work = self._c._step(step, rows)
        self._c.holds(step)
        self._open.append((work, []))
        for position in range(len(rows)):
            await self._slots.acquire()
            if self._ending:
                return
            task = asyncio.create_task(work.run_one(position))
            task.add_done_callback(lambda _done: self._slots.release())  # also of one that never began
            self._open[-1][1].append(task)
            self._tasks[:] = [*(one for one in self._tasks if not one.done()), task]
            if len(self._open) > 1:
                self._close_ended()

    def _close_ended(self) -> None:
        """Hand over the oldest steps that are over. The newest one may still be growing, unless it is the last."""
        while self._open and not self._ending and self._open[0][0].size == len(self._open[0][1]):
            work, tasks = self._open[0]
            if not all(task.done() for task in tasks):
                return
            self._open.popleft()
            rollouts = [task.result() for task in tasks]
            groups, asked = work.close_groups(rollouts), usage.total()
            figures = step_figures(rollouts, groups) | judge_figures(self._asked, asked)
            self._asked = asked
            self._finished(work.step, StepRollouts(rollouts, groups, figures))
            self._c._failures.check(work.step, rollouts, BAD_STEP_S)


class TaskStep(Step):
    """A step of an evaluation."""

    def __init__(self, collector: StreamingCollector, step: int, row_indices: Sequence[int]) -> None:
        super().__init__(collector, step, row_indices)
        self._past = collector.past

    @property
    def size(self) -> int:
        """How many rollouts it has in all."""
        return len(self._indices)

    def _row(self, row_index: int) -> int:
        """The number of the task, drawn ones too: by it contestants are compared."""
        return row_index - self._c.ground_of(row_index).begin

    def _seeds(self, row_index: int, group: int, index: int) -> tuple[int, int]:
        seed = self._c.config.run.seed
        task = row_index - self._c.ground_of(row_index).begin  # the same as in a run of its part alone
        episode = mix_seed(seed, task) % 2**31 if self._past is None else self._past.seed
        return episode, mix_seed(seed, task, index)

    def _prepare_rollout(self, position: int) -> tuple[RolloutStarted, Task]:
        started, task = super()._prepare_rollout(position)
        return started, replace(task, past=self._past)

    @property
    def _weighed_at(self) -> int:
        return SCHEDULES_ENDED

    def _played(self, rollout: str) -> None:
        """Steps overlap, so there is no phase in which all of one are scored."""

    async def run_one(self, position: int) -> Rollout:
        """Play and score it, again where it failed outside the policy; journal the last try."""
        started, task = self._prepare_rollout(position)
        self._c.write(started)
        rollout = await self._unless_ordered(started, task, self._tries(started, task))
        self._finish(rollout, started.group, started.index)
        return rollout

    async def _tries(self, started: RolloutStarted, task: Task) -> Rollout:
        rollout = await self._once(started, task)
        for replay in range(1, self._c.config.evaluate.replays + 1):
            if rollout.trajectory.error is None or isinstance(rollout.trajectory.error, (*HOPELESS, DataError)):
                break
            self._c.write(started.model_copy(update={"again": replay}))
            rollout = await self._once(started, task)
        return rollout


class HeldOutCollector(StreamingCollector):
    """Plays the tasks that a run which trains holds out."""

    mark = "e"

    def _step(self, step: int, rows: Sequence[int]) -> TaskStep:
        return HeldOutStep(self, step, rows)


class HeldOutStep(TaskStep):
    """An evaluation within training. Its groups have no baseline: nothing is learned from them."""

    mark = "e"

    def _prepare_rollout(self, position: int) -> tuple[RolloutStarted, Task]:
        started, task = super()._prepare_rollout(position)
        return started.model_copy(update={"held_out": True}), task

    @property
    def _signal(self) -> Signal:
        return "all"

    def _say_group(self, event: GroupScored) -> None:
        """No advantages are journalled."""
