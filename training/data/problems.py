"""The problems of a row with their fixes, the columns that reading ignored, and limits of reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from training.words import Sentence, Value, _, sentence, value_of

# Limits of everything that reads a dataset, each with its unit in the name.

MAX_LINE_BYTES = 4 << 20
"""Longest JSONL line."""
MAX_FIELD_BYTES = 1 << 20
"""Longest single text or key of a row, in UTF-8: some 250,000 tokens, twice the window of the models trained here. A
longer one is more likely a file's worth of text that a quote never closed. A row ends at ``MAX_LINE_BYTES``."""
MAX_DEPTH = 32
"""Deepest nesting of lists and objects, the row itself being 1."""
MAX_COLUMNS = 200
"""Most top-level keys of a row, and most different ones that a report names."""
MAX_BAD_ROWS_LISTED = 100
MAX_REASON_CHARS = 200
"""A reason never echoes more than this."""
MAX_FINDINGS_LISTED = 100
"""Remarks listed one by one; all are counted."""
MAX_REMARKS_WRITTEN = 100_000
"""Remarks that the file of a check's findings holds; bad rows are all in it."""
MAX_HASHES = 1_000_000
"""Rows that are remembered to find duplicates and tasks that two datasets share."""
MAX_CATEGORIES = 200
MAX_HUB_BYTES = 4 << 30
"""Largest file that is fetched from Hugging Face."""
MAX_PARQUET_LEAVES = 2000
"""Most leaf columns of a parquet file."""
PARQUET_DECODED_BYTES = 2 << 30
"""Decoded parquet data at most; the lower bound of ``100 x file size + 64 MB`` holds too (see ``parquet.py``)."""
PARQUET_RATIO = 100
PARQUET_ALLOWANCE_BYTES = 64 << 20


@dataclass(frozen=True)
class CheckLimits:
    """The limits of one dataset check. The child applies all but ``wall_s``, which the parent watches."""

    max_rows: int = 1_000_000
    memory_bytes: int = 1536 << 20
    cpu_s: int = 600
    open_files: int = 64
    wall_s: float = 900.0


PREVIEW_LIMITS = CheckLimits(cpu_s=10, wall_s=15.0)
"""The limits of a look at the first rows."""


# What can be wrong with a row: one table of codes, each with its sentence, and what to do about it.
#
# A sentence is a template and its values, so that a page can translate the template. A problem that ``drops`` leaves
# the row out; any other is a remark about a row that is kept. Nothing that a row holds is echoed at more than a few
# dozen characters.


class Problem(NamedTuple):
    """One kind of problem."""

    template: str
    suggestion: str
    drops: bool = True


_EXPORT_AGAIN = _("Export the file again; the program that wrote it broke this row.")
_WRITE_JSON = _("Write JSON there, or leave the row out.")
_TEXT = _("Save the file as UTF-8 text.")
_SHORTEN = _("Shorten it, or leave the row out.")
_CHAT = _("Write each message as an object with `role` and `content`.")

PROBLEMS: dict[str, Problem] = {
    # how the file is written
    "json": Problem(_("not valid JSON: {detail}"), _EXPORT_AGAIN),
    "cut_off": Problem(_("the last line is cut off: the file ends in the middle of it"), _("Upload the whole file.")),
    "list_cut_off": Problem(
        _("the list is cut off: the file ends before its closing bracket"), _("Upload the whole file.")
    ),
    "list_rest": Problem(_("something follows the end of the list"), _("Write one JSON list, or one object per line.")),
    "list_comma": Problem(_("a comma is missing between two items of the list"), _EXPORT_AGAIN),
    "not_object": Problem(_("the line is not a JSON object"), _("Write one JSON object per line.")),
    "item_not_object": Problem(_("the item is not a JSON object"), _("Write a list of JSON objects.")),
    "csv": Problem(_("not valid CSV: {detail}"), _("Quote texts that hold commas, quotes or line ends.")),
    "csv_cells": Problem(_("the row has {count} cells; the header has {expected}"), _("Quote texts that hold commas.")),
    "line_long": Problem(_("the line is longer than {limit} MB"), _SHORTEN),
    "row_long": Problem(_("the row is longer than {limit} MB"), _SHORTEN),
    "utf8": Problem(_("not UTF-8: byte {byte} of the file cannot be decoded"), _TEXT),
    "utf8_row": Problem(_("not UTF-8: a byte of the row cannot be decoded"), _TEXT),
    "nul_byte": Problem(_("holds a NUL byte at byte {byte} of the file"), _EXPORT_AGAIN),
    "nul": Problem(_("holds a NUL character (\\u0000)"), _("Remove the character.")),
    "surrogate": Problem(
        _("holds half of a surrogate pair (\\ud800 to \\udfff), which is not a character"),
        _("Remove the half character."),
    ),
    "deep": Problem(_("nested deeper than {limit} levels"), _("Store deeply nested values as JSON text.")),
    "digits": Problem(_("holds a number with too many digits"), _("Store the number as text.")),
    "number_large": Problem(_("holds a number too large to store, such as 1e999"), _("Store the number as text.")),
    "not_finite": Problem(_("holds NaN or an infinity, which are not numbers in JSON"), _("Write null instead.")),
    "constant": Problem(_("holds {name}, which is not a number in JSON"), _("Write null instead.")),
    "key_twice": Problem(_("the key {key} appears twice in one object"), _("Keep one of the two.")),
    "key_type": Problem(_("holds a key of type {type}"), _("Write keys as text.")),
    "value_type": Problem(
        _("holds a value of type {type}, which JSON cannot carry; store it as text"), _("Store it as text.")
    ),
    "field_long": Problem(_("a field is longer than {limit} MB"), _SHORTEN),
    "columns": Problem(
        _("the row has {count} columns; {limit} are allowed"), _("Leave out columns that are not needed.")
    ),
    # what a row says
    "no_conversation": Problem(
        _("the row has no conversation: expected a list under `conversation` or `messages`"),
        _("Name the list of messages `messages`, or choose another format or a column mapping."),
    ),
    "conversation_type": Problem(_("`{key}` is {kind}, not a list of messages"), _CHAT),
    "conversation_empty": Problem(_("`{key}` is empty: at least one message is needed"), _("Leave the row out.")),
    "message_type": Problem(_("{where} is {kind}, not an object with `role` and `content`"), _CHAT),
    "role_missing": Problem(_("{where} has no role"), _("Give it the role user, assistant, system or tool.")),
    "role_unknown": Problem(
        _("{where} has the unknown role {role}; known are {known}"), _("Use one of the known roles.")
    ),
    "content_missing": Problem(_("{where} has no content"), _("Write the text under `content`.")),
    "content_type": Problem(_("the content of {where} is {kind}, not text"), _("Only text can be trained on.")),
    "content_part": Problem(
        _("{where} has a part of type {type}; only parts of text can be trained on"),
        _("Leave out rows with pictures, sound or files."),
    ),
    "content_part_unknown": Problem(
        _("{where} has a part of the unknown type {type}; known are {known}"), _("Write it as a part of a known type.")
    ),
    "part_of_another": Problem(
        _("{where} ({role}) has parts that belong to another role"),
        _("Give calls and reasoning to the assistant, and results of tools to the user or the tool."),
    ),
    "calls_type": Problem(_("`tool_calls` of {where} is {kind}, not a list"), _("Write a list of calls.")),
    "call_type": Problem(
        _("{where} is {kind}, not an object with `name` and `arguments`"), _("Write `name` and `arguments`.")
    ),
    "call_name": Problem(_("{where} has no tool name"), _("Write the tool's name under `name`.")),
    "call_arguments": Problem(
        _("`arguments` of {where} is {kind}, not an object"), _("Write the arguments as an object.")
    ),
    "text_type": Problem(_("{where} is {kind}, not text"), _("Write it as text.")),
    "tools_type": Problem(_("`tools` is not a list of function schemas"), _("Write OpenAI function schemas.")),
    "shape": Problem(_("the row is not one of {format}: {detail}"), _("Choose another format, or fix the row.")),
    "bfcl_mixed": Problem(
        _("the row is of BFCL {found} and the data of {expected}; the two versions do not mix"),
        _("Use questions, answers and documents of the same version."),
    ),
    "bfcl_unanswered": Problem(_("no answer with the id {id} was given"), _("Give the answer file of the same split.")),
    # remarks
    "role_order": Problem(_("{where} ({role}) may not follow {before}"), _("Put the turns in order."), drops=False),
    "turn_empty": Problem(_("{where} ({role}) has neither text nor calls"), _("Leave the turn out."), drops=False),
    "call_unknown": Problem(
        _("{where} calls {name}, which is not one of the row's tools"),
        _("Add the tool's schema, or fix the name."),
        drops=False,
    ),
    "tools_missing": Problem(
        _("its calls use tools that the row does not offer: {names}"),
        _("Add the tools' schemas under `tools`."),
        drops=False,
    ),
    "call_as_text": Problem(
        _("{where} writes a call as text, beginning with {mark}; it is learned as text"),
        _("Write calls under `tool_calls`, so that each model learns its own form."),
        drops=False,
    ),
    "template_mark": Problem(
        _("{where} holds {mark}, a mark of a chat template, which is read as text"),
        _("Write each turn as a message; the chat template of the model writes the marks."),
        drops=False,
    ),
    "call_breaks_schema": Problem(
        _("the arguments of {name} in {where} break its schema: {detail}"),
        _("Fix the arguments or the schema."),
        drops=False,
    ),
    "tool_schema": Problem(
        _("the schema of tool {name} is not valid"), _("Write parameters as JSON schema."), drops=False
    ),
    "result_without_call": Problem(
        _("{where} is a tool's result, and no call asked for it"), _("Put the call before it."), drops=False
    ),
    "answer_missing": Problem(
        _("the row has no {fields}, which the reward compares with"), _("Add the expected answer."), drops=False
    ),
    "too_long": Problem(
        _("the row has {length} {unit}; the window has {limit}"),
        _("Choose a longer window or leave it out."),
        drops=False,
    ),
    "duplicate": Problem(_("the row duplicates line {first}"), _("Keep one of them."), drops=False),
    "leak": Problem(_("the other dataset holds the same task"), _("Leave the row out of one of the two."), drops=False),
    "category_unknown": Problem(
        _("the category {category} is not one of those chosen"), _("Fix the name."), drops=False
    ),
    "apis_unreadable": Problem(
        _("the list of APIs in the system text cannot be read: {detail}"), _("The text is kept unchanged."), drops=False
    ),
    "thinking_tag": Problem(
        _("the prompt asks for <thinking>, and the BFCL environment reads <think>"),
        _("Use the environment's own prompt."),
        drops=False,
    ),
}


_KINDS = {
    dict: _("an object"),
    list: _("a list"),
    str: _("text"),
    bool: _("true or false"),
    int: _("a number"),
    float: _("a number"),
}


class Finding(BaseModel):
    """One problem of one row, in full."""

    line: int
    code: str
    reason: str = Field(description="The sentence without its end stop, at most 200 characters.")
    values: dict[str, Value] = Field(default_factory=dict)
    suggestion: str = ""

    @property
    def sentence(self) -> Sentence:
        """The sentence, for translation."""
        return Sentence(PROBLEMS[self.code].template, self.values)


class RowError(ValueError):
    """Why a row cannot be used: a code of ``PROBLEMS`` and its values. As text: one sentence without its end stop."""

    def __init__(self, code: str, **values: str | int) -> None:
        self.code, self.values = code, values
        super().__init__(reason_of(code, values))

    @property
    def sentence(self) -> str:
        """The sentence, with what it was made of."""
        return sentence(PROBLEMS[self.code].template, **self.values)

    def within(self, where: str) -> RowError:
        """The same error of something inside the row, which the sentence then names."""
        return RowError(self.code, **{**self.values, "inside": where})

    def finding(self, line: int) -> Finding:
        """The error as it is listed."""
        return finding(line, self.code, self.values)


def reason_of(code: str, values: Mapping[str, str | int]) -> str:
    """The sentence of a problem, cut at ``MAX_REASON_CHARS``."""
    text = PROBLEMS[code].template.format(**values)
    if "inside" in values:
        text = f"{values['inside']}: {text}"
    return text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 1] + "…"


def finding(line: int, code: str, values: dict[str, str | int]) -> Finding:
    """A problem of the row at ``line``."""
    kept = {name: value_of(value, MAX_REASON_CHARS) for name, value in values.items()}
    suggestion = _WRITE_JSON if code == "json" and "inside" in values else PROBLEMS[code].suggestion
    return Finding(line=line, code=code, reason=reason_of(code, values), values=kept, suggestion=suggestion)


def shown(value: Any) -> str:
    """A short, printable echo of a value."""
    text = ascii(value) if not isinstance(value, str) else repr(value[:80].encode(errors="replace").decode())
    return text if len(text) <= 40 else text[:39] + "…"


def kind(value: Any) -> str:
    """The kind of a decoded JSON value, in words."""
    return sentence(_("null") if value is None else _KINDS.get(type(value), type(value).__name__))


# What reading did with columns that no message holds by itself, and what of the rows is learned: counted over a file
# and listed once in its report.

FACTS: dict[str, str] = {
    "system": _("{count} rows have a system text in a separate column; it becomes their first message."),
    "system_twice": _(
        "{count} rows have a system message and another text in a system column; the message counts, and the column is "
        "kept with the row."
    ),
    "completion": _("{count} rows have turns under `completion`; they follow those of `prompt`."),
    "input": _("{count} rows have text under `input`; it is placed below the instruction in the user message."),
    "history": _("{count} rows have earlier turns under `history`; they come before the question."),
    "preference": _(
        "{count} rows hold a preference pair. `chosen` and `rejected` are kept with the row, for DPO, and the "
        "conversation ends where the two begin to differ."
    ),
    "labelled": _(
        "{count} rows hold a completion with a label of good or bad. Both are kept with the row; the completion is not "
        "a turn of the conversation."
    ),
    "tools_elsewhere": _(
        "{count} rows have their tools in a column of another name, such as `tool_defs` or `functions`."
    ),
    "marked": _("{count} rows hold their conversation as one text; it is split at the marks of a chat template."),
    "native_calls": _(
        "{count} rows have calls in their texts, in the form of some family of models, such as between <tool_call> "
        "marks; they are read as calls, which each model's chat template writes in its own form."
    ),
    "native_results": _("{count} rows have results of tools between <tool_response> marks, which are taken off."),
    "rollouts": _(
        "{count} rows are recorded rollouts of NeMo Gym, read as tasks. Read them in the shape `sft` to learn their "
        "answers, or import the file as a run to see them."
    ),
    "played": _(
        "{count} rows are recorded rollouts of NeMo Gym, read with their answers; those with a reward of 0 or less are "
        "marked as bad examples."
    ),
    "rewarded": _(
        "{count} rows have a `reward` next to their conversation, as recorded rollouts have. SFT learns them "
        "whatever it is: filter the rows by it first."
    ),
    "media": _("{count} rows come with pictures, sound or video (`images`); only their texts are trained on."),
    "worse": _(
        "{count} rows hold a worse answer next to a conversation that ends with the better one "
        "(`rejected_response`). DPO compares the two; SFT learns the conversation."
    ),
    "null_tools": _(
        "{count} rows have tools with null parts, left by Arrow, which stores all tools with the same fields. They are "
        "taken out."
    ),
    "null_arguments": _(
        "{count} rows have calls with null arguments that their tools do not take, left by Arrow, which stores all "
        "calls with the same fields. They are taken out."
    ),
    "null_kwargs": _("{count} rows have tools in `tools_kwargs` that are null, left by Arrow. They are taken out."),
    "reasoning": _(
        "{count} rows hold reasoning separate from a turn's text. SFT learns it where the model's chat template "
        "writes it, and reports in the log where it does not."
    ),
    "bad": _("{count} rows are marked as bad examples (`label` false), which SFT leaves out."),
    "unweighted": _("{count} rows are marked as not learned (`weight` 0 or `trainable` false). SFT leaves them out."),
    "unlearned": _(
        "{count} rows have only assistant turns that are marked as not learned (`weight` 0, `loss` or `trainable` "
        "false). SFT leaves them out."
    ),
    "turns_off": _(
        "{count} rows have assistant turns that are marked as not learned (`weight` 0, `loss` or `trainable` false). "
        "SFT reads those turns and learns the others."
    ),
    "fractions": _("{count} rows have weights other than 0 and 1. SFT learns such a turn in full."),
    "others_on": _(
        "{count} rows ask to learn turns that the assistant did not write. SFT learns the assistant's turns only."
    ),
    "mask": _(
        "{count} rows have a `mask` at messages. Programs disagree on what it means, so it changes nothing; write "
        "`weight` 0 at turns that are not to be learned."
    ),
    "no_answer": _("{count} rows hold a search that found no valid answer; only the question and the tools are kept."),
}
"""Code → sentence with ``{count}``."""


class Ignored(NamedTuple):
    """A column of one row that was kept out of it. ``code`` is one of ``IGNORED``; ``detail`` fills its sentence."""

    column: str
    code: str
    detail: str = ""


IGNORED: dict[str, str] = {
    "value_type": _("Ignored column `{column}`: {count} rows hold values of type {detail}, which JSON cannot carry."),
    "not_finite": _("Ignored values of column `{column}`: {count} rows hold NaN or an infinity there."),
    "beside": _("Ignored `{column}`, which is not part of the list of rows."),
    "search": _("Ignored `{column}` of {count} rows: search steps that are not part of the answer."),
    "deep": _("Ignored column `{column}`: it is nested deeper than {detail} levels in {count} rows."),
}
"""Why a column was kept out of rows: reason → sentence."""
