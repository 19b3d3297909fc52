"""An address says a view, and a view says its address."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from django.http import QueryDict

from webapp.reading.inspector.filters import CHOICES, MEASURES, SORTS, Span, filters_of, without


def read(query: str) -> str:
    """What an address becomes once it was read."""
    return urlencode(filters_of(QueryDict(query)).pairs())


@pytest.mark.parametrize(
    ("query", "written"),
    [
        ("", ""),
        ("q=+9+*+5++", "q=9+%2A+5"),
        ("outcome=failed&outcome=partly&outcome=failed", "outcome=failed&outcome=partly"),
        ("tool=calculator&q=x&sort=-reward", "q=x&tool=calculator&sort=-reward"),
        ("reward_from=0.2&reward_below=.5&turns_to=3", "reward_from=0.2&reward_below=0.5&turns_to=3"),
        ("part_tool_call_below=1&step_from=2", "step_from=2&part_tool_call_below=1"),
        ("truncated=no&held_out=yes&lost=yes&stage=2", "truncated=no&held_out=yes&stage=2&lost=yes"),
        ("category=easy&category=hard", "category=hard"),  # one value: the last counts
        ("reward_from=&tool=&outcome=&sort=", ""),
        ("page=3&utm=x&part_Bad_from=1&nothing_from=1", ""),
        ("sort=-step", ""),
    ],
)
def test_an_address_is_read_and_written_in_one_order(query: str, written: str) -> None:
    assert read(query) == written and read(written) == written
    assert not filters_of(QueryDict(query)).problems


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("outcome=won", "Outcome: there is no “won”."),
        ("truncated=maybe", "Truncated: there is no “maybe”."),
        ("stage=two", "Stage: there is no “two”."),
        ("sort=luck", "There is no order “luck”."),
        ("reward_from=high", "reward_from: “high” is not a number."),
        ("reward_to=nan", "reward_to: “nan” is not a number."),
        ("turns_from=1e400", "turns_from: “1e400” is not a number."),
    ],
)
def test_what_cannot_be_read_is_reported_and_left_out(query: str, problem: str) -> None:
    filters = filters_of(QueryDict(query))
    assert filters.problems == (problem,) and filters.pairs() == []


def test_a_filter_is_taken_off() -> None:
    filters = filters_of(QueryDict("q=a&outcome=failed&reward_from=0&reward_to=1&part_x_below=2"))
    assert filters.spans == {"reward": Span(0, 1), "part_x": Span(below=2)}
    assert urlencode(without(filters, ["reward"])) == "q=a&outcome=failed&part_x_below=2"
    assert urlencode(without(filters, ["outcome", "q"])) == "reward_from=0&reward_to=1&part_x_below=2"


def test_names_are_of_one_kind_each() -> None:
    names = [*CHOICES, *MEASURES]
    assert len(set(names)) == len(names) and not any(name.startswith("part_") for name in names)
    assert all(sort.column in {item.column for item in MEASURES.values()} for sort in SORTS.values())
