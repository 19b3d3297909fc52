"""A recorded rollout played again up to one of its turns, on a session from which another player then continues.

The same task, seed and calls go to a fresh session, and every answer is held against the recorded one. The first that
differs is reported; the calls after it are made all the same, so that the session is behind the last of them, unless
the episode has ended before. Servers whose protocol knows no episode are not called twice: what is recorded of them is
all that there is.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import TypeAdapter, ValidationError

from envs.wire import Message, Observation, ResetRequest, StepRequest
from training.errors import CannotContinue
from training.rollout.session import Session, heard, opening

CLOSE_ENOUGH = 1e-9
"""Rewards that differ by less are the same: floats may come out of a database."""


class Taken(NamedTuple):
    """A recorded turn of the policy, and what the environment answered; ``parse_error`` says why its text could not be
    read as a call, ``wrote`` is that text where the message lacks some of it and it was recorded."""

    said: Message
    answer: list[Message]
    parse_error: str | None = None
    wrote: str | None = None

    @property
    def written(self) -> Message:
        """The turn as the policy wrote it, for who reads on from there: broken calls are text."""
        return Message(role="assistant", content=self.wrote) if self.wrote else self.said

    @property
    def request(self) -> StepRequest:
        """The turn as the environment was asked."""
        return StepRequest.of(self.said, self.parse_error)


@dataclass(frozen=True)
class Recording:
    """A rollout as it was recorded. ``prompt`` are the row's own messages, ``first`` the conversation that the policy
    began with. ``reward`` is the environment's at the end; ``None`` where it gave none, or ended otherwise."""

    reset: ResetRequest
    prompt: list[Message]
    first: list[Message]
    turns: list[Taken]
    reward: float | None = None


class Difference(NamedTuple):
    """Where the environment first answered otherwise: after the policy's ``turn``, 0 for its opening.

    ``what``: other ``messages``, another ``reward``, or the episode had ``ended`` although more was recorded.
    ``recorded`` and ``now`` are the first texts that are not the same, empty where there is none.
    """

    turn: int
    what: Literal["messages", "reward", "ended"]
    recorded: str
    now: str


@dataclass
class Rewound:
    """The result of a replay: the opening and one answer for each turn that was taken again. ``differing`` are the
    turns whose messages are not the recorded ones, 0 for the opening, ``difference`` is the first difference of all.
    ``seconds`` it took; ``checked`` is false where nothing was asked again, because the server keeps no episode."""

    answers: list[Observation] = field(default_factory=list)
    differing: list[int] = field(default_factory=list)
    difference: Difference | None = None
    checked: bool = True
    seconds: float = 0.0

    def compare(self, turn: int, recorded: Sequence[Message], now: Sequence[Message]) -> None:
        """Note whether an answer is the recorded one."""
        other = _first_difference(turn, recorded, now)
        if other is not None:
            self.differing.append(turn)
            self.difference = self.difference or other

    @property
    def turns(self) -> int:
        """Turns of the policy that were taken again."""
        return max(0, len(self.answers) - 1)

    @property
    def over(self) -> bool:
        """Whether the episode has ended there."""
        return bool(self.answers) and self.answers[-1].done


async def rewind(session: Session, recording: Recording, turns: int, *, stateless: bool = False) -> Rewound:
    """Take the first ``turns`` turns of a recording again. Raises environment errors; the session stays open."""
    began = time.monotonic()
    found = await replay(session, recording, turns, await session.reset(recording.reset), stateless=stateless)
    found.seconds = time.monotonic() - began
    return found


async def replay(
    session: Session, recording: Recording, turns: int, first: Observation, *, stateless: bool = False
) -> Rewound:
    """The same on a session that was reset already, and said ``first`` then."""
    found = Rewound([first], checked=not stateless)
    if not stateless:
        found.compare(0, recording.first, opening(recording.prompt, first))
    for number, taken in enumerate(recording.turns[:turns], start=1):
        if found.over:
            found.difference = found.difference or Difference(number - 1, "ended", _text(taken.answer[:1]), "")
            break
        answer = Observation(messages=taken.answer) if stateless else await session.step(taken.request)
        found.answers.append(answer)
        found.compare(number, taken.answer, heard(answer))
    found.difference = found.difference or _other_reward(recording, found)
    return found


def _first_difference(turn: int, recorded: Sequence[Message], now: Sequence[Message]) -> Difference | None:
    """The first message in which two answers differ."""
    for at in range(max(len(recorded), len(now))):
        old, new = recorded[at : at + 1], now[at : at + 1]
        if [_seen(message) for message in old] != [_seen(message) for message in new]:
            shown = _text if _text(old) != _text(new) else _whole
            return Difference(turn, "messages", shown(old), shown(new))
    return None


def _seen(message: Message) -> tuple[str, str, str, str]:
    """The part of an answer that a policy sees."""
    return message.role, message.content, message.name or "", message.tool_call_id or ""


def _text(messages: Sequence[Message]) -> str:
    return "".join(message.content for message in messages)


def _whole(messages: Sequence[Message]) -> str:
    """Messages whose texts alone do not show how they differ."""
    return "".join(message.model_dump_json(exclude_none=True) for message in messages)


def _other_reward(recording: Recording, found: Rewound) -> Difference | None:
    """Whether the whole episode came to another verdict."""
    if recording.reward is None or not found.over or found.turns < len(recording.turns) or not found.checked:
        return None
    now = next((answer.reward for answer in reversed(found.answers) if answer.reward is not None), None)
    if now is not None and abs(now - recording.reward) <= CLOSE_ENOUGH:
        return None
    return Difference(found.turns, "reward", f"{recording.reward:g}", "" if now is None else f"{now:g}")


# The past of rollouts that continue from a turn of a recorded one: the file that a job of kind `evaluate` gets.
#
# Each of its rollouts begins as the recorded one did, with its row and seed; the recorded turns are taken again on a
# session of its own, and the contestant plays from there. The turns of the past are the rollout's turns too: rewards
# see the whole episode, as they saw the recorded one.

MAX_PAST_BYTES = 32 << 20


@dataclass(frozen=True)
class Past:
    """Where rollouts continue from: behind all turns of ``recording``, whose policy wrote ``tokens`` in each of them.

    ``row`` is the task's place in the dataset, from 0.
    """

    row: int
    recording: Recording
    tokens: list[int]

    @property
    def seed(self) -> int:
        """The seed of the episode."""
        return self.recording.reset.seed


_adapter = TypeAdapter(Past)


def write_past(path: Path, past: Past) -> None:
    """Write it for a job to read; a file that is there is replaced whole."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_suffix(".new")
    new.write_bytes(_adapter.dump_json(past))
    new.replace(path)


def read_past(path: Path) -> Past:
    """Read what ``write_past`` wrote. Raises ``CannotContinue``."""
    try:
        if path.stat().st_size > MAX_PAST_BYTES:
            raise CannotContinue("The recorded rollout is too large to continue from.")
        return _adapter.validate_json(path.read_bytes())
    except (OSError, ValidationError) as exc:
        raise CannotContinue("The recorded rollout that this job continues from cannot be read.") from exc


# --- Seeds ----------------------------------------------------------------------------------------------------------
# Seeds of rollouts.


def mix_seed(*parts: int) -> int:
    """A 56-bit seed from several numbers, the same on every machine."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
