"""One rollout: a conversation between the policy and one environment session, from reset to its end.

Stages: *begin* (connect and reset, tried again with backoff) → *turns* (sample, parse, step) → *end*. Failures outside
the policy become the rollout's typed error and exclude it; what the model does wrong never does.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from envs.wire import Message, Observation, ResetRequest, StepRequest
from training.config import EnvironmentConfig, RolloutConfig
from training.dialects import Parse, ParsedTurn
from training.errors import (
    CannotContinue,
    DataError,
    EnvironmentFault,
    EnvironmentTimeout,
    PolicyFault,
    TiltyardError,
    boundary,
)
from training.journal import RolloutStatus
from training.lanes import Span, now
from training.policy.engine import Engine, Sample
from training.rewards.base import ENVIRONMENT, Episode
from training.rewards.combining import GroupStatistics
from training.rewards.turns import TurnCredit, call_outcomes
from training.rollout.protocols import STATELESS
from training.rollout.rewinding import Past, replay
from training.rollout.session import Session, heard, opening
from training.rollout.tokens import Template, Tools

RETRY_BASE_S = 0.25
RETRY_CAP_S = 5.0
_RETRIED = (EnvironmentTimeout, EnvironmentFault)  # while it is away the collector holds the step

OpenSession = Callable[[], Awaitable[Session]]


class PlayedTurn(NamedTuple):
    """Messages that one party added, and how many seconds that took.

    Of a turn of the policy also how many ``tokens`` were sampled, the ``version`` of the weights that sampled them, why
    its text could not be read as a call, and that text where the message does not hold all of it.
    """

    messages: list[Message]
    tokens: int = 0
    seconds: float = 0.0
    version: int | None = None
    parse_error: str | None = None
    wrote: str | None = None


OnTurn = Callable[[PlayedTurn], None]


@dataclass(frozen=True)
class Task:
    """The task of one rollout: a row of the dataset and the seed of its group; ``policy`` names a scripted player.
    ``past`` are turns that were played before it."""

    row: int
    messages: list[Message]
    tools: Tools | None
    task: dict[str, Any]
    episode_seed: int
    sample_seed: int
    episode_id: str
    policy: str = ""
    past: Past | None = None


@dataclass
class Trajectory:
    """The outcome of one rollout.

    ``completion_ids``, ``mask`` and ``logprobs`` have one entry for each token after the prompt; ``mask`` is 1 on
    tokens that the model sampled and 0 on the environment's, whose log-probability is 0.0. ``latencies`` are seconds of
    environment waits, ``cost`` is money, where it costs any. ``version`` is that of the oldest weights that sampled
    a turn. Of a rollout that continues from a recorded one, the recorded turns are in ``prompt_ids``: ``past_ids`` of
    them are behind the episode's opening, and ``past_tokens`` were written by the recorded policy.

    ``turn_rewards`` are the rewards as the environment said them: first at the reset, then with each turn's answer,
    ``None`` where it said none. ``turn_starts`` are the places in ``completion_ids`` at which turns begin.

    ``sampled`` are the times from which to which its turns were sampled, ``ended`` the one at which it had been played
    (``lanes.now``).
    """

    prompt_ids: list[int] = field(default_factory=list)
    completion_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    tools: Tools | None = None
    prompt_length: int = 0
    status: RolloutStatus = "completed"
    error: TiltyardError | None = None
    turns: int = 0
    parse_errors: int = 0
    env_reward: float | None = None
    env_parts: dict[str, float] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)
    env_errors: int = 0
    seconds: float = 0.0
    cost: float | None = None
    version: int | None = None
    past_ids: int = 0
    past_tokens: int = 0
    turn_rewards: list[float | None] = field(default_factory=list)
    turn_starts: list[int] = field(default_factory=list)
    sampled: list[tuple[float, float]] = field(default_factory=list)
    ended: float = 0.0

    @property
    def sampled_tokens(self) -> int:
        """Tokens that the model wrote."""
        return sum(self.mask)

    @property
    def episode_ids(self) -> int:
        """Tokens behind the opening, of all parties: what ``rollout.max_completion_tokens`` is a limit of."""
        return self.past_ids + len(self.completion_ids)

    @property
    def rewards_by_turn(self) -> list[float | None] | None:
        """``turn_rewards`` with a place for each turn; ``None`` where no environment was there to say any."""
        rewards = self.turn_rewards
        return [*rewards, *[None] * (self.turns + 1 - len(rewards))] if rewards else None

    def tool_calls(self) -> tuple[int, int]:
        """Tool calls of the policy, and how many of them were answered by an error."""
        outcomes = call_outcomes(self.episode({}))
        return len(outcomes), sum(outcome.error is not None for outcome in outcomes)

    def fail(self) -> None:
        """Cut it off as one that did not do its task, whatever its environment has said or would say."""
        self.status, self.error = "truncated", None
        self.env_reward, self.env_parts = 0.0, {**self.env_parts, ENVIRONMENT: 0.0}
        self.turn_rewards = []  # what was paid for its turns is as void as the verdict

    def exclude(self, error: TiltyardError) -> None:
        """Mark the rollout as one that must not be learned from."""
        self.status, self.error = "excluded", error

    def episode(self, row: dict[str, Any]) -> Episode:
        """The trajectory as reward components see it."""
        return Episode(
            messages=list(self.messages),
            prompt_length=self.prompt_length,
            row=row,
            env_reward=self.env_reward,
            env_parts=dict(self.env_parts),
            parse_errors=self.parse_errors,
            truncated=self.status == "truncated",
            tokens=self.past_tokens + self.sampled_tokens,
        )


@dataclass(frozen=True)
class Player:
    """The state that all rollouts of a run share; ``play`` runs one of them."""

    engine: Engine
    template: Template
    parse: Parse
    rollout: RolloutConfig
    environment: EnvironmentConfig
    open_session: OpenSession | None

    async def play(self, task: Task, on_turn: OnTurn, trajectory: Trajectory | None = None) -> Trajectory:
        """Run one rollout to its end. Raises nothing but cancellation; ``on_turn`` is called as turns happen.

        It becomes ``trajectory``, where one is given: so what was played is known of one that is cancelled too.
        """
        trajectory = trajectory or Trajectory()
        began = time.monotonic()
        session: Session | None = None
        try:
            session, first = await self._reset_session(task, trajectory)
            self._prompt(task, trajectory, first)
            on_turn(PlayedTurn(list(trajectory.messages), seconds=time.monotonic() - began))
            done = first is not None and first.done
            if task.past is not None:
                await self._continue(task.past, trajectory, session, first, on_turn)
            while not done:
                done = await self._turn(task, trajectory, session, on_turn)
        except TiltyardError as error:
            trajectory.exclude(error)
            trajectory.env_errors += error.boundary == "environment"
        except Exception as exc:  # a defect of ours must cost one rollout, not the run
            trajectory.exclude(PolicyFault(f"{type(exc).__name__} in the rollout loop: {str(exc)[:300]}"))
        finally:
            self.engine.release(task.episode_id)
            if session is not None:
                trajectory.latencies += session.latencies
                trajectory.env_errors += session.failures
                await session.close()
            trajectory.seconds, trajectory.ended = time.monotonic() - began, now()
        return trajectory

    async def _reset_session(self, task: Task, trajectory: Trajectory) -> tuple[Session | None, Observation | None]:
        """Open a session and reset it; a failure is tried again, because nothing was learned or lost yet."""
        if self.open_session is None:
            return None, None
        request = ResetRequest(task=task.task, seed=task.episode_seed, episode_id=task.episode_id)
        for attempt in range(1, self.environment.attempts + 1):
            session: Session | None = None
            try:
                session = await self.open_session()
                return session, await session.reset(request)
            except BaseException as exc:
                if session is not None:
                    trajectory.latencies += session.latencies
                    trajectory.env_errors += session.failures
                    await session.close()
                if not isinstance(exc, _RETRIED) or attempt == self.environment.attempts:
                    raise
                trajectory.env_errors += 1
            # Full jitter, so that 64 rollouts that failed together do not knock together again.
            ceiling = min(RETRY_CAP_S, RETRY_BASE_S * 2 ** (attempt - 1))
            await asyncio.sleep(random.uniform(0, ceiling))  # noqa: S311 - spreads load, guards nothing
        raise AssertionError("unreachable: the last attempt raises")

    def _prompt(self, task: Task, trajectory: Trajectory, first: Observation | None) -> None:
        messages, tools = list(task.messages), task.tools
        if first is not None:
            messages = opening(messages, first)
            tools = first.tools if first.tools is not None else tools
        if not messages:
            raise DataError("The row has no messages and the environment gave none.")
        with boundary(DataError, "rendering the prompt"):
            trajectory.prompt_ids = self.template.prompt_ids(messages, tools)
        trajectory.messages, trajectory.prompt_length, trajectory.tools = messages, len(messages), tools
        if first is not None:
            _take_rewards(trajectory, first)
        limit = self.rollout.max_prompt_tokens
        if len(trajectory.prompt_ids) > limit:
            raise DataError(
                f"The prompt has {len(trajectory.prompt_ids)} tokens, more than the limit of {limit}.",
                hint="Raise rollout.max_prompt_tokens or shorten the row.",
            )

    async def _continue(
        self,
        past: Past,
        trajectory: Trajectory,
        session: Session | None,
        first: Observation | None,
        on_turn: OnTurn,
    ) -> None:
        """Take the turns of the past again. Raises ``CannotContinue`` where there is nothing to continue from."""
        if session is None or first is None:
            raise CannotContinue("A rollout continues from a recorded one in its environment, and this job has none.")
        turns, opening_ids = past.recording.turns, len(trajectory.prompt_ids)
        written = list(trajectory.messages)
        stateless = self.environment.protocol in STATELESS
        found = await replay(session, past.recording, len(turns), first, stateless=stateless)
        for taken, tokens, answer in zip(turns, past.tokens, found.answers[1:], strict=False):
            added = heard(answer)
            trajectory.messages += [taken.said, *added]
            written += [taken.written, *added]
            trajectory.turns += 1
            trajectory.past_tokens += tokens
            trajectory.parse_errors += bool(taken.parse_error or answer.info.get("parse_error"))
            _take_rewards(trajectory, answer)
            on_turn(PlayedTurn([taken.said], tokens, parse_error=taken.parse_error, wrote=taken.wrote))
            if added:
                on_turn(PlayedTurn(added))
        if found.over:
            raise CannotContinue("The episode is over at this turn now: there is nothing to continue from.")
        with boundary(DataError, "rendering the recorded turns"):
            trajectory.prompt_ids = self.template.prompt_ids(written, trajectory.tools)
        trajectory.past_ids = max(0, len(trajectory.prompt_ids) - opening_ids)
        if trajectory.past_ids >= self.rollout.max_completion_tokens:
            raise CannotContinue(
                f"The recorded turns have {trajectory.past_ids:,} tokens, and an episode may have "
                f"{self.rollout.max_completion_tokens:,}.",
                hint="Or raise rollout.max_completion_tokens in a clone of the run.",
            )

    async def _turn(self, task: Task, trajectory: Trajectory, session: Session | None, on_turn: OnTurn) -> bool:
        """One model turn and the environment's answer. Returns whether the episode is over."""
        began = time.monotonic()
        sample = await self._sample(task, trajectory)
        parsed = self._hear(trajectory, sample)
        messages, took = [trajectory.messages[-1]], time.monotonic() - began
        on_turn(PlayedTurn(messages, len(sample.ids), took, sample.version, parsed.parse_error, parsed.wrote))
        if not sample.finished or not self.template.ends(sample.ids[-1]):
            trajectory.status = "truncated"
        if session is None:
            return True
        if trajectory.status == "truncated":
            await self._give_up(trajectory, session)
            return True
        began = time.monotonic()
        answer = await session.step(StepRequest.of(messages[0], parsed.parse_error))
        _take_rewards(trajectory, answer)
        if parsed.parse_error is None and answer.info.get("parse_error"):
            trajectory.parse_errors += 1  # readable to us, and not to the environment
        added = heard(answer)
        if added:
            trajectory.messages += added
            on_turn(PlayedTurn(added, seconds=time.monotonic() - began))
        if answer.done:
            return True
        if self._append(trajectory, added):
            return False
        await self._give_up(trajectory, session)
        return True

    async def _give_up(self, trajectory: Trajectory, session: Session) -> None:
        """Ask the environment for its verdict on an episode whose budget is spent: the policy's answer is no answer.

        Without this, a task reward that comes with the final answer would be missing, and so the rollout excluded,
        just for policies that never come to an end.
        """
        if trajectory.env_reward is None:
            _take_rewards(trajectory, await session.step(StepRequest(final=True)))

    async def _sample(self, task: Task, trajectory: Trajectory) -> Sample:
        room = self.rollout.max_completion_tokens - trajectory.episode_ids
        began = now()
        try:
            with boundary(PolicyFault, "sampling"):
                return await self.engine.generate(
                    trajectory.prompt_ids + trajectory.completion_ids,
                    max_tokens=min(self.rollout.max_turn_tokens, room),
                    seed=task.sample_seed + trajectory.turns,
                    episode=task.episode_id,
                )
        finally:
            trajectory.sampled.append((began, now()))

    def _hear(self, trajectory: Trajectory, sample: Sample) -> ParsedTurn:
        """Carry the sampled ids into the trajectory and read them as a message."""
        trajectory.turn_starts.append(len(trajectory.completion_ids))
        trajectory.completion_ids += sample.ids
        trajectory.mask += [1] * len(sample.ids)
        trajectory.logprobs += sample.logprobs
        parsed = self._parse_sample(sample, f"call_{trajectory.turns}_", trajectory.tools)
        trajectory.turns += 1
        trajectory.version = sample.version if trajectory.version is None else min(trajectory.version, sample.version)
        trajectory.parse_errors += parsed.parse_error is not None
        trajectory.messages.append(self._recorded_message(sample, parsed))
        return parsed

    def _recorded_message(self, sample: Sample, parsed: ParsedTurn) -> Message:
        """The sampled turn as it is recorded."""
        return parsed.message()

    def _parse_sample(self, sample: Sample, prefix: str, tools: Tools | None) -> ParsedTurn:
        """The sampled turn as a message; the ids of its calls begin with ``prefix``."""
        text = self.template.decode(sample.ids)
        return self.parse(text, prefix, tools).read_from(text)

    def _append(self, trajectory: Trajectory, added: list[Message]) -> bool:
        """Append the environment's tokens; ``False`` when a budget of the episode is spent, which truncates it."""
        if trajectory.turns >= self.rollout.max_turns:
            trajectory.status = "truncated"
            return False
        suffix = self.template.suffix_ids(added)
        if trajectory.episode_ids + len(suffix) >= self.rollout.max_completion_tokens:
            trajectory.status = "truncated"
            return False
        trajectory.completion_ids += suffix
        trajectory.mask += [0] * len(suffix)
        trajectory.logprobs += [0.0] * len(suffix)
        return True


def _take_rewards(trajectory: Trajectory, answer: Observation) -> None:
    """Rewards are cumulative truths of the environment: a later answer replaces what an earlier one said."""
    rewards = trajectory.turn_rewards
    rewards += [None] * (trajectory.turns + 1 - len(rewards))
    if answer.reward is not None:
        trajectory.env_reward = rewards[trajectory.turns] = answer.reward
    trajectory.env_parts.update(answer.reward_parts)


# --- Finished -------------------------------------------------------------------------------------------------------
# A finished rollout, and a step of them.


@dataclass
class Rollout:
    """A finished rollout with its raw reward parts by component; both are ``None`` when it is excluded.

    ``gains`` are what the environment paid with the answer to each turn but the last; ``None`` where it said nothing
    before the end, or was not asked. ``credit`` makes the turns' advantages of the rollout's.
    """

    name: str
    row: int
    trajectory: Trajectory
    parts: dict[str, float] | None = None
    reward: float | None = None
    gains: list[float] | None = None
    credit: TurnCredit | None = None


@dataclass(repr=False)  # asyncio.Runner prints its task, result and all, to change the signal handler: 10 ms a step
class StepRollouts:
    """A step's rollouts in TRL's order (groups are consecutive), their groups' statistics and its figures.

    ``played`` are all that were played, where some of them gave their place to others. ``spans``: what the device that
    samples did meanwhile.
    """

    rollouts: list[Rollout]
    groups: list[GroupStatistics]
    figures: dict[str, float] = field(default_factory=dict)
    played: Sequence[Rollout] = ()
    spans: Sequence[Span] = ()
