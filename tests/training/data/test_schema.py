"""Foreign spellings of a row come out as ours, and nothing of it is lost."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from envs.wire import Message, ToolCall
from training.data.schema import RowError, row_from_dict, strict_loads

SCHEMA = {"type": "function", "function": {"name": "f", "parameters": {}}}


def test_roles_map_to_ours() -> None:
    roles = ["developer", "human", "gpt", "tool_result", "function", "tool_response", "observation", "system", "tool"]
    row = row_from_dict({"conversation": [{"role": role, "content": "x"} for role in roles]})
    assert [m.role for m in row.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "tool",
        "tool",
        "system",
        "tool",
    ]


def test_bare_calls_in_a_row_are_one_turn() -> None:
    call = {"name": "aqi", "arguments": {"city": "北京"}}
    messages = [
        {"role": "user", "content": "?"},
        {"role": "tool_call", "content": json.dumps(call)},
        {"role": "tool_call", "content": json.dumps(call)},
        {"role": "tool_response", "content": "10"},
        {"role": "tool_call", "content": json.dumps({"name": "end"})},
    ]
    row = row_from_dict({"messages": messages, "tools": json.dumps([SCHEMA])})
    assert [m.role for m in row.messages] == ["user", "assistant", "tool", "assistant"]
    assert row.messages[1].tool_calls == [
        ToolCall(id="call_2", name="aqi", arguments={"city": "北京"}),
        ToolCall(id="call_3", name="aqi", arguments={"city": "北京"}),
    ]
    assert row.messages[3].tool_calls == [ToolCall(id="call_5", name="end")]
    assert row.tools == [SCHEMA]
    assert row.task() is row.raw and row.raw["messages"] is messages


def test_calls_in_openais_spelling_and_ours() -> None:
    calls = [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"name": "g", "arguments": {"b": 2}},
        {"name": "h", "arguments": ""},
    ]
    row = row_from_dict({"messages": [{"role": "assistant", "content": None, "tool_calls": calls}]})
    assert row.messages[0].content == ""
    assert row.messages[0].tool_calls == [
        ToolCall(id="c", name="f", arguments={"a": 1}),
        ToolCall(id="call_2", name="g", arguments={"b": 2}),
        ToolCall(id="call_3", name="h"),
    ]


def test_messages_win_over_other_keys_which_stay_extras() -> None:
    row = row_from_dict({"prompt": "text", "z": 1, "messages": [{"role": "user", "content": "a"}], "a": None})
    assert row.messages == [Message(role="user", content="a")]
    assert list(row.normal()) == ["messages", "prompt", "z", "a"]
    row = row_from_dict({"messages": None, "prompt": [{"role": "user", "content": "b"}]})
    assert row.normal() == {"messages": [{"role": "user", "content": "b"}]}


def test_unknown_fields_of_messages_stay_with_them() -> None:
    raw = {"conversation": [{"role": "human", "content": "a", "loss": True}, {"role": "gpt", "content": "b"}]}
    assert row_from_dict(raw).normal() == {
        "messages": [{"role": "user", "content": "a", "loss": True}, {"role": "assistant", "content": "b"}]
    }


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_roles = st.sampled_from(["user", "human", "gpt", "tool", "tool_call", "tool_result", "wizard"])
_messages = st.lists(
    st.fixed_dictionaries(
        {}, optional={"role": _roles | _values, "content": st.text(max_size=5) | _values, "tool_calls": _values}
    ),
    max_size=3,
)
_rows = st.fixed_dictionaries(
    {}, optional={"messages": _messages | _values, "conversation": _messages, "tools": _values, "x": _values}
)


@settings(max_examples=300, deadline=None)
@given(raw=_rows)
def test_any_row_is_read_or_refused_and_a_normal_row_is_stable(raw: dict[str, Any]) -> None:
    try:
        row = row_from_dict(strict_loads(json.dumps(raw)))
    except RowError as exc:
        assert 0 < len(str(exc)) <= 200
        return
    again = row_from_dict(strict_loads(json.dumps(row.normal())))
    assert again.messages == row.messages and again.tools == row.tools and again.extra == row.extra
    assert again.normal() == row.normal()


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=40) | st.text(alphabet='[]{}":,1e9\\ud', max_size=60))
def test_any_text_is_decoded_or_refused(text: str) -> None:
    try:
        strict_loads(text)
    except RowError as exc:
        assert len(str(exc)) <= 200
