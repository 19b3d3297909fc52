"""Rewards of an episode: the raw components of the seed's formula, and the truth where it is known.

The seed's total is ``0.1 format + 0.2 function_call + 0.3 finish``; weights are the trainer's business. A part that an
episode has no value for is left out, never 0.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Literal

from envs.toolbench.tasks import Gold, Task

CALL_OK, CALL_FAILED = 0.1, -0.5
# The seed's bonus of 0.5, and its halves and thirds for giving up and for any other Finish.
FINISH_VALUES = {"answer": 0.5, "give_up": 0.25, "other": 0.15}
MAX_FINAL_LENGTH = 2_000
# The least form of a turn that has an action; below it there are only parts of one.
WHOLE_FORM = 0.5
# Numbers in an answer that no call returned and the query does not name. A few are working; many are guesses.
MAX_UNSUPPORTED_NUMBERS = 5

Ending = Literal["answer", "give_up", "other"]
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_NUMBER = re.compile(r"(?<![0-9.])[0-9]+(?:\.[0-9]+)?(?![0-9])")


@dataclass
class Episode:
    """What one episode remembers. ``obtained`` are (function, value) pairs of calls that answered without error."""

    task: Task
    turn: int = 0
    valid_turns: int = 0
    form: float | None = None
    calls_ok: int = 0
    calls_failed: int = 0
    obtained: set[tuple[str, str]] = field(default_factory=set)
    ending: Ending | None = None
    final_answer: str = ""


def reward_parts(episode: Episode) -> dict[str, float]:
    """Every part by name."""
    called = episode.calls_ok + episode.calls_failed
    parts = {
        "format": episode.form or 0.0,
        "valid_turns": episode.valid_turns / max(episode.turn, 1),
        "function_call": round(CALL_OK * episode.calls_ok + CALL_FAILED * episode.calls_failed, 6),
        "finish": FINISH_VALUES[episode.ending] if episode.ending else 0.0,
    }
    if called:
        parts["call_success"] = episode.calls_ok / called
    if episode.task.gold:
        parts["answer"] = _answer_share(episode)
        parts["calls"] = _share(episode.task.gold, episode.obtained)
        parts["task_success"] = float(parts["answer"] == 1.0)
    return parts


def numbers(text: str) -> set[str]:
    """The numbers of a text, without separators of thousands."""
    return set(_NUMBER.findall(_THOUSANDS.sub("", unicodedata.normalize("NFKC", text))))


def _share(gold: tuple[Gold, ...], obtained: set[tuple[str, str]]) -> float:
    return sum((item.function, item.value) in obtained for item in gold) / len(gold)


def _answer_share(episode: Episode) -> float:
    """The share of the asked values that were obtained by calls and are stated in the final answer."""
    if episode.ending != "answer":
        return 0.0
    stated = numbers(episode.final_answer[:MAX_FINAL_LENGTH])
    known = numbers(episode.task.query) | {value for _, value in episode.obtained}
    known |= {number for value in known for number in numbers(value)}
    if len(stated - known) > MAX_UNSUPPORTED_NUMBERS:
        return 0.0
    asked = [item for item in episode.task.gold if item.asked]
    right = sum(item.value in stated and (item.function, item.value) in episode.obtained for item in asked)
    return right / len(asked)
