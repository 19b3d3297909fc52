"""The newest hits of a phrase: their order, and what is said where not all was read."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from webapp.people.teams.models import Project
from webapp.reading.inspector import filters, hits
from webapp.reading.inspector.hits import newest_hits
from webapp.runs.models import Attempt, Run
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.rollouts.words import numbers_of

pytestmark = pytest.mark.django_db
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
Play = Callable[..., Rollout]


@pytest.fixture
def play() -> Play:
    """``play(run, step, text)``: a rollout that says it in turn 1, or has it as its task (``number=0``)."""

    def make(run: Run, step: int, text: str, number: int = 1, **fields: Any) -> Rollout:
        given = {"attempt": 1, "group": 0, "index": 0, "started_at": BEGAN, "seq": 1} | fields
        rollout = Rollout.objects.create(id=uuid.uuid4(), run=run, step=step, **given)
        said = [{"role": "assistant" if number else "user", "content": text}]
        Turn.objects.create(
            rollout=rollout, run=run, number=number, messages=said, words=numbers_of(run.pk, said), seq=1
        )
        return rollout

    return make


def test_the_newest_run_and_the_last_step_come_first(project: Project, make_run: Any, play: Play) -> None:
    old, new = make_run(), make_run()
    found = [play(new, 9, "a needle"), play(new, 2, "needles"), play(old, 50, "Needle")]
    play(old, 51, "need less")
    got = newest_hits(project, "needle", 5)
    assert [hit.rollout for hit in got.texts] == found and got.tasks == []
    assert [hit.snippet.said for hit in got.texts] == ["needle", "needle", "Needle"]
    assert [hit.rollout for hit in newest_hits(project, "needle", 2).texts] == found[:2]
    assert (got.runs, got.cut, got.wordless) == (None, False, False)


def test_one_hit_for_each_task_and_for_each_rollout(project: Project, make_run: Any, play: Play) -> None:
    run = make_run()
    for step in (1, 2, 3):
        play(run, step, "find the needle", number=0, row=7)
    last = play(run, 4, "find the needle", number=0, row=7)
    other, unknown = play(run, 3, "a needle", 0, row=8), play(run, 2, "no needle", 0)
    both = play(run, 1, "one needle")
    said = [{"role": "assistant", "content": "one needle more"}]
    Turn.objects.create(rollout=both, run=run, number=2, messages=said, words=numbers_of(run.pk, said), seq=1)
    got = newest_hits(project, "needle", 5)
    assert [hit.rollout for hit in got.tasks] == [last, other, unknown]
    assert [hit.rollout for hit in newest_hits(project, "needle", 2).tasks] == [last, other]
    assert [(hit.rollout, hit.snippet.turn) for hit in got.texts] == [(both, 1)]


def test_more_turns_than_are_read_are_named_and_the_newest_found(
    project: Project, make_run: Any, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hits, "READ_MOST", 3)
    monkeypatch.setattr(hits, "NEWEST_ROLLOUTS", 2)
    run = make_run()
    made = [play(run, step, f"needle number {step}") for step in range(1, 3)]
    assert not newest_hits(project, "needle", 9).cut
    made += [play(run, step, f"needle number {step}") for step in range(3, 9)]
    got = newest_hits(project, "needle", 9)
    assert got.cut and [hit.rollout for hit in got.texts[:2]] == [made[7], made[6]]
    assert newest_hits(project, "needle number", 9).cut
    rare = newest_hits(project, "needle number 4", 9)  # of the same words, and its turn may be one that was not read
    assert rare.cut or [hit.rollout for hit in rare.texts] == [made[3]]


def test_common_words_are_found_in_the_newest_rollouts_alone(
    project: Project, make_run: Any, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where these have as many tasks and texts as are wanted, and none is left out; else all turns are looked at."""
    monkeypatch.setattr(hits, "FIRST_ROLLOUTS", 4)
    asked: list[str] = []
    places = hits._places
    monkeypatch.setattr(hits, "_places", lambda runs, phrase: asked.append(phrase) or places(runs, phrase))
    play(make_run(), 50, "hay")
    run = make_run(attempt=2)
    Attempt.objects.create(run=run, number=1, owner="w", started_at=BEGAN, last_step=9)
    Attempt.objects.create(run=run, number=2, owner="w", started_at=BEGAN, first_step=7, last_step=8)
    old = [play(run, step, "find the needle", number=0, row=step, attempt=2) for step in (1, 2)]
    task, text = play(run, 8, "find the needle", 0, attempt=2, row=8), play(run, 8, "one needle", attempt=2)
    play(run, 9, "a needle that was lost")
    got = newest_hits(project, "needle", 1)
    assert ([hit.rollout for hit in got.tasks], [hit.rollout for hit in got.texts]) == ([task], [text])
    assert not got.cut and asked == []
    got = newest_hits(project, "needle", 2)
    assert [hit.rollout for hit in got.tasks] == [task, old[1]] and asked == ["needle"], "one text, two are wanted"


def test_only_the_newest_runs_are_searched(
    project: Project, make_run: Any, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hits, "MOST_RUNS", 2)
    runs = [make_run() for _each in range(3)]
    make_run()  # played nothing
    play(runs[0], 1, "a needle")
    play(runs[1], 1, "hay")
    assert len(newest_hits(project, "needle", 5).texts) == 1 and newest_hits(project, "needle", 5).runs is None
    play(runs[2], 1, "hay")
    got = newest_hits(project, "needle", 5)
    assert (got.texts, got.runs) == ([], 2)
    assert filters.MOST_RUNS == 20


def test_lost_steps_archived_runs_and_what_is_only_in_json_are_no_hits(
    project: Project, make_run: Any, play: Play
) -> None:
    run, hidden = make_run(attempt=2), make_run(archived_at=BEGAN)
    Attempt.objects.create(run=run, number=1, owner="w", started_at=BEGAN, last_step=5)
    Attempt.objects.create(run=run, number=2, owner="w", started_at=BEGAN, first_step=3, last_step=4)
    kept, lost = play(run, 3, "a needle"), play(run, 4, "a needle")
    again = play(run, 4, "needle again", attempt=2)
    play(hidden, 1, "a needle")
    assert [hit.rollout for hit in newest_hits(project, "needle", 5).texts] == [again, kept] and lost
    play(run, 5, "the role of content", attempt=2)
    assert [hit.snippet.said for hit in newest_hits(project, "content", 5).texts] == ["content"]
    assert newest_hits(project, "role assistant", 5).texts == []


def test_a_phrase_without_a_word_is_not_looked_for(project: Project, make_run: Any, play: Play) -> None:
    play(make_run(), 1, "100 % of 天气")
    assert newest_hits(project, "%", 5).wordless and newest_hits(project, "天", 5).wordless
    assert [hit.snippet.said for hit in newest_hits(project, "天气", 5).texts] == ["天气"]
    assert newest_hits(project, "", 5).wordless
