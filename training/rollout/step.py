"""The rollouts of one step: seeds and names, each from its beginning to its score, and the groups' baselines."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal, Protocol

from envs.wire import Message
from training.config import JobConfig, RewardComponent, Signal
from training.data import Row
from training.errors import (
    BudgetSpent,
    EndpointAway,
    EndpointRefused,
    RolloutEnded,
    SamplerDied,
    SamplerDisagrees,
    TiltyardError,
)
from training.journal import Event, GroupScored, LogLine, RolloutFinished, RolloutStarted, TurnAdded
from training.rewards.base import OUTCOMES
from training.rewards.combining import GroupStatistics, advantages, group_statistics, reward_std, terms_of, total_of
from training.rollout.figures import teaches, without_signal
from training.rollout.holding import Hold
from training.rollout.orders import Order, Orders
from training.rollout.players import Ground, Offered
from training.rollout.rewinding import mix_seed
from training.rollout.scoring import give_credit, turn_advantages
from training.rollout.trajectory import PlayedTurn, Rollout, Task, Trajectory
from training.words import _, sentence

# Groups of zero variance, played again with other tasks: DAPO's dynamic sampling (Yu et al. 2025), by whole groups.
#
# A group whose rewards are equal teaches nothing, so a step of many of them learns from few. After a step is played,
# each such group's place is given to a group of another task, in up to ``rollout.refill_rounds`` rounds; places that
# still have zero variance then keep their first group. The tasks are drawn by seed, so a step that is played again is
# the same; where the run draws tasks itself (``data.draw``) they come as it drew them. In a mix a place stays its
# part's.


class Refill:
    """The places of one step. ``kept`` has the number of the group in each; ``spare`` are rows that may be played, and
    ``drawn`` such rows in the order in which they are to be."""

    def __init__(
        self,
        config: JobConfig,
        step: int,
        rows: Sequence[int],
        spare: Sequence[int],
        drawn: Sequence[int] | None = None,
        part_of: Callable[[int], str] = lambda _row: "",
    ) -> None:
        """``part_of`` says which part of a mix a row is of."""
        self._config, self._step, self._drawn, self._part_of = config, step, drawn, part_of
        self._spare: dict[str, list[int]] = {}
        for row in spare:
            self._spare.setdefault(part_of(row), []).append(row)
        self._size = config.group_size
        self._used = list(rows[:: self._size])
        self.kept = list(range(len(self._used)))
        self._open = list(self.kept)
        self._rounds = config.rollout.refill_rounds if config.method.learns_from == "rollouts" else 0
        self._round = self._first = 0

    def next(self, played: Sequence[Rollout]) -> list[int]:
        """Rows to play next, one a group; none when every place has spread or the rounds are over.

        ``played`` are the step's rollouts until now, group after group.
        """
        if not self._rounds:
            return []
        good = [number for number in range(self._first, len(self._used)) if self._spreads(number, played)]
        if self._round == 0:
            self._open = [place for place in self._open if place not in good]
        else:
            for number in good:
                place = next(place for place in self._open if self._part_at(place) == self._part_at(number))
                self.kept[place] = number
                self._open.remove(place)
        if not self._open or self._round == self._rounds:
            return []
        self._round += 1
        rows = self._draw([self._part_at(place) for place in self._open])
        self._first = len(self._used)
        self._used += rows
        return rows

    def batch(self, played: Sequence[Rollout]) -> list[Rollout]:
        """The rollouts that are learned from, place after place."""
        return [rollout for number in self.kept for rollout in self._group(number, played)]

    @property
    def figures(self) -> dict[str, float]:
        """The figures of replaced groups, where replacement was asked for."""
        if not self._rounds:
            return {}
        extra = len(self._used) - len(self.kept)
        replaced = sum(place != number for place, number in enumerate(self.kept))
        return {"groups/refilled": float(replaced), "rollouts/extra": float(extra * self._size)}

    def _group(self, number: int, played: Sequence[Rollout]) -> Sequence[Rollout]:
        return played[number * self._size : (number + 1) * self._size]

    def _spreads(self, number: int, played: Sequence[Rollout]) -> bool:
        members = self._group(number, played)
        signal = self._config.rewards.signal
        found = group_statistics([rollout.reward for rollout in members])
        return teaches(members, found, "reward" if signal == "all" else signal)

    def _part_at(self, number: int) -> str:
        """The part of the group of that number."""
        return self._part_of(self._used[number])

    def _draw(self, parts: Sequence[str]) -> list[int]:
        """A task of each of these parts that the step has not played, as far as there are any."""
        if self._drawn is not None:
            return self._next_drawn(self._drawn, len(parts))
        draw = random.Random(mix_seed(self._config.run.seed, self._step, self._round, -1))  # noqa: S311 - draws tasks
        drawn = {part: iter(self._of_part(draw, part, parts.count(part))) for part in dict.fromkeys(parts)}
        return [next(drawn[part]) for part in parts]

    def _of_part(self, draw: random.Random, part: str, count: int) -> list[int]:
        spare = self._spare[part]
        fresh = sorted(set(spare).difference(self._used))
        if len(fresh) >= count:
            return draw.sample(fresh, count)
        return fresh + draw.choices(spare, k=count - len(fresh))

    def _next_drawn(self, found: Sequence[int], count: int) -> list[int]:
        """The next of those that were drawn; where the step has played all of them, the first of them again."""
        drawn = list(dict.fromkeys(found or [row for spare in self._spare.values() for row in spare]))
        fresh = [row for row in drawn if row not in self._used][:count]
        return fresh + [drawn[number % len(drawn)] for number in range(count - len(fresh))]


MAX_LOSSES = 3
HOPELESS = (BudgetSpent, EndpointRefused, EndpointAway, SamplerDied, SamplerDisagrees)
"""Every further rollout would end so too: the run pauses at once."""
TASK_TEXT_CHARS = 200


class Shared(Protocol):
    """The state that the steps of a run share: their collector has it."""

    config: JobConfig
    rows: Sequence[Row]
    offered: Offered
    components: list[RewardComponent]
    attempt: int
    fatal: TiltyardError | None
    orders: Orders

    def write(self, event: Event) -> None:
        """Journal an event. A full disk becomes ``fatal``."""
        ...

    def ground_of(self, row: int) -> Ground:
        """What a row is played with: its part's, where the job has several."""
        ...

    def phase(self, phase: Literal["generating", "scoring"], step: int) -> None:
        """Journal a phase, where the run is in it."""
        ...

    def trained_of(self, version: int | None) -> int | None:
        """The steps that the weights of a version were trained for, where they are counted."""
        ...


class Step:
    """The rollouts of one step while they run."""

    mark = "s"

    def __init__(self, collector: Shared, step: int, row_indices: Sequence[int]) -> None:
        self._c = collector
        self.step = step
        self._indices = list(row_indices)
        self._size = collector.config.group_size
        self._open: dict[int, dict[int, Rollout]] = {}
        self._playing = len(row_indices)
        self._over: set[str] = set()
        self._now: dict[str, Trajectory] = {}
        self._statistics: dict[int, GroupStatistics] = {}
        self.last_played = time.monotonic()

    def extend(self, rows: Sequence[int]) -> range:
        """Add a group for each row; gives the positions of their rollouts."""
        first = len(self._indices)
        self._indices += [row for row in rows for _ in range(self._size)]
        self._playing = len(self._indices) - first
        self._c.phase("generating", self.step)
        return range(first, len(self._indices))

    async def run_one(self, position: int) -> Rollout:
        """Play, score and journal the rollout at a position of the step."""
        started, task = self._prepare_rollout(position)
        self._c.write(started)
        rollout = await self._unless_ordered(started, task, self._once(started, task))
        self._finish(rollout, started.group, started.index)
        return rollout

    async def _unless_ordered(
        self, started: RolloutStarted, task: Task, playing: Coroutine[Any, Any, Rollout]
    ) -> Rollout:
        """The result of ``playing``, unless a person orders otherwise before."""
        done = await self._c.orders.unless_ordered(started.rollout, playing)
        return await self._obey(done, task) if isinstance(done, Order) else done

    async def _obey(self, order: Order, task: Task) -> Rollout:
        """The rollout as it is, excluded; or scored as failed, where the policy has played a turn of it."""
        self._played(order.rollout)
        by, trajectory = order.by or "–", self._now.get(order.rollout) or Trajectory()
        rollout = Rollout(order.rollout, task.row, trajectory)
        if order.act == "end" or not trajectory.turns:
            trajectory.exclude(RolloutEnded(sentence(_("It was ended by {name}."), name=by)))
            return rollout
        self._c.write(LogLine(message=f"{order.rollout} was marked as failed by {by}."))
        trajectory.fail()
        await self._score(rollout, task.task)
        self._judge_failed(rollout)
        return rollout

    def _judge_failed(self, rollout: Rollout) -> None:
        """No component that judges the task itself may find that it was done."""
        if rollout.parts is None:
            return
        chosen = self._c.components
        judges = {item.name for item in chosen if item.registered in OUTCOMES}
        rollout.parts = {name: 0.0 if name in judges else value for name, value in rollout.parts.items()}
        rollout.reward = total_of(terms_of(rollout.parts, chosen, self._weighed_at), chosen)

    @property
    def _weighed_at(self) -> int:
        """The step that schedules of rewards go by."""
        return self.step

    def _prepare_rollout(self, position: int) -> tuple[RolloutStarted, Task]:
        group, index = divmod(position, self._size)
        row_index = self._indices[position]
        row = self._c.rows[row_index]
        config = self._c.config
        started = RolloutStarted(
            rollout=f"a{self._c.attempt}-{self.mark}{self.step}-g{group}-i{index}",
            step=self.step,
            group=group,
            index=index,
            row=self._row(row_index),
            task=_task_text(row.messages),
            policy=config.policies[index] if config.policies else "",
            part=self._c.ground_of(row_index).name,
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
        return None if self._c.config.draws_tasks else row_index - self._c.ground_of(row_index).begin

    def _seeds(self, row_index: int, group: int, index: int) -> tuple[int, int]:
        """Seeds of the episode, which its group shares, and of the sampling."""
        seed = self._c.config.run.seed
        return mix_seed(seed, self.step, group) % 2**31, mix_seed(seed, self.step, group, index)

    async def _once(self, started: RolloutStarted, task: Task) -> Rollout:
        """Play and score it."""
        rollout = Rollout(started.rollout, task.row, await self._play(task, started))
        self._played(started.rollout)
        if rollout.trajectory.error is None:
            await self._score(rollout, task.task)
        return rollout

    async def _play(self, task: Task, started: RolloutStarted) -> Trajectory:
        """Play to the rollout's own end: while the environment is away, wait and begin again."""
        ground, losses, failures = self._c.ground_of(task.row), 0, 0
        latencies: list[float] = []
        while True:
            turns = _TurnWriter(self._c, ground.hold, task.episode_id)
            trajectory = self._now[started.rollout] = Trajectory()
            await ground.player.play(task, turns, trajectory)
            trajectory.env_errors += failures
            trajectory.latencies[:0] = latencies
            error = trajectory.error
            losses += turns.count > 0
            if error is None or losses > MAX_LOSSES or not await ground.hold.away(error):
                return trajectory
            try:
                await ground.hold.wait(error)
            except TiltyardError as spent:
                self._c.fatal = spent
                raise
            failures, latencies = trajectory.env_errors, trajectory.latencies
            if turns.count:
                self._c.write(started.model_copy(update={"again": losses}))

    def _played(self, rollout: str) -> None:
        """It is not played any more; called again, that changes nothing."""
        if rollout in self._over:
            return
        self._over.add(rollout)
        self._playing -= 1
        self.last_played = time.monotonic()
        if self._playing == 0:
            self._c.phase("scoring", self.step)

    async def _score(self, rollout: Rollout, row: dict[str, Any]) -> None:
        try:
            score = await self._c.ground_of(rollout.row).scoring.score(rollout.trajectory.episode(row))
        except TiltyardError as error:
            rollout.trajectory.exclude(error)
            return
        rollout.parts, rollout.reward = dict(score.parts), score.total

    def _finish(self, rollout: Rollout, group: int, index: int) -> None:
        trajectory = rollout.trajectory
        if isinstance(trajectory.error, HOPELESS):
            self._c.fatal = trajectory.error
        calls, failed_calls = trajectory.tool_calls()
        self._c.write(
            RolloutFinished(
                rollout=rollout.name,
                status=trajectory.status,
                reward=rollout.reward,
                parts=dict(rollout.parts or {}),
                env_reward=trajectory.env_reward,
                env_parts=trajectory.env_parts,
                turn_rewards=trajectory.rewards_by_turn,
                parse_errors=trajectory.parse_errors,
                error=trajectory.error.info if trajectory.error is not None else None,
                turns=trajectory.turns,
                tokens=trajectory.past_tokens + trajectory.sampled_tokens,
                seconds=trajectory.seconds,
                calls=calls,
                failed_calls=failed_calls,
                cost=trajectory.cost,
                policy_step=self._c.trained_of(trajectory.version),
            )
        )
        members = self._open.setdefault(group, {})
        members[index] = rollout
        config = self._c.config
        waits = config.gradient.scale_rewards == "batch" or config.rewards.aggregation == "normalize_then_sum"
        if len(members) == self._size and not waits:
            self._close_group(group, None)

    def close_groups(self, batch: list[Rollout], kept: Sequence[int] = ()) -> list[GroupStatistics]:
        """Statistics of all groups in order; journals those that waited for the whole batch.

        ``kept`` are the numbers of the batch's groups: all of the step where nothing is said.
        """
        batch_std = reward_std([rollout.reward for rollout in batch])
        combined = self._combined(batch)
        places = {group: place for place, group in enumerate(kept or sorted(self._open))}
        for group in sorted(self._open):
            begin = places[group] * self._size if group in places else None
            of_batch = None if combined is None or begin is None else combined[begin : begin + self._size]
            self._close_group(group, batch_std, of_batch, left_out=begin is None)
        return [self._statistics[group] for group in sorted(self._statistics)]

    def _combined(self, rollouts: list[Rollout]) -> list[float | None] | None:
        """Advantages of the whole batch under ``normalize_then_sum``, else ``None``."""
        rewards = self._c.config.rewards
        if rewards.aggregation == "sum_then_normalize":
            return None
        chosen = self._c.components
        terms = [None if r.parts is None else terms_of(r.parts, chosen, self.step) for r in rollouts]
        return advantages(terms, chosen, self._size, aggregation=rewards.aggregation)

    @property
    def _signal(self) -> Signal:
        """Which groups count: only what is learned from is left out."""
        config = self._c.config
        return config.rewards.signal if config.method.learns_from == "rollouts" else "all"

    def _close_group(
        self,
        group: int,
        batch_std: float | None,
        combined: list[float | None] | None = None,
        *,
        left_out: bool = False,
    ) -> None:
        members = [rollout for _, rollout in sorted(self._open.pop(group).items())]
        rewards = [rollout.reward for rollout in members]
        result = group_statistics(rewards, scale=self._c.config.gradient.scale_rewards, batch_std=batch_std)
        if combined is not None:
            result = result._replace(advantages=combined)
        if left_out or not teaches(members, result, self._signal):
            result = without_signal(result)
        give_credit(members, result, self._c.config, self._c.components, self._weighed_at, batch_std)
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
                turn_advantages=turn_advantages(members, result),
                **self._c.offered.of(members),
            )
        )

    def _say_group(self, event: GroupScored) -> None:
        self._c.write(event)


class _TurnWriter:
    """Journals the turns of one rollout, numbered from 0 (the prompt). The first one says that its episode began."""

    def __init__(self, collector: Shared, hold: Hold, name: str) -> None:
        self._collector, self._hold = collector, hold
        self._name = name
        self.count = 0

    def __call__(self, played: PlayedTurn) -> None:
        if not self.count:
            self._hold.begun()
        self._collector.write(
            TurnAdded(
                rollout=self._name,
                turn=self.count,
                messages=played.messages,
                tokens=played.tokens,
                seconds=played.seconds,
                policy_step=self._collector.trained_of(played.version),
                parse_error=played.parse_error,
                wrote=played.wrote,
            )
        )
        self.count += 1


def _task_text(messages: Sequence[Message]) -> str:
    users = [message.content for message in messages if message.role == "user"]
    return users[-1][:TASK_TEXT_CHARS] if users else ""
