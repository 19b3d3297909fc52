from __future__ import annotations

import random
import re

import pytest

from envs.webshop.session import MAX_ARGUMENT_LENGTH, Action, find_action, parse_action
from tests.growth import assert_quick


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("search[Red Shoes]", Action("search", "red shoes")),
        ("click[Buy Now]", Action("click", "buy now")),
        ("click[< Prev]", Action("click", "< prev")),
        ('click[28" x 28"]', Action("click", '28" x 28"')),
        ("search[a] and more", Action("search", "a")),
        ("search[ ]", Action("search", " ")),
        ("search[a]b]", Action("search", "a]b")),
        ("search[a]\nclick[b]", Action("search", "a")),
        ("search[[]", Action("search", "[")),
        # As upstream: its expression takes the last opening bracket.
        ("search[x] and click[y]", None),
        ("search[a [b] c]", None),
        ("click[a [b] c]", None),
        ("search[a[]", Action("search", "a[")),
    ],
)
def test_actions_are_read(text: str, action: Action | None) -> None:
    assert parse_action(text) == action


@pytest.mark.parametrize(
    "text",
    [
        "",
        "search[]",
        "click[]",
        "search",
        "Search[a]",
        "CLICK[a]",
        " click[a]",
        "buy[a]",
        "search(a)",
        "search[a",
        "[a]",
    ],
)
def test_everything_else_is_no_action(text: str) -> None:
    assert parse_action(text) is None


@pytest.mark.parametrize(
    ("message", "action"),
    [
        ("Thought:\nI look.\n\nAction:\nclick[B0A]", Action("click", "b0a")),
        ("I could search[x].\nAction: click[y]", Action("click", "y")),
        ("Action: search[x]\nObservation: ...\nAction: click[y]", Action("click", "y")),
        ("first search[x], then click[y]", Action("click", "y")),
        ("Action: hm\nsearch[x]", Action("search", "x")),
        ("search[x]\nAction: buy", Action("search", "x")),
        ("**Action:** Search[Blue]", Action("search", "blue")),
        ("Action: click[a [b] c]", Action("click", "a [b] c")),
        ("I will buy it", None),
        ("", None),
    ],
)
def test_the_action_of_a_message_is_its_last(message: str, action: Action | None) -> None:
    assert find_action(message) == action


def upstream_action(text: str) -> Action | None:
    """``parse_action`` of WebShop's engine and the rules of its text environment, word for word."""
    match = re.match(r"(.+)\[(.+)\]", text)
    name, argument = match.groups() if match else (text, None)
    if name not in ("search", "click") or argument is None:
        return None
    return Action("search" if name == "search" else "click", argument.lower())


def test_every_text_is_read_as_upstream_reads_it() -> None:
    """``search[x] and click[y]`` and ``search[a [b] c]`` acted here and not there."""
    pieces = [
        "search",
        "click",
        "[",
        "]",
        "a",
        "B",
        "\n",
        "\r",
        " ",
        "search[",
        "click[",
        "x]",
        " and ",
        "[b]",
        "Search[",
    ]
    draw = random.Random(1)
    read = 0
    for _ in range(20_000):
        text = draw.choice(["", "search[", "click["]) + "".join(draw.choices(pieces, k=draw.randint(1, 8)))
        assert parse_action(text) == upstream_action(text), text
        read += upstream_action(text) is not None
    assert read > 1000


@pytest.mark.parametrize("text", ["search[" * 50_000, "[" * 200_000, "action:" * 50_000, "search[" + "[a" * 100_000])
def test_hostile_text_takes_no_time(text: str) -> None:
    assert_quick(lambda: (find_action(text), parse_action(text)), 0.5)


def test_arguments_are_cut() -> None:
    action = parse_action(f"search[{'a' * 100_000}]")
    assert action is not None and len(action.argument) == MAX_ARGUMENT_LENGTH


def test_of_a_very_long_message_the_end_is_read() -> None:
    assert find_action("search[a] " + "b" * 60_000) == Action("search", "a")
    assert find_action("search[a] " + "b" * 70_000) is None
    assert find_action("b" * 300_000 + " click[c]") == Action("click", "c")
