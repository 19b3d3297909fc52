"""Whose turn it is to have something scored. People are threads; each step waits until the line shows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.chaos.services import wait_until
from webapp.common.errors import TooMany
from webapp.rewards.scorers import WAIT_S, Places, Turn

LONG_S = 60.0


class Line:
    """People at a line of places; ``began`` has whose job began, in order."""

    def __init__(self, places: Places) -> None:
        self.places, self.began = places, list[str]()
        self._pool = ThreadPoolExecutor(20)

    def wants(self, name: str, turn: Turn | None = None) -> tuple[Callable[[], None], Future[bool]]:
        """A person is in line now; the first ends the job, the second says whether there was a place."""
        person, over = name[0], threading.Event()
        before = self._waiting(person)

        def job() -> bool:
            with self.places.taken(person, turn or Turn(), time.monotonic() + LONG_S) as took:
                if took:
                    self.began.append(name)
                    assert over.wait(LONG_S)
                return took

        future = self._pool.submit(job)
        wait_until(lambda: self._waiting(person) > before or name in self.began or future.done())
        return over.set, future

    def _waiting(self, person: str) -> int:
        return len(self.places._waiting.get(person, ()))

    def close(self) -> None:
        self._pool.shutdown()


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line(Places(2, jobs_per_person=4))
    yield made
    made.close()


def test_a_person_runs_one_job_at_a_time_and_a_stranger_finds_a_place(line: Line) -> None:
    with ExitStack() as ends:
        for name in ("a1", "a2", "a3", "a4"):
            ends.callback(line.wants(name)[0])
        assert line.began == ["a1"], "the second place is for others"
        end, _stranger = line.wants("b1")
        assert line.began == ["a1", "b1"]
        end()
    wait_until(lambda: len(line.began) == 5)
    assert line.began == ["a1", "b1", "a2", "a3", "a4"]


def test_people_take_turns_however_much_one_of_them_wants(line: Line) -> None:
    ends = {name: line.wants(name)[0] for name in ("a1", "a2", "a3", "b1", "b2", "c1")}
    assert line.began == ["a1", "b1"]
    for name, following in (("a1", "c1"), ("b1", "a2"), ("c1", "b2"), ("a2", "a3")):
        ends[name]()
        wait_until(lambda wanted=following: line.began[-1] == wanted)
    for end in ends.values():
        end()
    assert line.began == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_the_fifth_job_of_a_person_is_refused_and_the_fourth_and_a_stranger_are_not(line: Line) -> None:
    ends = [line.wants(f"a{number}")[0] for number in range(4)]
    with pytest.raises(TooMany, match="limit of scoring for one person") as refused:
        line.wants("a5")[1].result(LONG_S)
    assert refused.value.wait_s == WAIT_S
    end, stranger = line.wants("b1")
    end()
    assert stranger.result(LONG_S)
    ends[0]()
    wait_until(lambda: "a1" in line.began)
    end, again = line.wants("a6")  # one has ended
    for last in (*ends, end):
        last()
    assert again.result(LONG_S)


def test_an_asker_who_leaves_the_line_takes_no_place_of_others(line: Line) -> None:
    turn = Turn()
    end_first, _first = line.wants("a1")
    _end, left = line.wants("a2", turn)
    turn.leave()
    assert not left.result(LONG_S)
    end_other, other = line.wants("a3")
    end_first()
    end_other()
    assert other.result(LONG_S) and line.began == ["a1", "a3"]


def test_who_has_left_before_gets_no_place_and_nothing_is_kept_of_anybody() -> None:
    places, turn = Places(1), Turn()
    turn.leave()
    with places.taken("a", turn, time.monotonic() + LONG_S) as took:
        assert not took
    with places.taken("b", Turn(), time.monotonic()) as took:
        assert took, "a free place needs no waiting"
        with places.taken("c", Turn(), time.monotonic()) as second:
            assert not second, "the only place is taken, and the time to wait is over"
    assert not places._waiting and not places._running


def test_a_job_that_is_over_is_not_ended_any_more() -> None:
    turn, ended = Turn(), list[str]()
    turn.ends_by(lambda: ended.append("mine"))
    turn.ends_by(None)
    turn.leave()
    assert ended == [] and turn.gone.is_set()
    turn.ends_by(lambda: ended.append("late"))
    assert ended == ["late"], "who left before it began has it ended at once"
