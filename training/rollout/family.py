"""What a chat template makes of calls, thoughts, results and tools, and which dialect reads it.

Nothing is taken from a model's name: the template is rendered with a probe, and the dialect is the one that reads the
probe's calls out of the turn again. So any template is served whose calls can be read, and one that leaves tools, calls
or results out is found before it costs a run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from training.config import JobConfig
from training.dialects import CALL_MARKS, DIALECTS, FAMILY_DIALECTS, Parse, dialect_name
from training.dialects.base import MARKS, Tools, opens_thought
from training.errors import TemplateError
from training.plain import READ_BY_TEMPLATES
from training.policy.engine import sampled_families

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
    """The properties of a chat template. ``dialect`` reads its calls, empty where it writes none that is read.

    ``lists_tools``, ``shows_results`` and ``parallel``: whether tools, results of tools and two calls of one turn are
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
    """Two tools whose names occur in no template by chance."""
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
        answer = {"role": "assistant", "content": SAID, field: THOUGHT}
        for rows in ([_user(), answer], [_user(), {**probe_turn(1), field: THOUGHT}]):
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
    answer = {"role": "assistant", "content": SAID}
    result = {"role": "tool", "name": NAMES[0], "tool_call_id": "call_0", "content": RESULT}
    ended = _end_of(render, family, [_user(), answer], SAID, special)
    # Some templates write the end of a turn with the message behind it.
    yield from [ended] if ended else filter(None, [_end_of(render, family, [_user(), answer, _user()], SAID, special)])
    if family.dialect:
        yield from filter(None, [_end_of(render, family, [_user(), probe_turn(1), result], "probe_text", special)])


def _end_of(render: Render, family: Family, rows: Rows, anchor: str, special: Collection[str]) -> str | None:
    text = _rendered(render, family.style.rows(rows), None, generate=False)
    if text is None or anchor not in text:
        return None
    end = turn_end(text, text.rfind(anchor) + len(anchor), special)
    return text[end[0] : end[1]] if end else None


# --- Family reference -----------------------------------------------------------------------------------------------
# The tables of families in docs/models.md, made of the code and of the chat templates in TRL's wheel.

CONTROL = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|<[a-z_]{2,30}\|>|<\|[a-z_]{1,30}>|<｜[^｜<>]{1,40}｜>|<(?:start|end)_of_turn>"
)
END = "<EOS>"
"""What the tables have in the place of a tokenizer's own end of turn."""
PUBLISHED = {
    "apertus": "json-list",
    "cohere2_moe": "command",
    "deepseek_v2": "deepseek",
    "deepseek_v3": "deepseek, kimi",
    "gemma": "",
    "gemma2": "",
    "gemma3": "",
    "gemma3_text": "",
    "gemma4": "gemma",
    "gemma4_text": "gemma",
    "gemma4_unified": "gemma",
    "gemma4_unified_text": "gemma",
    "glm4_moe": "glm",
    "glm4_moe_lite": "glm",
    "gpt_oss": "harmony",
    "granite": "hermes",
    "granitemoehybrid": "hermes",
    "hy_v3": "glm",
    "laguna": "glm",
    "lfm2": "lfm2, lfm2-raw",
    "lfm2_moe": "lfm2-raw",
    "llama": "llama",
    "minimax_m2": "invoke",
    "ministral3": "mistral",
    "mistral": "mistral",
    "nemotron_h": "xml, json-list",
    "phi3": "",
    "qwen2": "hermes",
    "qwen3": "hermes",
    "qwen3_5": "xml",
    "qwen3_5_moe": "xml",
    "qwen3_5_moe_text": "xml",
    "qwen3_5_text": "xml",
    "qwen3_moe": "hermes, xml",
    "seed_oss": "xml",
    "smollm3": "",
    "solar_open": "solar",
}
"""What published templates of a model type write, seen in November 2026; empty where they leave calls out."""


def control_marks(template: str) -> set[str]:
    """Control tokens in the text of a template."""
    known = {mark for mark in (*CALL_MARKS, *MARKS, *MARKS.values()) if mark in template and not mark.startswith("to=")}
    marks = {*CONTROL.findall(template), *known}
    return {mark for mark in marks if CONTROL.sub("", mark) in ("", mark)}  # single tokens


def family_of_text(template: str) -> Family:
    """The family of a template without its tokenizer. Raises ``TemplateError``."""
    from transformers.utils.chat_template_utils import render_jinja_template

    compile_and_render: Any = render_jinja_template

    def render(rows: Rows, tools: Tools | None, generate: bool) -> str:
        words = {"bos_token": "<BOS>", "eos_token": END, "pad_token": "<PAD>", "unk_token": ""}
        try:
            texts, _ = compile_and_render(
                conversations=[rows], tools=tools, chat_template=template, add_generation_prompt=generate, **words
            )
        except Exception as exc:  # a template is a program that others wrote: it may raise anything
            raise TemplateError(f"The chat template failed: {type(exc).__name__}") from exc
        return str(texts[0])

    return family_of(render, {*control_marks(template), END})


def templates() -> dict[str, str]:
    """The chat templates of TRL's wheel by name, without its training variants."""
    import trl

    folder = Path(trl.__file__).parent / "chat_templates"
    found = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.jinja"))}
    return {name: text for name, text in found.items() if not name.endswith("_training")}


def reference() -> str:
    """Both tables."""
    return "\n".join([*_of_templates(), "", *_of_types(), ""])


def _of_templates() -> Iterator[str]:
    yield "| template of TRL 1.16 | dialect | lists tools | answers of tools | two calls | thoughts | turns end with |"
    yield "|---|---|---|---|---|---|---|"
    for name, text in templates().items():
        try:
            family = family_of_text(text)
        except TemplateError:
            yield f"| `{name}` | takes no texts | | | | | |"
            continue
        ends = " ".join(f"`{end}`" for end in family.ends).replace("|", "\\|") or "no control token"
        held = [_yes(family.lists_tools), _yes(family.shows_results), _yes(family.parallel), _thoughts(family)]
        yield "| " + " | ".join([f"`{name}`", _dialect(family), *held, ends]) + " |"


def _of_types() -> Iterator[str]:
    yield "| model type | dialect of its published templates |"
    yield "|---|---|"
    for name, written in PUBLISHED.items():
        shown = ", ".join(f"`{dialect}`" for dialect in written.split(", ")) if written else "writes no calls"
        yield f"| `{name}` | {shown} |"
    others = ", ".join(f"`{name}`" for name in sorted(sampled_families()) if name not in PUBLISHED)
    yield f"\nOf these types, which can be sampled too, no template was at hand; their own decides: {others}."


def _dialect(family: Family) -> str:
    return f"`{family.dialect}`" if family.dialect else "writes no calls"


def _thoughts(family: Family) -> str:
    if family.in_thought:
        return "each turn begins in one"
    return f"`{family.style.reasoning}`" if family.style.reasoning else "no"


def _yes(held: bool) -> str:
    return "yes" if held else "no"
