"""An evaluation's rollouts: step after step without a pause between them, each task with seeds of its own.

1. At most ``in_flight`` rollouts are played at once; the next step begins while slow rollouts of the last ones go on.
2. The seeds of a task hang on the task and its try alone, so every contestant meets the same episodes.
3. Rollouts that continue from a recorded one (``evaluate.continue_from``) have its episode's seed.
4. A rollout that fails outside the policy is played again, up to ``evaluate.replays`` times, before it is missing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from training.chat_client import usage
from training.config import Signal
from training.errors import DataError, StopRequested
from training.events import GroupScored, RolloutStarted
from training.rewards.combining import SCHEDULES_ENDED
from training.rollout.collector import Collector
from training.rollout.figures import judge_figures, step_figures
from training.rollout.holding import BAD_STEP_S
from training.rollout.past import Past, mix_seed
from training.rollout.step import HOPELESS, Step
from training.rollout.trajectory import Rollout, StepRollouts, Task

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
        """No advantages are told."""
