"""Verdicts, records and notes of a suite's board, of scores that are written here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from training.evaluation import Interval
from webapp.evaluation.suites.models import SuiteEvaluation, SuiteVersion
from webapp.evaluation.suites.services import (
    Line,
    PartResult,
    _baselines_of,
    _notes_of,
    _score_records,
    _verdict_text,
    may_play,
    title_of_contestant,
)
from webapp.runs.models import Run

DAY = datetime(2026, 3, 1, tzinfo=UTC)


def line(title: str, value: float | None = None, *, day: int = 0, runs: tuple[Run | None, ...] = ()) -> Line:
    evaluation = SuiteEvaluation(contestant=title, created_at=DAY + timedelta(days=day))
    parts = [PartResult(f"part {number}", 1.0, run, None, None) for number, run in enumerate(runs)]
    score = Interval(value, None, None, 4) if value is not None else None
    return Line(evaluation, title, parts, score, None, [])


@pytest.mark.parametrize(
    ("gain", "p", "text"),
    [
        (0.125, 0.05, "−12.5 points to the first, p = 0.05"),
        (-0.125, 0.05, "+12.5 points to the first, p = 0.05"),
        (0.125, 0.051, "apart from the first (−12.5 points, p = 0.051)"),
        (0.125, None, "apart from the first (−12.5 points, p –)"),
        (None, 0.01, "played other tasks than the first, so they are not compared"),
    ],
)
def test_the_distance_to_the_first_is_called_one_up_to_five_percent(gain: float | None, p: Any, text: str) -> None:
    score: Any = SimpleNamespace(difference=Interval(gain, None, None, 4), p_value=p)
    assert _verdict_text(score, p).endswith(text)


def test_only_a_higher_score_than_all_before_is_a_record() -> None:
    lines = [
        line("d", 0.6, day=3),
        line("a", 0.5, day=0),
        line("c", 0.4, day=2),
        line("b", 0.5, day=1),
        line("e", 0.55, day=4),
    ]
    assert [(best.title, best.value, best.at) for best in _score_records(lines)] == [
        ("a", 0.5, DAY),
        ("d", 0.6, DAY + timedelta(days=3)),
    ]


def test_simple_policies_are_shown_for_a_suite_of_one_part() -> None:
    one, two = Run(baselines=[{"policy": "empty"}]), Run(baselines=[{"policy": "one_tool"}])
    assert _baselines_of([line("a", runs=(one,)), line("b", runs=(two,))]) == [{"policy": "empty"}]
    assert _baselines_of([line("a", runs=(one, two))]) == []
    assert _baselines_of([line("a", runs=(one, None))]) == [], "one of two was deleted"
    assert _baselines_of([line("a", runs=(None,)), line("b", runs=(two,))]) == [{"policy": "one_tool"}]
    assert _baselines_of([line("a", runs=(Run(baselines=None),))]) == []


@pytest.mark.parametrize(
    ("before", "then", "noted"),
    [
        ({"version": "1"}, {"version": "2"}, True),
        ({"version": "1"}, {"version": "1"}, False),
        ({}, {"version": "2"}, False),
        ({"version": "1"}, {}, False),
        ({"version": "1"}, None, False),
    ],
)
def test_another_version_of_an_environment_is_noted_where_both_are_known(before: Any, then: Any, noted: bool) -> None:
    version = SuiteVersion(parts=[{"title": "a"}, {"title": "b", "environment": before}])
    servers = [{"version": "0"}] if then is None else [{"version": "0"}, then]
    parts = line("x", runs=(Run(state="running"), Run(state="running"))).parts
    text = "part 1 was played on version 2 of its environment; the suite was made on 1."
    assert _notes_of(version, SuiteEvaluation(environments=servers), parts) == ([text] if noted else [])


def test_a_part_without_a_result_says_why() -> None:
    states = ("queued", "failed", "cancelled")
    parts = line("x", runs=(None, *(Run(state=state) for state in states))).parts
    version = SuiteVersion(parts=[{"title": "a"}] * 4)
    assert _notes_of(version, SuiteEvaluation(), parts) == [
        "The run of part 0 was deleted.",
        "part 2 has no result: its run is failed.",
        "part 3 has no result: its run is cancelled.",
    ]


@pytest.mark.parametrize(
    ("reference", "plays"),
    [
        ("starter", True),
        ("model:a", True),
        ("run:a", True),
        ("endpoint:a", True),
        ("policy:empty", True),
        ("policy:unheard", False),
        ("model:", False),
        ("dataset:a", False),
        ("a", False),
        ("", False),
    ],
)
def test_what_has_the_form_of_a_contestant(reference: str, plays: bool) -> None:
    assert may_play(reference) is plays


@pytest.mark.parametrize(
    ("reference", "title"),
    [("model:a", "a"), ("run:b", "b"), ("endpoint:c", "c (endpoint)"), ("policy:odd", "policy: odd"), ("x", "x")],
)
def test_how_a_table_names_a_contestant(reference: str, title: str) -> None:
    assert title_of_contestant(reference) == title
