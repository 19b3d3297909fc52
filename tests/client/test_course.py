"""What watching a run prints: why it waits, its steps and evaluations, and its outcome, each once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from tiltyard_client import watching
from tiltyard_client.api import Json, Refused, Tiltyard, Unreachable
from tiltyard_client.watching import SUCCESS, Course

from tests.client.conftest import Tool, answered
from webapp.common.workers.models import Worker
from webapp.engine.history import event_add
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run

WAITING = {"id": "r", "state": "queued", "step": 0, "total_steps": 10, "last_reward": None, "eta_seconds": None}
QUEUE = {
    "why": "busy", "place": 2, "ahead": 1, "waits_for": None, "seconds": 600.0,
    "title": "2nd in line: starts in about 10 min.",
    "holders": [{"worker": "train@a", "run_id": "1", "ending": False}],
    "lines": [{"text": "train@a has warm-up: 10 min left."}],
}  # fmt: skip


class Site:
    """A site whose run waits as ``queue`` says, with these figures; an exception is raised instead."""

    def __init__(self, queue: Any = None, figures: Any = None) -> None:
        self.queue, self.known = queue, figures or {}

    def run(self, _name: str) -> Json:
        if isinstance(self.queue, Exception):
            raise self.queue
        return WAITING | {"queue": self.queue}

    def figures(self, _run: str, _step: int, *_names: str) -> dict[str, float]:
        if isinstance(self.known, Exception):
            raise self.known
        return self.known  # type: ignore[no-any-return]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """``[seconds]``: the time that the client sees."""
    now = [0.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: now[0])
    return now


def said(course: Course, run: Json) -> list[str]:
    """The lines without their time of day."""
    lines = course.lines(run)
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in lines)
    return [line[9:] for line in lines]


def test_why_it_waits_is_said_once_and_again_when_it_changes(clock: list[float]) -> None:
    site: Any = Site(QUEUE)
    course = Course(site)
    first = ["queued: 2nd in line: starts in about 10 min. train@a has warm-up: 10 min left."]
    assert said(course, WAITING) == first and said(course, WAITING) == []
    clock[0], site.queue = 300.0, QUEUE | {"seconds": 300.0, "title": "2nd in line: starts in about 5 min."}
    assert said(course, WAITING) == [], "only time has passed: it starts when it was expected to"
    site.queue = QUEUE | {"seconds": 360.0}
    assert said(course, WAITING) == [], "later by 60 s, the limit"
    site.queue = QUEUE | {"seconds": 373.0}
    assert said(course, WAITING) == [], "later by less than a fifth of the wait"
    site.queue = QUEUE | {"seconds": 390.0}
    assert len(said(course, WAITING)) == 1, "later by more than that"
    site.queue = QUEUE | {"seconds": None}
    assert len(said(course, WAITING)) == 1 and said(course, WAITING) == []
    for change in ({"place": 1}, {"why": "no_worker"}, {"holders": []}, {"ahead": 3}, {"waits_for": "x"}):
        site.queue = site.queue | change
        assert len(said(course, WAITING)) == 1 and said(course, WAITING) == [], change


@pytest.mark.parametrize("away", [Unreachable("away"), Refused(429, "rate_limited", "too many")])
def test_a_place_that_cannot_be_asked_for_is_asked_for_again(clock: list[float], away: Exception) -> None:
    site: Any = Site(away)
    course = Course(site)
    assert said(course, WAITING) == ["queued"] and said(course, WAITING) == []
    site.queue = QUEUE
    assert said(course, WAITING)[0].startswith("queued: 2nd in line")


def _running(step: int, **more: Any) -> Json:
    return WAITING | {"state": "running", "step": step, "phase": "generating", "health": {}} | more


def test_steps_have_their_figures_and_the_time_left() -> None:
    site: Any = Site(figures={SUCCESS: 0.45})
    course = Course(site)
    assert said(course, _running(0)) == ["running"] and said(course, _running(0)) == []
    more = {"last_reward": 0.41234, "eta_seconds": 725.0}
    assert said(course, _running(3, **more)) == ["step 3 of 10 · success 45% · reward 0.4123 · about 12 min left"]
    assert said(course, _running(3, **more)) == []
    site.known = Unreachable("away")
    assert said(course, _running(4)) == ["step 4 of 10"], "what is missing is not 0"
    site.known = {SUCCESS: 0.0}
    zero = _running(5, last_reward=0.0, eta_seconds=59.4)
    assert said(course, zero) == ["step 5 of 10 · success 0% · reward 0 · about 59 s left"]
    assert said(course, _running(2)) == [], "an attempt begins again from a checkpoint"
    assert said(course, _running(3, eta_seconds=7260.0)) == ["step 3 of 10 · success 0% · about 2 h 1 min left"]
    assert said(course, _running(3) | {"held": {"step": 4}}) == ["running, waiting for its environment"]


def test_an_evaluation_has_its_interval_and_tasks() -> None:
    course = Course(Site())  # type: ignore[arg-type]
    newest = {"step": 2, "success": 0.62, "low": 0.5, "high": 0.73}
    held = {"held_out": {"newest": newest, "tasks": 40}}
    lines = said(course, _running(2, health=held))
    assert lines == ["running", "step 2 of 10", "held out after step 2: success 62% (50 to 73) · 40 tasks"]
    assert said(course, _running(3, health=held)) == ["step 3 of 10"]
    last = {"held_out": {"newest": newest | {"step": 4, "success": 1.0, "low": None}, "tasks": 1}}
    ended = _running(4, health=last) | {"state": "succeeded"}
    assert said(course, ended) == ["step 4 of 10", "held out after step 4: success 100% · 1 task", "succeeded"]


def test_of_several_runs_each_line_has_a_name() -> None:
    assert said(Course(Site(), "exam-1"), _running(1)) == ["exam-1 running", "exam-1 step 1 of 10"]  # type: ignore[arg-type]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("language", "waits", "hint"),
    [("en", "Next in line", "The device ran out of memory."), ("zh", "排在下一个", "设备内存不足。")],
)
def test_at_a_real_site_from_the_queue_to_the_failure(
    tool: Tool, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, language: str, waits: str, hint: str
) -> None:
    now = timezone.now()
    monkeypatch.setenv("TILTYARD_LANG", language)
    Worker.objects.create(name="train@a", queues=["train"], started_at=now, beat_at=now)
    busy = {"state": "running", "total_steps": 10, "step_seconds": 60.0, "lease_beat_at": now}
    make_run(name="warm-up", lease_worker="train@a", **busy)
    mine = make_run(name="mine", state="queued", queued_at=now, total_steps=3)
    error = {"code": "out_of_memory", "boundary": "trainer", "message": "out of memory", "hint": "Use less."}
    changes = iter(
        [{}, {"state": "running", "attempt": 1, "step": 2, "last_reward": 0.5}, {"state": "failed", "error": error}]
    )
    looked = Tiltyard.call

    def call(self: Tiltyard, method: str, path: str, **options: Any) -> Any:
        """The run continues each time that its events were looked at."""
        answer = looked(self, method, path, **options)
        if path.endswith("/events"):
            change = next(changes, {})
            Run.objects.filter(pk=mine.pk).update(**change or {"name": "mine"})
            if "step" in change:
                MetricPoint.objects.create(run=mine, attempt=1, step=2, name=SUCCESS, value=0.25, seq=1)
            event_add(mine.pk, "log", {"level": "info", "message": "on"}, attempt=0)
        return answer

    monkeypatch.setattr(Tiltyard, "call", call)
    shown = tool("run", "watch", "mine")
    assert shown.exit_code == 5, shown.output
    assert shown.stdout.count(waits) == 1 and "train@a" in shown.stdout and "warm-up" in shown.stdout
    assert "25%" in shown.stdout and "0.5" in shown.stdout and hint in shown.stdout, shown.stdout
    assert answered(tool("run", "watch", "mine", "--json"), 5)["error"]["code"] == "out_of_memory"
