"""Judges over recorded rollouts: asked only on request, several at once, and not without end where they fail."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.rewards.test_judge import Judge, judge
from training.config import RewardComponent
from training.rewards.base import played, says
from training.rewards.lab import scoring
from training.rewards.lab.scoring import GIVE_UP_AFTER, score_set
from training.rewards.lab.table import KNOWN, UNKNOWN, Column, Table, column_of, table_load
from training.rewards.lab.writing import Recorded, SetWriter

__all__ = ["judge"]
COUNT = 40
LENGTH = RewardComponent(name="length_budget", weight=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Rollouts whose answers differ, so that each is asked about by itself."""
    with SetWriter(tmp_path / "set") as writer:
        for number in range(COUNT):
            episode = played(
                f"What is {number}?", says(f"It is {number}."), row={"category": "a" if number % 2 else "b"}
            )
            writer.add(Recorded(uuid.uuid4(), group=number), episode)
        writer.finish()
    return tmp_path / "set"


def judged(judge: Judge, **more: Any) -> RewardComponent:
    params = {"url": judge.url, "model": "m", "attempts": 1, "timeout_s": 5, **more}
    return RewardComponent(name="judge", weight=1, params=params)


def column(folder: Path, item: RewardComponent) -> tuple[Table, Column]:
    table = table_load(folder)
    return table, column_of(table, item)


def test_a_judge_is_asked_only_on_request(folder: Path, judge: Judge) -> None:
    item = judged(judge)
    score_set(folder, [item, LENGTH])
    assert not judge.asked and (column(folder, item)[1].code == UNKNOWN).all()
    assert (column(folder, LENGTH)[1].code == KNOWN).all()
    score_set(folder, [item, LENGTH], ask=True)
    assert len(judge.asked) == COUNT and (column(folder, item)[1].value == 0.8).all()


def test_as_many_are_asked_at_once_as_it_allows_and_each_gets_its_own_mark(folder: Path, judge: Judge) -> None:
    judge.delay_s = 0.03
    item = judged(judge, concurrency=4)
    progress: list[tuple[int, int]] = []
    score_set(folder, [item], lambda done, total: progress.append((done, total)), ask=True)
    assert 2 <= judge.most <= 4
    assert {total for _done, total in progress} <= {COUNT} and progress == sorted(progress)
    table, found = column(folder, item)
    assert (found.code == KNOWN).all() and table.size == COUNT


def test_marks_stay_with_their_rollouts(folder: Path, judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    def mark(_name: str, _component: Any, _params: Any, episode: Any) -> float:
        return float(episode.messages[1].content.removeprefix("It is ").rstrip("."))

    monkeypatch.setattr(scoring, "raw_value", mark)
    item = judged(judge, concurrency=8)
    score_set(folder, [item], ask=True)
    assert column(folder, item)[1].value.tolist() == list(range(COUNT))


def test_one_that_always_fails_is_given_up(folder: Path, judge: Judge) -> None:
    judge.reply = "no verdict"
    item = judged(judge, concurrency=2)
    score_set(folder, [item, LENGTH], ask=True)
    table, found = column(folder, item)
    assert GIVE_UP_AFTER <= len(judge.asked) <= GIVE_UP_AFTER + 4 < COUNT
    assert (found.code >= 0).all() and np.isnan(found.value).all()
    first, last = (str(found.reasons[found.code[place]]) for place in (0, table.size - 1))
    assert first == "The judge's verdict cannot be read."
    assert last == "Not asked any more after 20 failures in a row. The judge's verdict cannot be read."
    assert (column(folder, LENGTH)[1].code == KNOWN).all()


def test_a_mark_in_between_begins_the_count_again(folder: Path, judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "GIVE_UP_AFTER", 3)
    judge.statuses = [500, 500, 200] * COUNT
    score_set(folder, [judged(judge, concurrency=1)], ask=True)
    assert len(judge.asked) == COUNT


def test_components_that_differ_in_their_categories_share_a_column(folder: Path) -> None:
    both = [
        LENGTH.model_copy(update={"name": name, "function": "length_budget", "categories": [name]}) for name in "ab"
    ]
    score_set(folder, both)
    assert (column(folder, LENGTH)[1].code == KNOWN).all()


def test_what_one_category_lacks_is_computed_with_what_is_known(folder: Path) -> None:
    of_a = LENGTH.model_copy(update={"categories": ["a"]})
    score_set(folder, [of_a])
    assert (column(folder, of_a)[1].code == KNOWN).sum() == COUNT // 2
    score_set(folder, [LENGTH])
    assert (column(folder, LENGTH)[1].code == KNOWN).all()
