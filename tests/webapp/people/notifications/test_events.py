"""Who hears of what: events written with the change itself, sent once to each person and channel that wants them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from tests.webapp.engine.conftest import job, queued, quick
from tests.webapp.people.notifications.conftest import Service, work_off
from training.errors import Boundary, ErrorInfo
from webapp.common import work
from webapp.common.storage import attempt_dir
from webapp.engine import attempts as leases
from webapp.engine.attempts import attempt_end
from webapp.engine.history import run_transition
from webapp.engine.supervisor import supervise
from webapp.people.notifications.events import notify
from webapp.people.notifications.models import Channel, Delivery, Event, Kind, Notification, Reader, Watch
from webapp.people.notifications.selectors import gone_of
from webapp.people.notifications.words import path_of, words_of
from webapp.people.teams.models import Membership, Project, User
from webapp.runs.models import Attempt, Run
from webapp.runs.states import RunState

__all__ = ["job", "queued", "quick"]
pytestmark = pytest.mark.django_db(transaction=True)
FULL = {"code": "storage_full", "boundary": "storage", "message": "4 MB are left.", "hint": "Free space."}
INTERVAL = {"value": 0.84, "low": 0.801, "high": 0.876, "tasks": 500}
REPORT = {
    "figures": {"success": INTERVAL, "reward": {"value": 0.5, "low": 0.4, "high": 0.6, "tasks": 500}},
    "tasks": 500,
    "missing_tasks": 3,
    "tries": 2000,
    "excluded": 12,
    "most": 4,
}


@pytest.fixture(autouse=True)
def _asked(sent: list[str]) -> None:
    """No message reaches a real worker."""


def notified() -> set[tuple[str, str]]:
    return set(Notification.objects.values_list("user__username", "event__kind"))


def test_a_run_that_really_ends_is_notified_once_to_each_person_and_channel(
    queued: Any, service: Service, make_channel: Callable[..., Channel], alice: User, bob: User, rita: User
) -> None:
    Watch.objects.create(user=alice, project=Project.objects.get(slug="joust"), scope="all")
    slack, other = make_channel(), make_channel("discord")
    service.say((200, {}, b"ok"))
    run = queued("sleep-1", steps=4, fields={"created_by": bob})
    supervise(run.pk)
    for _again in range(3):
        work_off()
    supervise(run.pk)
    work_off()
    assert notified() == {("alice", "run_succeeded"), ("bob", "run_succeeded")}
    assert Notification.objects.count() == 2 and Event.objects.count() == 1
    states = Delivery.objects.values_list("channel__name", "state", "attempts")
    assert sorted(states) == [(slack.name, "sent", 1), (other.name, "sent", 1)]
    assert len(service.got) == 2
    header = next(got.json["blocks"][0] for got in service.got if "blocks" in got.json)
    assert header["text"]["text"] == f"Run “{run.name}” succeeded"


def test_the_event_is_there_exactly_when_the_change_is(make_run: Callable[..., Run], bob: User) -> None:
    run = make_run(state="running", created_by=bob, lease_owner="w", attempt=1)
    with pytest.raises(RuntimeError), transaction.atomic():
        assert run_transition(run.pk, RunState.FAILED) is not None
        assert Event.objects.count() == 1
        raise RuntimeError
    assert Event.objects.count() == 0
    assert run_transition(run.pk, RunState.FAILED) is not None
    assert run_transition(run.pk, RunState.FAILED) is None
    assert [event.kind for event in Event.objects.all()] == ["run_failed"]


def test_each_end_of_a_resumed_run_is_notified(make_run: Callable[..., Run], bob: User) -> None:
    run = make_run(state="running", created_by=bob)
    failed = frozenset({RunState.FAILED})
    run_transition(run.pk, RunState.FAILED)
    run_transition(run.pk, RunState.QUEUED, sources=failed)
    Run.objects.filter(pk=run.pk).update(state="running")
    run_transition(run.pk, RunState.FAILED)
    work_off()
    assert Event.objects.count() == 2 and Notification.objects.filter(user=bob).count() == 2


@pytest.mark.parametrize("state", [RunState.CANCELLED, RunState.QUEUED, RunState.PAUSING, RunState.STOPPING])
def test_other_states_notify_no_one(make_run: Callable[..., Run], bob: User, state: RunState) -> None:
    run = make_run(state="running", created_by=bob)
    assert run_transition(run.pk, state) is not None and not Event.objects.exists()


def test_imports_notify_no_one(make_run: Callable[..., Run], bob: User) -> None:
    run = make_run(state="running", created_by=bob, imported=True)
    assert run_transition(run.pk, RunState.SUCCEEDED) is not None and not Event.objects.exists()


def test_a_paused_run_says_why_and_what_to_do(queued: Any, bob: User) -> None:
    lease = leases.claim(queued(fields={"created_by": bob}).pk)
    assert lease is not None
    Run.objects.update(state="running", step=7, total_steps=10)
    Attempt.objects.update(outcome={"status": "paused", "step": 7, "error": FULL})
    run = attempt_end(lease)
    words = words_of(Event.objects.get(kind="run_paused"))
    assert words.title == f"Run “{run.name}” is paused"
    assert words.lines == [
        "The disk is full.",
        "4 MB are left. Free space.",
        "Free space on the disk of the data folder; the run then continues by itself.",
        "Step 7 of 10.",
    ]


def test_a_run_that_a_person_paused_says_so(make_run: Callable[..., Run], bob: User) -> None:
    run = make_run(state="pausing", created_by=bob, total_steps=10, step=2)
    run_transition(run.pk, RunState.PAUSED)
    assert words_of(Event.objects.get()).lines == [
        "A person or a rule of the project paused it. Resume it to continue from its newest checkpoint.",
        "Step 2 of 10.",
    ]


def _evaluate(queued: Any, bob: User, report: str | None) -> Event:
    lease = leases.claim(queued(fields={"created_by": bob}).pk)
    assert lease is not None
    Run.objects.update(state="running", kind="evaluate")
    Attempt.objects.update(outcome={"status": "succeeded", "step": 1})
    folder = attempt_dir(lease.run_id, 1)
    folder.mkdir(parents=True, exist_ok=True)
    if report is not None:
        (folder / "evaluation.json").write_text(report)
    attempt_end(lease)
    return Event.objects.get()


def test_an_evaluation_is_notified_with_its_figure_its_interval_and_what_is_left_out(queued: Any, bob: User) -> None:
    event = _evaluate(queued, bob, json.dumps(REPORT))
    assert event.kind == "evaluation_ready"
    assert words_of(event).lines == [
        "Success: 84% (95%: 80.1% to 87.6%), 500 tasks.",
        "Left out: 3 tasks without a try that counts, 12 excluded tries.",
    ]


def test_an_evaluation_without_success_shows_its_reward(queued: Any, bob: User) -> None:
    figures = {"success": {"value": None, "low": None, "high": None, "tasks": 0}, "reward": REPORT["figures"]["reward"]}
    event = _evaluate(queued, bob, json.dumps(REPORT | {"figures": figures, "missing_tasks": 0, "excluded": 0}))
    assert words_of(event).lines == ["Reward: 0.500 (95%: 0.400 to 0.600), 500 tasks."]


def test_an_evaluation_whose_figures_cannot_be_read_shows_none(queued: Any, bob: User) -> None:
    assert words_of(_evaluate(queued, bob, None)).lines == ["It has no figures; its page says why."]


def test_a_figure_without_an_interval_says_that_there_is_none(happened: Callable[..., Event]) -> None:
    facts = {"figure": {"name": "success", "value": 1.0, "low": None, "high": None, "tasks": 1}}
    event = happened(Kind.EVALUATION_READY, facts=facts)
    assert words_of(event).lines == ["Success: 100%, 1 task; too few for an interval."]


@pytest.mark.parametrize(
    ("scope", "muted", "hears"),
    [
        (None, [], False),
        ("mine", [], False),
        ("all", [], True),
        ("all", ["run_failed"], True),
        ("all", ["run_succeeded"], False),
        ("none", [], False),
    ],
)
def test_a_person_hears_of_others_runs_only_as_they_chose(
    happened: Callable[..., Event], project: Project, alice: User, scope: str | None, muted: list[str], hears: bool
) -> None:
    if scope:
        Watch.objects.create(user=alice, project=project, scope=scope)
    Reader.objects.create(user=alice, muted=muted)
    happened()
    work_off()
    assert (("alice", "run_succeeded") in notified()) is hears


@pytest.mark.parametrize(("scope", "hears"), [(None, True), ("mine", True), ("all", True), ("none", False)])
def test_a_person_hears_of_their_own_runs_unless_they_want_nothing(
    happened: Callable[..., Event], project: Project, bob: User, scope: str | None, hears: bool
) -> None:
    if scope:
        Watch.objects.create(user=bob, project=project, scope=scope)
    happened()
    work_off()
    assert (("bob", "run_succeeded") in notified()) is hears


def test_what_belongs_to_no_person_concerns_all_and_votes_only_those_who_are_asked(
    happened: Callable[..., Event], alice: User, bob: User, rita: User
) -> None:
    happened(Kind.MODEL_PRODUCTION, person_id=None, facts={"by": "bob"})
    happened(Kind.VOTE_ASKED, person_id=None, people=[rita, bob])
    work_off()
    assert notified() == {
        *((name, "model_production") for name in ("alice", "bob", "rita")),
        ("rita", "vote_asked"),
        ("bob", "vote_asked"),
    }


def test_strangers_inactive_people_and_former_members_are_not_notified(
    happened: Callable[..., Event], alice: User, bob: User, rita: User, charlie: User
) -> None:
    User.objects.filter(pk=rita.pk).update(is_active=False)
    Membership.objects.filter(user=alice).delete()
    happened(Kind.VOTE_ASKED, person_id=None, people=[])
    work_off()
    assert notified() == {("bob", "vote_asked")}


def test_the_same_happening_reported_twice_is_one_event(
    happened: Callable[..., Event], make_channel: Callable[..., Channel], make_run: Any, bob: User, sent: list[str]
) -> None:
    make_channel()
    run = make_run(created_by=bob)
    first, second = happened(run=run, key="one"), happened(Kind.RUN_FAILED, run=run, key="one")
    assert sent == [str(first.pk)], "a worker is asked for once"
    work_off(Event)
    assert sent[1:] == [str(Delivery.objects.get().pk)], "and once for what it has to post"
    assert first.pk == second.pk and second.kind == "run_succeeded" and Event.objects.count() == 1


def test_a_message_that_is_lost_or_comes_twice_changes_nothing(
    happened: Callable[..., Event], make_channel: Callable[..., Channel], service: Service, bob: User
) -> None:
    make_channel()
    event = happened()
    assert Notification.objects.count() == 0  # the message was only listed: no worker runs
    for _twice in range(2):
        work.do("notifications.event", str(event.pk))
    assert (Notification.objects.count(), Delivery.objects.count()) == (1, 1)


def test_a_worker_that_lost_the_event_notifies_no_one(
    happened: Callable[..., Event], bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = happened()
    taken = work.claim(Event, event.pk)
    assert taken is not None
    Event.objects.update(token="somebody-else")
    work.perform(work.KINDS["notifications.event"], taken)
    assert Notification.objects.count() == 0
    Event.objects.update(token="")
    work_off()
    assert Notification.objects.count() == 1


def test_channels_get_only_the_events_that_they_were_made_for(
    happened: Callable[..., Event], make_channel: Callable[..., Channel], service: Service, bob: User
) -> None:
    make_channel(events=["run_failed"])
    happened()
    happened(Kind.RUN_FAILED)
    work_off()
    assert [got.json["blocks"][0]["text"]["text"][-6:] for got in service.got] == ["failed"]


def test_a_deleted_project_notifies_no_one(
    happened: Callable[..., Event], make_channel: Callable[..., Channel], service: Service, project: Project
) -> None:
    make_channel()
    happened()
    Project.objects.filter(pk=project.pk).update(removed_at="2026-01-01T00:00:00Z")
    work_off()
    assert Notification.objects.count() == 0 and service.got == []


def test_events_are_forgotten_after_half_a_year(happened: Callable[..., Event], make_run: Any, bob: User) -> None:
    old = happened(run=make_run(created_by=bob), key="old")
    Event.objects.filter(pk=old.pk).update(created_at="2020-01-01T00:00:00Z", state="spread")
    fresh = happened(key="fresh")
    work_off()
    assert [event.pk for event in Event.objects.all()] == [fresh.pk]


def test_a_failed_run_says_the_words_of_its_error(make_run: Callable[..., Run], bob: User) -> None:
    run = make_run(state="running", created_by=bob, total_steps=0)
    error = ErrorInfo(code="policy_fault", boundary=Boundary.POLICY, message="m" * 900)
    run_transition(run.pk, RunState.FAILED, error=error)
    lines = words_of(Event.objects.get()).lines
    assert lines[0] == "Sampling from the model failed." and lines[1] == "m" * 300 and len(lines) == 3


def test_any_room_may_tell_of_its_own(project: Project, bob: User) -> None:
    event = notify(Kind.VOTE_ASKED, project, key="vote:1", project_id=project.pk, subject="duel\x00", people=[bob])
    work_off()
    assert (event.subject, event.object_kind, event.people) == ("duel\u2400", "teams.project", [str(bob.pk)])
    assert notified() == {("bob", "vote_asked")}


ADVICE: list[tuple[dict[str, Any], list[str]]] = [
    ({"code": "of a later version", "step": 3}, ["Since step 3."]),
    ({"paused": True, "step": 3}, ["A rule of the project pauses the run.", "Since step 3."]),
    ({"paused": False, "kept": 0, "step": 3}, ["The checkpoint of step 0 is kept.", "Since step 3."]),
]


@pytest.mark.parametrize(("facts", "lines"), ADVICE)
def test_an_advisory_says_what_its_rule_did(facts: dict[str, Any], lines: list[str]) -> None:
    assert words_of(Event(kind=Kind.RUN_ADVISORY, subject="r", facts=facts)).lines == lines


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"missing_tasks": 3, "excluded": 0}, "Left out: 3 tasks without a try that counts, 0 excluded tries."),
        ({"missing_tasks": 0, "excluded": 2}, "Left out: 0 tasks without a try that counts, 2 excluded tries."),
        ({"figure": {**INTERVAL, "name": "success", "low": None}}, "Success: 84%, 500 tasks; too few for an interval."),
        (
            {"figure": {**INTERVAL, "name": "success", "high": None}},
            "Success: 84%, 500 tasks; too few for an interval.",
        ),
    ],
)
def test_an_evaluation_says_what_its_figure_lacks(facts: dict[str, Any], line: str) -> None:
    assert line in words_of(Event(kind=Kind.EVALUATION_READY, subject="r", facts=facts)).lines


def test_an_event_leads_to_its_object_its_own_page_or_the_project(project: Project) -> None:
    event = Event(project=project, kind=Kind.RUN_FAILED, object_kind="runs.run", object_id=str(project.pk))
    assert path_of(event) == f"/p/joust/runs/{project.pk}/" and gone_of([event]) == {event.pk}
    event.object_kind = "teams.project"
    assert path_of(event) == "/p/joust/"
    event.facts = {"path": "/p/joust/votes/"}
    assert path_of(event) == "/p/joust/votes/" and gone_of([event]) == set(), "it had no page of its own"
