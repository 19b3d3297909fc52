"""General components: matches, budgets, repetition, language; patterns and schemas that want to hang."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest

from training.errors import RewardTimeout
from training.rewards import patterns
from training.rewards.patterns import found, matches, pattern_problem, schema_problem
from training.rewards.scoring import COMPONENTS
from training.rewards.text import first_number, numbers

from .episodes import episode, says, score, tool


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,053", [1053.0]),
        ("1,05", [1.0, 5.0]),
        ("$12.50 and 40%", [12.5, 40.0]),
        ("-3 −4 +5", [-3.0, -4.0, 5.0]),
        ("有25个，共3.5元", [25.0, 3.5]),
        ("答案是1,053。", [1053.0]),
        ("é3 _4", []),
        ("1e3", [1000.0]),
        ("1e999", []),
        ("v2 a1", []),
        ("3.14.15", [3.14]),
        ("", []),
        ("1234567", [1234567.0]),
    ],
)
def test_numbers(text: str, expected: list[float]) -> None:
    assert numbers(text) == expected
    assert first_number(text) == (expected[0] if expected else None)


@pytest.mark.parametrize(
    ("text", "answer", "params", "expected"),
    [
        ("Paris", "paris", {}, 1.0),
        (" new \n york ", "New York", {}, 1.0),
        ("Paris!", "Paris", {}, 0.0),
        ("Paris!", "Paris", {"ignore_punctuation": True}, 1.0),
        ("So: Answer: 4, Answer: 5", "5", {"marker": "Answer:"}, 1.0),
        ("5", "5", {"marker": "Answer:"}, 0.0),
        ("5", 5, {}, 1.0),
        ("b", ["a", "b"], {}, 1.0),
        ("b", None, {}, None),
        ("b", {"x": 1}, {}, None),
        ("b", [], {}, None),
    ],
)
def test_exact(text: str, answer: Any, params: dict[str, Any], expected: float | None) -> None:
    assert score("exact_match", episode("q", says(text), row={"answer": answer}), **params) == expected


@pytest.mark.parametrize(
    ("text", "answer", "params", "expected"),
    [
        ("it is 5", "5", {}, 1.0),
        ("5 or 6", "5", {}, 0.0),
        ("1,053.0", 1053, {}, 1.0),
        ("3.14", "3.14159", {"tolerance": 0.01}, 1.0),
        ("101", "100", {"relative": 0.02}, 1.0),
        ("five", "5", {}, 0.0),
        ("72", "so\n#### 72", {}, 1.0),
        ("5", "five", {}, None),
        ("5", True, {}, None),
        ("5", float("nan"), {}, None),
    ],
)
def test_numeric(text: str, answer: Any, params: dict[str, Any], expected: float | None) -> None:
    assert score("numeric_match", episode("q", says(text), row={"answer": answer}), **params) == expected


def test_an_episode_that_ends_in_a_call_has_no_answer() -> None:
    called = episode("q", says("42", "a"), tool("x", "a"), row={"answer": "42"})
    assert score("exact_match", called) == 0.0 and score("numeric_match", called) == 0.0


@pytest.mark.parametrize(
    "pattern",
    [
        "(a{9999}){9999}",
        "(?:(?:(?:a{50}){50}){50}){50}",
        "[a-z]{65535}",
        "(?R)",
        "(a)(?1)",
        r"\L<x>",
        "(?:abc){e<=2}",
        "(",
        "x" * 501,
        "a{2,1}",
        "(?P>x)",
    ],
)
def test_patterns_that_cost_too_much_are_refused(pattern: str) -> None:
    began = time.monotonic()
    assert pattern_problem(pattern)
    with pytest.raises(ValueError, match=r"pattern|allowed|repetitions"):
        COMPONENTS["regex_match"].params.model_validate({"pattern": pattern})
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("pattern", [r"^\d{1,4}$", "a{3}b{4}", "(?i)yes|no", "天气.{0,20}晴", r"(?<=\$)\d+", "[{}]"])
def test_usual_patterns_are_fine(pattern: str) -> None:
    assert pattern_problem(pattern) is None


def test_a_pattern_that_runs_away_is_stopped_and_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert patterns.LIMIT_S == 1.0
    monkeypatch.setattr(patterns, "LIMIT_S", 0.2)
    began = time.monotonic()
    with pytest.raises(RewardTimeout, match=r"longer than 0\.2 s"):
        found("(a+)+$", "a" * 5000 + "b")
    assert 0.15 < time.monotonic() - began < 2


OBJECT = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"city": "Rome"}', True),
        ('```json\n{"city": "Rome"}\n```', True),
        ('{"city": 3}', False),
        ("{}", False),
        ("[]", False),
        ("", False),
        ('{"city": "Rome"', False),
        ('{"city": NaN}', False),
        ("[" * 100_000, False),
        ('{"city": "Rome", "x": ' + "[" * 70 + "]" * 70 + "}", False),
        ('{"city": "' + "x" * 100_001 + '"}', False),
        (json.dumps({"city": "Rome", "x": list(range(20_000))}), False),
    ],
)
def test_schema(text: str, expected: bool) -> None:
    assert matches(json.dumps(OBJECT), text) is expected


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("nope", "not valid JSON"),
        ("[]", "not a JSON object"),
        ('{"type": 3}', "no JSON schema"),
        ('{"$ref": "http://169.254.169.254/x"}', "outside"),
        ('{"items": [{"$ref": "file:///etc/passwd"}]}', "outside"),
        ('{"pattern": "(?R)"}', "not allowed"),
        ('{"patternProperties": {"(a{999}){999}": {}}}', "repetitions"),
        ('{"patternProperties": {"a": {}}, "additionalProperties": false}', "not supported"),
        ("[" * 19_000, "not valid JSON"),
        ('{"a": "' + "x" * 20_000 + '"}', "more than"),
    ],
)
def test_schemas_that_are_refused(schema: str, words: str) -> None:
    assert words in (schema_problem(schema) or "")


def test_a_schema_never_opens_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(ValueError, match="outside itself"):
        matches('{"$ref": "http://127.0.0.1:9/x"}', "{}")
    assert matches('{"$defs": {"x": {"type": "integer"}}, "$ref": "#/$defs/x"}', "3")


def test_patterns_of_schemas_are_stopped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "LIMIT_S", 0.2)
    assert matches('{"type": "string", "pattern": "^a+$"}', '"aaa"')
    assert not matches('{"patternProperties": {"^n": {"type": "integer"}}}', '{"no": "x"}')
    with pytest.raises(RewardTimeout):
        matches('{"type": "string", "pattern": "(a+)+$"}', json.dumps("a" * 5000 + "b"))


@pytest.mark.parametrize(
    ("length", "expected"), [(0, 0.0), (5, 0.5), (10, 1.0), (20, 1.0), (30, 0.5), (40, 0.0), (99, 0.0)]
)
def test_length_budget(length: int, expected: float) -> None:
    played = episode("q", says("x" * length))
    assert score("length_budget", played, min_chars=10, max_chars=20, zero_chars=40) == pytest.approx(expected)


def test_length_budget_of_all_texts_and_its_bounds() -> None:
    played = episode("q", says("x" * 9), says("x" * 10))
    assert score("length_budget", played, min_chars=20, max_chars=21, zero_chars=40, scope="all") == 1.0
    with pytest.raises(ValueError, match="must rise"):
        score("length_budget", played, min_chars=30, max_chars=20, zero_chars=40)


@pytest.mark.parametrize(("calls", "expected"), [(0, 1.0), (2, 1.0), (3, 0.75), (6, 0.0), (9, 0.0)])
def test_tool_call_budget(calls: int, expected: float) -> None:
    assert score("tool_call_budget", episode("q", says("", *("abc" * calls)[:calls])), max_calls=2) == expected


def test_repetition_in_words_and_in_chinese() -> None:
    assert score("repetition", episode("q", says("go " * 100)), ngram=2) == pytest.approx(1 / 99)
    assert score("repetition", episode("q", says("天气" * 50)), ngram=2) == pytest.approx(2 / 99)
    assert score("repetition", episode("q", says("one two three"))) == 1.0
    assert score("repetition", episode("q", says(""))) == 1.0


def test_language() -> None:
    assert score("language", episode("q", says("今天天气很好"))) == 1.0
    assert score("language", episode("q", says("the weather is fine")), language="en") == 1.0
    assert score("language", episode("q", says("42")), no_text_score=0.5) == 0.5
