"""A launch opens the run's page at once; a worker checks the run and queues it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone, translation

from tests.working import claimed, done, perform
from training.config import JobConfig, RewardComponent
from webapp.common.work import TRIES
from webapp.engine.services import run_create, run_stop
from webapp.launch import preflight
from webapp.launch.background import check_view, launch_checked
from webapp.launch.findings import Check, Offer
from webapp.launch.forms import RunForm
from webapp.launch.models import LaunchCheck
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run, RunEvent

Clients = Callable[..., Client]


@pytest.fixture
def config(make_dataset: Any, make_environment: Any, settings: Any) -> JobConfig:
    settings.OUTBOUND_ALLOW = ["127.0.0.1/32"]
    environment = make_environment(url="http://127.0.0.1:65001")
    return JobConfig.model_validate(
        {"data": {"train": make_dataset().reference}, "environment": {"name": environment.reference}}
    )


class Trainer:
    """What the slow checks find, and how often they were asked."""

    def __init__(self) -> None:
        self.found, self.asked = [Check("Model", True, "fits")], 0

    def __call__(self, *_asked: Any) -> Any:
        self.asked += 1
        return iter(self.found)


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    made = Trainer()
    monkeypatch.setattr(preflight, "_trainer_checks", made)
    monkeypatch.setattr(preflight, "_check_room", lambda config, environment, room: Check("Environment server", True))
    return made


def data_of(project: Project, config: JobConfig, name: str = "first", **over: Any) -> dict[str, Any]:
    """What a browser sends for the form of a config."""
    form = RunForm(project=project, config=config, name=name)
    data = {path: form[path].value() for path in form.fields} | over
    return {path: value for path, value in data.items() if value is not None and value is not False}


def checked(run: Run) -> Run:
    """The run after a worker has looked at it."""
    for item in LaunchCheck.objects.filter(run=run, state="open"):
        done(item)
    run.refresh_from_db()
    return run


def part(client: Client, run: Run) -> str:
    """The part of the run's page that shows the check."""
    return client.get(reverse("run-check", args=[run.project.slug, run.pk])).content.decode()


def test_launch_opens_the_runs_page_before_anything_was_asked(
    project: Project, bob: User, config: JobConfig, client_for: Clients, trainer: Trainer
) -> None:
    client = client_for(bob)
    answer = client.post(reverse("run-new", args=[project.slug]), data_of(project, config))
    run = Run.objects.get()
    assert answer["Location"] == reverse("run-detail", args=[project.slug, run.pk])
    assert (trainer.asked, run.state, run.phase) == (0, "draft", "checking")
    page = client.get(answer["Location"]).content.decode()
    assert "Checking before the launch" in page and 'hx-trigger="load delay:400ms"' in page
    assert "being checked" in client.get(reverse("run-list", args=[project.slug])).content.decode()
    assert checked(run).state == "queued" and run.phase == "" and trainer.asked == 1
    assert run.resolved["data"]["train"].endswith(".jsonl")
    after = part(client, run)
    assert "Checked before the launch" in after and "fits" in after and "hx-get" not in after


def test_each_finding_is_on_the_page_before_the_next_is_known(
    project: Project, bob: User, config: JobConfig, client_for: Clients, trainer: Trainer, monkeypatch: Any
) -> None:
    run = launch_checked(project=project, user=bob, name="first", config=config)
    seen: list[str] = []

    def slow(*_asked: Any) -> Any:
        seen.append(part(client_for(bob), run))
        yield Check("Model", True, "it fits")
        seen.append(part(client_for(bob), run))
        yield Check("Memory", True, "it is enough")

    monkeypatch.setattr(preflight, "_trainer_checks", slow)
    checked(run)
    assert "The address is allowed." in seen[0] and "it fits" not in seen[0]
    assert "it fits" in seen[1] and "it is enough" not in seen[1]


def test_servers_and_the_trainer_are_asked_where_nothing_needs_a_change_before(
    project: Project, config: JobConfig, trainer: Trainer, settings: Any
) -> None:
    def titles(**how: bool) -> set[str]:
        return {check.title for check in preflight.preflight(project, config, **how).checks}

    slow = {"Environment server", "Model"}
    assert not titles(full=False) & slow and trainer.asked == 0
    assert titles() >= slow and trainer.asked == 1
    settings.OUTBOUND_ALLOW = []
    assert not titles() & slow and trainer.asked == 1


@pytest.mark.parametrize(
    ("finding", "shown"),
    [
        ({"check": "rewards", "ok": True, "message": "m"}, []),
        ({"check": "environment", "ok": True, "message": "m"}, []),
        ({"check": "rewards", "ok": False, "message": "m"}, [("Rewards", False, "m")]),
        ({"check": "memory", "ok": True, "message": "m"}, [("Memory", True, "m")]),
        ({"check": "memory", "ok": False, "message": "m", "stage": "form"}, [("Memory · form", False, "m")]),
        ({"check": "memory"}, [("Trainer", False, "The trainer's own checks failed to run on this server.")]),
    ],
)
def test_findings_of_the_trainer_are_shown_unless_they_were_before(
    finding: dict[str, Any], shown: list[tuple[str, bool, str]]
) -> None:
    found = preflight._finding_of(json.dumps(finding).encode())
    assert [(check.title, check.ok, check.message) for check in found] == shown


def test_a_soft_problem_leaves_a_draft_that_can_be_launched_anyway(
    project: Project, bob: User, rita: User, config: JobConfig, client_for: Clients, trainer: Trainer
) -> None:
    trainer.found.append(Check("Memory", False, "It may not fit.", "Make the batch smaller."))
    client_for(bob).post(reverse("run-new", args=[project.slug]), data_of(project, config))
    run = checked(Run.objects.get())
    assert (run.state, run.phase) == ("draft", "")
    assert RunEvent.objects.filter(run=run, kind="warning").count() == 1, "viewers and the log hear of it"
    page = part(client_for(bob), run)
    assert "It may not fit." in page and 'id="launch-anyway"' in page and f"edit={run.pk}" in page
    assert 'id="launch-anyway"' not in part(client_for(rita), run)
    address = reverse("run-launch", args=[project.slug, run.pk])
    assert client_for(rita).post(address, {"anyway": "yes"}).status_code == 403
    client_for(bob).post(address, {"anyway": "yes"})
    run.refresh_from_db()
    assert run.state == "queued" and trainer.asked == 1, "what was found a moment ago is not looked for again"


def test_a_hard_problem_needs_a_change(
    project: Project, bob: User, config: JobConfig, client_for: Clients, trainer: Trainer, settings: Any
) -> None:
    settings.OUTBOUND_ALLOW = []
    run = checked(launch_checked(project=project, user=bob, name="first", config=config, anyway=True))
    page = part(client_for(bob), run)
    assert run.state == "draft" and "private to the server" in page and "This run needs a change" in page
    assert 'id="launch-anyway"' not in page
    client_for(bob).post(reverse("run-launch", args=[project.slug, run.pk]), {"anyway": "yes"})
    assert checked(run).state == "draft"


def test_slowness_is_a_remark_and_no_refusal(
    project: Project, bob: User, config: JobConfig, client_for: Clients, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """A check that took 30 seconds refused the launch."""
    config.rewards.components = [RewardComponent(name="task_success", weight=1.0)]  # the five alone are remarked
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nsleep 30\n")
    script.chmod(0o700)
    monkeypatch.setattr(preflight.sys, "executable", str(script))
    monkeypatch.setattr("webapp.launch.background.LONG_LIMIT_S", 0.3)
    monkeypatch.setattr(preflight, "_check_room", lambda config, environment, room: Check("Environment server", True))
    run = checked(launch_checked(project=project, user=bob, name="first", config=config))
    assert run.state == "queued"
    page = part(client_for(bob), run)
    assert "longer than 0.3 seconds" in page and "2 remarks" in page and 'data-level="remark"' in page


def test_check_first_is_not_repeated_by_the_launch(
    project: Project, bob: User, config: JobConfig, client_for: Clients, trainer: Trainer
) -> None:
    client, new = client_for(bob), reverse("run-new", args=[project.slug])
    client.post(reverse("run-preflight", args=[project.slug]), data_of(project, config))
    client.post(new, data_of(project, config))
    assert Run.objects.get(name="first").state == "queued" and trainer.asked == 1
    config.run.max_steps += 1
    client.post(new, data_of(project, config, name="other"))
    assert Run.objects.get(name="other").state == "draft", "another config is another check"
    config.run.max_steps -= 1
    LaunchCheck.objects.update(ended_at=timezone.now() - timedelta(minutes=6))
    client.post(new, data_of(project, config, name="later"))
    assert Run.objects.get(name="later").state == "draft", "what was found minutes ago may have changed"


def test_a_stopped_check_is_made_again_when_asked(
    project: Project, bob: User, config: JobConfig, client_for: Clients, trainer: Trainer
) -> None:
    offer = Offer("00000000-0000-0000-0000-000000000000", 2)
    trainer.found.append(Check("Environment server", False, "None of its servers runs.", offer=offer))
    run = checked(launch_checked(project=project, user=bob, name="first", config=config))
    assert "Start 2 more replicas" in part(client_for(bob), run)
    trainer.found.pop()
    client_for(bob).post(reverse("run-launch", args=[project.slug, run.pk]))
    assert checked(run).state == "queued" and trainer.asked == 2


def test_a_draft_is_changed_under_its_own_name(
    project: Project, bob: User, config: JobConfig, client_for: Clients, trainer: Trainer
) -> None:
    trainer.found.append(Check("Learning rate", False, "This collapses.", path="optim.learning_rate"))
    config.optim.learning_rate = 1.0
    run = checked(launch_checked(project=project, user=bob, name="first", config=config))
    client, new = client_for(bob), reverse("run-new", args=[project.slug])
    form = client.get(f"{new}?edit={run.pk}").context["form"]
    assert (form["name"].value(), form["optim.learning_rate"].value()) == ("first", 1.0)
    trainer.found.pop()
    config.optim.learning_rate = 1e-5
    data = data_of(project, config, draft=str(run.pk))
    for _click in range(2):
        assert client.post(new, data)["Location"] == reverse("run-detail", args=[project.slug, run.pk])
    assert Run.objects.count() == 1 and checked(run).state == "queued"
    assert run.config["optim"]["learning_rate"] == run.resolved["optim"]["learning_rate"] == 1e-5
    assert client.get(f"{new}?edit={run.pk}").status_code == 404, "it is no draft any more"


def test_a_run_that_was_stopped_or_changed_meanwhile_is_not_queued(
    project: Project, bob: User, config: JobConfig, trainer: Trainer
) -> None:
    run = launch_checked(project=project, user=bob, name="first", config=config)
    taken = claimed(LaunchCheck.objects.get())
    run_stop(run=run, user=bob)
    perform(taken)
    run.refresh_from_db()
    assert (run.state, run.phase) == ("cancelled", "")
    config.run.max_steps = 6  # the other one was found good a moment ago
    other = launch_checked(project=project, user=bob, name="other", config=config)
    old = claimed(LaunchCheck.objects.get(run=other))
    config.run.max_steps = 7
    launch_checked(project=project, user=bob, name="other", config=config, draft=other)
    perform(old)
    other.refresh_from_db()
    assert (other.state, other.phase) == ("draft", "checking"), "only the newer check may queue it"
    assert checked(other).state == "queued" and other.total_steps == 7


def test_workers_that_die_leave_no_run_in_the_dark(
    project: Project, bob: User, config: JobConfig, client_for: Clients, trainer: Trainer
) -> None:
    run = launch_checked(project=project, user=bob, name="first", config=config)
    LaunchCheck.objects.update(tries=TRIES)
    checked(run)
    page = part(client_for(bob), run)
    assert (run.state, run.phase) == ("draft", "") and "its worker was lost" in page and "Launch anyway" in page
    with translation.override("zh-hans"):
        other = launch_checked(project=project, user=bob, name="other", config=config)
    stopped = launch_checked(project=project, user=bob, name="stopped", config=config)
    run_stop(run=stopped, user=bob)
    LaunchCheck.objects.update(tries=TRIES)
    assert checked(other).state == "draft" and checked(stopped).state == "cancelled"
    warnings = RunEvent.objects.filter(kind="warning").order_by("at")
    assert [(event.run, event.payload["message"][:5]) for event in warnings] == [(run, "The c"), (other, "启动前检查")]


def test_a_draft_without_a_check_can_be_launched_from_its_page(
    project: Project, bob: User, config: JobConfig, client_for: Clients, trainer: Trainer
) -> None:
    """A draft made over the API could not be launched."""
    run = run_create(project=project, user=bob, name="first", config=config, launch=False)
    client = client_for(bob)
    assert (
        "A draft, not launched yet" in client.get(reverse("run-detail", args=[project.slug, run.pk])).content.decode()
    )
    client.post(reverse("run-launch", args=[project.slug, run.pk]))
    view = check_view(run)
    assert view is not None and view.open and checked(run).state == "queued"
