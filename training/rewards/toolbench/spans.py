"""Which turns ToolBench's format, calls and ending come from."""

from __future__ import annotations

from training.rewards.base import Episode, Params, Span
from training.rewards.spans import placed_turns, whole
from training.rewards.toolbench.reading import Reading, read
from training.words import _

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
