"""Texts and figures as people read them, and what PostgreSQL and JSON accept of them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from webapp.common.text import (
    clean_json,
    code_marks,
    figure,
    finite,
    first_names,
    in_words,
    message_of,
    percent,
    place,
    unstorable,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, "–"), ("", "–"), (math.nan, "NaN"), (math.inf, "∞"), (-math.inf, "−∞")),
        *((0, "0.00"), (-0.0, "0.00"), (1.5, "1.50"), (-1.5, "−1.50"), (12.34, "12.3"), (1234.6, "1235")),
        *((0.001, "0.00100"), (0.000999, "9.99e-4"), (-1e-10, "−1.00e-10")),
        *((99_999, "99999"), (100_000, "1.00e5"), (1e10, "1.00e+10")),
    ],
)
def test_a_figure_has_three_digits_that_matter(value: Any, text: str) -> None:
    assert figure(value) == text


def test_a_figure_has_at_most_six_decimals() -> None:
    assert (figure(0.25, 1), figure(0.00123, 9), figure(123456.0, 6)) == ("0.2", "0.001230", "1.23456e5")


@pytest.mark.parametrize(
    ("share", "text"), [(None, "–"), (0, "0%"), (0.12345, "12.3%"), (0.5, "50%"), (1, "100%"), (0.0004, "0.04%")]
)
def test_a_share_is_a_percentage(share: float | None, text: str) -> None:
    assert percent(share) == text


def test_the_first_names_say_how_many_more_there_are() -> None:
    names = ["a", "b", "c"]
    assert [first_names(names, most) for most in (2, 3, 4)] == ["a, b and 1 more", "a, b, c", "a, b, c"]


def test_what_postgresql_and_json_refuse_is_made_visible_and_found() -> None:
    value = {"a\x00": [math.nan, math.inf, 1.5, "x\ud800"], "b": ("é", True, None)}
    assert clean_json(value) == {"a␀": [None, None, 1.5, "x\ufffd"], "b": ["é", True, None]}
    assert (finite(None), finite(0.0), finite(math.nan), finite(-math.inf)) == (None, 0.0, None, None)
    assert unstorable({"a": {"b": ["fine", "x\x00"]}}) == "a.b.1"
    assert unstorable({"a": [{"b\x00": 1}]}) == "a.0" and unstorable("\ud800") == ""
    assert unstorable({"a": ["é", 1, None]}) is None


@pytest.mark.parametrize(
    ("found", "words"),
    [
        *((None, ""), ("", ""), ("plain", "plain")),
        ({"template": "{n} row", "plural": "{n} rows", "values": {"n": 1}}, "1 row"),
        ({"template": "{n} row", "plural": "{n} rows", "values": {"n": 2}}, "2 rows"),
        ({"template": "{n} row", "plural": "{n} rows", "values": {"n": "2"}}, "2 rows"),
        ({"template": "bad", "values": {"inside": "call 1 of message 2"}}, "call 1 of message 2: bad"),
        ({"template": "{why} here", "values": {"why": {"template": "none"}}}, "none here"),
    ],
)
def test_a_sentence_of_the_library_is_read(found: Any, words: str) -> None:
    assert in_words(found) == words


def test_a_report_without_sentences_has_its_message() -> None:
    assert (message_of({"message": "old"}), message_of({})) == ("old", "")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("call 3", "call 3"),
        ("message 2 (a user)", "message 2 (user)"),
        ("arguments of call 1 of message 12 (assistant)", "arguments of call 1 of message 12 (assistant)"),
        ("column 4", "column 4"),
    ],
)
def test_a_place_in_a_row_is_named(written: str, words: str) -> None:
    assert place(written) == words


def test_names_in_a_sentence_are_code_and_its_markup_is_text() -> None:
    assert code_marks("use `a<b` or <b>") == "use <code>a&lt;b</code> or &lt;b&gt;"
