"""Where the five components of tool calling look: calls, results that were taken up, the final answer."""

from __future__ import annotations

from training.rewards.base import Episode, Params, Span
from training.rewards.spans import answer_at, piece, placed_turns, whole
from training.rewards.tool_calling.formulas import FinalAnswerParams, NecessityParams, ResultUseParams, holds, takes_up
from training.rewards.turns import outcomes_of, question
from training.words import _


def calls(episode: Episode, params: Params) -> list[Span]:
    """Every turn with calls, by how each of them ended."""
    spans = []
    for place, turn in placed_turns(episode):
        for item in outcomes_of(turn):
            worked = item.result is not None and item.error is None
            spans.append(whole(place, _("a call that worked") if worked else _("a call that failed")))
    return spans


def necessity(episode: Episode, params: NecessityParams) -> list[Span]:
    """The question that needs a tool, and the calls."""
    asked = question(episode)
    places = [i for i, message in enumerate(episode.messages) if message.role == "user" and message.content == asked]
    needs = bool(places) and holds(params.keywords, asked)
    spans = [whole(places[-1], _("the question needs a tool"))] if needs else []
    return spans + [whole(place, _("a call")) for place, turn in placed_turns(episode) if turn.said.tool_calls]


def results(episode: Episode, params: ResultUseParams | FinalAnswerParams) -> list[Span]:
    """The results, by whether the final answer takes them up, and that answer."""
    said, spans = episode.final_answer.strip(), []
    for place, turn in placed_turns(episode):
        for item in outcomes_of(turn):
            if item.result is None or item.error is not None:
                continue
            used = takes_up(said, item.result, params)
            at = next(i for i in range(place + 1, len(episode.messages)) if episode.messages[i].content == item.result)
            spans.append(whole(at, _("used by the answer") if used else _("not used by the answer")))
    return spans + final(episode, params)


def final(episode: Episode, params: Params) -> list[Span]:
    """The final answer."""
    found = answer_at(episode)
    return piece(*found, _("the final answer")) if found else []
