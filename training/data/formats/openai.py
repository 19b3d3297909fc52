"""OpenAI chat messages with tools, as fine-tuning files have them."""

from __future__ import annotations

import json

from training.data.formats.base import DataFormat, Value, each, fits
from training.data.raw import Sample
from training.data.schema import Row, row_from_dict, written
from training.words import _


def _recognise(sample: Sample) -> tuple[int, str] | None:
    def test(row: Value) -> bool:
        messages = row.get("messages")
        if not isinstance(messages, list) or not messages:
            return False
        calls = any(isinstance(item, dict) and item.get("tool_calls") for item in messages)
        return (calls or isinstance(row.get("tools"), list)) and all(
            isinstance(item, dict) and item.get("role") in ("system", "developer", "user", "assistant", "tool")
            for item in messages
        )

    return fits(sample, test, _("have `messages` of OpenAI's roles with `tools` or `tool_calls`"))


def write(row: Row) -> Value:
    """Calls under `function`, their arguments as JSON text, as the API has them."""
    messages = written(row)
    for message, shown in zip(row.messages, messages, strict=True):
        if message.tool_calls is not None:
            shown["content"] = message.content or None
            shown["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
                }
                for call in message.tool_calls
            ]
    tools = {"tools": row.tools} if row.tools is not None else {}
    return {"messages": messages, **tools, **row.extra}


FORMAT = DataFormat(
    name="openai",
    title=_("OpenAI messages with tools"),
    about=_("`messages` with `tool_calls` and tool results, and the function schemas under `tools`."),
    example='{"messages": [{"role": "user", "content": "…"}], "tools": [{"type": "function", "function": {…}}]}',
    rank=0.8,
    recognise=_recognise,
    read=each(row_from_dict),
    write=write,
    takes_messages=True,
)
