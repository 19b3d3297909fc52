"""A conversation that a chat template wrote as one text, split at the template's marks: ChatML, Llama 3 and others."""

from __future__ import annotations

import re
from typing import NamedTuple

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

    Each pattern begins with a literal, so that a gigabyte of texts is searched in seconds; ``lead`` stands before every
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
    """Roles and texts; what stands before the first mark is ``role``'s, or dropped where there is none."""
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
