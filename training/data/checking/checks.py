"""Remarks on a row that can be used: each check yields codes of ``problems.PROBLEMS``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.data.native import mark_in, unread_call
from training.data.nulls import allows_null
from training.data.options import CheckOptions
from training.data.problems import MAX_HASHES, PROBLEMS, RowError, kind, shown
from training.data.schema import Row
from training.errors import DataError
from training.words import _, sentence

# Whether a call's arguments keep to the schema of its tool: types, required ones, choices. No patterns, no references.
#
# A schema comes from a file that a user uploaded, so nothing of it is fetched and no expression of it is run.

MAX_DEPTH = 16
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "dict": (dict,),
    "array": (list,),
    "list": (list,),
    "tuple": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "float": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def functions_of(tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Name → parameters of every tool that has a name."""
    found: dict[str, Any] = {}
    for tool in tools:
        inner = tool.get("function") if isinstance(tool.get("function"), dict) else tool
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            found[inner["name"]] = inner.get("parameters")
    return found


def schema_is_valid(parameters: Any) -> bool:
    """Whether parameters are a schema of an object, or left out."""
    if parameters is None or parameters == {}:
        return True
    if not isinstance(parameters, dict) or parameters.get("type", "object") not in ("object", "dict"):
        return False
    properties, required = parameters.get("properties", {}), parameters.get("required", [])
    return isinstance(properties, dict) and isinstance(required, list)


def fault_of(arguments: dict[str, Any], parameters: Any) -> str | None:
    """The first way in which arguments break a schema, in words; ``None`` where they keep to it."""
    if not schema_is_valid(parameters) or not parameters:
        return None
    for name in parameters.get("required", []):
        if isinstance(name, str) and name not in arguments:
            return sentence(_("{name} is missing"), name=shown(name))
    properties = parameters.get("properties", {})
    for name, value in arguments.items():
        if name in properties:
            if fault := _fault(value, properties[name], shown(name), 1):
                return fault
        elif parameters.get("additionalProperties") is False or properties:
            return sentence(_("there is no argument {name}"), name=shown(name))
    return None


def _fault(value: Any, schema: Any, where: str, depth: int) -> str | None:
    if not isinstance(schema, dict) or depth > MAX_DEPTH or (value is None and allows_null(schema)):
        return None
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else wanted if isinstance(wanted, list) else []
    known = [name for name in names if isinstance(name, str) and name in _TYPES]
    if known and not any(_is(value, name) for name in known):
        return sentence(_("{name} is {kind}, not {types}"), name=where, kind=kind(value), types=" or ".join(known))
    choices = schema.get("enum")
    if isinstance(choices, list) and choices and value not in choices:
        return sentence(_("{name} is not one of its choices"), name=where)
    if isinstance(value, list):
        faults = (_fault(item, schema.get("items"), f"an item of {where}", depth + 1) for item in value)
        return next((fault for fault in faults if fault), None)
    if isinstance(value, dict) and isinstance(schema.get("properties"), dict):
        for name, inner in schema["properties"].items():
            if name in value and (fault := _fault(value[name], inner, f"{where}.{name}"[:60], depth + 1)):
                return fault
    return None


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name]) or (name == "integer" and isinstance(value, float) and value.is_integer())


# The checks of a row.

BEGINNING = _("the beginning")
Remark = tuple[str, dict[str, str | int]]


class Checks:
    """All checks of one dataset. Memory is bounded: 8-byte hashes of at most ``MAX_HASHES`` rows."""

    def __init__(self, options: CheckOptions) -> None:
        unknown = set(options.refuse) - set(PROBLEMS)
        if unknown:
            raise DataError(
                sentence(_("There is no check {name}."), name=repr(min(unknown))),
                hint=sentence(_("There are: {names}."), names=", ".join(PROBLEMS)),
            )
        self.options = options
        self.refuse = set(options.refuse)
        self.categories = set(options.categories)
        self.seen: dict[int, int] = {}
        self.other = _tasks_of(options.other) if options.other else set()
        self.unit = ""

    def remarks(self, row: Row, line: int, length: int) -> list[Remark]:
        """Everything to say about a row. Raises ``RowError`` for what the options say leaves a row out."""
        found: list[Remark] = [*row.notes, *turn_remarks(row), *text_remarks(row)]
        if not row.is_plain:
            found += tool_remarks(row)
        if self.options.answer_fields:
            found += self._answer(row)
        if self.categories:
            found += self._category(row)
        if self.options.window and length > self.options.window:
            found.append(("too_long", {"length": length, "unit": self.unit, "limit": self.options.window}))
        found += self._repeated(row, line)
        for code, values in found if self.refuse else ():
            if code in self.refuse:
                raise RowError(code, **values)
        return found

    def _answer(self, row: Row) -> Iterator[Remark]:
        fields = self.options.answer_fields
        if all(value_at(row.extra, field) in (None, "", [], {}) for field in fields):
            yield "answer_missing", {"fields": " or ".join(fields)}

    def _category(self, row: Row) -> Iterator[Remark]:
        category = value_at(row.extra, self.options.category_field)
        if not isinstance(category, str) or category not in self.categories:
            yield "category_unknown", {"category": shown(category)}

    def _repeated(self, row: Row, line: int) -> Iterator[Remark]:
        key = content_hash(row)
        first = self.seen.get(key)
        if first is not None:
            yield "duplicate", {"first": first}
        elif len(self.seen) < MAX_HASHES:
            self.seen[key] = line
        if self.other and task_hash(row) in self.other:
            yield "leak", {}


def _tasks_of(path: Path) -> set[int]:
    """The tasks of another dataset, as hashes. Raises ``DataError``."""
    from training.data.reader import read_records

    tasks: set[int] = set()
    for record in read_records(path):
        if record.row is not None and len(tasks) < MAX_HASHES:
            tasks.add(task_hash(record.row))
    return tasks


NAMES = frozenset(
    {"id", "_id", "idx", "index", "uid", "uuid", "row_id", "sample_id", "conversation_id", "split", "category"}
)
"""Fields that only name, number or sort a row; a seed, an answer and the id of a task make another task of it."""


def content_hash(row: Row) -> int:
    """The identity of a row: messages, tools, and every field that does more than name it. Good within one process."""
    if not row.messages:
        return hash(repr(row.extra))
    spoken = tuple([(m.role, m.content, m.reasoning, repr(m.tool_calls) if m.tool_calls else "") for m in row.messages])
    if row.tools is None and not row.extra.keys() - NAMES:
        return hash(spoken)
    return hash((spoken, repr(row.tools), repr(_essence(row.extra))))


def _essence(extra: dict[str, Any]) -> list[tuple[str, Any]]:
    """The fields that make a task, in one order; ``extra_info`` is where verl keeps its own."""
    info = extra.get("extra_info")
    if isinstance(info, dict):
        extra = extra | {"extra_info": _essence(info)}
    return sorted((name, value) for name, value in extra.items() if name not in NAMES)


def task_hash(row: Row) -> int:
    """The question of a row: everything before the first assistant turn."""
    if not row.messages:
        return hash(repr(row.extra))
    asked = []
    for message in row.messages:
        if message.role == "assistant":
            break
        asked.append((message.role, message.content.strip()))
    return hash(tuple(asked))


_IN_ORDER = {
    ("the beginning", "system"),
    ("the beginning", "user"),
    ("system", "user"),
    ("user", "user"),
    ("user", "assistant"),
    ("assistant", "user"),
    ("assistant", "tool"),
    ("tool", "user"),
    ("tool", "assistant"),
    ("tool", "tool"),
}


def turn_remarks(row: Row) -> Iterator[Remark]:
    """Order of the turns, and turns that say nothing."""
    before = BEGINNING
    for number, message in enumerate(row.messages, 1):
        role, content = message.role, message.content
        if (before, role) in _IN_ORDER and content and not content.isspace():  # nearly all turns
            before = role
            continue
        if not message.tool_calls and not message.reasoning and (not content or content.isspace()):
            yield "turn_empty", {"where": f"message {number}", "role": role}
        out_of_order = (
            (role == "system" and number > 1)
            or (role == "assistant" and before == "assistant")
            or (role == "tool" and before in (BEGINNING, "system", "user"))
            or (role == "assistant" and before in (BEGINNING, "system"))
        )
        if out_of_order:
            yield "role_order", {"where": f"message {number}", "role": role, "before": before}
        before = role


def tool_remarks(row: Row) -> Iterator[Remark]:
    """Calls and results against the tools of the row and against each other."""
    functions = functions_of(row.tools) if row.tools is not None else None
    if not functions and (unknown := _not_offered(row)):
        yield "tools_missing", {"names": shown(", ".join(unknown))}
        functions = None
    for name, parameters in (functions or {}).items():
        if not schema_is_valid(parameters):
            yield "tool_schema", {"name": shown(name)}
    asked: set[str] = set()
    pending = 0
    for number, message in enumerate(row.messages, 1):
        where = f"message {number}"
        for call in message.tool_calls or []:
            asked.add(call.id)
            pending += 1
            if functions is None:
                continue
            if call.name not in functions:
                yield "call_unknown", {"where": where, "name": shown(call.name)}
            elif fault := fault_of(call.arguments, functions[call.name]):
                yield "call_breaks_schema", {"where": where, "name": shown(call.name), "detail": fault}
        if message.role == "tool":
            pending -= 1
            if pending < 0 or (message.tool_call_id is not None and message.tool_call_id not in asked):
                yield "result_without_call", {"where": where}


def text_remarks(row: Row) -> Iterator[Remark]:
    """Calls that are in an assistant's text and were not read as calls, and marks of chat templates."""
    for number, message in enumerate(row.messages, 1):
        content = message.content
        if not any(mark in content for mark in ("<", "[", "{", "Action:", "(")):  # nearly all texts
            continue
        answer = row.messages[number] if number < len(row.messages) else None
        if message.role == "assistant" and (mark := unread_call(content, answer)):
            yield "call_as_text", {"where": f"message {number}", "mark": mark}
        if mark := mark_in(content):
            yield "template_mark", {"where": f"message {number}", "mark": mark}


def _not_offered(row: Row) -> list[str]:
    """Names of tools that are called, and that neither the row's text nor a system message offers."""
    called = dict.fromkeys(call.name for message in row.messages for call in message.tool_calls or [])
    texts = [message.content for message in row.messages if message.role == "system"]
    return [name for name in called if name not in row.offered and not any(name in text for text in texts)]


def value_at(value: Any, path: str) -> Any:
    """The value at a dotted path; ``None`` where there is none."""
    for name in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value
