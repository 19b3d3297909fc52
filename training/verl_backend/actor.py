"""One process that plays: our steps, with the groups that verl gives to it.

1. verl asks for the rollouts of a group one by one, at once; all of a group come to one process.
2. Each is played, scored and journalled by our own step (``training/rollout/step.py``), with the names and the seeds
   that it has in a run on one device: they depend on step, group and index alone.
3. What a rollout teaches is known once its group is scored, so each waits for the others of its group.
4. An excluded rollout becomes one token that nothing is learned from, so that the batch keeps its size and verl fills
   it up with nothing. So do the masks of a group of which fewer than two are left: its reward has nothing to be
   compared with, and verl would take it as it is for the advantage.
5. An error that ends the run is handed to the trainer with the rows; every wait ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from training.chat_client import keep_clients
from training.config import JobConfig
from training.data import Row
from training.data.reader import load_rows
from training.errors import TiltyardError
from training.journal import ORDERS_NAME, Event, Journal
from training.machine import journal_fault
from training.policy.engine import Engine
from training.rewards.combining import GroupStatistics
from training.rewards.scoring import components_of, score_episode
from training.rollout.holding import Hold
from training.rollout.orders import LOOK_S, Order, Orders, too_late
from training.rollout.players import Ground, Offered, make_player
from training.rollout.scoring import Scorer, Scoring
from training.rollout.step import Step
from training.rollout.tokens import ChatTemplate
from training.rollout.trajectory import Player, Rollout
from training.verl_backend.counting import first_step
from training.verl_backend.folder import JobFolder, Plan

MARK = "s"


@dataclass(frozen=True)
class Lesson:
    """A rollout as the trainer gets it: ids, one mask and log-probability for each id behind the prompt, and one
    advantage for all of them. ``facts`` are plain values for the step's figures."""

    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]
    logprobs: list[float]
    advantage: float
    facts: dict[str, Any]


def lesson_of(
    rollout: Rollout, statistics: GroupStatistics, index: int, eos_id: int, *, mask_truncated: bool
) -> Lesson:
    """What the rollout at ``index`` of its group teaches."""
    played, advantage = rollout.trajectory, statistics.advantages[index]
    facts = facts_of(rollout)
    if advantage is None or not played.completion_ids:
        return Lesson([eos_id], [eos_id], [0], [0.0], 0.0, facts)
    left = sum(value is not None for value in statistics.advantages)
    silent = left < 2 or not statistics.teaches or (mask_truncated and played.status == "truncated")
    mask = [0] * len(played.mask) if silent else list(played.mask)
    return Lesson(played.prompt_ids, played.completion_ids, mask, played.logprobs, advantage, facts)


def facts_of(rollout: Rollout) -> dict[str, Any]:
    """What figures are made of, as plain values; ``reward`` and ``parts`` are ``None`` where it is excluded."""
    played = rollout.trajectory
    kept = ("status", "turns", "env_parts", "env_errors", "latencies", "sampled", "ended")
    found = {name: getattr(played, name) for name in kept}
    return found | {
        "error": error_of(played.error) if played.error is not None else None,
        "name": rollout.name,
        "row": rollout.row,
        "reward": rollout.reward,
        "parts": rollout.parts,
        "tokens": played.sampled_tokens,
    }


def error_of(error: TiltyardError) -> dict[str, Any]:
    """An error as plain values."""
    return error.info.model_dump(mode="json") | {"pauses": error.pauses}


class ActorStep(Step):
    """The rollouts of one step that this process plays."""

    def __init__(self, actor: Actor, step: int, rows: Sequence[int]) -> None:
        super().__init__(actor, step, [row for row in rows for _ in range(actor.config.group_size)])
        self._ended: dict[int, asyncio.Event] = {}
        self._broken: dict[int, BaseException] = {}

    async def learned(self, group: int, index: int) -> tuple[Rollout, GroupStatistics]:
        """Play a rollout; it and its group's statistics, once all of the group are scored. Raises what broke one."""
        ended = self._ended.setdefault(group, asyncio.Event())
        try:
            rollout = await self.run_one(group * self._size + index)
        except BaseException as exc:
            self._broken.setdefault(group, exc)
            ended.set()
            raise
        await ended.wait()
        if group in self._broken:
            raise self._broken[group]
        return rollout, self._statistics[group]

    def has(self, rollout: str) -> bool:
        """Whether the rollout is of a group of this process."""
        return any(f"-{MARK}{self.step}-g{group}-" in rollout for group in self._ended)

    def _close_group(self, group: int, *given: Any, **named: Any) -> None:
        super()._close_group(group, *given, **named)
        self._ended[group].set()


class Actor:
    """The state that the rollouts of one process share. Used from one event loop."""

    def __init__(
        self,
        config: JobConfig,
        plan: Plan,
        rows: Sequence[Row],
        player: Player,
        journal: Journal,
        run_dir: Path,
        scorer: Scorer | None = None,
    ) -> None:
        """``journal`` is that of this process, ``run_dir`` the run's folder. ``scorer`` replaces the job's rewards, for
        tests."""
        self.config, self.rows, self.attempt = config, rows, plan.attempt
        self.components = components_of([config])
        self.offered = Offered()
        self.fatal: TiltyardError | None = None
        self.orders = Orders(run_dir / ORDERS_NAME, MARK, self._too_late)
        self._plan, self._journal = plan, journal
        self._step = self._playing = 0
        self._watching: asyncio.Task[None] | None = None
        scoring = Scoring(scorer or self._score, config.rewards.score_timeout_s)
        self._ground = Ground("", 0, player, Hold(config.environment, self.write), scoring)
        self._steps: dict[int, ActorStep] = {}

    @classmethod
    def opened(cls, folder: JobFolder, engine: Engine, template: ChatTemplate) -> Actor:
        """The actor of this process, with a journal of its own."""
        keep_clients(asyncio.get_running_loop())
        config = folder.config
        rows = load_rows(Path(config.data.train), config.data.max_rows)
        player = make_player(config, engine, template)
        return cls(config, folder.plan, rows, player, Journal(folder.own_journal), folder.run_dir)

    async def play(self, sampling: int, group: int, index: int) -> Lesson:
        """Play a rollout of verl's sampling, from 1, and what it teaches. Raises the error that ends the run."""
        self._step = first_step(sampling, self.config.updates_per_step)
        self._playing += 1
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        try:
            rollout, statistics = await self._work(sampling).learned(group, index)
        finally:
            self._playing -= 1
        if self.fatal is not None:
            raise self.fatal
        masks = self.config.gradient.mask_truncated
        return lesson_of(rollout, statistics, index, self._plan.eos_id, mask_truncated=masks)

    async def _watch(self) -> None:
        """Hand people's orders on while anything is played here."""
        while self._playing:
            self.orders.look()
            await asyncio.sleep(LOOK_S)

    def _too_late(self, order: Order) -> None:
        """Another process may play the rollout: who has its group says so."""
        if any(work.has(order.rollout) for work in self._steps.values()):
            self.write(too_late(order))

    def _work(self, sampling: int) -> ActorStep:
        if (step := self._step) not in self._steps:
            rows = self._plan.rows_of(sampling, self.config.rollout.prompts_per_step)
            self._steps = {step: ActorStep(self, step, rows)}  # verl begins a step when all of the last have ended
            self._ground.hold.step = step
        return self._steps[step]

    def _score(self, episode: Any) -> Any:
        return score_episode(episode, self.components, step=self._step)

    def ground_of(self, row: int) -> Ground:
        """See ``Shared``."""
        return self._ground

    def phase(self, phase: Literal["generating", "scoring"], step: int) -> None:
        """The phases of a run are the trainer's to say."""

    def trained_of(self, version: int | None) -> int | None:
        """See ``Shared``: verl numbers weights by the samplings that they were trained for."""
        return None if version is None else version * self.config.updates_per_step

    def write(self, event: Event) -> None:
        """Journal an event. A disk that takes nothing ends the run."""
        try:
            self._journal.write(event)
        except OSError as exc:
            self.fatal = journal_fault(exc, self._journal.path)

    def close(self) -> None:
        """End the scoring threads, and close the journal."""
        self._ground.scoring.close()
        self._journal.close()
