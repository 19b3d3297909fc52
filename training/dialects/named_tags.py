"""Calls as tags, one for each argument, whose values are bare text: Qwen3.5, Qwen3-Coder, Nemotron 3, GLM, MiniMax.

A value ends at its closing tag only where the call goes on as a call does behind it, so a text may hold the tag itself.
Types come from the tool's schema (``values.py``).
"""

from __future__ import annotations

import re
from typing import Any

from training.dialects.base import MAX_NAME, Tools, Unreadable, checked
from training.dialects.reading import Block, Form
from training.dialects.values import parameters_of, typed, types_of


def tagged(opening: str, argument: str, value_end: str, closing: str, mark: str, *, closing_mark: str) -> Form:
    """``opening`` is a pattern with a group ``name``, ``argument`` one with ``key``, ``value`` and maybe ``text``
    (``true`` where the value is a text whatever the schema says), ``closing`` ends a call. ``value_end`` is the tag
    that closes an argument. The two marks stand for the ends of a block in sentences and where a broken call is
    skipped."""
    pair, end, last = re.compile(argument, re.DOTALL), re.compile(closing), re.compile(value_end)

    def read(text: str, match: re.Match[str], tools: Tools | None) -> Block:
        name, at = match["name"].strip(), match.end()
        parameters = parameters_of(tools, name)
        given: dict[str, Any] = {}
        # Without a closing tag the pattern would try every character of the rest, for each broken call.
        while last.search(text, at) is not None and (found := pair.match(text, at)) is not None:
            given[found["key"].strip()] = _argument_value(found, parameters)
            at = found.end()
        closed = end.match(text, at)
        if closed is None:
            raise Unreadable(_problem(text, at, name, mark, closing_mark))
        return Block([checked(name, given)], closed.end())

    return Form(re.compile(opening), read, closing_mark, mark)


def _argument_value(found: re.Match[str], parameters: dict[str, Any]) -> Any:
    text = found["value"]
    if text.startswith("<![CDATA[") and text.endswith("]]>"):
        return text[9:-3]
    said = found.groupdict().get("text")
    types = {"string"} if said == "true" else types_of(parameters, found["key"].strip())
    return typed(text, types - {"string"} if said == "false" and len(types) > 1 else types)


def _problem(text: str, at: int, name: str, mark: str, closing: str) -> str:
    rest = text[at : at + 40].strip()
    if not rest or closing not in text[at:]:
        return f"The call of {name[:MAX_NAME]} is not closed with {closing}."
    return f'"{rest}" is no argument of the call of {name[:MAX_NAME]}; write it as {mark} shows.'


_END = r"\s*(?:</function>\s*)?</(?:seed:)?tool_call>"
XML = (
    tagged(
        r"<(?:seed:)?tool_call>\s*<function=(?P<name>[^>\n]+)>",
        r"\s*<parameter=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?</parameter>(?=\s*(?:<parameter=|</function>|</(?:seed:)?tool_call>))",
        "</parameter>",
        _END,
        "<tool_call>",
        closing_mark="</tool_call>",
    ),
)
_TAG = r"(?::[a-z]+)?"
GLM = (
    tagged(
        rf"<tool_call{_TAG}>\s*(?P<name>[^\s<>{{}}]+)\s*(?:<tool_sep{_TAG}>\s*)?(?=<arg_key|</tool_call)",
        rf"\s*<arg_key{_TAG}>(?P<key>[^<]+)</arg_key{_TAG}>\s*<arg_value{_TAG}>(?P<value>.*?)</arg_value{_TAG}>(?=\s*(?:<arg_key|</tool_call))",
        "</arg_value",
        rf"\s*</tool_call{_TAG}>",
        "<tool_call>",
        closing_mark="</tool_call>",
    ),
)
_SPACE = r"(?:[\w.-]+:|｜\w+｜)?"
INVOKE = (
    tagged(
        rf'<{_SPACE}(?:invoke|function) name="(?P<name>[^"\n]+)">',
        rf'\s*<{_SPACE}param(?:eter)? name="(?P<key>[^"\n]+)"(?: string="(?P<text>true|false)")?>(?P<value>.*?)'
        rf"</{_SPACE}param(?:eter)?>(?=\s*(?:<{_SPACE}param|</{_SPACE}(?:invoke|function)>))",
        rf"</{_SPACE}param",
        rf"\s*</{_SPACE}(?:invoke|function)>",
        "<invoke>",
        closing_mark="</invoke>",
    ),
)
