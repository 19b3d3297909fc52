"""What a ToolBench episode shows, turn by turn: how well it was written, what its calls led to, and how it ended.

Both speeches are read: calls that are calls, answered by tool messages, and Thought, Action and Action Input in the
text, answered by an Observation. Results are ``{"error": …, "response": …}``; they may be cut off.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal, NamedTuple

from training.rewards.base import Episode
from training.rewards.facts import Turn, outcomes_of, turns_of

FINISH = "Finish"
MAX_JSON_CHARS = 65_536
# How environments answer a turn without a readable call, and the seed's format score that this stands for.
UNREADABLE = ("Please check the Action and Action Input format", "could not be read")
NO_ACTION = ("Please provide Thought, Action, and Action Input", "Nothing was called")

Ending = Literal["answer", "give_up", "other"]
_PARTS = re.compile(r"Thought:\s*(?P<thought>.*?)\nAction:[ \t]*(?P<action>[^\n]*)\nAction Input:\s*", re.DOTALL)
_ERROR_FIELD = re.compile(r"""\s*\{\s*(["'])error\1\s*:\s*(["'])\s*(\2)?""")
_OBSERVATION = re.compile(r"\s*Observation:\s*")
_decoder = json.JSONDecoder()


class Reading(NamedTuple):
    """One turn. ``form`` is the seed's format score; ``valid`` says that an action could be read."""

    form: float
    valid: bool
    worked: int = 0
    failed: int = 0
    ending: Ending | None = None


def read(episode: Episode) -> list[Reading]:
    """Every turn of the policy."""
    return [_native(turn) if turn.said.tool_calls else _text(turn) for turn in turns_of(episode)]


def ending(turns: list[Reading]) -> Ending | None:
    """How the episode ended: by its last Finish, or ``None`` without one."""
    return next((turn.ending for turn in reversed(turns) if turn.ending), None)


def _native(turn: Turn) -> Reading:
    worked = failed = 0
    ended: Ending | None = None
    for call, result, error in outcomes_of(turn):
        if call.name == FINISH:
            ended = ended if ended in ("answer", "give_up") else _ending(call.arguments)
        elif result is not None:
            bad = error is not None or reports_error(result)
            worked, failed = worked + (not bad), failed + bad
    complained = any(_says(answer.content, UNREADABLE) for answer in turn.answers if not answer.tool_call_id)
    return Reading(0.5 if complained else 1.0, True, worked, failed, ended)


def _text(turn: Turn) -> Reading:
    said, answer = turn.said.content, turn.answers[0].content if turn.answers else ""
    found = _PARTS.search(said)
    if found is None or not found["action"].strip():
        return Reading(_form_without_action(said, answer), False)
    arguments, sound = _arguments(said[found.end() :])
    if arguments is None:
        return Reading(0.5, False)
    form = 1.0 if sound else 0.5
    if found["action"].strip() == FINISH:
        return Reading(form, True, ending=_ending(arguments))
    if not answer:
        return Reading(form, True)
    bad = _says(answer, (*UNREADABLE, *NO_ACTION)) or reports_error(_OBSERVATION.sub("", answer[:MAX_JSON_CHARS], 1))
    return Reading(form, not _says(answer, UNREADABLE), int(not bad), int(bad))


def _form_without_action(said: str, answer: str) -> float:
    """0.5 for an action whose input is unreadable, 0.2 for half of one or mere words in its place, else 0."""
    if _says(answer, UNREADABLE):
        return 0.5
    partly = "Thought:" in said or "Action:" in said
    return 0.2 if partly or (_says(answer, NO_ACTION) and said.strip()) else 0.0


def _arguments(text: str) -> tuple[dict[str, Any] | None, bool]:
    """The JSON object that the text begins with, and whether it is one; no text at all is no arguments."""
    text = text[:MAX_JSON_CHARS]
    start = text.find("{")
    if start < 0:
        return (None, False) if text.strip() else ({}, True)
    try:
        value = _decoder.raw_decode(text, start)[0]
    except (ValueError, RecursionError):
        return None, False
    return (value, True) if isinstance(value, dict) else (None, False)


def _ending(arguments: dict[str, Any]) -> Ending:
    kind = arguments.get("return_type")
    if kind == "give_answer":
        return "answer"
    return "give_up" if kind in ("give_up_and_restart", "give_up") else "other"


def reports_error(text: str) -> bool:
    """Whether a result's ``error`` says something. Of a long or broken one only the beginning is read."""
    if len(text) <= MAX_JSON_CHARS:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            return isinstance(value, dict) and bool(str(value.get("error") or "").strip())
    found = _ERROR_FIELD.match(text)
    return found is not None and found[3] is None


def _says(text: str, sentences: tuple[str, ...]) -> bool:
    head = text[:1000]
    return any(sentence in head for sentence in sentences)
