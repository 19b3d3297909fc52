"""ToolBench's ``toolllama_*`` JSON: one record for each step prefix, ReAct texts, the APIs as a Python list."""

from __future__ import annotations

import re

from training.data.decoding import read_literal
from training.data.formats.base import DataFormat, Value, each, fits, text_of, without, written_messages
from training.data.messages import messages_of
from training.data.problems import RowError, shown
from training.data.raw import Sample
from training.data.schema import Row, Spelling, make_row
from training.data.strict import strict_loads
from training.plain import LiteralError
from training.words import _, sentence

APIS = "access to the following APIs: "
_ACTION = re.compile(r"\nAction: *+([^\n]*+)\nAction Input: *+")
"""Possessive, so that a line of nothing but spaces is not tried at every one of them."""
_FINISH = "Finish"
_ROLES = {"tool": "function"}
NAME = _("ToolBench's records")


def _recognise(sample: Sample) -> tuple[int, str] | None:
    def test(row: Value) -> bool:
        items = row.get("conversations")
        if not isinstance(items, list) or not items or not isinstance(items[0], dict):
            return False
        first = items[0].get("value")
        return items[0].get("from") == "system" and isinstance(first, str) and (APIS in first or "AutoGPT" in first)

    return fits(sample, test, _("have `conversations` whose system text lists ToolBench's APIs"))


def apis_of(system: str) -> list[Value]:
    """The APIs that a system text lists, or none. Raises ``LiteralError`` for a list that cannot be read."""
    _, found, text = system.partition(APIS)
    if not found:
        return []
    value = read_literal(text.strip())
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise LiteralError("it is no list of APIs")
    return value


def _convert(value: Value) -> Row:
    text_of(value, "id", NAME) if "id" in value else None
    items = value.get("conversations")
    if not isinstance(items, list) or not items:
        raise RowError("shape", format=NAME, detail=sentence(_("`conversations` is no list of turns")))
    messages, others, roles = messages_of(items)
    row = make_row(
        messages,
        without(value, "conversations"),
        others=others if any(others) else None,
        spelling=Spelling(key="conversations", roles=roles),
    )
    system = next((message.content for message in messages if message.role == "system"), "")
    try:
        row.offered = [str(api.get("name")) for api in apis_of(system)]
    except LiteralError as exc:
        row.notes.append(("apis_unreadable", {"detail": str(exc)}))
    _note_calls(row)
    return row


def _note_calls(row: Row) -> None:
    """Remarks on calls of the assistant's texts."""
    for number, message in enumerate(row.messages, 1):
        found = _ACTION.search(message.content) if message.role == "assistant" else None
        if not found:
            continue
        name, where = found[1].strip(), f"message {number}"
        if row.offered and name != _FINISH and name not in row.offered:
            row.notes.append(("call_unknown", {"where": where, "name": shown(name)}))
        try:
            strict_loads(message.content[found.end() :])
        except RowError as exc:
            values: dict[str, str | int] = {"where": where, "name": shown(name), "detail": exc.sentence}
            row.notes.append(("call_breaks_schema", values))


def write(row: Row) -> Value:
    """A record with roles as ToolBench names them; native calls have no place in it."""
    if any(message.tool_calls for message in row.messages):
        raise RowError("shape", format=NAME, detail=sentence(_("native tool calls cannot be written as ReAct text")))
    return {**row.extra, "conversations": written_messages(row, "from", "value", _ROLES)}


FORMAT = DataFormat(
    name="toolbench",
    title=_("ToolBench conversations"),
    about=_(
        "A JSON list of `toolllama_*` records, one for each step prefix. The APIs in the system text are a "
        "Python list, which is parsed without executing it; the text itself is not changed."
    ),
    example='[{"id": "Step 6: …", "conversations": [{"from": "system", "value": "You are AutoGPT, …"}]}]',
    rank=0.97,
    learned="The assistant's texts: thought, action and its input as ReAct writes them.",
    recognise=_recognise,
    read=each(_convert),
    write=write,
    written_as="json",
)
