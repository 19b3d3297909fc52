"""What a ToolBench episode shows, turn by turn, and which turns its format, calls and ending come from."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, NamedTuple

from training.rewards.base import Episode, Params, Span
from training.rewards.text import placed_turns, whole
from training.rewards.turns import Turn, outcomes_of, turns_of
from training.words import _

# What a ToolBench episode shows, turn by turn: how well it was written, what its calls led to, and how it ended.
#
# Both speeches are read: calls that are calls, answered by tool messages, and Thought, Action and Action Input in the
# text, answered by an Observation. Results are ``{"error": …, "response": …}``; they may be cut off.

FINISH = "Finish"
MAX_JSON_CHARS = 65_536
# How environments answer a turn without a readable call.
UNREADABLE = ("Please check the Action and Action Input format", "could not be read")
NO_ACTION = ("Please provide Thought, Action, and Action Input", "Nothing was called")

Ending = Literal["answer", "give_up", "other"]
# Possessive: a line is read once, however it continues. What is before it is found, not matched.
_ACTION = re.compile(r"\nAction:[ \t]*+(?P<action>[^\n]*+)\nAction Input:\s*+")
BETWEEN = "\n\x1e\n"
"""The mark between the turns of a response that is read as one text."""
_MARKS = ("Thought:", "\nAction:", "\nAction Input:")
_ERROR_FIELD = re.compile(r"""\s*\{\s*(["'])error\1\s*:\s*(["'])\s*(\2)?""")
_decoder = json.JSONDecoder()


class Reading(NamedTuple):
    """One turn. ``form`` is how well it alone was written; ``valid`` says that an action could be read.

    ``text`` is the turn as ToolBench writes it, also where a call was no text or a trainer's dialect took it out.
    """

    form: float
    valid: bool
    worked: int = 0
    failed: int = 0
    ending: Ending | None = None
    text: str = ""


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
    form = 0.5 if complained else 1.0
    return Reading(form, True, worked, failed, ended, _written(broken=complained))


def _written(*, broken: bool) -> str:
    """A call that was no text, as text."""
    return "Thought: \nAction: call\nAction Input: " + ("{" if broken else "{}")


def _text(turn: Turn) -> Reading:
    text, answer = turn.said.content, turn.answers[0].content if turn.answers else ""
    thought = text.find("Thought:")
    found = _ACTION.search(text, thought) if thought >= 0 else None
    if found is None or not found["action"].strip():
        return _without_action(text, answer)
    arguments, sound = _arguments(text[found.end() :])
    if arguments is None:
        return Reading(0.5, False, text=text)
    form = 1.0 if sound else 0.5
    if found["action"].strip() == FINISH:
        return Reading(form, True, ending=_ending(arguments), text=text)
    if not answer:
        return Reading(form, True, text=text)
    bad = _says(answer, (*UNREADABLE, *NO_ACTION)) or reports_error(_result(answer))
    return Reading(form, not _says(answer, UNREADABLE), int(not bad), int(bad), text=text)


def _without_action(text: str, answer: str) -> Reading:
    """0.5 for an action whose input was unreadable, 0.2 for half of one, else 0: also mere words that were answered."""
    if _says(answer, UNREADABLE):
        return Reading(0.5, False, text=text if _ordered(text) else _written(broken=True))
    return Reading(0.2 if "Thought:" in text or "Action:" in text else 0.0, False, text=text)


def _result(answer: str) -> str:
    """The content of an Observation."""
    before, mark, after = answer[:MAX_JSON_CHARS].partition("Observation:")
    return before.rstrip() + after.lstrip() if mark else before


def _ordered(text: str) -> bool:
    """Whether the first of each of the three marks come in their order."""
    thought, action, given = (text.find(mark) for mark in _MARKS)
    return 0 <= thought < action < given


def form_of(text: str) -> float:
    """The seed's format score of a response of turns that ``BETWEEN`` parts: the first of each mark counts."""
    if not _ordered(text):
        return 0.2 if "Thought:" in text or "Action:" in text else 0.0
    name, _mark, given = text[text.find(_MARKS[1]) + len(_MARKS[1]) :].partition(_MARKS[2])
    if not name.strip():
        return 0.2
    arguments, sound = _arguments(given.partition(BETWEEN)[0])
    return 1.0 if sound and arguments is not None else 0.5


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


# Which turns ToolBench's format, calls and ending come from.

_WORDS = ("Thought:", "Action:")


def _placed(episode: Episode) -> list[tuple[int, Reading]]:
    return [(place, reading) for (place, _turn), reading in zip(placed_turns(episode), read(episode), strict=True)]


def form(episode: Episode, params: Params) -> list[Span]:
    """The turn with the first action, else the first one with a part of one."""
    turns = _placed(episode)
    notes = {1.0: _("a readable action"), 0.5: _("an action with an unreadable input")}
    best = next((turn for turn in turns if turn[1].form >= 0.5), None) or next(
        (turn for turn in turns if turn[1].form > 0), None
    )
    place, turn = best or (turns[0] if turns else (None, None))
    return [] if place is None or turn is None else [whole(place, notes.get(turn.form, _("no action")))]


def valid(episode: Episode, params: Params) -> list[Span]:
    """All turns, by whether an action could be read."""
    yes, no = _("a readable action"), _("no readable action")
    return [whole(place, yes if turn.valid else no) for place, turn in _placed(episode)]


def calls(episode: Episode, params: Params) -> list[Span]:
    """The turns whose calls worked or failed."""
    return _calls(_placed(episode))


def calls_before_last(episode: Episode, params: Params) -> list[Span]:
    """The same without the last turn, which does not count there."""
    return _calls(_placed(episode)[:-1])


def _calls(turns: list[tuple[int, Reading]]) -> list[Span]:
    yes, no = _("a call that worked"), _("a call that failed")
    spans = []
    for place, turn in turns:
        spans += [whole(place, yes)] * turn.worked + [whole(place, no)] * turn.failed
    return spans


def finish(episode: Episode, params: Params) -> list[Span]:
    """The last Finish."""
    notes = {"answer": _("ends with an answer"), "give_up": _("ends by giving up"), "other": _("ends otherwise")}
    ends = [(place, turn.ending) for place, turn in _placed(episode) if turn.ending]
    return [whole(ends[-1][0], notes[ends[-1][1]])] if ends else []


def last_turn(episode: Episode, params: Params) -> list[Span]:
    """The last turn: only that is looked at."""
    turns = _placed(episode)
    if not turns:
        return []
    place, turn = turns[-1]
    return [whole(place, _("the last turn is a Finish") if turn.ending else _("the last turn is no Finish"))]


def tokens(episode: Episode, params: Params) -> list[Span]:
    """Every turn: each of its tokens counts."""
    turns = list(placed_turns(episode))
    if not any(turn.said.tool_calls or any(word in turn.said.content for word in _WORDS) for _place, turn in turns):
        return []
    return [whole(place, _("each token counts")) for place, _turn in turns]
