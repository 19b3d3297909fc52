"""ShareGPT: ``conversations`` of ``from`` and ``value``."""

from __future__ import annotations

import json

from training.data.formats.base import DataFormat, Value, call_texts, each, fits
from training.data.raw import Sample
from training.data.schema import Row, as_it_stood, beside, others_of, row_from_dict
from training.words import _

ROLES = {"user": "human", "assistant": "gpt", "tool": "observation"}


def _recognise(sample: Sample) -> tuple[int, str] | None:
    def test(row: Value) -> bool:
        items = row.get("conversations")
        return (
            isinstance(items, list)
            and bool(items)
            and all(isinstance(item, dict) and "from" in item and "value" in item for item in items)
        )

    return fits(sample, test, _("have `conversations` of `from` and `value`"))


def write(row: Row) -> Value:
    """Calls become messages of their own, from `function_call`."""
    row = as_it_stood(row)
    stood = row.spelling.roles
    kept = stood if len(stood) == len(row.messages) and row.spelling.key == "conversations" else None
    items: list[Value] = []
    for number, (message, other) in enumerate(zip(row.messages, others_of(row), strict=True)):
        other = beside(message, other)
        if message.content or not message.tool_calls:
            role = kept[number] if kept and not message.tool_calls else ROLES.get(message.role, message.role)
            items.append({"from": role, "value": message.content} | other)
            other = {}
        for text in call_texts(message):
            items.append({"from": "function_call", "value": text} | other)
    tools = {"tools": json.dumps(row.tools, ensure_ascii=False)} if row.tools is not None else {}
    return {"conversations": items, **tools, **row.extra}


FORMAT = DataFormat(
    name="sharegpt",
    title=_("ShareGPT"),
    about=_("`conversations` of `from` (human, gpt, system, function_call, observation) and `value`."),
    example='{"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}',
    rank=0.75,
    recognise=_recognise,
    read=each(row_from_dict),
    write=write,
    written_as="json",
)
