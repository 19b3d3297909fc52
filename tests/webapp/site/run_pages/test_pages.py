"""The list of runs, the run page, and what can be done there."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone, translation

from training.config import JobConfig
from training.errors import ErrorInfo
from webapp.common.storage import attempt_dir
from webapp.common.words import STATE_REASONS
from webapp.common.workers.models import Worker
from webapp.datasets.models import DatasetState
from webapp.engine.services import run_stop
from webapp.people.teams.models import Project, User
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run, RunEvent
from webapp.runs.records.selectors import aged, stalled
from webapp.runs.registry.models import Checkpoint
from webapp.runs.reports import event_words
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.states import RunState
from webapp.site.run_pages import page

Clients = Callable[..., Client]
Make = Callable[..., Any]
READS = ["run-detail", "run-parts", "run-log", "run-output", "run-config", "run-events"]
WRITES = ["run-stop", "run-pause", "run-resume"]
pytestmark = pytest.mark.django_db


def _url(name: str, run: Run, slug: str | None = None) -> str:
    return reverse(name, args=[slug or run.project.slug, run.pk])


@pytest.fixture
def rollout(make_run: Make) -> Rollout:
    """An excluded rollout with a hostile transcript."""
    run = make_run(name="fighter", state=RunState.RUNNING, step=3, total_steps=10)
    made = Rollout.objects.create(
        run=run,
        attempt=1,
        step=3,
        group=0,
        index=1,
        task="<b>bold</b>",
        status="excluded",
        started_at=timezone.now(),
        seq=1,
        error={"code": "environment_timeout", "boundary": "environment", "message": "too slow", "hint": "look"},
        parts={"p": None},
    )
    messages = [
        {
            "role": "assistant",
            "content": "<script>alert(1)</script>\u202eevil",
            "tool_calls": [{"id": "1", "name": "go", "arguments": {"a": "<i>"}}],
        }
    ]
    Turn.objects.create(rollout=made, run=run, number=1, messages=messages, seq=1)
    return made


@pytest.mark.parametrize("name", READS)
def test_members_read_strangers_find_nothing(
    name: str, client_for: Clients, make_run: Make, alice: User, rita: User, charlie: User
) -> None:
    run = make_run()
    for user in (alice, rita):
        assert client_for(user).get(_url(name, run)).status_code == 200
    assert client_for(charlie).get(_url(name, run)).status_code == 404
    assert client_for(charlie).get(_url(name, run, "elsewhere")).status_code == 404
    assert client_for(None).get(_url(name, run)).status_code == 302
    assert client_for(alice).post(_url(name, run)).status_code == 405
    assert client_for(alice).get(reverse(name, args=[run.project.slug, uuid.uuid4()])).status_code == 404


@pytest.mark.parametrize("name", WRITES)
def test_editors_act_viewers_may_not(
    name: str, client_for: Clients, make_run: Make, bob: User, rita: User, charlie: User
) -> None:
    run = make_run(state=RunState.PAUSED if name == "run-resume" else RunState.RUNNING, attempt=1, lease_owner="w")
    assert client_for(rita).post(_url(name, run)).status_code == 403
    assert client_for(charlie).post(_url(name, run)).status_code == 404
    assert client_for(None).post(_url(name, run)).status_code == 302
    assert client_for(bob).get(_url(name, run)).status_code == 405
    assert client_for(bob, enforce_csrf_checks=True).post(_url(name, run)).status_code == 403
    assert client_for(bob).post(_url(name, run)).headers["Location"] == _url("run-detail", run)
    run.refresh_from_db()
    assert run.state == {"run-stop": "stopping", "run-pause": "pausing", "run-resume": "queued"}[name]


def test_what_is_impossible_is_reported(client_for: Clients, make_run: Make, bob: User) -> None:
    run = make_run(state=RunState.SUCCEEDED)
    page = client_for(bob).post(_url("run-pause", run), follow=True).content.decode()
    assert "not possible now" in page


def test_the_list_filters_sorts_and_refreshes_only_while_something_runs(
    client_for: Clients, make_run: Make, project: Project, bob: User
) -> None:
    make_run(name="alpha", state=RunState.SUCCEEDED, created_by=bob)
    client, url = client_for(bob), reverse("run-list", args=[project.slug])
    assert "live-tick" not in client.get(url).content.decode()
    make_run(name="beta", state=RunState.RUNNING, last_reward=0.5)
    page = client.get(url).content.decode()
    assert "live-tick" in page and page.index("beta") < page.index("alpha")
    page = client.get(url, {"sort": "name"}).content.decode()
    assert page.index("alpha") < page.index("beta")
    assert "alpha" not in client.get(url, {"state": "active"}).content.decode()
    nothing = client.get(url, {"q": "zzz", "sort": "password", "page": "-3", "state": "'"}).content.decode()
    assert "No run matches" in nothing


def test_a_queued_run_says_its_place_before_any_script(
    client_for: Clients, make_run: Make, project: Project, rita: User, charlie: User
) -> None:
    at = timezone.now()
    Worker.objects.create(name="train@a", queues=["train"], started_at=at, beat_at=at)
    fields = {"state": "running", "total_steps": 10, "step_seconds": 60.0, "lease_worker": "train@a"}
    make_run(name="secret", project=Project.objects.get(slug="elsewhere"), lease_beat_at=at, **fields)
    run = make_run(name="mine", state=RunState.QUEUED, queued_at=at)
    client = client_for(rita)
    page = client.get(_url("run-detail", run)).content.decode()
    assert "Next in line: starts in about 10 min." in page
    assert "train@a has a run of another project: about 10 min left." in page and "secret" not in page
    for address in (reverse("run-list", args=[project.slug]), reverse("project-page", args=[project.slug])):
        assert "next in line · about 10 min" in client.get(address).content.decode()
    Run.objects.filter(pk=run.pk).update(state=RunState.PAUSED)
    assert 'id="run-waiting" role="status" hidden' in client.get(_url("run-detail", run)).content.decode()


@pytest.mark.parametrize(("phase", "code", "word"), [("checking", "checking", "being checked"), ("", "draft", "draft")])
def test_a_run_in_its_launch_check_is_no_draft_to_a_reader(
    client_for: Clients, make_run: Make, project: Project, rita: User, phase: str, code: str, word: str
) -> None:
    run, client = make_run(phase=phase), client_for(rita)
    badge = f'data-state="{code}">{word}</span>'
    assert f'id="run-state" {badge}' in client.get(_url("run-detail", run)).content.decode()
    assert f'<span class="badge" {badge}' in client.get(reverse("run-list", args=[project.slug])).content.decode()


def test_a_list_without_runs_names_the_data_that_is_being_checked(
    client_for: Clients, make_dataset: Make, make_run: Make, project: Project, bob: User
) -> None:
    """The first page of the demo said "No runs yet" and stayed so while its data were made."""
    client, url = client_for(bob), reverse("run-list", args=[project.slug])
    make_dataset(name="ready")
    assert "is being checked" not in client.get(url).content.decode()
    data = make_dataset(name="tasks", state=DatasetState.CHECKING)
    page = client.get(url).content.decode()
    assert "Data is being checked:" in page and "live-tick" in page
    assert f'href="{reverse("dataset-detail", args=[project.slug, data.pk])}">{data}</a>' in page
    make_run(state=RunState.SUCCEEDED)
    page = client.get(url).content.decode()
    assert "is being checked" not in page and "live-tick" not in page


def test_htmx_gets_the_table_alone_but_a_restored_page_whole(
    client_for: Clients, make_run: Make, project: Project, bob: User
) -> None:
    make_run()
    client, url = client_for(bob), reverse("run-list", args=[project.slug])
    part = client.get(url, headers={"HX-Request": "true"})
    assert "<html" not in part.content.decode() and "HX-Request" in part.headers["Vary"]
    assert (
        "<html"
        in client.get(url, headers={"HX-Request": "true", "HX-History-Restore-Request": "true"}).content.decode()
    )


def test_the_list_costs_the_same_for_many_runs(
    client_for: Clients, make_run: Make, project: Project, bob: User, django_assert_max_num_queries: Any
) -> None:
    for _number in range(20):
        run = make_run(created_by=bob, state=RunState.RUNNING)
        for step in range(3):
            MetricPoint.objects.create(run=run, attempt=1, step=step, name="reward", value=step, seq=1)
    client = client_for(bob)
    with django_assert_max_num_queries(15):
        page = client.get(reverse("run-list", args=[project.slug])).content.decode()
    assert page.count("<polyline") == 20


def test_a_failure_is_named_with_its_next_action(client_for: Clients, make_run: Make, rita: User) -> None:
    error = {"code": "trainer_died", "boundary": "trainer", "message": "It died <b>.", "hint": "Try less."}
    page = client_for(rita).get(_url("run-detail", make_run(state=RunState.FAILED, error=error))).content.decode()
    assert "trainer_died" in page and "It died &lt;b&gt;." in page and "Try less." in page


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        (RunState.QUEUED, {"run-stop"}),
        (RunState.RUNNING, {"run-pause", "run-stop"}),
        (RunState.PAUSED, {"run-resume", "run-stop"}),
        (RunState.STOPPING, set()),
        (RunState.SUCCEEDED, set()),
    ],
)
def test_the_parts_have_the_buttons_of_the_state(
    state: RunState, wanted: set[str], client_for: Clients, make_run: Make, bob: User, rita: User
) -> None:
    run = make_run(state=state)
    text = client_for(bob).get(_url("run-parts", run)).content.decode()
    assert {name for name in ("run-pause", "run-resume", "run-stop") if f'id="{name}"' in text} == wanted
    assert f'data-state="{state}"' in text and "Clone" in text and "<noscript>" not in text
    assert "<button" not in client_for(rita).get(_url("run-parts", run)).content.decode()


def test_the_parts_have_the_output_of_a_failed_trainer(client_for: Clients, make_run: Make, rita: User) -> None:
    error = {"code": "trainer_died", "boundary": "trainer", "message": "Gone.", "hint": ""}
    run = make_run(state=RunState.FAILED, attempt=1, error=error)
    folder = attempt_dir(run.pk, 1)
    folder.mkdir(parents=True)
    (folder / "output.log").write_text("CUDA <out> of memory\n")
    for name in ("run-parts", "run-detail"):
        text = client_for(rita).get(_url(name, run)).content.decode()
        assert text.count("CUDA &lt;out&gt; of memory") == 2, name
        assert ("hx-swap-oob" in text) == (name == "run-parts")


def _silent_run(make_run: Make, minutes: float, **over: Any) -> Run:
    at = timezone.now() - timedelta(minutes=minutes)
    fields = {"state": RunState.RUNNING, "attempt": 1, "lease_started_at": at - timedelta(hours=1)}
    return make_run(**fields | {"last_event_at": at} | over)


def test_a_run_without_progress_is_marked(client_for: Clients, make_run: Make, rita: User) -> None:
    run = _silent_run(make_run, 7.5)
    page = client_for(rita).get(_url("run-detail", run)).content.decode()
    assert "No progress for 7 min" in page and '"stall_after": 300' in page
    assert 'id="run-stall-help" hidden' not in page.replace('data-kind="warning" ', "")
    assert (
        "No progress for 7 min" in client_for(rita).get(reverse("run-list", args=[run.project.slug])).content.decode()
    )


@pytest.mark.parametrize(
    ("minutes", "over"),
    [
        (4.5, {}),
        (30, {"state": RunState.QUEUED}),
        (30, {"state": RunState.FAILED}),
        (30, {"lease_started_at": timezone.now}),  # a new attempt that has not said a word yet
        (30, {"last_event_at": None, "lease_started_at": None}),
    ],
)
def test_a_run_that_gets_on_is_not_marked(
    minutes: float, over: dict[str, Any], client_for: Clients, make_run: Make, rita: User
) -> None:
    run = _silent_run(
        make_run, minutes, **{name: value() if callable(value) else value for name, value in over.items()}
    )
    for url in (_url("run-detail", run), reverse("run-list", args=[run.project.slug])):
        text = client_for(rita).get(url).content.decode().split('id="strings-base"')[0]
        assert "No progress for" not in text


def test_how_long_is_too_long_is_a_setting(client_for: Clients, make_run: Make, rita: User, settings: Any) -> None:
    settings.STALL_AFTER_S = 3600
    run = _silent_run(make_run, 61)
    assert "No progress for 1 h 1 min" in client_for(rita).get(_url("run-detail", run)).content.decode()
    assert stalled(aged(run)) and not stalled(aged(_silent_run(make_run, 59)))


def test_nothing_inline(client_for: Clients, make_run: Make, bob: User, rollout: Rollout) -> None:
    urls = [_url("run-detail", rollout.run), reverse("rollout-detail", args=[rollout.run.project.slug, rollout.pk])]
    urls += [
        f"/p/{rollout.run.project.slug}/",
        f"/p/{rollout.run.project.slug}/settings/",
        reverse("run-list", args=[rollout.run.project.slug]),
    ]
    for url in urls:
        answer = client_for(bob).get(url)
        text = answer.content.decode()
        assert " style=" not in text and " onclick=" not in text, url
        assert "<script>" not in text, url
        assert "script-src 'self';" in answer.headers["Content-Security-Policy"]


def test_a_hostile_transcript_is_only_text(client_for: Clients, rita: User, charlie: User, rollout: Rollout) -> None:
    url = reverse("rollout-detail", args=[rollout.run.project.slug, rollout.pk])
    page = client_for(rita).get(url).content.decode()
    assert "&lt;script&gt;alert(1)" in page and "\u202e" not in page and "U+202E" in page
    assert "environment_timeout" in page and "missing" in page
    assert client_for(charlie).get(url).status_code == 404
    assert client_for(charlie).get(reverse("rollout-detail", args=["elsewhere", rollout.pk])).status_code == 404
    assert client_for(None).get(url).status_code == 302
    assert client_for(rita).post(url).status_code == 405
    assert (
        client_for(rita).get(reverse("rollout-detail", args=[rollout.run.project.slug, uuid.uuid4()])).status_code
        == 404
    )


def test_rollouts_can_be_reached_without_scripts(client_for: Clients, rita: User, rollout: Rollout) -> None:
    asked = {"tab": "rollouts", "step": "3"}
    page = client_for(rita).get(_url("run-detail", rollout.run), asked, follow=True).content.decode()
    assert reverse("rollout-detail", args=[rollout.run.project.slug, rollout.pk]) in page
    for bad in ("-1", "x", "9" * 30, "4"):
        answer = client_for(rita).get(_url("run-detail", rollout.run), {"tab": "rollouts", "step": bad}, follow=True)
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("asked", "query"),
    [
        ("step=3", "?step_from=3&step_to=3"),
        (f"step=0&rollout={uuid.UUID(int=7)}", f"?step_from=0&step_to=0&rollout={uuid.UUID(int=7)}"),
        (f"rollout={uuid.UUID(int=7)}&smooth=0.6", f"?rollout={uuid.UUID(int=7)}"),
        ("step=x", ""),
        ("", ""),
    ],
)
def test_addresses_of_the_former_tab_of_rollouts_lead_to_the_list(
    client_for: Clients, rita: User, make_run: Make, asked: str, query: str
) -> None:
    for state, live in ((RunState.SUCCEEDED, ""), (RunState.RUNNING, "?newest=yes")):
        run = make_run(state=state)
        answer = client_for(rita).get(f"{_url('run-detail', run)}?tab=rollouts&{asked}")
        assert (answer.status_code, answer["Location"]) == (302, f"{_url('run-rollouts', run)}{query or live}")
        page = client_for(rita).get(_url("run-detail", run)).content.decode()
        assert f'href="{_url("run-rollouts", run)}{live}"' in page


def test_log_and_config_are_files(client_for: Clients, make_run: Make, rita: User) -> None:
    run = make_run(name="first run")
    RunEvent.objects.create(
        run=run, seq=1, kind="log", payload={"level": "info", "message": "hello\u202e"}, at=timezone.now()
    )
    log = client_for(rita).get(_url("run-log", run))
    assert (
        "info hello" in log.content.decode()
        and log.headers["Content-Disposition"] == 'attachment; filename="first-run.log.txt"'
    )
    config = client_for(rita).get(_url("run-config", run))
    assert "kind: grpo" in config.content.decode() and config.headers["X-Content-Type-Options"] == "nosniff"


def test_the_log_does_not_say_again_what_the_events_say(client_for: Clients, make_run: Make, rita: User) -> None:
    """Every change of state and every warning was in both tabs; the file that is downloaded has all of it."""
    run = make_run(attempt=1)
    recorded = [
        ("state", {"from": "queued", "to": "preparing"}),
        ("attempt", {"number": 1, "device": "cpu-7"}),
        ("warning", {"code": "unknown_code", "message": "left no model"}),
        ("log", {"level": "warning", "message": "30 rows are left out"}),
    ]
    for seq, (kind, payload) in enumerate(recorded, 1):
        RunEvent.objects.create(run=run, seq=seq, kind=kind, payload=payload, at=timezone.now())
    attempt_dir(run.pk, 1).mkdir(parents=True)
    (attempt_dir(run.pk, 1) / "output.log").write_text("step 1 reward 0.3781\n")
    text = client_for(rita).get(_url("run-detail", run)).content.decode()
    log = text.split('id="panel-log"')[1].split("</section>")[0]
    events = text.split('id="panel-events"')[1].split("</section>")[0]
    for words in ("queued → preparing", "cpu-7", "left no model"):
        assert (words in log, words in events) == (False, True), words
    for words in ("30 rows are left out", "step 1 reward 0.3781"):
        assert (words in log, words in events) == (True, False), words
    assert "step 1 reward" in client_for(rita).get(_url("run-output", run)).content.decode()
    file = client_for(rita).get(_url("run-log", run)).content.decode()
    assert all(words in file for words in ("state queued → preparing", "cpu-7", "warning left no model", "30 rows"))


def test_events_are_in_the_readers_language(client_for: Clients, make_run: Make, rita: User) -> None:
    run = make_run()
    payload = {"from": "queued", "to": "preparing"}
    RunEvent.objects.create(run=run, seq=1, kind="state", payload=payload, at=timezone.now())
    with translation.override("zh-hans"):
        assert event_words({"kind": "state", "payload": payload}) == "排队中 → 准备中"


def test_why_a_state_changed_is_in_the_readers_language(make_run: Make, project: Any, rita: User) -> None:
    """It was English on Chinese pages; an event of an older version still holds English text."""
    run = make_run(state="running", attempt=1, lease_owner="w1")
    run_stop(run=run, user=rita)
    error = ErrorInfo(code="trainer_died", boundary="trainer", message="No result.", hint="")
    stopped = RunEvent.objects.get(run=run, kind="state")
    assert stopped.payload["reason"] == {"template": "stopped by {name}", "values": {"name": "rita"}}
    assert event_words({"kind": "state", "payload": stopped.payload}) == "running → stopping · stopped by rita"
    with translation.override("zh-hans"):
        assert event_words({"kind": "state", "payload": stopped.payload}) == "运行中 → 停止中 · 由 rita 停止"
        words = event_words({"kind": "state", "payload": {"error": error.model_dump(mode="json")}})
        assert "No result." in words and "训练" in words
        assert event_words({"kind": "state", "payload": {"reason": "launched by ana"}}).endswith("launched by ana")
        for template in STATE_REASONS:
            assert translation.gettext(template) != template, template


def test_the_newest_checkpoints_are_listed_and_of_one_step_the_last_try(
    client_for: Clients, make_run: Make, rita: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.site.run_pages.views.CHECKPOINTS_SHOWN", 3)
    run = make_run(state=RunState.FAILED)
    for attempt, step in ((1, 8), (1, 6), (2, 6), (3, 4)):
        Checkpoint.objects.create(
            project=run.project, run=run, attempt=attempt, step=step, path=f"{attempt}/{step}", bytes=1, seq=1,
            created_at=timezone.now(),
        )  # fmt: skip
    shown = client_for(rita).get(_url("run-detail", run)).context["checkpoints"]
    assert [(each.step, each.attempt) for each in shown] == [(8, 1), (6, 2), (6, 1)]


def test_older_events_come_page_by_page(client_for: Clients, make_run: Make, rita: User) -> None:
    run = make_run()
    RunEvent.objects.bulk_create(
        RunEvent(run=run, seq=seq, kind="warning", payload={"message": f"w{seq}."}, at=timezone.now())
        for seq in range(1, 251)
    )
    first = client_for(rita).get(_url("run-events", run)).content.decode()
    assert "w250." in first and "w50." not in first and "before=51" in first
    second = client_for(rita).get(_url("run-events", run), {"before": "51"}).content.decode()
    assert "w50." in second and "w51." not in second and "before=" not in second
    assert client_for(rita).get(_url("run-events", run), {"before": "x"}).status_code == 200


def test_an_sft_run_has_no_rollouts_tab(client_for: Clients, make_run: Make, rita: User) -> None:
    run = make_run(kind="sft")
    page = client_for(rita).get(_url("run-detail", run), {"tab": "rollouts"}).content.decode()
    assert 'data-tab="rollouts"' not in page and 'id="panel-curves"' in page


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED])
def test_an_ended_run_has_nothing_longest_in_flight(
    client_for: Clients, make_run: Make, rita: User, state: RunState
) -> None:
    response = client_for(rita).get(_url("run-detail", make_run(name="fighter", state=state)))
    shown = "Longest in flight" in response.content.decode()
    assert shown is (state == RunState.RUNNING)
    assert ("flight-slow" in response.content.decode()) is shown


def test_a_config_of_another_version_does_not_break_the_page(client_for: Clients, make_run: Make, rita: User) -> None:
    run = make_run()
    Run.objects.filter(pk=run.pk).update(config={"version": 99}, resolved={"no": "such"})
    page = client_for(rita).get(_url("run-detail", run))
    assert page.status_code == 200 and "another version" in page.content.decode()


def test_a_run_without_a_kl_weight_has_no_empty_tile(make_run: Any) -> None:
    """It showed a dash for the whole run."""
    names = {}
    for beta in (0.0, 0.04):
        run = make_run(config=JobConfig.model_validate({"grpo": {"beta": beta}}))
        names[beta] = [tile.name for tile in page.tiles(run)]
    assert "kl" not in names[0.0] and "kl" in names[0.04]


def test_only_owners_see_the_servers_folders(
    project: Project, alice: User, rita: User, client_for: Callable[..., Client], make_run: Any
) -> None:
    """The config showed all readers the server's paths."""
    written = JobConfig.model_validate({"data": {"train": "dataset:rows@1"}, "optim": {"learning_rate": 2e-4}})
    meant = written.model_copy(deep=True)
    meant.data.train, meant.environment.url = "/srv/data/rows.jsonl", "http://10.0.0.7:8000"
    run = make_run(config=written, resolved=meant.model_dump(mode="json"))
    for name in ("run-detail", "run-config"):
        address = reverse(name, args=[project.slug, run.pk])
        shown = client_for(rita).get(address).content.decode()
        assert "/srv/data" not in shown and "10.0.0.7" not in shown and "dataset:rows@1" in shown and "0.0002" in shown
        assert "/srv/data/rows.jsonl" in client_for(alice).get(address).content.decode()
