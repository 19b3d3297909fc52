from __future__ import annotations

from typing import Any

import pytest

from envs.toolbench.speech import INVALID_ACTION, NO_ACTION, read_text
from tests.growth import assert_quick


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ('Thought: x\nAction: a_for_b\nAction Input: {"q": "1"}', "a_for_b", {"q": "1"}),
        ("\nThought: \nAction: a_for_b\nAction Input: {}", "a_for_b", {}),
        ("Thought: \nAction: a_for_b\nAction Input:", "a_for_b", {}),
        ('Thought:x\nAction:a\nAction Input:\n{\n  "q": {"r": "}"}\n}\nObservation: {"z": 1}', "a", {"q": {"r": "}"}}),
        ('Thought: \nAction: a\nAction Input: {"q": "1"}\nThought: \nAction: b\nAction Input: {}', "a", {"q": "1"}),
        ('Thought: \nAction: a\nAction Input: {"q": "line\nbreak"}', "a", {"q": "line\nbreak"}),
    ],
)
def test_actions_are_read(text: str, name: str, arguments: dict[str, Any]) -> None:
    action = read_text(text)
    assert action.error is None and action.form == 1.0
    assert [(call.name, call.arguments) for call in action.calls] == [(name, arguments)]


def test_broken_objects_give_their_plain_pairs() -> None:
    action = read_text('Thought: \nAction: a\nAction Input: {"q": "one", "n": 5, "rest": [')
    assert (action.form, action.calls[0].arguments) == (0.5, {"q": "one", "n": 5})


@pytest.mark.parametrize(
    ("text", "error", "form"),
    [
        ("", NO_ACTION, 0.0),
        ("The answer is 5.", NO_ACTION, 0.0),
        ("Thought: I know.", NO_ACTION, 0.2),
        ("\nAction: a\nAction Input: {}", NO_ACTION, 0.2),
        ("Thought: \nAction Input: {}\nAction: a", NO_ACTION, 0.2),
        ("Thought: \nAction: a\nAction Input: five", INVALID_ACTION, 0.5),
        ("Thought: \nAction: a\nAction Input: [1]", INVALID_ACTION, 0.5),
        ("Thought: \nAction: \nAction Input: {}", INVALID_ACTION, 0.5),
        ("Thought: \nAction: a\nAction Input: " + "{" * 60_000, INVALID_ACTION, 0.5),
        ("Thought: \nAction: a\nAction Input: " + '"' * 1_000_000, INVALID_ACTION, 0.5),
    ],
)
def test_unreadable_texts_have_upstreams_sentences(text: str, error: str, form: float) -> None:
    action = read_text(text)
    assert (action.error, action.form, action.calls) == (error, form, ())
    assert_quick(lambda: read_text(text), 0.25)


def test_the_sentences_are_upstreams() -> None:
    start = "\nMy previous action is invalid. Please "
    assert f"{start}check the Action and Action Input format.\n" == INVALID_ACTION
    assert f"{start}provide Thought, Action, and Action Input.\n" == NO_ACTION
