from __future__ import annotations

import time

import pytest

from envs.webshop.actions import MAX_ARGUMENT_LENGTH, Action, find_action, parse_action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("search[Red Shoes]", Action("search", "red shoes")),
        ("click[Buy Now]", Action("click", "buy now")),
        ("click[< Prev]", Action("click", "< prev")),
        ('click[28" x 28"]', Action("click", '28" x 28"')),
        ("click[a [b] c]", Action("click", "a [b] c")),
        ("search[a] and more", Action("search", "a")),
        ("search[ ]", Action("search", " ")),
    ],
)
def test_actions_are_read(text: str, action: Action) -> None:
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
        ("I will buy it", None),
        ("", None),
    ],
)
def test_the_action_of_a_message_is_its_last(message: str, action: Action | None) -> None:
    assert find_action(message) == action


@pytest.mark.parametrize("text", ["search[" * 50_000, "[" * 200_000, "action:" * 50_000, "search[" + "[a" * 100_000])
def test_hostile_text_takes_no_time(text: str) -> None:
    started = time.thread_time()  # the machine may be busy with something else
    find_action(text)
    parse_action(text)
    assert time.thread_time() - started < 1


def test_arguments_are_cut() -> None:
    action = parse_action(f"search[{'a' * 100_000}]")
    assert action is not None and len(action.argument) == MAX_ARGUMENT_LENGTH
