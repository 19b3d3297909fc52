"""Each dialect reads what its family of models writes, and nothing that a model writes raises."""

from __future__ import annotations

import json
import random

import pytest

from envs.wire import StepRequest
from tests.training.helpers import job_config
from training.config import Dialect, Protocol
from training.dialects import DIALECTS, ParsedTurn, dialect_name

Calls = list[tuple[str, dict[str, object]]]


def calls_of(turn: ParsedTurn) -> Calls:
    assert [call.id for call in turn.tool_calls] == [f"call_1_{n}" for n in range(len(turn.tool_calls))]
    return [(call.name, call.arguments) for call in turn.tool_calls]


@pytest.mark.parametrize(
    ("text", "content", "calls", "error"),
    [
        (
            '\nThought: I look.\nAction: code_for_x\nAction Input: {"a": {"b": "}"}}',
            "I look.",
            [("code_for_x", {"a": {"b": "}"}})],
            None,
        ),
        (
            'Thought: \nAction: f\nAction Input: {\n  "q": "technology"\n}\nObservation: {"x": 1}\nThought: more',
            "",
            [("f", {"q": "technology"})],
            None,
        ),
        ("Action: f\nAction Input:", "", [("f", {})], None),
        ("Action: f\nAction Input: \n{}\n", "", [("f", {})], None),
        (
            'Thought: a\nAction: Finish\nAction Input: {"return_type": "give_up_and_restart"}',
            "a",
            [("Finish", {"return_type": "give_up_and_restart"})],
            None,
        ),
        ("Thought: only that", "only that", [], "no Action:"),
        ("Thought: a\nAction: f", "a", [], "no Action Input:"),
        ("Thought: a\nAction:\nAction Input: {}", "a", [], "no name"),
        ("Action: f\nAction Input: {'a': 1}", "", [], "not valid JSON"),
        ("Action: f\nAction Input: [1]", "", [], "not a JSON object"),
        ("Action: f\nAction Input: " + '{"a":' * 60 + "1" + "}" * 60, "", [], "nested deeper"),
        ("", "", [], "no Action:"),
    ],
)
def test_toolbench(text: str, content: str, calls: Calls, error: str | None) -> None:
    turn = DIALECTS["toolbench"](text, "call_1_")
    assert (turn.text, calls_of(turn)) == (content, calls)
    assert (turn.parse_error is None) == (error is None) and (error or "") in (turn.parse_error or "")


@pytest.mark.parametrize(
    ("text", "content", "calls", "error"),
    [
        (
            "[cd(folder='Drafts'), rm(file_name=\"a]b\")]",
            "",
            [("cd", {"folder": "Drafts"}), ("rm", {"file_name": "a]b"})],
            None,
        ),
        (
            "[GorillaFileSystem.ls(a=True, n=-3, x=1.5, l=[1, (2, 3)], d={'k': null}, s=none)]",
            "",
            [("GorillaFileSystem.ls", {"a": True, "n": -3, "x": 1.5, "l": [1, [2, 3]], "d": {"k": None}, "s": None})],
            None,
        ),
        ("ls()", "", [("ls", {})], None),
        ("```\n[ls()]\n```", "```", [("ls", {})], None),
        ("<think>[no(call=1)]</think>\n[ls()]", "", [("ls", {})], None),
        ("Here you are: [ls(a=1)] Good?", "Here you are:\nGood?", [("ls", {"a": 1})], None),
        ("The directory is empty.", "The directory is empty.", [], None),
        ("[]", "[]", [], None),
        ("See [1] and f(x).", "See [1] and f(x).", [], None),
        ("[ls('x')]", "", [], "without a name"),
        ("[ls(**{'a': 1})]", "", [], "unpacks"),
        ("[ls(a=__import__('os').system('id'))]", "", [], "not a plain value"),
        ("[ls(a=1e999)]", "", [], "not a plain value"),
        ("[ls(a=b'x')]", "", [], "not a plain value"),
        ("[ls(a={1: 2})]", "", [], "not a plain value"),
        ("[ls(a=1", "", [], "cannot be read"),
        ("[ls(), 3]", "", [], "not a call"),
        ("[" + "ls()," * 65 + "]", "", [], "More than 64"),
        ("[ls(a=" + "[" * 90 + "]" * 90 + ")]", "", [], ""),
        ("[ls(a=" + "-" * 5000 + "1)]", "", [], ""),
        ("[ls(a='\\d')]", "", [("ls", {"a": "\\d"})], None),
        ("[ls(a='" + "x" * 70_000 + "')]", "", [], "too long"),
        ("[ls(a='\x00')]", "", [], "cannot be read"),
        ("[ls(a='\\ud800')]", "", [], "surrogate"),
    ],
)
def test_bfcl(text: str, content: str, calls: Calls, error: str | None) -> None:
    turn = DIALECTS["bfcl"](text, "call_1_")
    assert (turn.text, calls_of(turn)) == (content, calls)
    assert (turn.parse_error is None) == (error is None) and (error or "") in (turn.parse_error or "")


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("search[red shoes]", "", [("search", {"keywords": "red shoes"})]),
        (
            "Thought:\nI buy.\n\nAction:\nclick[Buy Now]",
            "Thought:\nI buy.\n\nAction:",
            [("click", {"value": "Buy Now"})],
        ),
        ("search[a] or click[b]", "search[a] or", [("click", {"value": "b"})]),
        ("click[a]\nAction: search[b] then", "click[a]\nAction:", [("search", {"keywords": "b"})]),
        ("click[a]\nAction: none", "", [("click", {"value": "a"})]),
        ("click[size [xl]]", "", [("click", {"value": "size [xl]"})]),
        ("search[]", "search[]", []),
        ("I do nothing.", "I do nothing.", []),
    ],
)
def test_webshop(text: str, content: str, calls: Calls) -> None:
    turn = DIALECTS["webshop"](text, "call_1_")
    assert (turn.text, calls_of(turn), turn.parse_error) == (content, calls, None)


def test_text_is_a_message_whatever_it_holds() -> None:
    text = '<tool_call>{"name": "a"}</tool_call> [ls()] search[x]'
    assert DIALECTS["text"](f" {text}\n", "c") == ParsedTurn(text)


PIECES = [
    "Thought:",
    "\nAction:",
    "\nAction Input:",
    "search[",
    "click[",
    "]",
    "[",
    "ls(",
    ")",
    "a=",
    "{",
    "}",
    '"',
    "'",
    "\\",
    "\n",
    "```",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "1e999",
    "NaN",
    "\x00",
    "\ud800",
    "é",
    "lambda: 0",
    "**",
    ",",
    ":",
    "0" * 5000,
    "((((",
    "x.y",
    "f'{",
    "\\N{",
    "…",
    " " * 50,
]


@pytest.mark.parametrize("name", DIALECTS)
def test_nothing_that_a_model_writes_raises(name: str) -> None:
    dice = random.Random(7)
    for length in [1, 3, 10, 40] * 500:
        text = "".join(dice.choice(PIECES) for _ in range(length))
        turn = DIALECTS[name](text, "c")
        StepRequest(tool_calls=turn.tool_calls, parse_error=turn.parse_error).model_dump_json()
        json.dumps([call.arguments for call in turn.tool_calls], allow_nan=False).encode()
    for text in [
        "[" * 100_000,
        "(" * 100_000,
        "[f(" * 20_000,
        "Action: a\nAction Input: " + "[" * 100_000,
        "search[" * 20_000,
        "[a(b=" + "1+" * 20_000 + "1)]",
        "Action:" * 20_000,
    ]:
        DIALECTS[name](text, "c")


@pytest.mark.parametrize(
    ("protocol", "dialect", "url", "expected"),
    [
        ("openenv", "auto", "http://x", "hermes"),
        ("openenv-mcp", "auto", "http://x", "hermes"),
        ("virtual", "auto", "http://x", "hermes"),
        ("mcp", "auto", "http://x", "hermes"),
        ("agentgym", "auto", "http://x", "text"),
        ("openenv-text", "auto", "http://x", "text"),
        ("agentgym", "auto", "", "hermes"),
        ("agentgym", "webshop", "http://x", "webshop"),
        ("virtual", "toolbench", "http://x", "toolbench"),
    ],
)
def test_the_dialect_follows_the_environment_unless_it_is_chosen(
    protocol: Protocol, dialect: Dialect, url: str, expected: str
) -> None:
    config = job_config(environment={"protocol": protocol, "url": url}, rollout={"dialect": dialect})
    assert dialect_name(config) == expected
