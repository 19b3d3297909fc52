"""What an episode shows about its tool calls: the facts that several components ask for."""

from __future__ import annotations

from typing import NamedTuple

from envs.wire import ToolCall
from training.rewards.base import Episode

ERROR_PREFIXES = ("Error:", "错误:")
"""A tool message that begins so reports a failure; the error text follows."""


class CallOutcome(NamedTuple):
    """One call of the policy. ``result`` is ``None`` when no tool message answered it, ``error`` when it worked."""

    call: ToolCall
    result: str | None
    error: str | None


def call_outcomes(episode: Episode) -> list[CallOutcome]:
    """All calls in order with their answers.

    A tool message belongs to the open call of the turn before it with the same id, or to the first unanswered one when
    the message has no id. Messages that answer no call (such as a complaint about an unreadable one) are left out.
    """
    done: list[CallOutcome] = []
    turn: list[CallOutcome] = []
    for message in episode.messages[episode.prompt_length :]:
        if message.role == "assistant":
            done += turn
            turn = [CallOutcome(call, None, None) for call in message.tool_calls or []]
        elif message.role == "tool":
            for i, (call, result, _) in enumerate(turn):
                if result is None and message.tool_call_id in (None, "", call.id):
                    turn[i] = CallOutcome(call, message.content, _error(message.content))
                    break
    return done + turn


def question(episode: Episode) -> str:
    """What the user asked: the last user message of the prompt, else the first one of the episode, else ""."""
    prompt = [m.content for m in episode.messages[: episode.prompt_length] if m.role == "user"]
    if prompt:
        return prompt[-1]
    return next((m.content for m in episode.messages[episode.prompt_length :] if m.role == "user"), "")


def _error(text: str) -> str | None:
    """The error that a tool message reports, or ``None`` when the call worked."""
    text = text.strip()
    for prefix in ERROR_PREFIXES:
        if text.startswith(prefix):
            return text.removeprefix(prefix).strip()
    return None
