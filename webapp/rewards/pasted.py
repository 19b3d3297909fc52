"""Conversations that a person pastes, as finished episodes: one, several, or groups for the lab. Every mistake has a
sentence."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from pydantic import ValidationError as ShapeError

from envs.wire import Message
from training.rewards.base import Episode
from training.rewards.lab import DEGENERATE, Recorded, message_head
from webapp.common.text import clean_json, json_words

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


# --- Groups ---------------------------------------------------------------------------------------------------------
# Pasted conversations as episodes: a JSON list of them, or one on each line.

TEXT_NAME = "pasted.txt"
MAX_TEXT_BYTES = 1 << 20
MAX_CONVERSATIONS = 2000


class Pasted(NamedTuple):
    """One conversation with its recorded reward and parts."""

    episode: Episode
    about: dict[str, Any]


def conversations_of(text: str) -> list[Pasted]:
    """The conversations of a text. Raises ``ValidationError`` for the field ``text``."""
    try:
        if len(text.encode("utf-8", "replace")) > MAX_TEXT_BYTES:
            raise ValidationError(_("Pasted conversations may have at most 1 MB."))
        values = list(_parse_conversations(text))
        if not values:
            raise ValidationError(_("Paste a list of conversations, or one on each line."))
        if len(values) > MAX_CONVERSATIONS:
            raise ValidationError(_("At most %(n)s conversations may be pasted.") % {"n": MAX_CONVERSATIONS})
        return [_pasted_conversation(value, number) for number, value in enumerate(values, start=1)]
    except ValidationError as exc:
        raise ValidationError({"text": exc.messages}) from exc


def _parse_conversations(text: str) -> Iterator[Any]:
    """The conversations of the text, as one JSON value or one on each line; one alone is a list of messages."""
    try:
        whole = json.loads(text)
    except RecursionError as exc:
        raise ValidationError(json_words(exc)) from exc
    except ValueError as exc:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
        if len(lines) < 2:
            raise ValidationError(json_words(exc)) from exc
        yield from (_parse_line(number, line) for number, line in lines)
        return
    if isinstance(whole, list) and not (whole and isinstance(whole[0], dict) and "role" in whole[0]):
        yield from whole
    else:
        yield whole


def _parse_line(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise ValidationError(_("Line %(number)s is not valid JSON.") % {"number": number}) from exc


def _pasted_conversation(raw: Any, number: int) -> Pasted:
    try:
        raw = clean_json(raw)
    except RecursionError as exc:
        raise ValidationError(_("The conversation is nested too deeply.")) from exc
    about = raw if isinstance(raw, dict) else {}
    try:
        episode = conversation_of(raw)
        parts, reward = about.get("env_parts", {}), about.get("reward")
        if not isinstance(parts, dict) or not all(_is_number(value) for value in parts.values()):
            raise ValidationError(_("`env_parts` must be an object of numbers."))
        if reward is not None and not _is_number(reward):
            raise ValidationError(_("`reward` must be a number."))
    except ValidationError as exc:
        words = " ".join(exc.messages)
        raise ValidationError(_("Conversation %(number)s: %(what)s") % {"number": number, "what": words}) from exc
    made = Episode(
        messages=episode.messages,
        prompt_length=episode.prompt_length,
        row=episode.row,
        env_reward=episode.env_reward,
        env_parts={str(name): float(value) for name, value in parts.items()},
        truncated=about.get("truncated") is True,
        parse_errors=0,
        tokens=None,
    )
    return Pasted(made, about)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def grouped(pasted: list[Pasted], make_id: uuid.UUID) -> Iterator[tuple[Recorded, Episode]]:
    """Conversations of the same prompt are a group, in the order in which the prompts come."""
    groups: dict[str, list[Pasted]] = {}
    for item in pasted:
        groups.setdefault(_prompt_hash(item.episode), []).append(item)
    number = 0
    for group, members in enumerate(groups.values()):
        for index, (episode, about) in enumerate(members):
            policy, reward = about.get("policy"), about.get("reward")
            yield (
                Recorded(
                    uuid.uuid5(make_id, str(number)),
                    group=group,
                    index=index,
                    row=None,
                    policy=policy if policy in DEGENERATE else "",
                    reward=None if reward is None else float(reward),
                    status="truncated" if episode.truncated else "completed",
                    task=message_head(episode.messages[: episode.prompt_length]),
                ),
                episode,
            )
            number += 1


def _prompt_hash(episode: Episode) -> str:
    prompt = [[message.role, message.content] for message in episode.messages[: episode.prompt_length]]
    return hashlib.sha256(json.dumps([prompt, episode.row.get("id")]).encode()).hexdigest()
