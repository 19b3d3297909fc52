"""ms-swift: agent rows, whose calls and results are messages of their own, and gym rows, which only name a task."""

from __future__ import annotations

import json

from training.data.formats.base import DataFormat, Value, call_texts, each, fits
from training.data.raw import Sample
from training.data.schema import Row, beside, message_dict, others_of, row_from_dict
from training.words import _

_OWN = {"tool_call", "tool_response"}


def _recognise(sample: Sample) -> tuple[int, str] | None:
    def test(row: Value) -> bool:
        items = row.get("messages")
        if not isinstance(items, list):
            return False
        roles = {item.get("role") for item in items if isinstance(item, dict) and isinstance(item.get("role"), str)}
        return bool(roles & _OWN) or isinstance(row.get("env_config"), dict) or isinstance(row.get("tools"), str)

    return fits(sample, test, _("have tool_call and tool_response messages, tools as text, or an `env_config`"))


def write(row: Row) -> Value:
    """Each call a message of its own, JSON as text, tools as text."""
    stood = row.spelling.roles
    kept = stood if len(stood) == len(row.messages) else None
    items: list[Value] = []
    for number, (message, other) in enumerate(zip(row.messages, others_of(row), strict=True)):
        if message.content or not message.tool_calls:
            role = kept[number] if kept and not message.tool_calls else message.role
            role = "tool_response" if role == "tool" and not kept else role
            shown = message_dict(message, other) | {"role": role}
            items.append({name: value for name, value in shown.items() if name != "tool_calls"})
        for text in call_texts(message):
            fields = {} if message.content else beside(message, other)
            items.append({"role": "tool_call", "content": text} | fields)
    tools = {"tools": json.dumps(row.tools, ensure_ascii=False)} if row.tools is not None else {}
    return {**tools, "messages": items, **row.extra}


FORMAT = DataFormat(
    name="swift",
    title=_("ms-swift agent and gym rows"),
    about=_(
        "`messages` with roles tool_call and tool_response whose content is JSON text; parallel calls follow "
        "each other; `tools` is JSON text. Gym rows carry an `env_config`."
    ),
    example='{"tools": "[…]", "messages": [{"role": "tool_call", "content": "{\\"name\\": …}"}]}',
    rank=0.9,
    learned="The assistant's turns and calls but those with `loss` false; with `rejected_response` a pair for DPO.",
    recognise=_recognise,
    read=each(row_from_dict),
    write=write,
    takes_messages=True,
)
