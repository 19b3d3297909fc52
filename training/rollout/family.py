"""What a chat template makes of calls, thoughts, results and tools, and which dialect reads it.

Nothing is taken from a model's name: the template is rendered with a probe, and the dialect is the one that reads the
probe's calls out of the turn again. So any template is served whose calls can be read, and one that leaves tools, calls
or results out is found before it costs a run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from training.config import JobConfig
from training.dialects import CALL_MARKS, DIALECTS, FAMILY_DIALECTS, Parse, dialect_name
from training.dialects.base import Tools
from training.dialects.thoughts import MARKS, opens_thought
from training.errors import TemplateError
from training.reasoning import READ_BY_TEMPLATES

Rows = list[dict[str, Any]]
Render = Callable[[Rows, "Tools | None", bool], str]
"""A template: chat messages, tools, and whether the model's next turn begins behind them. Raises ``TemplateError``."""
Ids = Literal["own", "nine", "functions"]
ASKED, SAID, THOUGHT, RESULT = "probe asks", "probe says", "probe thinks", "probe result"
_ARGUMENTS: dict[str, Any] = {"probe_text": 'it\'s "5" \\n', "number": 3, "yes": True, "many": [1, {"k": "v"}]}
_KINDS = {"probe_text": "string", "number": "integer", "yes": "boolean", "many": "array"}
NAMES = ("probe_tool", "other_tool")


@dataclass(frozen=True)
class Style:
    """How messages are handed to a template: arguments as JSON text, how calls are numbered, and the field of thoughts,
    empty where the template writes none."""

    text_arguments: bool = False
    ids: Ids = "own"
    reasoning: str = ""

    def rows(self, messages: Rows) -> Rows:
        """Messages in OpenAI's shape as this template takes them."""
        known: dict[str, str] = {}
        return [self._row(message, known) for message in messages]

    def _row(self, message: dict[str, Any], known: dict[str, str]) -> dict[str, Any]:
        row = dict(message)
        thought = row.pop(READ_BY_TEMPLATES[0], None)
        if thought and self.reasoning:
            row[self.reasoning] = thought
        if row.get("tool_calls"):
            row["tool_calls"] = [self._call(call, known) for call in row["tool_calls"]]
        if "tool_call_id" in row:
            row["tool_call_id"] = known.get(row["tool_call_id"], row["tool_call_id"])
            if self.ids == "nine" and len(row["tool_call_id"]) != 9:
                row["tool_call_id"] = f"{len(known):09d}"
        return row

    def _call(self, call: dict[str, Any], known: dict[str, str]) -> dict[str, Any]:
        inner = call["function"]
        arguments = inner["arguments"]
        if self.text_arguments:
            arguments = json.dumps(arguments, ensure_ascii=False)
        own = str(call.get("id", ""))
        if self.ids == "nine":
            known[own] = f"{len(known):09d}"
        elif self.ids == "functions":
            known[own] = f"functions.{inner['name']}:{len(known)}"
        return {**call, "id": known.get(own, own), "function": {**inner, "arguments": arguments}}


@dataclass(frozen=True)
class Family:
    """What is known of a chat template. ``dialect`` reads its calls, empty where it writes none that is read.

    ``lists_tools``, ``shows_results`` and ``parallel``: whether tools, results of tools and two calls of one turn stand
    in what it renders. ``in_thought``: the prompt ends inside a thought, which each turn closes. ``ends``: texts of the
    tokens that end a turn.
    """

    dialect: str = ""
    style: Style = Style()
    lists_tools: bool = False
    shows_results: bool = False
    parallel: bool = False
    in_thought: bool = False
    ends: tuple[str, ...] = ()


def read_by(family: Family, config: JobConfig) -> Parse:
    """What reads the turns of a model of this family in a job; a text, where its template writes no calls."""
    parse = DIALECTS[dialect_name(config, family.dialect or "text")]
    return partial(parse, in_thought=True) if family.in_thought else parse


def family_of(render: Render, special: Collection[str]) -> Family:
    """Probe a template. ``special`` are the texts of its tokenizer's control tokens. Raises ``TemplateError`` where
    not even a user's message can be rendered."""
    render = partial(render_with_tools, render)
    prompt = render([_user()], None, True)
    with_tools = _rendered(render, [_user()], probe_tools(), generate=True) or prompt
    style, dialect = _reader(render)
    family = Family(
        dialect,
        replace(style, reasoning=_reasoning(render, style)),
        lists_tools=all(name in with_tools for name in NAMES),
        in_thought=opens_thought(with_tools) and _closes_thoughts(render),
    )
    if dialect:
        family = replace(
            family, parallel=_reads(render, style, dialect, 2), shows_results=_shows_results(render, style)
        )
    return replace(family, ends=tuple(dict.fromkeys(_ends(render, family, special))))


def render_with_tools(render: Render, rows: Rows, tools: Tools | None, generate: bool) -> str:
    """What a template renders; one that is for conversations with tools alone gets probes where it is asked without."""
    try:
        return render(rows, tools, generate)
    except TemplateError:
        if tools:
            raise
        return render(rows, probe_tools(), generate)


def probe_tools() -> Tools:
    """Two tools whose names stand in no template by chance."""
    properties = {name: {"type": kind, "description": "A value."} for name, kind in _KINDS.items()}
    schema = {"type": "object", "properties": properties, "required": ["probe_text"]}
    described = {"description": "A probe.", "parameters": schema}
    return [{"type": "function", "function": {"name": name, **described}} for name in NAMES]


def probe_calls(count: int) -> list[dict[str, Any]]:
    """That many calls of the probe's tools, in OpenAI's shape."""
    return [
        {"type": "function", "id": f"call_{place}", "function": {"name": name, "arguments": _ARGUMENTS}}
        for place, name in enumerate(NAMES[:count])
    ]


def turn_text(render: Render, rows: Rows, tools: Tools | None) -> str:
    """What a template writes for the last message, where the prompt before it ends. Raises ``TemplateError``."""
    prompt, whole = render(rows[:-1], tools, True), render(rows, tools, False)
    return whole[turn_begin(prompt, whole) :]


def prompt_end(prompt: str, whole: str) -> int | None:
    """Where a prompt ends in a rendered conversation, which may lack the thought that the prompt begins; ``None`` where
    it does not begin with the prompt."""
    if whole.startswith(prompt):
        return len(prompt)
    opened = max((prompt.rfind(mark) for mark in MARKS), default=-1)
    thought = prompt[opened:] if opened >= 0 else ""
    for mark in (*MARKS, *MARKS.values()):
        thought = thought.replace(mark, "")
    return opened if opened >= 0 and not thought.strip() and whole.startswith(prompt[:opened]) else None


def turn_begin(prompt: str, whole: str) -> int:
    """Where a model's turn begins, also under a template that rewrites what came before."""
    if (end := prompt_end(prompt, whole)) is not None:
        return end
    shared = next((at for at, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), 0)
    return max(whole.rfind(mark, 0, shared) + len(mark) for mark in (">", "]", "\n")) if shared else 0


def turn_end(text: str, begin: int, special: Collection[str]) -> tuple[int, int] | None:
    """The control token that ends the turn in which ``begin`` is: begin and end of its text; ``None`` without one."""
    found = [(at, -len(mark)) for mark in special if mark not in CALL_MARKS and (at := text.find(mark, begin)) >= 0]
    if not found:
        return None
    at, size = min(found)
    return at, at - size


def _user() -> dict[str, Any]:
    return {"role": "user", "content": ASKED}


def probe_turn(count: int, **more: Any) -> dict[str, Any]:
    """A turn of that many calls."""
    return {"role": "assistant", "content": "", "tool_calls": probe_calls(count), **more}


def _rendered(render: Render, rows: Rows, tools: Tools | None, *, generate: bool) -> str | None:
    try:
        return render(rows, tools, generate)
    except TemplateError:
        return None


def _reader(render: Render) -> tuple[Style, str]:
    """How calls must be handed over so that a dialect reads what is written, and that dialect; else none."""
    for style in _styles():
        for dialect in FAMILY_DIALECTS:
            if _reads(render, style, dialect, 1):
                return style, dialect
    return Style(), ""


def _styles() -> Iterator[Style]:
    ids: tuple[Ids, ...] = ("own", "nine", "functions")
    yield from (Style(text_arguments, name) for text_arguments in (False, True) for name in ids)


def _reads(render: Render, style: Style, dialect: str, count: int) -> bool:
    """Whether a dialect reads the probe's calls, and leaves nothing of them in the text."""
    try:
        text = turn_text(render, style.rows([_user(), probe_turn(count)]), probe_tools())
    except TemplateError:
        return False
    turn = FAMILY_DIALECTS[dialect](text, "c", probe_tools())
    found = [(call.name, call.arguments) for call in turn.tool_calls]
    left = any(mark in turn.text for mark in CALL_MARKS)
    return turn.parse_error is None and not left and found == [(name, _ARGUMENTS) for name in NAMES[:count]]


def _reasoning(render: Render, style: Style) -> str:
    """The field of thoughts that the template writes into the last turn."""
    for field in READ_BY_TEMPLATES:
        said = {"role": "assistant", "content": SAID, field: THOUGHT}
        for rows in ([_user(), said], [_user(), {**probe_turn(1), field: THOUGHT}]):
            if THOUGHT in (_rendered(render, rows, None, generate=False) or ""):
                return field
    return ""


def _closes_thoughts(render: Render) -> bool:
    """Whether a turn without a thought closes the one that its prompt began; DeepSeek's just leaves it out."""
    rows = [_user(), {"role": "assistant", "content": SAID}]
    written = _rendered(render, rows, None, generate=False) or ""
    return any(mark in written.rpartition(ASKED)[2] for mark in MARKS.values())


def _shows_results(render: Render, style: Style) -> bool:
    result = {"role": "tool", "name": NAMES[0], "tool_call_id": "call_0", "content": RESULT}
    rows = style.rows([_user(), probe_turn(1), result])
    return RESULT in (_rendered(render, rows, probe_tools(), generate=True) or "")


def _ends(render: Render, family: Family, special: Collection[str]) -> Iterator[str]:
    """Texts of the tokens behind a turn with words and behind one with a call."""
    said = {"role": "assistant", "content": SAID}
    result = {"role": "tool", "name": NAMES[0], "tool_call_id": "call_0", "content": RESULT}
    ended = _end_of(render, family, [_user(), said], SAID, special)
    # Some templates write the end of a turn with the message behind it.
    yield from [ended] if ended else filter(None, [_end_of(render, family, [_user(), said, _user()], SAID, special)])
    if family.dialect:
        yield from filter(None, [_end_of(render, family, [_user(), probe_turn(1), result], "probe_text", special)])


def _end_of(render: Render, family: Family, rows: Rows, anchor: str, special: Collection[str]) -> str | None:
    text = _rendered(render, family.style.rows(rows), None, generate=False)
    if text is None or anchor not in text:
        return None
    end = turn_end(text, text.rfind(anchor) + len(anchor), special)
    return text[end[0] : end[1]] if end else None
