"""Conversations that are pasted: each limit from both sides, each mistake with its sentence, and their groups."""

from __future__ import annotations

import json
import math
import uuid
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from webapp.rewards.pasted import (
    conversation_of,
    conversations_of,
    grouped,
    pasted_episode,
    pasted_episodes,
)

USER, MODEL = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
TALK = [USER, MODEL]


def text_of(length: int) -> str:
    """A conversation as text of so many bytes."""
    short = json.dumps([{"role": "user", "content": ""}])
    return json.dumps([{"role": "user", "content": "x" * (length - len(short))}])


def test_a_conversation_has_a_largest_size() -> None:
    assert len(pasted_episode(text_of(64 * 1024)).messages[0].content) > 60_000
    with pytest.raises(ValidationError, match="at most 64 KB"):
        pasted_episode(text_of(64 * 1024 + 1))
    with pytest.raises(ValidationError, match="at most 64 KB"):
        pasted_episode("名" * 22_000)  # three bytes each


@pytest.mark.parametrize(("count", "good"), [(1, True), (200, True), (201, False)])
def test_a_conversation_has_a_largest_number_of_messages(count: int, good: bool) -> None:
    if good:
        assert len(conversation_of([USER] * count).messages) == count
        return
    with pytest.raises(ValidationError, match="At most 200 messages"):
        conversation_of([USER] * count)


def test_up_to_twenty_episodes_are_tried_at_once() -> None:
    one = {"messages": TALK}
    assert len(pasted_episodes(json.dumps([one] * 20))) == 20
    with pytest.raises(ValidationError, match="At most 20 episodes"):
        pasted_episodes(json.dumps([one] * 21))
    assert [len(each.messages) for each in pasted_episodes(json.dumps(one))] == [2]
    assert [len(each.messages) for each in pasted_episodes(json.dumps([*TALK, USER]))] == [3]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ([], "Paste a list of messages"),
        ({}, "Paste a list of messages"),
        ({"messages": []}, "Paste a list of messages"),
        ({"messages": "x"}, "Paste a list of messages"),
        ("x", "Paste a list of messages"),
        ([USER, 3], "Message 2 is not a valid"),
        ([{"role": "wizard", "content": ""}], "Message 1 is not a valid"),
        ([{"role": "assistant", "tool_calls": 3}], "Message 1 is not a valid"),
        ([{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{"}]}], "Message 1 is not a valid"),
        ({"messages": TALK, "env_reward": "1"}, "`env_reward` must be a number"),
        ({"messages": TALK, "env_reward": True}, "`env_reward` must be a number"),
        ({"messages": TALK, "row": []}, "`row` must be an object"),
    ],
)
def test_what_is_no_conversation_is_named(raw: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        conversation_of(raw)


def test_the_prompt_ends_before_the_first_turn_of_the_model() -> None:
    system = {"role": "system", "content": "Be brief."}
    for messages, length in (([system, USER, MODEL, USER, MODEL], 2), ([MODEL, USER], 0), ([USER, USER], 2)):
        assert conversation_of(messages).prompt_length == length
    found = conversation_of({"messages": TALK, "env_reward": 0, "row": {"id": 3}})
    assert (found.env_reward, found.row) == (0, {"id": 3}) and conversation_of(TALK).env_reward is None


def test_calls_are_read_in_both_spellings() -> None:
    calls = [
        {"id": "a", "function": {"name": "add", "arguments": '{"n": 1}'}},
        {"name": "ls", "arguments": {"all": True}},
        {"function": {"name": "now"}},
    ]
    (message,) = conversation_of([{"role": "assistant", "content": None, "tool_calls": calls}]).messages
    assert [(call.id, call.name, call.arguments) for call in message.tool_calls or []] == [
        ("a", "add", {"n": 1}),
        ("call_1", "ls", {"all": True}),
        ("call_2", "now", {}),
    ]
    assert message.content == ""


def messages_of(text: str) -> list[int]:
    return [len(item.episode.messages) for item in conversations_of(text)]


def test_conversations_are_one_value_or_one_on_each_line() -> None:
    assert messages_of(json.dumps(TALK)) == [2]
    assert messages_of(json.dumps({"messages": TALK})) == [2]
    assert messages_of(json.dumps([TALK, {"messages": [USER]}])) == [2, 1]
    lines = "\n".join([json.dumps(TALK), "", json.dumps({"messages": [USER]})])
    assert messages_of(lines) == [2, 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "JSON"),
        ("[]", "Paste a list of conversations"),
        ("no json", "JSON"),
        ("[1\n[2]", "Line 1 is not valid JSON"),
        ('[{"role": "user", "content": "a"}]\n\nno', "Line 3 is not valid JSON"),
        ("[" * 100_000, "deep"),
        (json.dumps([TALK, "x"]), "Conversation 2: Paste a list of messages"),
        (json.dumps([{"messages": TALK, "env_parts": 3}]), "Conversation 1: `env_parts` must be an object of numbers"),
        (json.dumps([{"messages": TALK, "env_parts": {"a": True}}]), "must be an object of numbers"),
        (json.dumps([{"messages": TALK, "env_parts": {"a": math.inf}}]), "must be an object of numbers"),
        (json.dumps([{"messages": TALK, "reward": "1"}]), "`reward` must be a number"),
        (json.dumps([{"messages": TALK, "reward": False}]), "`reward` must be a number"),
    ],
)
def test_what_cannot_be_read_is_named_at_its_field(text: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words) as caught:
        conversations_of(text)
    assert list(caught.value.message_dict) == ["text"]


def test_pasted_conversations_have_a_largest_number_and_size() -> None:
    small = json.dumps([USER])
    assert len(conversations_of("\n".join([small] * 2000))) == 2000
    with pytest.raises(ValidationError, match="At most 2000 conversations"):
        conversations_of("\n".join([small] * 2001))
    assert len(conversations_of(text_of(1 << 20))) == 1
    with pytest.raises(ValidationError, match="at most 1 MB"):
        conversations_of(text_of((1 << 20) + 1))


def test_conversations_of_one_prompt_are_a_group() -> None:
    other = [{"role": "user", "content": "3+3?"}, MODEL]
    given = [
        {"messages": TALK, "reward": 1, "env_parts": {"exact": 1}, "env_reward": 0.5},
        {"messages": other, "truncated": True, "policy": "nonsense"},
        {"messages": [USER, {"role": "assistant", "content": "5"}], "reward": 0.0, "truncated": 1},
        {"messages": TALK, "row": {"id": 7}, "reward": math.nan},
    ]
    make = uuid.UUID(int=4)
    found = list(grouped(conversations_of(json.dumps(given)), make))
    assert [(kept.group, kept.index, kept.reward, kept.status, kept.policy) for kept, _episode in found] == [
        (0, 0, 1.0, "completed", ""),
        (0, 1, 0.0, "completed", ""),
        (1, 0, None, "truncated", ""),
        (2, 0, None, "completed", ""),
    ]
    assert [kept.id for kept, _episode in found] == [uuid.uuid5(make, str(number)) for number in range(4)]
    assert [kept.task for kept, _episode in found] == ["2+2?", "2+2?", "3+3?", "2+2?"]
    first = found[0][1]
    assert (first.env_parts, first.env_reward, first.truncated, first.parse_errors) == ({"exact": 1.0}, 0.5, False, 0)
