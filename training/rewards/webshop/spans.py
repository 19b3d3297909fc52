"""The purchase, and the page that tells what it is worth."""

from __future__ import annotations

from training.rewards.base import Episode, Params, Span
from training.rewards.spans import placed_turns, whole
from training.words import _

DONE_MARK = "Thank you for shopping with us!"
_BUY = "buy now"


def purchase(episode: Episode, params: Params) -> list[Span]:
    """The last turn that bought, and the page after it."""
    spans: list[Span] = []
    for place, turn in placed_turns(episode):
        calls = " ".join(str(call.arguments) for call in turn.said.tool_calls or [])
        if _BUY in turn.said.content.casefold() or _BUY in calls.casefold():
            spans = [whole(place, _("the purchase"))]
    for place, message in enumerate(episode.messages[episode.prompt_length :], start=episode.prompt_length):
        if message.role != "assistant" and message.content.lstrip().startswith(DONE_MARK):
            spans.append(whole(place, _("the score of the purchase")))
    return spans
