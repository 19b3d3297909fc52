"""What templates draw themselves: small lines, hidden characters, addresses of pages, weights and outcomes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from django.test import RequestFactory

from webapp.common.ui import coarse, page_address, pretty, sparkline, term, visible, weight
from webapp.common.words import Outcome, outcome_of


@pytest.mark.parametrize("values", [None, [], [1.0], [None, 1.0], [1.0, math.nan, math.inf]])
def test_one_value_makes_no_line(values: list[float | None] | None) -> None:
    assert sparkline(values) == ""


def test_a_line_is_as_high_as_its_values_and_has_gaps() -> None:
    drawn = sparkline([0.0, 10.0, None, 5.0], "Reward")
    assert 'aria-label="Reward: 0.00 → 5.00"' in drawn
    assert '<polyline points="0.0,20.0 32.0,2.0"></polyline><polyline points="96.0,11.0"></polyline>' in drawn
    assert '<polyline points="0.0,20.0 96.0,20.0"></polyline>' in sparkline([3.0, 3.0])
    assert sparkline([0.0, math.nan, 10.0]).count("<polyline") == 2 and "nan" not in sparkline([0.0, math.nan, 1.0])


def test_hidden_characters_are_shown_and_markup_is_text() -> None:
    mark = '<span class="hidden-char">U+{}</span>'
    assert visible("<b>\u202eab\x00\n\tc") == f"&lt;b&gt;{mark.format('202E')}ab{mark.format('0000')}\n\tc"
    assert visible(None) == "None" and visible("天气 é") == "天气 é"


def test_small_filters() -> None:
    assert [weight(value) for value in (0.5, 1.0, 1e-4)] == ["0.5", "1", "0.0001"]
    assert (pretty({"é": [1]}), pretty("plain")) == ('{\n  "é": [\n    1\n  ]\n}', "plain")
    assert (coarse(None), coarse(59), coarse(60)) == ("–", "59 s", "1 min")
    one, two = term("surprise"), term("surprise", "Group 1")
    assert 'popovertarget="term-surprise"' in one and 'id="term-surprise-group-1"' in two


@pytest.mark.parametrize(
    ("number", "key", "address"),
    [(2, "", "?q=a%26b&page=2&models=3"), (5, "models", "?q=a%26b&page=1&models=5"), (4, "rest", None)],
)
def test_another_page_keeps_the_filters(number: int, key: str, address: str | None) -> None:
    context: dict[str, Any] = {"request": RequestFactory().get("/?q=a%26b&page=1&models=3")}
    assert page_address(context, number, key) == (address or "?q=a%26b&page=1&models=3&rest=4")


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        *((None, Outcome.NO_VERDICT), (math.nan, Outcome.NO_VERDICT)),
        *((-0.5, Outcome.FAILED), (0.0, Outcome.FAILED), (0.001, Outcome.PARTLY), (0.999, Outcome.PARTLY)),
        *((1.0, Outcome.SOLVED), (1.5, Outcome.SOLVED)),
    ],
)
def test_a_verdict_has_a_word(verdict: float | None, outcome: Outcome) -> None:
    assert outcome_of(verdict) == outcome
