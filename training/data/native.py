"""Texts as chat templates wrote them: whole conversations, and calls and results inside a message."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from training.data.messages import THOUGHTS, call_of, tools_of
from training.data.problems import RowError
from training.data.schema import Message, Row, ToolCall, others_of
from training.data.strict import decoded
from training.dialects import FAMILY_DIALECTS, MARKED, Parse, ParsedTurn
from training.dialects.json_calls import names_of

# A conversation that a chat template wrote as one text, split at the template's marks: ChatML, Llama 3 and others.

ROLES = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "ipython": "tool",
    "developer": "system",
    "human": "user",
    "gpt": "assistant",
    "model": "assistant",
    "function": "tool",
}
MAX_TURNS = 2000
ROLE = r"(system|developer|user|assistant|tool|ipython)"


class Markup(NamedTuple):
    """How a family of templates marks turns: what begins one, what else to drop.

    Each pattern begins with a literal, so that a gigabyte of texts is searched in seconds; ``lead`` is put before every
    text for that, and ``tail`` characters of a mark are only looked at, because the next mark may begin with them.
    ``repeats`` says whether a role may take two turns in a row; else such a line belongs to the text.
    """

    name: str
    begins: re.Pattern[str]
    ends: re.Pattern[str] | None = None
    lead: str = ""
    tail: int = 0
    repeats: bool = True


MARKUPS = (
    Markup("ChatML", re.compile(rf"<\|im_start\|>{ROLE}\n"), re.compile(r"<\|(?:im_end\|>\n?|endoftext\|>\n?$)")),
    Markup(
        "Llama 3",
        re.compile(rf"<\|start_header_id\|>{ROLE}<\|end_header_id\|>\n\n"),
        re.compile(r"<\|(?:eot_id|eom_id|begin_of_text|end_of_text)\|>"),
    ),
    Markup("Gemma", re.compile(r"<start_of_turn>(user|model)\n"), re.compile(r"<(?:end_of_turn>\n?|bos>|eos>)")),
    Markup(
        "Zephyr",
        re.compile(r"<\|(system|user|assistant)\|>\n"),
        re.compile(r"<(?:/s>|\|end\|>|\|endoftext\|>)\n?"),
    ),
)


def markup_of(text: str) -> Markup | None:
    """The marks that a text has."""
    return next((markup for markup in MARKUPS if markup.begins.search(text)), None)


_MARK = re.compile(r"<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>|<\|(?:user|assistant)\|>|\[/?INST\]")


def mark_in(text: str) -> str:
    """The first mark of a chat template that a text holds; "" where it holds none."""
    found = _MARK.search(text)
    return found[0] if found else ""


def pieces(markup: Markup, text: str, role: str) -> list[tuple[str, str]]:
    """Roles and texts; what is before the first mark is ``role``'s, or dropped where there is none."""
    found_pieces: list[tuple[str, str]] = []
    text = markup.lead + text
    position, current = len(markup.lead), role
    for found in markup.begins.finditer(text):
        begun = ROLES[found[1]]
        if not markup.repeats and begun == current:
            continue
        _add(found_pieces, current, text[position : max(position, found.start())], markup)
        position, current = found.end() + markup.tail, begun
        if len(found_pieces) >= MAX_TURNS:
            break
    _add(found_pieces, current, text[position:], markup)
    return found_pieces


def _add(found_pieces: list[tuple[str, str]], role: str, text: str, markup: Markup) -> None:
    if role:
        found_pieces.append((role, (markup.ends.sub("", text) if markup.ends else text).removesuffix("\n")))


# Calls and results in a text as some family of models writes them, read as what they are.
#
# A chat template writes a family's marks itself, and other models have others, so a text that holds them teaches one
# family's marks, or both twice. A call inside ``<think>`` is a draft and stays text; so does one that cannot be read,
# with a remark.
#
# 1. Hermes and Qwen: ``<tool_call>`` holds a call, or a list of calls, as JSON or as a Python literal;
#    ``<tool_response>`` a result.
# 2. All other families that ``training.dialects`` reads by marks, and Llama's bare ``{"name": ..., "parameters":
#    ...}``, are read where they are meant as calls and not shown in an answer: a tool's result follows, or the row
#    offers the tool. A dataset may mix families.

CALL, CALL_END = "<tool_call>", "</tool_call>"
RESULT, RESULT_END = "<tool_response>", "</tool_response>"
_TOOLS, _TOOLS_END = "<tools>", "</tools>"
MAX_CALLS = 64
MAX_SHOWN = 40
_MARKS = re.compile(
    r"<functioncall>|<function_call>|<function=\w|<(?:[\w.-]+:|｜DSML｜)?(?:invoke|function) name=|<(?:seed:)?tool_call"
    r"|\[TOOL_CALLS\]|<TOOLCALL>|<\|(?:python_tag|tool_?calls?|tools_prefix|function_call|START_ACTION)|<｜tool▁call"
    r"|\bto=functions\.\w|\bfunctools\["
)
"""The beginning of a call, in any family."""
_HINTS = ("<tool", "<func", "<|", "<｜", "<invoke", ":invoke", ":tool_call>", "[TOOL_CALLS]", "<TOOLCALL>")
_JSON_HINTS = ("functools[", "to=functions.", '\\"parameters\\"', '\\"arguments\\"', "\\u003", "\\u005", "\\uff5c")
_BARE = re.compile(r'(?:```(?:json)?\s*|<\|python_tag\|>\s*)?\{\s*"(?:name|type)"\s*:')
_FENCE = re.compile(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL)


class _Said(NamedTuple):
    """Messages that one message becomes."""

    messages: list[Message]
    fact: str


def may_hold_calls(text: str) -> bool:
    """Whether the JSON text of a row may hold what ``read_native`` reads: a quick look, since most rows do not."""
    return any(hint in text for hint in _HINTS) or any(hint in text for hint in _JSON_HINTS)


def read_native(row: Row) -> Row:
    """The row with the calls and results of its texts as calls and results; its ``facts`` say where some were."""
    if not any("<" in m.content or "[" in m.content or "{" in m.content for m in row.messages):
        return row
    if not row.tools and not row.offered and row.messages and row.messages[0].role == "system":
        row.offered = _offered(row.messages[0].content)
    found: list[tuple[int, _Said]] = []
    calling = False
    for place, message in enumerate(row.messages):
        reading = _split_message(message, place + 1, calling) or _of_family(row, place)
        if reading is not None:
            found.append((place, reading))
        calling = bool((reading.messages[-1] if reading else message).tool_calls)
    if found:
        _replace(row, found)
    return row


def _split_message(message: Message, number: int, after_call: bool) -> _Said | None:
    """What a message is made of where it holds calls or results as text; ``None`` where it does not."""
    if message.role == "assistant":
        if CALL not in message.content or message.tool_calls:
            return None
        text, calls = split_calls(message.content, f"message {number}", f"call_{number}")
        made = message.model_copy(update={"content": text, "tool_calls": calls})
        return _Said([made], "native_calls") if calls else None
    if RESULT not in message.content or (message.role != "tool" and not (message.role == "user" and after_call)):
        return None
    texts = _results(message.content)
    if not texts:
        return None
    results = [message.model_copy(update={"role": "tool", "content": text}) for text in texts]
    return _Said(results, "native_results")


def _of_family(row: Row, place: int) -> _Said | None:
    """A message's calls in the form of another family; ``None`` where it has none that are meant as calls."""
    message = row.messages[place]
    if message.role != "assistant" or message.tool_calls:
        return None
    thought, closed, rest = message.content.rpartition(THOUGHTS)
    if (turn := _turn_of(rest, row.tools)) is None:
        return None
    answered = place + 1 < len(row.messages) and row.messages[place + 1].role == "tool"
    if not answered and not {call.name for call in turn.tool_calls} <= {*row.offered, *names_of(row.tools)}:
        return None
    calls = [call.model_copy(update={"id": f"call_{place + 1}_{n}"}) for n, call in enumerate(turn.tool_calls, 1)]
    made = message.model_copy(update={"content": thought + closed + turn.text, "tool_calls": calls})
    return _Said([made], "native_calls")


def _turn_of(text: str, tools: list[dict[str, Any]] | None) -> ParsedTurn | None:
    """A text read by the first family whose calls it holds, all of them whole."""
    readers: list[Parse] = []
    if _MARKS.search(text):
        readers += [dialect for dialect in MARKED.values() if dialect.opens(text)]
    if _BARE.match(text.lstrip()):
        readers.append(FAMILY_DIALECTS["llama"])
        fenced = _FENCE.fullmatch(text.strip())
        text = fenced[1] if fenced else text
    turns = (read(text, "", tools) for read in readers)
    return next((turn for turn in turns if turn.tool_calls and turn.parse_error is None), None)


def split_calls(text: str, where: str, default_id: str) -> tuple[str, list[ToolCall]]:
    """A text without its calls, and the calls; the text as it is where one of them cannot be read."""
    thought, closed, spoken = text.rpartition(THOUGHTS)
    words, *blocks = spoken.split(CALL)
    calls: list[ToolCall] = []
    for block in blocks[: MAX_CALLS + 1]:
        body, ended, rest = block.partition(CALL_END)
        try:
            value = decoded(body.strip(), where, python=True) if ended else None
            given = value if isinstance(value, list) else [value]
            calls += [call_of(each, where, f"{default_id}_{len(calls) + n}") for n, each in enumerate(given, 1)]
        except RowError:
            return text, []
        words += rest if rest.strip() else ""
    if len(calls) > MAX_CALLS:
        return text, []
    return thought + closed + words.rstrip(), calls


def unread_call(text: str, answer: Message | None = None) -> str:
    """The mark of a call that a text still holds, apart from drafts of it; "" where it holds none.

    A list of Python calls, or an ``Action:``, may be what the prompt asks for: it counts where a result follows, the
    ``answer``.
    """
    rest = text.rpartition(THOUGHTS)[2].strip()
    if (found := _MARKS.search(rest)) is not None:
        return found[0]
    if _BARE.match(rest) and any(f'"{key}"' in rest for key in ("parameters", "arguments")):
        return '{"name"'
    if answer is None:
        return ""
    if answer.role == "tool" and FAMILY_DIALECTS["bfcl"](rest, "").tool_calls:
        return rest[: rest.index("(") + 1][:MAX_SHOWN]
    observed = answer.role == "user" and answer.content.startswith("Observation:")
    return "Action:" if observed and "Action:" in rest else ""


def _results(text: str) -> list[str]:
    """The results that a text consists of; none where it holds anything else."""
    before, *blocks = text.split(RESULT)
    pieces = [block.partition(RESULT_END) for block in blocks]
    if before.strip() or any(not ended or rest.strip() for _body, ended, rest in pieces):
        return []
    return [body.strip("\n") for body, _ended, _rest in pieces]


def _offered(system: str) -> list[str]:
    """The names of the tools that a system text lists."""
    _before, begun, rest = system.partition(_TOOLS)
    body, ended, _after = rest.partition(_TOOLS_END)
    if not begun or not ended:
        return []
    lines = body.strip().splitlines()
    for texts in ([body.strip()], lines):
        try:
            tools = [tool for text in texts for tool in tools_of(text) or []]
        except RowError:
            continue
        return [str((tool.get("function") or tool).get("name", "")) for tool in tools]
    return []


def _replace(row: Row, found: list[tuple[int, _Said]]) -> None:
    """Put what was read in place of the messages that it was read from."""
    made: dict[int, list[Message]] = {place: reading.messages for place, reading in found}
    parallel: list[tuple[Message, dict[str, Any], str]] = []
    roles = row.spelling.roles if len(row.spelling.roles) == len(row.messages) else [m.role for m in row.messages]
    end = len(row.messages) - row.spelling.completion
    for place, (message, other, role) in enumerate(zip(row.messages, others_of(row), roles, strict=True)):
        new = made.get(place, [message])
        parallel += [
            (each, other if n == 0 else {}, role if each.role == message.role else each.role)
            for n, each in enumerate(new)
        ]
        row.spelling.completion += len(new) - 1 if place >= end else 0
    row.messages = [each for each, _other, _role in parallel]
    row.others = [other for _each, other, _role in parallel] if row.others else None
    row.spelling.roles = [role for _each, _other, role in parallel]
    row.facts = (*row.facts, *dict.fromkeys(reading.fact for _place, reading in found))
    row.made, row.as_written = True, False
    row.raw = row.normal()
