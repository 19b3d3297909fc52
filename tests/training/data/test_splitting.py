"""What is held out: by the task's text, equal tasks together, the same rows whatever else the dataset holds."""

from __future__ import annotations

import random

import pytest

from envs.wire import Message
from training.data.identity import leaks, split_rows, task_key
from training.data.schema import Row


def row(text: str, **raw: object) -> Row:
    return Row(messages=[Message(role="system", content="Help."), Message(role="user", content=text)], raw=raw)


def rows(count: int) -> list[Row]:
    return [row(f"What is {number} times {number + 7}?") for number in range(count)]


def test_about_the_share_is_held_out_and_nothing_is_on_both_sides() -> None:
    split = split_rows(rows(2000), 0.1)
    assert len(split.held_out) == pytest.approx(200, abs=45)
    assert sorted(split.train + split.held_out) == list(range(2000)) and split.groups == len(split.held_out)


def test_equal_tasks_stay_on_one_side_whatever_their_case_and_spaces() -> None:
    twins = [row(text) for number in range(300) for text in (f"Add {number}", f"  add\n{number} ", f"ＡＤＤ {number}")]
    split = split_rows(twins, 0.2)
    assert {place // 3 for place in split.held_out}.isdisjoint(place // 3 for place in split.train)
    assert len(split.held_out) == 3 * split.groups and 30 < split.groups < 90


def test_what_is_held_out_stays_so_when_the_dataset_grows_and_is_shuffled() -> None:
    few = rows(400)
    more = rows(900)
    random.Random(1).shuffle(more)
    held = {task_key(few[place]) for place in split_rows(few, 0.15).held_out}
    later = {task_key(more[place]) for place in split_rows(more, 0.15).held_out}
    assert held == later & {task_key(one) for one in few}


def test_a_small_share_of_few_rows_holds_out_one_task() -> None:
    split = split_rows(rows(5), 0.0001)
    assert (len(split.held_out), len(split.train)) == (1, 4)
    assert split_rows(rows(5), 0.0).held_out == [] and split_rows([], 0.5).held_out == []


def test_a_task_without_words_is_known_by_its_whole_row() -> None:
    goals = [Row(messages=[], raw={"goal": number % 4}) for number in range(8)]
    split = split_rows(goals, 0.3)
    assert {place % 4 for place in split.held_out}.isdisjoint(place % 4 for place in split.train)
    assert task_key(goals[1]) == task_key(goals[5]) != task_key(goals[2])


LONG = "Book a flight from Paris to Rome on Friday for two people with one bag each and a window seat please"


def test_leaks_tell_equal_tasks_and_those_that_look_much_alike() -> None:
    held = [
        row("Add 1"),
        row(LONG),
        row(LONG.replace("please", "now")),
        row("Water the plants of the third floor at nine"),
    ]
    found = leaks(held, [row("add  1"), row(LONG), row("Feed the cat")])
    assert (found.same, found.alike, found.looked_at) == ([0, 1], 1, 3)


def test_chinese_tasks_are_compared_by_their_characters() -> None:
    text = "请帮我预订明天从上海到北京的高铁票并选择靠窗的座位"
    found = leaks([row(text + "谢谢"), row("今天的天气怎么样，需要带伞吗，适合出门散步吗")], [row(text)])
    assert (found.same, found.alike) == ([], 1)


def test_only_the_first_rows_are_read_for_likeness_and_all_for_equality(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.data.identity.LOOKED_AT_ROWS", 1)
    found = leaks([row(LONG + " or not"), row("Add 1")], [row("Feed the cat"), row(LONG), row("Add 1")])
    assert (found.same, found.alike, found.looked_at) == ([1], 0, 1)
