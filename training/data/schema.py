"""The internal schema of one dataset row, and how foreign spellings of a conversation are read.

A conversation is under ``messages``, ``conversation``, ``conversations`` or ``prompt`` (the first of these that the
row has). Messages have ``role`` and ``content`` (text, or OpenAI's parts of text), or ``from`` and ``value``. A system
text in a column of its own becomes the first message, TRL's ``completion`` the last ones. Tools are OpenAI function
schemas, however they are spelled (``tools.py``). Everything else of the row is kept in ``extra``, in its order, and
everything else of a message stays with it. Other formats (``formats/``) make the same rows from rows without a
conversation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, Field

from envs.wire import Message, ToolCall
from training.data.messages import joined_parts, messages_of, plain, plain_messages, reasoning_of, tools_key, tools_of
from training.data.problems import MAX_COLUMNS, Ignored, RowError, kind
from training.data.strict import check_tree, strict_loads
from training.plain import REASONING

__all__ = ["Message", "Row", "RowError", "ToolCall", "check_tree", "conversation_key", "row_from_dict", "strict_loads"]

CONVERSATION_KEYS = ("messages", "conversation", "conversations", "prompt")
SYSTEM_KEYS = ("system", "system_prompt")
"""Columns next to a conversation whose text is its system message."""
TASK_KEYS = ("item_id", "session_id", "query_id", "ground_truth")
"""A row with one of these may have an empty conversation: the environment opens it."""
_NOTHING: dict[str, Any] = {}
_set = object.__setattr__
Model = TypeVar("Model", bound=BaseModel)


@dataclass
class Spelling:
    """How a row was spelled where it came from, so that it can be written back so. Not part of ``rows.jsonl``."""

    key: str = "messages"
    roles: list[str] = field(default_factory=list)
    """The roles as in the file, one for each message."""
    tools_as_text: bool = False
    added: list[str] = field(default_factory=list)
    """Extras that reading added; writing leaves them out."""
    system: str = ""
    """The column that the first message was in, where it had one of its own."""
    completion: int = 0
    """How many of the last messages were under ``completion``."""
    tools: str = "tools"
    """The column that the tools were in."""


class Row(BaseModel):
    """One task or demonstration. An empty conversation means that the environment opens it."""

    messages: list[Message] = Field(description="The conversation: system, user, assistant and tool messages.")
    tools: list[dict[str, Any]] | None = Field(default=None, description="OpenAI function schemas that the row brings.")
    extra: dict[str, Any] = Field(default_factory=dict, description="Every other field of the row, unchanged.")
    raw: dict[str, Any] = Field(default_factory=dict, repr=False, description="What the environment gets as its task.")
    others: list[dict[str, Any]] | None = Field(
        default=None, repr=False, description="Fields of each message that are not ours, such as `loss`."
    )
    spelling: Spelling = Field(default_factory=Spelling, repr=False, description="How it was spelled.")
    notes: list[tuple[str, dict[str, str | int]]] = Field(
        default_factory=list, repr=False, description="Remarks that only the reader of its format can make."
    )
    made: bool = Field(default=False, repr=False, description="Whether its texts were put together here.")
    as_written: bool = Field(
        default=False, repr=False, description="Whether the file had it just as `normal` spells it."
    )
    offered: list[str] = Field(default_factory=list, repr=False, description="Tools that its text offers, by name.")
    facts: tuple[str, ...] = Field(
        default=(), repr=False, description="Codes of `facts.FACTS`: what reading did with columns of this row."
    )

    def normal(self) -> dict[str, Any]:
        """The row in our own spelling, fit for ``rows.jsonl``: messages, tools, then the extras in their order."""
        row: dict[str, Any] = {"messages": written(self)}
        if self.tools is not None:
            row["tools"] = self.tools
        row.update(self.extra)
        return row

    def task(self) -> dict[str, Any]:
        """The task dict for the environment."""
        return self.raw

    @property
    def is_plain(self) -> bool:
        """Whether it has neither tools nor calls."""
        return self.tools is None and all(message.tool_calls is None for message in self.messages)

    @property
    def as_read(self) -> bool:
        """Whether nothing of it was made or decoded here, so that what passed the reader still passes."""
        return self.made is False and self.is_plain


_ROW = set(Row.model_fields)


def make_row(messages: list[Message], extra: dict[str, Any], **over: Any) -> Row:
    """A row of a format without a conversation of our kind; its task is the row in our own spelling.

    A column `tools` that the format does not read holds the row's tools. Raises ``RowError`` where it does not.
    """
    if "tools" in extra and over.get("tools") is None:
        over["tools"] = tools_of(extra["tools"])
        extra = {name: value for name, value in extra.items() if name != "tools"}
    row = Row.model_construct(messages=messages, extra=extra, **{"notes": [], "offered": [], "made": True, **over})
    if "spelling" not in over:
        row.spelling = Spelling()
    row.raw = row.normal()
    return row


def written(row: Row) -> list[dict[str, Any]]:
    """The messages of a row in our own spelling, each with its fields that are not ours."""
    return [message_dict(message, other) for message, other in zip(row.messages, others_of(row), strict=True)]


def others_of(row: Row) -> list[dict[str, Any]]:
    """The fields of each message that are not ours, as in the file, or none."""
    return row.others or [_NOTHING] * len(row.messages)


def other_fields(message: Message, other: dict[str, Any]) -> dict[str, Any]:
    """Fields that go with a message's own: reasoning has the name that it had, else `reasoning_content`."""
    if message.reasoning is None or reasoning_of(other) == message.reasoning:
        return other
    return {REASONING[0]: message.reasoning, **other}


def message_dict(message: Message, other: dict[str, Any] = _NOTHING) -> dict[str, Any]:
    """A message without what it has not, and its fields that are not ours; faster than pydantic's own."""
    shown: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls is not None:
        shown["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        shown["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        shown["name"] = message.name
    other = other_fields(message, other)
    return shown | other if other else shown


def _bare(model: type[Model], values: dict[str, Any], fields: set[str]) -> Model:
    """What ``model_construct`` makes of a value for each field, at a fifth of its time: every row passes here."""
    made = object.__new__(model)
    _set(made, "__dict__", values)
    _set(made, "__pydantic_fields_set__", fields)
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made


def conversation_key(raw: dict[str, Any]) -> str | None:
    """The key of the row's conversation, or ``None``."""
    return next((key for key in CONVERSATION_KEYS if raw.get(key) is not None), None)


def row_from_dict(raw: dict[str, Any]) -> Row:
    """A row from decoded JSON that ``check_tree`` has passed. Raises ``RowError``."""
    if len(raw) > MAX_COLUMNS:
        raise RowError("columns", count=len(raw), limit=MAX_COLUMNS)
    key = conversation_key(raw)
    if key is None:
        raise RowError("no_conversation")
    items = _listed(raw[key])
    if not isinstance(items, list):
        raise RowError("conversation_type", key=key, kind=kind(items))
    if not items and not any(name in raw for name in TASK_KEYS):
        raise RowError("conversation_empty", key=key)
    under = tools_key(raw)
    tools = raw.get(under)
    own = plain_messages(items)
    messages, others, roles = own if own is not None else messages_of(items)
    values: dict[str, Any] = {
        "messages": messages,
        "tools": None if tools is None else tools_of(tools),
        "extra": {name: value for name, value in raw.items() if name not in (key, under, "tools", "messages")},
        "raw": raw,
        "others": others if others and any(others) else None,
        "spelling": Spelling(key, roles, isinstance(tools, str), tools=under),
        "notes": [],
        "made": False,
        "as_written": own is not None and tools is None and next(iter(raw)) == "messages",
        "offered": [],
        "facts": () if under == "tools" else ("tools_elsewhere",),
    }
    row = _bare(Row, values, _ROW)
    if "system" in raw or "system_prompt" in raw or (key == "prompt" and "completion" in raw):
        _placed(row)
    return row


def _listed(items: Any) -> Any:
    """A conversation as a list of messages where it is lists by field, as `datasets` stores a sequence of objects."""
    if not isinstance(items, dict) or not ({"role", "from"} & items.keys()):
        return items
    columns = list(items.values())
    if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        return items
    return [dict(zip(items, values, strict=True)) for values in zip(*columns, strict=True)]


def _placed(row: Row) -> None:
    """Put the system text and the completion, which are next to the conversation, into it."""
    before = len(row.messages)
    if row.spelling.key == "prompt":
        _complete(row)
    for name in SYSTEM_KEYS:  # Anthropic's may be in parts
        if isinstance(row.extra.get(name), list) and row.extra[name]:
            row.extra[name] = joined_parts(row.extra[name], f"`{name}`")
    name = next((name for name in SYSTEM_KEYS if isinstance(row.extra.get(name), str) and row.extra[name]), "")
    if name:
        system_first(row, name)
    if len(row.messages) != before:
        row.made, row.as_written = True, False
        row.raw = row.normal()


def _complete(row: Row) -> None:
    """TRL's ``completion``: one that is marked as a bad example (``label`` false) stays next to the prompt."""
    given = row.extra.get("completion")
    if isinstance(given, str) and given:
        given = [{"role": "assistant", "content": given}]
    if not isinstance(given, list) or not given:
        return
    if isinstance(row.extra.get("label"), bool):
        row.facts = (*row.facts, "labelled")
        return
    messages, others, roles = messages_of(given)
    row.others = [*others_of(row), *(others or [{}] * len(messages))] if any(others) or row.others else None
    row.messages += messages
    row.spelling.roles = [*row.spelling.roles, *roles]
    row.spelling.completion = len(messages)
    row.extra = {name: value for name, value in row.extra.items() if name != "completion"}
    row.facts = (*row.facts, "completion")


def system_first(row: Row, name: str) -> None:
    """Make the text of column ``name`` the first message; where the conversation has a system message, that counts."""
    text = row.extra[name]
    if row.messages and row.messages[0].role == "system":
        if row.messages[0].content != text:
            row.facts = (*row.facts, "system_twice")
        return
    row.messages.insert(0, plain("system", text))
    row.others = None if row.others is None else [{}, *row.others]
    row.spelling.roles = ["system", *row.spelling.roles]
    row.spelling.system = name
    row.extra = {key: value for key, value in row.extra.items() if key != name}
    row.facts = (*row.facts, "system")


def as_it_stood(row: Row) -> Row:
    """The row with system text and completion in the columns that they were in; the row itself where it had none."""
    spelling = row.spelling
    if not spelling.system and not spelling.completion:
        return row
    end = len(row.messages) - spelling.completion
    begin = 1 if spelling.system else 0
    extra = dict(row.extra)
    if spelling.system:
        extra = {spelling.system: row.messages[0].content, **extra}
    if spelling.completion:
        items = row.normal()["messages"][end:]
        for item, role in zip(items, spelling.roles[end:], strict=True):
            item["role"] = role
        extra["completion"] = items
    kept = replace(spelling, roles=spelling.roles[begin:end], system="", completion=0)
    others = row.others[begin:end] if row.others else None
    return row.model_copy(
        update={"messages": row.messages[begin:end], "others": others, "extra": extra, "spelling": kept}
    )


# What a file's rows are before their format is known.


class Raw(NamedTuple):
    """One decoded row, or why it could not be decoded.

    ``line`` counts from 1: lines of JSON Lines and CSV, rows of parquet, items of a JSON list. ``offset`` is how many
    bytes were read so far: of the file, or of the decoded data in parquet.
    """

    line: int
    offset: int
    value: dict[str, Any] | None
    error: RowError | None = None
    text: str = ""
    """The JSON that it was decoded from, where the reader has it at hand."""
    ignored: tuple[Ignored, ...] = ()
    """Columns that are not in ``value`` because JSON cannot carry what they hold."""


class Record(NamedTuple):
    """One row of a dataset, or the reason why it has none. Numbers as in ``Raw``."""

    line: int
    offset: int
    row: Row | None
    error: RowError | None = None
    text: str = ""
    """The row as it was in the file, where that is our own spelling already and can be copied."""
    ignored: tuple[Ignored, ...] = ()
    """Columns that were kept out of the row."""

    @property
    def reason(self) -> str:
        """Why there is no row, as a sentence without its end stop."""
        return str(self.error) if self.error else ""


class Sample(NamedTuple):
    """The first rows of a file, and how they are stored."""

    container: str
    rows: list[dict[str, Any]]
    columns: list[str]
