"""Figures of an evaluation by hand: tries are averaged by task, and what is missing stays missing."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from training.evaluation.comparisons import Interval
from training.evaluation.figures import Sheet, Try, evaluation_of, sheet_of
from training.journal import Journal, RolloutFinished, RolloutStarted

TRIES = [
    Try(3, False, 1.0, 0.9, {"a": 1.0, "b": None}, turns=2, tokens=10, parse_errors=1, calls=4, failed_calls=1),
    Try(3, False, 0.0, 0.1, {"a": 0.0, "b": 0.5}, turns=4, tokens=30, truncated=True),
    Try(5, False, 1.0, 1.0, {"a": 1.0}, turns=1, tokens=20, calls=2),
    Try(5, True),
    Try(7, True),
    Try(7, True),
]


@pytest.fixture
def sheet() -> Sheet:
    return sheet_of(TRIES, [7, 3, 5, 9])


def test_a_task_is_the_mean_of_its_tries_that_count(sheet: Sheet) -> None:
    assert sheet.tasks == [7, 3, 5, 9]
    assert list(sheet.tries) == [0, 2, 1, 0] and list(sheet.excluded) == [2, 0, 1, 0] and sheet.missing == 2
    for name, values in {
        "success": [None, 0.5, 1.0, None],
        "reward": [None, 0.5, 1.0, None],
        "rewards/a": [None, 0.5, 1.0, None],
        "rewards/b": [None, 0.5, None, None],
        "turns": [None, 3.0, 1.0, None],
        "tokens": [None, 20.0, 20.0, None],
        "parse_errors": [None, 0.25, 0.0, None],
        "tool_errors": [None, 0.25, 0.0, None],
        "truncated": [None, 0.5, 0.0, None],
        "pass@1": [None, 0.5, 1.0, None],
        "pass^1": [None, 0.5, 1.0, None],
        "pass@2": [None, 1.0, None, None],
        "pass^2": [None, 0.0, None, None],
    }.items():
        expected = np.array([math.nan if value is None else value for value in values])
        np.testing.assert_allclose(sheet.of(name), expected, err_msg=name)
    assert set(sheet.columns).isdisjoint({"cost", "pass@3"}) and np.isnan(sheet.of("cost")).all()


def test_intervals_leave_out_what_is_missing(sheet: Sheet) -> None:
    found = sheet.intervals()
    assert found["success"].value == 0.75 and found["success"].tasks == 2
    assert found["rewards/b"] == Interval(0.5, None, None, 1)


def test_part_of_the_tasks(sheet: Sheet) -> None:
    part = sheet.only(np.array([True, False, True, False]))
    assert part.tasks == [7, 5] and part.missing == 1 and part.intervals()["success"].value == 1.0


def test_nothing_played_is_nothing() -> None:
    empty = sheet_of([], [1, 2])
    assert empty.columns == {} and empty.intervals() == {} and empty.missing == 2
    assert sheet_of([]).tasks == [] and sheet_of([]).missing == 0


def test_of_a_step_that_two_attempts_played_the_later_one_counts(tmp_path: Path) -> None:
    for attempt, solved in (("1", (0.0, 0.0)), ("2", (1.0,))):
        journal = Journal(tmp_path / attempt)
        for index, success in enumerate(solved):
            name = f"{attempt}.{index}"
            journal.write(RolloutStarted(rollout=name, step=1, group=0, index=index, row=4))
            journal.write(RolloutFinished(rollout=name, status="completed", env_parts={"task_success": success}))
        journal.close()
    report = evaluation_of([tmp_path / "1", tmp_path / "2"], [4])
    assert (report.tries, report.figures["success"].value) == (2, 0.5)
