"""What can be wrong with a row: one table of codes, each with its sentence, and what to do about it.

A sentence is a template and its values, so that a page can translate the template. A problem that ``drops`` leaves the
row out; any other is a remark about a row that is kept. Nothing that a row holds is echoed at more than a few dozen
characters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from training.data.limits import MAX_REASON_CHARS


class Problem(NamedTuple):
    """One kind of problem."""

    template: str
    suggestion: str
    drops: bool = True


_EXPORT_AGAIN = "Export the file again; the program that wrote it broke this row."
_TEXT = "Save the file as UTF-8 text."
_SHORTEN = "Shorten it, or leave the row out."
_CHAT = "Write each message as an object with `role` and `content`."

PROBLEMS: dict[str, Problem] = {
    # how the file is written
    "json": Problem("not valid JSON: {detail}", _EXPORT_AGAIN),
    "cut_off": Problem("the last line is cut off: the file ends in the middle of it", "Upload the whole file."),
    "list_cut_off": Problem("the list is cut off: the file ends before its closing bracket", "Upload the whole file."),
    "list_rest": Problem("something follows the end of the list", "Write one JSON list, or one object per line."),
    "list_comma": Problem("a comma is missing between two items of the list", _EXPORT_AGAIN),
    "not_object": Problem("the line is not a JSON object", "Write one JSON object per line."),
    "item_not_object": Problem("the item is not a JSON object", "Write a list of JSON objects."),
    "csv": Problem("not valid CSV: {detail}", "Quote texts that hold commas, quotes or line ends."),
    "csv_cells": Problem("the row has {count} cells; the header has {expected}", "Quote texts that hold commas."),
    "line_long": Problem("the line is longer than {limit} MB", _SHORTEN),
    "row_long": Problem("the row is longer than {limit} MB", _SHORTEN),
    "utf8": Problem("not UTF-8: byte {byte} of the file cannot be decoded", _TEXT),
    "utf8_row": Problem("not UTF-8: a byte of the row cannot be decoded", _TEXT),
    "nul_byte": Problem("holds a NUL byte at byte {byte} of the file", _EXPORT_AGAIN),
    "nul": Problem("holds a NUL character (\\u0000)", "Remove the character."),
    "surrogate": Problem(
        "holds half of a surrogate pair (\\ud800 to \\udfff), which is not a character", "Remove the half character."
    ),
    "deep": Problem("nested deeper than {limit} levels", "Store what is nested so deeply as JSON text."),
    "digits": Problem("holds a number with too many digits", "Store the number as text."),
    "number_large": Problem("holds a number too large to store, such as 1e999", "Store the number as text."),
    "not_finite": Problem("holds NaN or an infinity, which are not numbers in JSON", "Write null instead."),
    "constant": Problem("holds {name}, which is not a number in JSON", "Write null instead."),
    "key_twice": Problem("the key {key} stands twice in one object", "Keep one of the two."),
    "key_type": Problem("holds a key of type {type}", "Write keys as text."),
    "value_type": Problem(
        "holds a value of type {type}, which JSON cannot carry; store it as text", "Store it as text."
    ),
    "field_long": Problem("a field is longer than {limit} KB", _SHORTEN),
    "columns": Problem("the row has {count} columns; {limit} are allowed", "Leave out columns that nobody needs."),
    # what a row says
    "no_conversation": Problem(
        "the row has no conversation: expected a list under `conversation` or `messages`",
        "Name the list of messages `messages`, or choose another format or a column mapping.",
    ),
    "conversation_type": Problem("`{key}` is {kind}, not a list of messages", _CHAT),
    "conversation_empty": Problem("`{key}` is empty: at least one message is needed", "Leave the row out."),
    "message_type": Problem("{where} is {kind}, not an object with `role` and `content`", _CHAT),
    "role_missing": Problem("{where} has no role", "Give it the role user, assistant, system or tool."),
    "role_unknown": Problem("{where} has the unknown role {role}; known are {known}", "Use one of the known roles."),
    "content_missing": Problem("{where} has no content", "Write the text under `content`."),
    "content_type": Problem("the content of {where} is {kind}, not text", "Only text can be trained on."),
    "calls_type": Problem("`tool_calls` of {where} is {kind}, not a list", "Write a list of calls."),
    "call_type": Problem(
        "{where} is {kind}, not an object with `name` and `arguments`", "Write `name` and `arguments`."
    ),
    "call_name": Problem("{where} has no tool name", "Write the tool's name under `name`."),
    "call_arguments": Problem("`arguments` of {where} is {kind}, not an object", "Write the arguments as an object."),
    "text_type": Problem("{where} is {kind}, not text", "Write it as text."),
    "tools_type": Problem("`tools` is not a list of function schemas", "Write OpenAI function schemas."),
    "shape": Problem("the row is not one of {format}: {detail}", "Choose another format, or mend the row."),
    "bfcl_mixed": Problem(
        "the row is of BFCL {found} and the data of {expected}; the two versions do not mix",
        "Take questions, answers and documents of one version.",
    ),
    "bfcl_unanswered": Problem("no answer with the id {id} was given", "Give the answer file of the same split."),
    # remarks
    "role_order": Problem("{where} ({role}) may not follow {before}", "Put the turns in order.", drops=False),
    "turn_empty": Problem("{where} ({role}) says nothing and calls nothing", "Leave the turn out.", drops=False),
    "call_unknown": Problem(
        "{where} calls {name}, which is none of the row's tools",
        "Add the tool's schema, or mend the name.",
        drops=False,
    ),
    "call_breaks_schema": Problem(
        "the arguments of {name} in {where} break its schema: {detail}",
        "Mend the arguments or the schema.",
        drops=False,
    ),
    "tool_schema": Problem("the schema of tool {name} is not valid", "Write parameters as JSON schema.", drops=False),
    "result_without_call": Problem(
        "{where} is a tool's result, and no call asked for it", "Put the call before it.", drops=False
    ),
    "answer_missing": Problem(
        "the row has no {fields}, which the reward compares with", "Add the expected answer.", drops=False
    ),
    "too_long": Problem(
        "the row has {length} {unit}; the window has {limit}", "Choose a longer window or leave it out.", drops=False
    ),
    "duplicate": Problem("the row says the same as line {first}", "Keep one of them.", drops=False),
    "leak": Problem("the other dataset holds the same task", "Leave the row out of one of the two.", drops=False),
    "category_unknown": Problem("the category {category} is not one of those chosen", "Mend the name.", drops=False),
    "apis_unreadable": Problem(
        "the list of APIs in the system text cannot be read: {detail}", "The text is kept as it is.", drops=False
    ),
    "thinking_tag": Problem(
        "the prompt asks for <thinking>, and the BFCL environment reads <think>",
        "Use the environment's own prompt.",
        drops=False,
    ),
}


class Finding(BaseModel):
    """One problem of one row, told in full."""

    line: int
    code: str
    reason: str = Field(description="The sentence without its end stop, at most 200 characters.")
    values: dict[str, str | int] = Field(default_factory=dict)
    suggestion: str = ""


class RowError(ValueError):
    """Why a row cannot be used: a code of ``PROBLEMS`` and its values. As text: one sentence without its end stop."""

    def __init__(self, code: str, **values: str | int) -> None:
        self.code, self.values = code, values
        super().__init__(sentence(code, values))

    def within(self, where: str) -> RowError:
        """The same error of something inside the row, which the sentence then names."""
        return RowError(self.code, **{**self.values, "inside": where})

    def finding(self, line: int) -> Finding:
        """The error as it is listed."""
        return finding(line, self.code, self.values)


def sentence(code: str, values: dict[str, str | int]) -> str:
    """The sentence of a problem, cut at ``MAX_REASON_CHARS``."""
    text = PROBLEMS[code].template.format(**values)
    if "inside" in values:
        text = f"{values['inside']}: {text}"
    return text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 1] + "…"


def finding(line: int, code: str, values: dict[str, str | int]) -> Finding:
    """A problem of the row at ``line``."""
    kept = {name: value if isinstance(value, int) else value[:MAX_REASON_CHARS] for name, value in values.items()}
    suggestion = PROBLEMS[code].suggestion
    return Finding(line=line, code=code, reason=sentence(code, values), values=kept, suggestion=suggestion)


def shown(value: Any) -> str:
    """A short, printable echo of a value."""
    text = ascii(value) if not isinstance(value, str) else repr(value[:80].encode(errors="replace").decode())
    return text if len(text) <= 40 else text[:39] + "…"


def kind(value: Any) -> str:
    """What a decoded JSON value is, in words."""
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "null" if value is None else kinds.get(type(value), type(value).__name__)
