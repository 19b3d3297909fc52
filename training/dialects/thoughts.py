"""Where a model's thoughts begin and end. Calls that are drafted in a thought are not made."""

from __future__ import annotations

import re

MARKS = {
    "<think>": "</think>",
    "<seed:think>": "</seed:think>",
    "<think:opensource>": "</think:opensource>",
    "[THINK]": "[/THINK]",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel>thought": "<channel|>",
    "<|channel|>analysis<|message|>": "<|end|>",
    "to=self<|message|>": "<|eom|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
}
"""Opening marks of thoughts with their closing ones, over all families."""
PLAIN = ("</think>", "</seed:think>", "</think:opensource>", "[/THINK]", "<|END_THINKING|>", "<|inner_suffix|>")
"""Closing marks that close nothing else, so that one without an opening mark closes what the prompt opened."""
OPENING = re.compile("|".join(re.escape(mark) for mark in MARKS))
_EITHER = re.compile("|".join(re.escape(mark) for mark in (*MARKS, *PLAIN)))


def first_closing(text: str) -> tuple[int, int] | None:
    """Where a thought that was open before ``text`` is closed: begin and end of the mark, ``None`` if it is not."""
    match = _EITHER.search(text)
    return None if match is None or match[0] in MARKS else match.span()


def open_thought(prompt: str) -> str:
    """The opening mark of the thought that a prompt ends in, so that the model's turn goes on with it; empty without
    one."""
    last = max(prompt.rfind(mark) for mark in MARKS)
    match = OPENING.match(prompt, last) if last >= 0 else None
    return match[0] if match is not None and MARKS[match[0]] not in prompt[last:] else ""


def opens_thought(prompt: str) -> bool:
    """Whether a prompt ends inside a thought."""
    return bool(open_thought(prompt))


def split_thought(text: str, *, in_thought: bool = False) -> tuple[str | None, str, bool]:
    """What was thought, what comes behind the last thought, and whether that thought is closed.

    For dialects whose calls cannot be told from words, so that no call in front of a thought can be meant.
    """
    ends = [(text.rfind(mark) + len(mark), mark) for mark in PLAIN if mark in text]
    begun = None if ends else OPENING.match(text.lstrip())
    if begun is not None or (in_thought and not ends):
        return OPENING.sub("", text).strip() or None, "", False
    if not ends:
        return None, text, True
    end, mark = max(ends)
    return OPENING.sub("", text[: end - len(mark)]).strip() or None, text[end:], True
