"""Calls whose names stand in front of their arguments, which are JSON: Mistral, DeepSeek, Kimi, gpt-oss and others."""

from __future__ import annotations

import re

from training.dialects.base import Tools, Unreadable, checked, skip_spaces
from training.dialects.json_calls import arguments_of, decode
from training.dialects.reading import Block, Form

EMPTY = re.compile(r"\s*(?=<|\Z)")


def named(opening: str, closing: str, *, close_needed: bool = True, before_close: str = "") -> Form:
    """``opening`` is a pattern whose group ``name`` is the call's; its JSON and ``before_close`` follow.

    Without ``close_needed`` the mark may be lacking: it is a stop token, which is no text of a turn.
    """

    def read(text: str, match: re.Match[str], tools: Tools | None) -> Block:
        name = match["name"].strip()
        if EMPTY.match(text, match.end()):
            given, end = {}, match.end()
        else:
            value, end = decode(text, match.end())
            given = arguments_of(value, name, "arguments")
        rest = skip_spaces(text, end)
        if before_close and text.startswith(before_close, rest):
            rest = skip_spaces(text, rest + len(before_close))
        if text.startswith(closing, rest):
            return Block([checked(name, given)], rest + len(closing))
        if close_needed:
            raise Unreadable(f"The tool call is not closed with {closing}.")
        return Block([checked(name, given)], end)

    return Form(re.compile(opening), read, closing if close_needed else "")


DEEPSEEK = (
    named(
        r"<｜tool▁call▁begin｜>\s*function\s*<｜tool▁sep｜>(?P<name>[^\n<`]+)\n```(?:json)?\s*",
        "<｜tool▁call▁end｜>",
        before_close="```",
    ),
    named(r"<｜tool▁call▁begin｜>(?P<name>[^<\n]+)<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
)
KIMI = (
    named(
        r"<\|tool_call_begin\|>\s*(?:functions\.)?(?P<name>[^<\s:]+)(?::\d+)?\s*<\|tool_call_argument_begin\|>",
        "<|tool_call_end|>",
    ),
)
HARMONY = (
    named(
        r"(?:<\|start\|>assistant)?(?:<\|channel\|>(?:commentary|analysis))?\s*to=(?:functions\.)?(?P<name>[^\s<]+)"
        r"\s*(?:<\|channel\|>(?:commentary|analysis))?\s*(?:<\|constrain\|>)?\s*(?:json|code)?\s*<\|message\|>",
        "<|call|>",
        close_needed=False,
    ),
)
MISTRAL = named(
    r"\[TOOL_CALLS\]\s*(?P<name>[A-Za-z_][^\[\]\s{}\"]*)\s*(?:\[CALL_ID\][^\[\]]*)?(?:\[ARGS\])?(?=\s*\{|\s*\Z)",
    "[/TOOL_CALLS]",
    close_needed=False,
)
FUNCTION_TAG = (named(r"<function=(?P<name>[^>\s]+)>(?=\s*(?:\{|</function>))", "</function>"),)
SOLAR = (
    named(
        r"<\|tool_call:begin\|>[^<]*<\|tool_call:name\|>(?P<name>[^<]+)<\|tool_call:args\|>",
        "<|tool_call:end|>",
    ),
)
