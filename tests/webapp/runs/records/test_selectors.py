"""The list of runs and the views of one."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from training import journal
from webapp.common.answers import in_shape
from webapp.live.feed import snapshot_text
from webapp.runs import answers
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run, RunEvent
from webapp.runs.records.listing import SORTS, run_list
from webapp.runs.records.selectors import aged, run_changes_after, run_events_after, run_read
from webapp.runs.rollouts.models import Rollout, RolloutGroup
from webapp.runs.rollouts.selectors import current_step, newest_rollouts, step_rollouts
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db


def test_the_list_takes_a_constant_number_of_queries(
    project: Any, alice: Any, make_run: Any, django_assert_num_queries: Any
) -> None:
    for number in range(12):
        run = make_run(created_by=alice, after=None)
        points = [
            MetricPoint(run=run, attempt=1, step=step, name=("reward" if number else "loss"), value=step, seq=step)
            for step in range(1, 101)
        ]
        MetricPoint.objects.bulk_create(points)
    with django_assert_num_queries(4):
        page = run_list(project)
    assert page.total == 12 and all(len(row.sparkline) == 40 for row in page.rows)
    assert page.rows[0].owner == "alice" and page.rows[0].sparkline[-1] == 100.0


def test_the_list_filters_sorts_and_pages(project: Any, alice: Any, bob: Any, make_run: Any) -> None:
    now = timezone.now()
    began = now - timedelta(seconds=5)
    make_run(name="quick", state=RunState.SUCCEEDED, created_by=alice, started_at=began, finished_at=now)
    make_run(name="slow", state=RunState.RUNNING, created_by=bob, kind="sft", started_at=now - timedelta(hours=1))
    make_run(name="Idle", last_reward=0.5)

    def names(filters: dict[str, str] | None = None, sort: str = "name") -> list[str]:
        return [row.run.name for row in run_list(project, filters, sort).rows]

    assert names({"state": "running"}) == names({"state": "active"}) == names({"owner": "bob"}) == ["slow"]
    assert names({"kind": "sft"}) == ["slow"] and names({"q": "IDL"}) == ["Idle"] and names({"q": "%"}) == []
    assert names(sort="-duration") == ["slow", "quick", "Idle"]
    assert names(sort="-reward")[0] == "Idle"
    for sort in [*SORTS, *(f"-{key}" for key in SORTS), "password", "", "-"]:
        assert len(names({"state": "'; drop"}, sort)) == 3
    page = run_list(project, sort="name", page=99, per_page=2)
    assert (page.page, page.pages, len(page.rows)) == (2, 2, 1)
    duration = run_list(project, {"q": "quick"}).rows[0].duration_seconds
    assert duration == pytest.approx(5)


def test_another_projects_runs_are_not_listed(project: Any, charlie: Any, make_run: Any) -> None:
    make_run(project=charlie.teams.get().projects.get())
    assert run_list(project).total == 0


def test_a_waiting_run_says_for_what(queued: Any) -> None:
    first = queued()
    second = queued(fields={"after": first})
    seen, before = (in_shape(answers.RunView, aged(run)) for run in (second, first))
    assert seen["waiting_for"] == first.name and before["waiting_for"] is None


@pytest.mark.parametrize(
    ("state", "before", "waits"),
    [
        ("queued", "running", True),
        ("queued", "cancelled", True),
        ("queued", "succeeded", False),
        ("running", "running", False),
        ("queued", None, False),
    ],
)
def test_only_a_queued_run_waits_for_one_that_has_not_succeeded(state: str, before: str | None, waits: bool) -> None:
    after = Run(name="first", state=before) if before else None
    run = Run(state=state, after=after)
    assert (run.waiting_for, run.waiting_for_state) == (("first", before) if waits else (None, None))


@pytest.mark.parametrize(
    ("state", "pace", "step", "left"),
    [
        *(("running", 2.0, 7, 6.0), ("running", 2.0, 10, 0.0), ("running", 2.0, 12, 0.0)),
        *(("paused", 2.0, 7, None), ("running", None, 7, None)),
    ],
)
def test_only_a_run_at_work_has_time_left(state: str, pace: float | None, step: int, left: float | None) -> None:
    assert Run(state=state, step_seconds=pace, step=step, total_steps=10).eta_seconds == left


def test_the_time_left_follows_the_pace(written: Any) -> None:
    w = written()
    line = '{"type":"metrics","step":%d,"t":%d,"values":{"reward":1}}\n'
    lines = [line % (step, 1000 + 2 * step) for step in range(1, 6)]
    w.raw(('{"type":"run_started","kind":"grpo","total_steps":10,"t":1000}\n' + "".join(lines)).encode())
    w.project()
    view = in_shape(answers.RunView, aged(w.run))
    assert (view["step_seconds"], view["eta_seconds"]) == (pytest.approx(2), pytest.approx(10))
    assert view["beat_age_seconds"] < 60


def test_changes_in_small_bites_are_all_the_changes(written: Any) -> None:
    w = written()
    for step in range(1, 4):
        w.write(
            journal.RolloutStarted(rollout=f"r{step}", step=step, group=0, index=0),
            journal.TurnAdded(rollout=f"r{step}", turn=0, messages=[]),
            journal.Metrics(step=step, values={"a": 1.0, "b": 2.0}),
            journal.LogLine(message=str(step)),
        )
    w.project()
    run = run_read(w.run.pk)
    whole = run_changes_after(run, 0, 10_000)
    seq, bites = 0, {key: [] for key in whole.rows}
    for _ in range(100):
        part = run_changes_after(run, seq, 2)
        for key, rows in part.rows.items():
            bites[key] += rows
        seq = part.seq
        if not part.more:
            break
    assert bites == whole.rows and seq == run.seq
    snapshot = json.loads(snapshot_text(run))
    assert current_step(run) == 3 and [row["step"] for row in snapshot["rollouts"]] == [3]
    assert len(step_rollouts(run, 1)["turns"]) == 1
    assert step_rollouts(run, 9) == {"rollouts": [], "turns": [], "groups": []}


def test_a_step_shows_what_its_newest_attempt_played(written: Any) -> None:
    """Nothing noticed when a step that was played again showed the rollouts of its oldest attempt."""
    w = written()
    w.write(journal.RolloutStarted(rollout="old", step=3, group=0, index=0, task="first attempt"))
    w.project()
    run = w.run
    for attempt, task in ((2, "second attempt"), (10, "tenth attempt")):
        fields = {"run": run, "attempt": attempt, "step": 3, "group": 0, "index": 0, "task": task, "seq": run.seq}
        Rollout.objects.create(status="completed", started_at=timezone.now(), **fields)
        RolloutGroup.objects.create(run=run, attempt=attempt, step=3, group=0, zero_variance=False, seq=run.seq)
    found = step_rollouts(run, 3)
    assert [row.task for row in found["rollouts"]] == ["tenth attempt"]
    assert [group.attempt for group in found["groups"]] == [10]


def test_a_page_of_a_step_reads_the_turns_of_that_page_alone(written: Any) -> None:
    """Fifty of four thousand rollouts cost as much as all of them."""
    w = written()
    for index in range(5):
        name = f"r{index}"
        w.write(journal.RolloutStarted(rollout=name, step=1, group=0, index=index, task=name))
        for turn, text in enumerate((name, f"{name} again")):
            w.write(journal.TurnAdded(rollout=name, turn=turn, messages=[{"role": "user", "content": text}]))
    w.project()
    with CaptureQueriesContext(connection) as asked:
        found = step_rollouts(w.run, 1, slice(2, 4))
    assert [row.task for row in found["rollouts"]] == ["r2", "r3"]
    texts = [turn.messages[0]["content"] for turn in found["turns"]]
    assert sorted([texts[:2], texts[2:]]) == [["r2", "r2 again"], ["r3", "r3 again"]]
    assert "LIMIT 2 OFFSET 2" in asked[0]["sql"] and len(asked) == 3
    assert step_rollouts(w.run, 1, slice(5, 9))["rollouts"] == step_rollouts(w.run, 1, slice(5, 9))["turns"] == []


def test_the_newest_rollouts_are_those_of_the_current_step(make_run: Any, django_assert_num_queries: Any) -> None:
    """In one query, with and without a step; a later attempt's come before those that it plays again."""
    run = make_run(attempt=2)
    for attempt, step, index in ((1, 1, 0), (1, 2, 1), (1, 2, 0), (2, 1, 0)):
        Rollout.objects.create(
            run=run, attempt=attempt, step=step, group=0, index=index, started_at=timezone.now(), seq=step
        )
    Rollout.objects.create(
        run=run, attempt=2, step=9, group=0, index=0, started_at=timezone.now(), seq=9, held_out=True
    )

    def found(step: int | None) -> list[tuple[int, int, int]]:
        with django_assert_num_queries(1):
            return [(row.attempt, row.step, row.index) for row in newest_rollouts(run, step)]

    assert found(None) == found(1) == [(2, 1, 0)] and current_step(run) == 1
    assert found(2) == [(1, 2, 0), (1, 2, 1)] and found(3) == []
    run.attempt = 3  # which has played nothing yet
    Rollout.objects.filter(attempt=2, held_out=False).delete()
    assert found(None) == [(1, 2, 0), (1, 2, 1)] and current_step(run) == 2
    assert newest_rollouts(make_run(), None) == []


@pytest.mark.parametrize(
    ("limit", "numbers", "more"), [(2, [1, 2], True), (3, [1, 2, 5], False), (4, [1, 2, 5], False)]
)
def test_exactly_as_many_events_as_asked_for_are_all(make_run: Any, limit: int, numbers: list[int], more: bool) -> None:
    run = make_run(state=RunState.SUCCEEDED)
    for seq in (1, 2, 5, 7):  # the last is not counted yet
        RunEvent.objects.create(run=run, attempt=1, kind="log", payload={}, at=timezone.now(), seq=seq)
    Run.objects.filter(pk=run.pk).update(seq=6)
    run.refresh_from_db()
    found = run_events_after(run, 0, limit)
    assert [event.seq for event in found["items"]] == numbers
    assert (found["more"], found["ended"], found["after"]) == (more, not more, 2 if more else 6)
    assert [event.seq for event in run_events_after(run, 1, limit)["items"]] == [2, 5]
    assert [run_events_after(run, after, limit)["items"] for after in (5, 6, 99)] == [[]] * 3
    changes = run_changes_after(run, 0, limit)
    assert [event.seq for event in changes.rows["events"]] == numbers
    assert (changes.more, changes.seq) == (more, 2 if more else 6)
