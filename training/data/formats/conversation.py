"""Our own format: one conversation a row, in JSON Lines. Also what any other conversation is read as."""

from __future__ import annotations

from training.data.formats.base import DataFormat, Value, each, fits
from training.data.raw import Sample
from training.data.schema import Row, as_it_stood, conversation_key, row_from_dict, written
from training.words import _

ANY_KIND = _("hold a list of messages")


def _recognise(sample: Sample) -> tuple[int, str] | None:
    return fits(sample, lambda row: isinstance(row.get(conversation_key(row) or ""), list), ANY_KIND)


def write(row: Row) -> Value:
    """A row with its conversation under the key and with the roles that it had."""
    row = as_it_stood(row)
    stood = row.spelling.roles
    messages = written(row)
    if len(stood) == len(messages):
        for message, role, own in zip(messages, stood, row.messages, strict=True):
            message["role"] = role if own.tool_calls is None else own.role
    tools = {row.spelling.tools: row.tools} if row.tools is not None else {}
    return {row.spelling.key: messages, **tools, **row.extra}


FORMAT = DataFormat(
    name="conversation",
    title=_("Conversations"),
    about=_(
        "One conversation a row under `messages`, `conversation`, `conversations` or `prompt`. Roles of OpenAI, "
        "ShareGPT, ms-swift and of multi-turn GRPO (`tool_result`) are understood, and contents in parts of OpenAI, "
        "LLaMA-Factory and Anthropic; other fields stay with the row."
    ),
    example='{"conversation": [{"role": "user", "content": "25 * 37 + 128?"}]}',
    rank=0.5,
    recognise=_recognise,
    read=each(row_from_dict),
    write=write,
    takes_messages=True,
)
