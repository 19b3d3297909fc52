"""Any table: columns mapped by a person, or by their usual names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from training.data.formats.base import DataFormat, Value, converted, fits, without
from training.data.messages import plain, tools_key
from training.data.options import ColumnMapping, ReadOptions
from training.data.problems import RowError, kind
from training.data.schema import Raw, Record, Row, Sample, make_row, row_from_dict, system_first
from training.data.strict import decoded
from training.errors import DataError
from training.plain import number_in
from training.words import _, sentence

NAME = _("the rows that this mapping makes")
USUAL: dict[str, tuple[str, ...]] = {
    "messages": ("messages", "conversation", "conversations"),
    "system": ("system", "system_prompt"),
    "prompt": ("prompt", "question", "query", "instruction", "input", "problem", "text"),
    "input": ("input",),
    "history": ("history",),
    "answer": ("answer", "response", "output", "completion", "solution", "target", "ground_truth"),
    "tools": ("tools", "functions"),
    "category": ("category",),
}
BESIDE_INPUT = ("instruction", "prompt", "query", "question")
"""Prompts below which Alpaca's files put the text of ``input``."""
_CANDIDATES = 20


def suggest(sample: Sample) -> ColumnMapping | None:
    """A mapping by the usual names of columns; ``None`` where no column can be the conversation or the prompt."""
    texts = {name.lower(): name for row in sample.rows for name, value in row.items() if isinstance(value, str)}
    lists = {name for row in sample.rows for name, value in row.items() if isinstance(value, list)}
    found = {part: next((texts[name] for name in names if name in texts), None) for part, names in USUAL.items()}
    if not found["messages"]:
        found["messages"] = next((name for name in USUAL["messages"] if name in sample.columns), None)
    if "history" in lists:
        found["history"] = "history"
    if (found["prompt"] or "").lower() not in BESIDE_INPUT:
        found["input"] = None
    if found["messages"]:
        found["prompt"] = found["input"] = found["history"] = None
    if not found["messages"] and not found["prompt"]:
        return None
    return ColumnMapping(**{part: name for part, name in found.items() if name})


def _recognise(sample: Sample) -> tuple[int, str] | None:
    mapping = suggest(sample)
    if mapping is None:
        return None
    key = mapping.messages or mapping.prompt or ""
    return fits(sample, lambda row: row.get(key) is not None, sentence(_("have a column `{name}`"), name=key))


def _read_records(raws: Iterator[Raw], options: ReadOptions) -> Iterator[Record]:
    first: list[Raw] = []
    mapping = options.mapping
    if mapping is None:
        first = list(islice(raws, _CANDIDATES))
        rows = [raw.value for raw in first if raw.value is not None]
        mapping = suggest(Sample("", rows, [name for row in rows[:1] for name in row]))
    if mapping is None:
        raise DataError(_("No column is mapped."), hint=_("Choose the column with the prompt or with the messages."))
    chosen = mapping

    def rows_again() -> Iterator[Raw]:
        yield from first
        yield from raws

    return converted(rows_again(), lambda value: mapped_row(value, chosen, options.shape))


def mapped_row(value: Value, mapping: ColumnMapping, shape: str) -> Row:
    """The row of a table. Places of system text, input and history may be missing or empty. Raises ``RowError``."""
    named = (mapping.messages, mapping.prompt, mapping.answer, mapping.tools, mapping.category)
    if missing := next((name for place in named if place and (name := missing_in(value, place))), None):
        raise RowError("shape", format=NAME, detail=sentence(_("there is no column `{missing}`"), missing=missing))
    under = mapping.tools or tools_key(value)
    tools = value_or_none(value, under)
    made: Value = {"tools": tools} if tools else {}
    if mapping.messages:
        made["messages"] = decoded(value_at(value, mapping.messages), f"`{mapping.messages}`")
    else:
        made["messages"] = [*_history(value, mapping), {"role": "user", "content": _asked(value, mapping)}]
    row = row_from_dict(made)
    if mapping.system and value_or_none(value, mapping.system):
        row.extra = {mapping.system: _text(value, mapping.system)}
        system_first(row, mapping.system)
    extra = without(value, *(name for name in (mapping.messages, under) if name))
    answer = value_or_none(value, mapping.answer)
    if mapping.answer and answer not in (None, ""):
        if "ground_truth" not in extra:
            extra["ground_truth"] = answer
            row.spelling.added = ["ground_truth"]
        if shape == "sft":
            row.messages.append(plain("assistant", _text(value, mapping.answer)))
            row.spelling.roles = []
            row.others = None if row.others is None else [*row.others, {}]
    if mapping.category:
        extra["category"] = value_at(value, mapping.category)
    placed = (("input", mapping.input), ("history", mapping.history))
    facts = (*row.facts, *(part for part, place in placed if value_or_none(value, place)))
    row.spelling.system = ""  # every column stays with the row
    return make_row(row.messages, extra, tools=row.tools, others=row.others, spelling=row.spelling, facts=facts)


def _asked(value: Value, mapping: ColumnMapping) -> str:
    """The user's text: the prompt, and below it the text under ``input``."""
    text = _text(value, mapping.prompt or "")
    below = value_or_none(value, mapping.input)
    return f"{text}\n{_text(value, mapping.input or '')}" if below else text


def _history(value: Value, mapping: ColumnMapping) -> list[Value]:
    """Earlier turns: pairs of question and answer, or messages. Raises ``RowError``."""
    found = value_or_none(value, mapping.history)
    found = decoded(found, f"`{mapping.history}`") if found else []
    turns: list[Value] = []
    for item in found if isinstance(found, list) else [found] if found else []:
        if isinstance(item, dict):
            turns.append(item)
        elif isinstance(item, list) and len(item) == 2 and all(isinstance(text, str) for text in item):
            turns += [{"role": role, "content": text} for role, text in zip(("user", "assistant"), item, strict=True)]
        else:
            detail = sentence(_("`{name}` is not a list of questions with their answers"), name=mapping.history or "")
            raise RowError("shape", format=NAME, detail=detail)
    return turns


def _text(value: Value, place: str) -> str:
    """The text at a place that the row has. Raises ``RowError``."""
    found = value_at(value, place)
    if isinstance(found, str) and found:
        return found
    below = next((name for name, text in fields_in({place: found}) if name != place and isinstance(text, str)), "")
    if below:
        detail = sentence(
            _("`{name}` is an object, not text: name one of its fields, such as `{field}`"), name=place, field=below
        )
    else:
        empty = found == ""
        detail = sentence(
            _("`{name}` is {kind}, not text"), name=place, kind=sentence(_("empty")) if empty else kind(found)
        )
    raise RowError("shape", format=NAME, detail=detail)


FORMAT = DataFormat(
    name="columns",
    title=_("A table with mapped columns"),
    about=_(
        "CSV, parquet or JSON whose columns are mapped to prompt, input, history, answer, system text, messages, tools "
        "and category. Usual names are found. A field of an object is named by its path, such as `payload.ask`, and "
        "`{payload.ask} ({payload.lang})` makes one text of several. Every column stays with the row."
    ),
    example="question,answer",
    rank=0.3,
    learned="The assistant's turns of the column with messages or with earlier turns; with shape `sft` the answer.",
    recognise=_recognise,
    read=_read_records,
    options=("cut", "mapping", "shape"),
    takes_messages=True,
)


# Places in a row of a table: a column, a field in a column's object, or a text that is made of several of them.
#
# ``question`` is a column, ``payload.ask`` a field of the object in column ``payload`` (or of the JSON text there), and
# ``turns.0.text`` one of a list's first item. ``{payload.ask} ({payload.lang})`` is a text with fields put in; ``{{``
# and ``}}`` are braces. A column that has the whole name comes first, whatever its name holds.

MAX_DEPTH = 4
MAX_TEXT = 100_000
"""Characters of a column's text that may be JSON with fields of its own."""
_PARTS = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")


def missing_in(row: Value, place: str) -> str:
    """The field that a place names and the row has not; empty where it has all."""
    try:
        value_at(row, place)
    except KeyError as exc:
        return str(exc.args[0])
    return ""


def value_at(row: Value, place: str) -> Any:
    """The value at a place; of a template its text. Raises ``KeyError`` with the field that is missing."""
    if place in row:
        return row[place]
    if _is_template(place):
        return _PARTS.sub(lambda part: _put_in(row, part), place)
    return _field(row, place)


def value_or_none(row: Value, place: str | None) -> Any:
    """The value at a place, ``None`` without a place and where a field is missing."""
    try:
        return value_at(row, place) if place else None
    except KeyError:
        return None


def fields_in(row: Value) -> Iterator[tuple[str, Any]]:
    """The columns of a row, and after each one the fields of its object, with their values."""
    for name, value in row.items():
        yield name, value
        yield from _fields_below(name, value, 1)


def _fields_below(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    found = _opened(value)
    if isinstance(found, dict) and depth < MAX_DEPTH:
        for key, item in found.items():
            if key and "." not in key:
                yield f"{name}.{key}", item
                yield from _fields_below(f"{name}.{key}", item, depth + 1)


def _is_template(place: str) -> bool:
    return any(part[1] for part in _PARTS.finditer(place))


def _put_in(row: Value, part: re.Match[str]) -> str:
    if part[1] is None:
        return part[0][0]
    value = row[part[1]] if part[1] in row else _field(row, part[1])
    if value is None:
        raise KeyError(part[1])
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _field(row: Value, path: str) -> Any:
    value: Any = row
    for key in path.split("."):
        value = _opened(value)
        number = number_in(key, 6) if isinstance(value, list) else None
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif number is not None and number < len(value):
            value = value[number]
        else:
            raise KeyError(path)
    return value


def _opened(value: Any) -> Any:
    """What a text is as JSON, where it is an object or a list; any other value as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "[") or len(value) > MAX_TEXT:
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if isinstance(found, dict | list) else value
