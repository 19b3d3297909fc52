"""What time can fix is resumed by time, bounded, and off where a project says so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from training.words import sentence
from webapp.common.words import ANSWERS_AGAIN, BUDGET_AGAIN, RECOVERED, TAKES_FILES, TRIED_AGAIN
from webapp.endpoints.models import Endpoint
from webapp.endpoints.spending import DAY_TOKENS, spend_add
from webapp.engine import recovery
from webapp.engine.recovery import CAUSES, Cause, wait_s
from webapp.environments.models import Environment
from webapp.people.teams.models import Project, User
from webapp.runs.advisories.models import DoctorRules
from webapp.runs.models import Run, RunEvent
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db
Make = Callable[..., Any]


@pytest.fixture(autouse=True)
def no_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webapp.engine.history._send_message", lambda row: False)


@pytest.fixture
def paused(make_run: Make, make_environment: Make) -> Make:
    """``paused(code, minutes_ago, tries)``: a run of an environment that paused, and was resumed so often before."""

    def make(code: str, minutes_ago: float = 20, tries: int = 0, **over: Any) -> Run:
        environment = Environment.objects.first() or make_environment()
        config = {"kind": "grpo", "environment": {"name": environment.reference}, **over}
        run = make_run(config=config, state=RunState.PAUSED, attempt=1, error={"code": code})
        at = timezone.now() - timedelta(minutes=minutes_ago)
        for number in range(tries):
            _event(run, number, RunState.QUEUED, at - timedelta(hours=1), TRIED_AGAIN)
        _event(run, tries, RunState.PAUSED, at, None)
        return run

    return make


def _event(run: Run, number: int, to: str, at: Any, reason: str | None) -> None:
    payload = {"from": "running", "to": to, "reason": sentence(reason).data if reason else None, "error": None}
    RunEvent.objects.create(run=run, seq=number + 1, kind="state", payload=payload, at=at)
    Run.objects.filter(pk=run.pk).update(seq=number + 1)


def seen(minutes_ago: float, healthy: bool | None = True) -> None:
    """What the keeper saw of all environments."""
    Environment.objects.update(healthy=healthy, checked_at=timezone.now() - timedelta(minutes=minutes_ago))


def reason_of(run: Run) -> str | None:
    """Why it was resumed; nothing where it was not."""
    run.refresh_from_db()
    if run.state != RunState.QUEUED:
        return None
    found: str = RunEvent.objects.filter(run=run).order_by("-seq")[0].payload["reason"]["template"]
    return found


@pytest.mark.parametrize(
    ("healthy", "minutes_ago", "resumed"), [(True, 19, True), (True, 21, False), (False, 1, False), (None, 1, False)]
)
def test_a_run_continues_once_its_environment_answers_again(
    paused: Make, healthy: bool | None, minutes_ago: float, resumed: bool
) -> None:
    """Seen healthy since the pause: what was seen before it says nothing."""
    run = paused("environment_unreachable", minutes_ago=20)
    seen(minutes_ago, healthy)
    assert recovery.resume_where_over() == resumed
    assert reason_of(run) == (ANSWERS_AGAIN if resumed else None)


def test_what_was_seen_before_the_newest_pause_says_nothing(paused: Make) -> None:
    run = paused("environment_unreachable", minutes_ago=60)
    _event(run, 1, RunState.RUNNING, timezone.now() - timedelta(minutes=50), ANSWERS_AGAIN)
    _event(run, 2, RunState.PAUSED, timezone.now() - timedelta(minutes=20), None)
    seen(minutes_ago=40)
    assert recovery.resume_where_over() == 0
    seen(minutes_ago=19)
    assert recovery.resume_where_over() == 1


def test_all_environments_of_a_run_have_to_answer(paused: Make, make_environment: Make) -> None:
    first, second = make_environment(), make_environment()
    stages = [{"name": "a", "until_step": 2}, {"name": "b", "environment": {"name": second.reference}}]
    run = paused("environment_timeout", environment={"name": first.reference}, curriculum={"stages": stages})
    seen(1)
    Environment.objects.filter(pk=second.pk).update(healthy=False)
    assert recovery.resume_where_over() == 0
    seen(1)
    assert recovery.resume_where_over() == 1 and reason_of(run) == ANSWERS_AGAIN


def test_what_a_person_paused_or_has_to_look_at_stays(paused: Make) -> None:
    seen(0)
    others = [paused(code) for code in ("not_finite", "no_gradient", "sampler_disagrees", "endpoint_refused", "")]
    Run.objects.filter(pk=others[-1].pk).update(error=None)
    assert recovery.resume_where_over() == 0


def test_what_is_a_cause_and_how_often_it_is_tried() -> None:
    assert {code: (cause.first_s, cause.most) for code, cause in CAUSES.items()} == {
        "storage_full": (0, None),
        "storage_failed": (0, None),
        "files_away": (120, 12),
        "files_full": (120, 12),
        "files_refused": (120, 12),
        "budget_spent": (0, None),
        "environment_unreachable": (0, 12),
        "environment_timeout": (0, 12),
        "environment_full": (120, 12),
        "endpoint_away": (120, 12),
        "endpoint_busy": (120, 12),
        "cluster_unreachable": (120, 12),
        "cluster_short": (120, 12),
        "device_failed": (120, 3),
        "sampler_died": (120, 3),
        "too_many_failures": (120, 3),
    }


@pytest.mark.parametrize("code", ["files_full", "files_refused"])
@pytest.mark.parametrize(
    ("takes", "minutes_ago", "resumed"), [(True, 2.1, True), (True, 1.9, False), (False, 2.1, False)]
)
def test_a_run_continues_once_the_store_takes_files(
    paused: Make, settings: Any, monkeypatch: Any, code: str, takes: bool, minutes_ago: float, resumed: bool
) -> None:
    settings.FILES = "s3://files/site"
    monkeypatch.setattr(recovery.objects, "takes_files", lambda: takes)
    run = paused(code, minutes_ago=minutes_ago)
    assert recovery.resume_where_over() == resumed
    assert reason_of(run) == (TAKES_FILES if resumed else None)


def test_the_store_is_asked_once_for_all_runs(paused: Make, settings: Any, monkeypatch: Any) -> None:
    """One that is silent is waited for by each question."""
    settings.FILES, asked = "s3://files/site", []
    monkeypatch.setattr(recovery.objects, "takes_files", lambda: asked.append(1) or True)
    for code in ("files_full", "files_refused", "files_full"):
        paused(code, minutes_ago=5)
    assert recovery.resume_where_over() == 3 and len(asked) == 1
    paused("files_full", minutes_ago=5)
    assert recovery.resume_where_over() == 1 and len(asked) == 2, "the next look asks again"


def test_a_site_without_a_store_resumes_nothing_for_it(paused: Make, settings: Any) -> None:
    settings.FILES = ""
    paused("files_full", minutes_ago=30)
    assert recovery.resume_where_over() == 0


def test_each_try_waits_twice_as_long() -> None:
    limited, seen_to_be_over = Cause(lambda paused: None, first_s=120, most=12), Cause(lambda paused: None, most=3)
    assert [wait_s(limited, tries) for tries in range(7)] == [120, 240, 480, 960, 1920, 3600, 3600]
    assert (wait_s(limited, 11), wait_s(limited, 12)) == (3600, None)
    assert [wait_s(seen_to_be_over, tries) for tries in range(4)] == [0, 60, 120, None]
    assert wait_s(Cause(lambda paused: None), 500) == 0


@pytest.mark.parametrize(
    ("tries", "minutes_ago", "resumed"), [(0, 1.9, False), (0, 2.1, True), (2, 7.9, False), (2, 8.1, True), (3, 600, 0)]
)
def test_a_sampler_that_died_is_tried_three_times_a_day(
    paused: Make, tries: int, minutes_ago: float, resumed: bool
) -> None:
    run = paused("sampler_died", minutes_ago, tries)
    assert recovery.resume_where_over() == int(resumed)
    assert reason_of(run) == (TRIED_AGAIN if resumed else None)


def test_tries_of_another_day_and_a_persons_resumes_do_not_count(paused: Make, alice: User) -> None:
    run = paused("sampler_died", 30, tries=3)
    RunEvent.objects.filter(run=run, payload__to="queued").update(at=timezone.now() - timedelta(hours=25))
    assert recovery.resume_where_over() == 1
    other = paused("sampler_died", 30)
    for number in range(5):
        _event(other, 10 + number, RunState.QUEUED, timezone.now() - timedelta(hours=1), "resumed by {name}")
    assert recovery.resume_where_over() == 1


@pytest.mark.parametrize("template", [DAY_TOKENS, "The run has used {used} tokens."])
def test_a_days_budget_comes_back_with_the_next_day_and_a_runs_does_not(
    paused: Make, project: Project, template: str
) -> None:
    endpoint = Endpoint.objects.create(project=project, name="big", url="https://example.org/v1", max_day_tokens=10)
    run = paused("budget_spent", kind="evaluate", endpoint={"name": "endpoint:big"})
    Run.objects.filter(pk=run.pk).update(error={"code": "budget_spent", "told": {"template": template, "values": {}}})
    spend_add(endpoint, tokens=10, cost=None, at=timezone.now(), run_id=run.pk)
    assert recovery.resume_where_over() == 0
    Endpoint.objects.update(max_day_tokens=11)
    assert recovery.resume_where_over() == int(template == DAY_TOKENS)
    assert reason_of(run) == (BUDGET_AGAIN if template == DAY_TOKENS else None)


def test_a_project_may_keep_its_runs_paused(paused: Make, project: Project, alice: User, client_for: Make) -> None:
    run = paused("environment_unreachable")
    seen(0)
    client: Client = client_for(alice)
    page = f"/p/{project.slug}/settings/doctor/"
    assert 'name="resumes"' in client.get(page).content.decode()
    assert client.post(page, {}).status_code == 302  # an empty box is off
    assert not DoctorRules.objects.get(project=project).resumes
    assert recovery.resume_where_over() == 0
    address = f"/api/v1/projects/{project.slug}/doctor"
    assert client.get(address).json()["resumes"] is False
    answer = client.patch(address, {"resumes": True}, content_type="application/json")
    assert answer.status_code == 200 and answer.json()["resumes"] is True
    assert client.patch(address, {}, content_type="application/json").json()["resumes"] is True
    assert recovery.resume_where_over() == 1 and reason_of(run) == ANSWERS_AGAIN


def test_a_run_that_cannot_be_read_keeps_no_other(paused: Make) -> None:
    broken, run = paused("environment_unreachable", nonsense=1), paused("environment_unreachable")
    seen(0)
    assert recovery.resume_where_over() == 1
    assert (reason_of(broken), reason_of(run)) == (None, ANSWERS_AGAIN)


@pytest.mark.parametrize(
    ("code", "tries", "says"),
    [
        ("environment_unreachable", 11, "It continues by itself once the cause of the pause is over."),
        ("environment_unreachable", 12, "It continued by itself 12 times within a day: now it waits for a person."),
        ("storage_full", 30, "It continues by itself once the cause of the pause is over."),
        ("not_finite", 0, ""),
    ],
)
def test_a_page_says_whether_a_run_continues_by_itself(
    paused: Make, project: Project, rita: User, client_for: Make, code: str, tries: int, says: str
) -> None:
    run = paused(code, tries=tries)
    rules = DoctorRules.objects.create(project=project, resumes=True)
    assert recovery.promise(run) == says
    page = client_for(rita).get(f"/p/{project.slug}/runs/{run.pk}/").content.decode()
    assert says in page and ("It continues by itself" in page or "It continued by itself" in page) == bool(says)
    DoctorRules.objects.filter(pk=rules.pk).update(resumes=False)
    assert recovery.promise(run) == ""
    Run.objects.filter(pk=run.pk).update(state=RunState.FAILED)
    DoctorRules.objects.all().delete()
    run.refresh_from_db()
    assert recovery.promise(run) == ""


def test_the_reasons_of_what_continues_by_itself() -> None:
    assert len(set(RECOVERED)) == 6
