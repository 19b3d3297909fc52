"""Calls as tags, one for each argument, whose values are bare text: Qwen3.5, Qwen3-Coder, Nemotron 3, GLM, MiniMax.

A value ends at its closing tag only where the call continues behind it, so a text may hold the tag itself.
Types come from the tool's schema.
"""

from __future__ import annotations

import re
from typing import Any

from training.dialects.base import MAX_NAME, Tools, Unreadable, checked, json_decoder
from training.dialects.reading import Block, Form
from training.plain import LiteralError, literal

# Values of arguments that a dialect writes as bare text, typed by the tool's own schema.
#
# ``<parameter=id>75001</parameter>`` may be a text or a number: only the schema says. Without one, what reads as JSON
# of another type than a text is that, and everything else is a text.

_WORDS = {"True": True, "False": False, "None": None}
"""How templates that print a value with Python's ``str`` write these."""
MAX_DEPTH = 8
_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def parameters_of(tools: Tools | None, name: str) -> dict[str, Any]:
    """The JSON schema of a tool's arguments; empty where the tool is not offered or declares none."""
    for tool in tools or []:
        inner = tool.get("function") if isinstance(tool.get("function"), dict) else tool
        if isinstance(inner, dict) and inner.get("name") == name:
            schema = inner.get("parameters", inner.get("input_schema"))
            return schema if isinstance(schema, dict) else {}
    return {}


def types_of(parameters: dict[str, Any], key: str) -> set[str]:
    """JSON types that a parameter may have; empty where its schema does not say."""
    properties = parameters.get("properties")
    return _types(properties.get(key) if isinstance(properties, dict) else None, parameters, 0)


def typed(text: str, types: set[str]) -> Any:
    """The value that ``text`` spells. Raises ``Unreadable`` for a number that is not finite."""
    if types == {"string"}:
        return text
    found, value = _parse_literal(text.strip(), may_be_text="string" in types or not types)
    if not found:
        return text
    if not types:
        return text if isinstance(value, str) else value
    kind = "null" if value is None else _TYPES[type(value)]
    fits = kind in types or (kind == "integer" and "number" in types)
    return value if fits or "string" not in types else text


def _parse_literal(text: str, *, may_be_text: bool) -> tuple[bool, Any]:
    """Whether it is a JSON value, or one as Python prints it, and that value."""
    try:
        return True, json_decoder.decode(text)
    except (ValueError, RecursionError) as exc:
        if not may_be_text and "is not JSON" in str(exc):  # NaN or infinity
            raise Unreadable(f"A value cannot be used: {str(exc)[:80]}.") from exc
    if text in _WORDS:
        return True, _WORDS[text]
    if text[:1] in ("[", "{"):
        return _printed(text)
    return False, None


def _printed(text: str) -> tuple[bool, Any]:
    """A list or mapping as Python prints it."""
    try:
        value = literal(text)
    except LiteralError:
        return False, None
    return isinstance(value, list | dict), value


def _types(schema: Any, root: dict[str, Any], depth: int) -> set[str]:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return set()
    if isinstance(ref := schema.get("$ref"), str):
        return _types(_at(root, ref), root, depth + 1)
    found: set[str] = set()
    kind = schema.get("type")
    found.update(item for item in (kind if isinstance(kind, list) else [kind]) if isinstance(item, str))
    for name in ("anyOf", "oneOf", "allOf"):
        options = schema.get(name)
        for option in options if isinstance(options, list) else []:
            found |= _types(option, root, depth + 1)
    if not found:
        values = schema.get("enum")
        given = [*(values if isinstance(values, list) else []), *([schema["const"]] if "const" in schema else [])]
        found = {"null" if value is None else _TYPES.get(type(value), "object") for value in given}
    if schema.get("nullable") is True and found:
        found.add("null")
    return found


def _at(root: dict[str, Any], ref: str) -> Any:
    """The target of a local ``$ref``."""
    place: Any = root
    for part in ref.removeprefix("#/").split("/") if ref.startswith("#/") else [""]:
        place = place.get(part) if isinstance(place, dict) else None
    return place


def tagged(opening: str, argument: str, value_end: str, closing: str, mark: str, *, closing_mark: str) -> Form:
    """``opening`` is a pattern with a group ``name``, ``argument`` one with ``key``, ``value`` and maybe ``text``
    (``true`` where the value is a text whatever the schema says), ``closing`` ends a call. ``value_end`` is the tag
    that closes an argument. The two marks name the ends of a block in sentences and where a broken call is
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
    is_text = found.groupdict().get("text")
    types = {"string"} if is_text == "true" else types_of(parameters, found["key"].strip())
    return typed(text, types - {"string"} if is_text == "false" and len(types) > 1 else types)


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
