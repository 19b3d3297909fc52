"""Conversations that a person pastes, as finished episodes. Every mistake has a sentence."""

from __future__ import annotations

import json
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from pydantic import ValidationError as ShapeError

from envs.wire import Message
from training.rewards.base import Episode
from webapp.common.text import json_words

MAX_CONVERSATION_BYTES = 64 * 1024
MAX_MESSAGES = 200
MAX_EPISODES = 20


def pasted_episode(text: str) -> Episode:
    """One conversation: a list of messages, or ``{"messages": …}`` with further facts of the episode."""
    return conversation_of(_parse_json(text))


def pasted_episodes(text: str) -> list[Episode]:
    """One conversation, or a list of several ``{"messages": …}``."""
    raw = _parse_json(text)
    several = isinstance(raw, list) and raw and all(isinstance(item, dict) and "messages" in item for item in raw)
    items = raw if several else [raw]
    if len(items) > MAX_EPISODES:
        raise ValidationError(_("At most %(n)s episodes.") % {"n": MAX_EPISODES})
    return [conversation_of(item) for item in items]


def _parse_json(text: str) -> Any:
    if len(text.encode("utf-8", "replace")) > MAX_CONVERSATION_BYTES:
        raise ValidationError(_("A conversation to try may have at most 64 KB."))
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ValidationError(json_words(exc)) from exc


def conversation_of(raw: Any) -> Episode:
    """A parsed conversation as an episode: the prompt is everything before the first model turn."""
    more: dict[str, Any] = raw if isinstance(raw, dict) else {}
    messages = more.get("messages") if more else raw
    if not isinstance(messages, list) or not messages:
        raise ValidationError(_("Paste a list of messages, each with role and content."))
    if len(messages) > MAX_MESSAGES:
        raise ValidationError(
            ngettext("At most %(n)s message.", "At most %(n)s messages.", MAX_MESSAGES) % {"n": MAX_MESSAGES}
        )
    env_reward, row = more.get("env_reward"), more.get("row", {})
    if env_reward is not None and (isinstance(env_reward, bool) or not isinstance(env_reward, (int, float))):
        raise ValidationError(_("`env_reward` must be a number."))
    if not isinstance(row, dict):
        raise ValidationError(_("`row` must be an object."))
    found = [_parse_message(item, number) for number, item in enumerate(messages, start=1)]
    prompt = next((index for index, message in enumerate(found) if message.role == "assistant"), len(found))
    return Episode(messages=found, prompt_length=prompt, row=row, env_reward=env_reward)


def _parse_message(item: Any, number: int) -> Message:
    """One message in our spelling or in OpenAI's (``function`` with JSON arguments inside a call)."""
    sentence = _("Message %(number)s is not a valid chat message.") % {"number": number}
    if not isinstance(item, dict):
        raise ValidationError(sentence)
    item = {**item, "content": item.get("content") or ""}
    try:
        if item.get("tool_calls"):
            item["tool_calls"] = [_parse_call(call, index) for index, call in enumerate(item["tool_calls"])]
        return Message.model_validate(item)
    except (ShapeError, TypeError, ValueError, AttributeError, RecursionError) as exc:
        raise ValidationError(sentence) from exc


def _parse_call(call: dict[str, Any], index: int) -> dict[str, Any]:
    inner = call.get("function") or call
    arguments = inner.get("arguments") or {}
    return {
        "id": str(call.get("id") or f"call_{index}"),
        "name": inner.get("name"),
        "arguments": json.loads(arguments) if isinstance(arguments, str) else arguments,
    }
