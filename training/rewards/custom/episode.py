"""What custom code sees of an episode: plain data, the same as JSON. docs/custom-rewards.md describes each field."""

from __future__ import annotations

from typing import Any

from envs.wire import Message
from training.rewards.base import Episode
from training.rewards.facts import outcomes_of, question, turns_of


def plain_episode(episode: Episode) -> dict[str, Any]:
    """The episode as dictionaries, lists, texts and numbers."""
    return {
        "messages": [_message(message) for message in episode.messages],
        "prompt_length": episode.prompt_length,
        "question": question(episode),
        "final_answer": episode.final_answer,
        "calls": _calls(episode),
        "row": episode.row,
        "env_reward": episode.env_reward,
        "env_parts": episode.env_parts,
        "parse_errors": episode.parse_errors,
        "truncated": episode.truncated,
        "tokens": episode.tokens,
    }


def _message(message: Message) -> dict[str, Any]:
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls or []]
    return {"role": message.role, "content": message.content, "tool_calls": calls, "tool_call_id": message.tool_call_id}


def _calls(episode: Episode) -> list[dict[str, Any]]:
    return [
        {
            "turn": number,
            "name": outcome.call.name,
            "arguments": outcome.call.arguments,
            "result": outcome.result,
            "error": outcome.error,
        }
        for number, turn in enumerate(turns_of(episode))
        for outcome in outcomes_of(turn)
    ]
