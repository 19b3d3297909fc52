"""Which rounds BFCL's format and tool calls come from, by their codes."""

from __future__ import annotations

from collections.abc import Mapping

from training.rewards.base import Episode, Params, Span
from training.rewards.bfcl.codes import CALL, FAILED_CALL, UNREADABLE, codes_of
from training.rewards.spans import placed_turns, whole
from training.words import _

_CALLS = {CALL: _("a call that worked"), FAILED_CALL: _("a call that failed")}
_BROKEN = {UNREADABLE: _("the format is broken")}
_KEPT = _("the format is kept")


def form(episode: Episode, params: Params) -> list[Span]:
    """All rounds, by whether they kept the format."""
    return _spans(episode, _BROKEN, _KEPT)


def calls(episode: Episode, params: Params) -> list[Span]:
    """The rounds that were calls."""
    return _spans(episode, _CALLS, "")


def both(episode: Episode, params: Params) -> list[Span]:
    """All rounds, by what the first stage pays for them."""
    return _spans(episode, {**_CALLS, **_BROKEN}, _KEPT)


def _spans(episode: Episode, notes: Mapping[int, str], other: str) -> list[Span]:
    """One span a round. Recorded codes that are not one a round tell nothing about where they come from."""
    turns, codes = list(placed_turns(episode)), codes_of(episode)
    if len(turns) != len(codes):
        return []
    said = [
        (place, other if code is None else notes.get(int(code), other))
        for (place, _turn), code in zip(turns, codes, strict=True)
    ]
    return [whole(place, note) for place, note in said if note]
