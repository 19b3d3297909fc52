"""A preset is made ready, and launched if asked, while no page is open."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.working import at_once, done
from training.presets import presets
from webapp.datasets.models import Dataset
from webapp.environments.models import DatasetOrder, Environment, OrderState
from webapp.environments.orders import order_create, order_room
from webapp.launch import background
from webapp.launch.background import preparation_drop, preparation_open
from webapp.launch.findings import Check, Outcome
from webapp.launch.models import Preparation
from webapp.people.teams.models import Membership, Project, User
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db(transaction=True)
GRPO, SFT, TOOLBENCH = presets()["reasoning-grpo"], presets()["reasoning-sft"], presets()["toolbench"]


@pytest.fixture(autouse=True)
def _workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Datasets are checked here, without a worker; orders wait until a test has them written."""
    at_once(monkeypatch, Dataset)
    monkeypatch.setattr("webapp.engine.history._send_message", lambda row: True)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """What the check before the launch finds; its own tests run the real one."""
    found: list[Check] = []
    monkeypatch.setattr(background, "preflight", lambda project, config, **more: Outcome(found, config))
    return found


def begin(project: Project, user: User, preset: Any, *, launch: bool = True) -> Preparation:
    return preparation_open(project=project, user=user, preset=preset, size="test", launch=launch)


def look_all() -> None:
    """What workers do every few seconds."""
    for item in Preparation.objects.filter(state="open"):
        done(item)


def test_one_click_ends_in_a_run(project: Project, bob: User, checked: list[Check]) -> None:
    item = begin(project, bob, GRPO)
    assert item.state == "open" and Run.objects.filter(kind="grpo").count() == 0
    for _look in range(3):
        look_all()
    item.refresh_from_db()
    assert item.run is not None and (item.state, item.run.name) == ("done", "reasoning-grpo-test-1")
    assert (item.run.state, item.run.created_by) == ("queued", bob)
    assert item.run.after is not None and item.run.after.name == "reasoning-sft-test-1"
    assert sorted(Run.objects.values_list("name", flat=True)) == ["reasoning-grpo-test-1", "reasoning-sft-test-1"]
    look_all()
    assert Run.objects.count() == 2 and Dataset.objects.count() == 2


def test_without_a_launch_it_ends_when_all_is_there(project: Project, bob: User) -> None:
    item = begin(project, bob, GRPO, launch=False)
    look_all()
    item.refresh_from_db()
    assert (item.state, item.run) == ("done", None) and Run.objects.get().kind == "sft"
    assert begin(project, bob, SFT, launch=False).state == "done"  # nothing was missing


def test_two_clicks_are_one_and_the_last_word_counts(project: Project, bob: User) -> None:
    first, second = begin(project, bob, TOOLBENCH), begin(project, bob, TOOLBENCH, launch=False)
    assert first.pk == second.pk and not second.launch
    assert (Preparation.objects.count(), Environment.objects.count()) == (1, 1)


def test_presets_in_quick_succession_take_turns(project: Project, bob: User, client_for: Callable[..., Client]) -> None:
    """A project has a few orders of datasets open at once; what comes later waits for its turn."""
    begin(project, bob, TOOLBENCH)
    environment = Environment.objects.get()
    while order_room(project):
        order_create(environment=environment, user=bob, name="other", command="tasks", arguments={"count": 5})
    item = begin(project, bob, presets()["webshop"])
    look_all()
    item.refresh_from_db()
    assert (item.state, DatasetOrder.objects.count()) == ("open", 3)
    asked = {"preset": "webshop", "size": "test"}
    page = client_for(bob).get(reverse("run-needs", args=[project.slug]), asked).headers["Location"]
    shown = client_for(bob).get(page).content.decode()
    assert "waits until another dataset of this project is generated" in shown
    DatasetOrder.objects.filter(name="other").update(state=OrderState.FAILED)
    look_all()
    assert DatasetOrder.objects.exclude(environment=environment).count() == 1


def test_a_failure_is_a_sentence_and_may_be_tried_again(project: Project, bob: User) -> None:
    item = begin(project, bob, TOOLBENCH)
    error = {"message": "The rows became too many.", "hint": "Ask for fewer."}
    DatasetOrder.objects.filter(command="tasks").update(state=OrderState.FAILED, error=error)
    look_all()
    item.refresh_from_db()
    assert (item.state, item.note) == ("failed", "Dataset: The rows became too many. Ask for fewer.")
    again = begin(project, bob, TOOLBENCH)
    item.refresh_from_db()
    assert (item.state, again.state) == ("dropped", "open")
    assert DatasetOrder.objects.filter(command="tasks").count() == 2


def test_the_check_before_the_launch_may_stop_it(project: Project, bob: User, checked: list[Check]) -> None:
    checked.append(Check("Environment server", False, "8 of 32 sessions are free.", "", False))
    item = begin(project, bob, SFT)
    look_all()
    item.refresh_from_db()
    assert item.note == "Everything is ready, but the check before the launch reports: 8 of 32 sessions are free."
    assert item.state == "failed" and Run.objects.count() == 0


def test_who_lost_the_right_launches_nothing(project: Project, bob: User, checked: list[Check]) -> None:
    item = begin(project, bob, SFT)
    Membership.objects.filter(user=bob).update(role="viewer")
    look_all()
    item.refresh_from_db()
    assert item.note == "The person who asked for this may no longer change the project." and Run.objects.count() == 0


def test_it_does_not_wait_without_end(project: Project, bob: User) -> None:
    item = begin(project, bob, TOOLBENCH)
    Preparation.objects.update(created_at=timezone.now() - timedelta(hours=25))
    look_all()
    item.refresh_from_db()
    assert (item.state, item.note) == ("failed", "It was not ready within a day.")


def test_one_worker_at_a_time_and_none_without_end(project: Project, bob: User, checked: list[Check]) -> None:
    item = begin(project, bob, SFT)
    Preparation.objects.update(token="another")
    look_all()
    assert Run.objects.count() == 0
    Preparation.objects.update(token="")
    look_all()
    item.refresh_from_db()
    assert item.run is not None and item.token == ""


def test_a_change_of_mind_while_the_check_runs(project: Project, bob: User, monkeypatch: pytest.MonkeyPatch) -> None:
    item = begin(project, bob, SFT)

    def slow(project: Project, config: Any, **_more: Any) -> Outcome:
        preparation_drop(item=Preparation.objects.get())
        return Outcome([], config)

    monkeypatch.setattr(background, "preflight", slow)
    look_all()
    item.refresh_from_db()
    assert item.state == "dropped" and Run.objects.count() == 0


def test_one_that_breaks_keeps_no_other_waiting(
    project: Project, bob: User, checked: list[Check], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, whole = begin(project, bob, TOOLBENCH), begin(project, bob, SFT)
    real = background.situation

    def situation(project: Project, preset: Any, size: Any) -> Any:
        if preset.id == "toolbench":
            raise RuntimeError("boom")
        return real(project, preset, size)

    monkeypatch.setattr(background, "situation", situation)
    look_all()
    broken.refresh_from_db()
    whole.refresh_from_db()
    assert (broken.state, broken.note) == ("failed", "An unexpected failure inside Tiltyard (RuntimeError).")
    assert whole.run is not None


def test_an_outage_of_the_database_fails_nothing(
    project: Project, bob: User, checked: list[Check], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_args: Any, **_kwargs: Any) -> None:
        raise OperationalError("the connection was closed")

    item = begin(project, bob, SFT)
    with monkeypatch.context() as outage, pytest.raises(OperationalError):
        outage.setattr(background, "needs_make", away)
        look_all()
    item.refresh_from_db()
    assert item.state == "open"
    Preparation.objects.update(token="")
    look_all()
    item.refresh_from_db()
    assert item.run is not None


def test_pages_tell_it_and_let_it_go(
    project: Project, bob: User, rita: User, charlie: User, client_for: Callable[..., Client], checked: list[Check]
) -> None:
    runs, new = reverse("run-list", args=[project.slug]), reverse("run-new", args=[project.slug])
    needs = reverse("run-needs", args=[project.slug])
    asked = {"preset": "toolbench", "size": "test"}
    editor = client_for(bob)
    shown = editor.post(needs, {**asked, "launch": "yes"}, headers={"HX-Request": "true"}).content.decode()
    item = Preparation.objects.get()
    assert item.launch and f"watched={item.pk}" in shown and "the run is launched when everything is ready" in shown
    listed = client_for(rita).get(runs).content.decode()
    leave = reverse("preparation-leave", args=[project.slug, item.pk])
    assert "the run is launched when everything is ready" in listed and leave not in listed
    assert leave in editor.get(runs).content.decode()
    assert client_for(rita).post(leave).status_code == 403
    assert client_for(charlie).post(leave).status_code == 404
    assert editor.get(leave).status_code == 405
    assert editor.post(leave, {"stay": "yes"})["Location"] == f"{new}?preset=toolbench&size=test"
    item.refresh_from_db()
    assert item.state == "dropped" and "is being prepared" not in editor.get(runs).content.decode()
    Preparation.objects.update(state="failed", note="<b>No room</b>")
    page = editor.get(runs).content.decode()
    assert "could not be prepared" in page and "&lt;b&gt;No room&lt;/b&gt;" in page and "Dismiss" in page
    assert "&lt;b&gt;No room" in editor.get(new, asked).content.decode()
    assert editor.post(leave)["Location"] == runs


def test_who_watches_is_led_to_the_run(
    project: Project, bob: User, client_for: Callable[..., Client], checked: list[Check]
) -> None:
    needs = reverse("run-needs", args=[project.slug])
    asked = {"preset": "reasoning-sft", "size": "test"}
    client_for(bob).post(needs, {**asked, "launch": "yes"}, headers={"HX-Request": "true"})
    item = Preparation.objects.get()
    look_all()
    answer = client_for(bob).get(needs, {**asked, "watched": str(item.pk)}, headers={"HX-Request": "true"})
    assert answer["HX-Redirect"] == reverse("run-detail", args=[project.slug, Run.objects.get().pk])
    for nonsense in ("", "x", "0" * 32):
        answer = client_for(bob).get(needs, {**asked, "watched": nonsense}, headers={"HX-Request": "true"})
        assert "/runs/new/" in answer["HX-Redirect"]


def test_once_all_is_there_no_run_waits_for_the_next_look(
    project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    """The form is filled as soon as it can be, and is not loaded again under the hands of who fills in the rest."""
    new, needs = (reverse(name, args=[project.slug]) for name in ("run-new", "run-needs"))
    asked = {"preset": "reasoning-sft", "size": "test"}
    item = begin(project, bob, SFT, launch=False)
    Preparation.objects.update(state="open")
    answer = client_for(bob).get(needs, {**asked, "watched": str(item.pk)}, headers={"HX-Request": "true"})
    assert answer["HX-Redirect"] == f"{new}?preset=reasoning-sft&size=test"
    page = client_for(bob).get(new, asked).content.decode()
    needs_box = page[page.index('id="needs"') :].partition("</ul>")[0]
    assert 'data-ready="true"' in needs_box and "hx-trigger" not in needs_box
    Preparation.objects.update(launch=True)
    page = client_for(bob).get(new, asked).content.decode()
    needs_box = page[page.index('id="needs"') :].partition("</ul>")[0]
    assert 'data-ready="false"' in needs_box and f"watched={item.pk}" in needs_box


def test_notes_are_in_the_language_of_who_asked(project: Project, bob: User, client_for: Callable[..., Client]) -> None:
    needs = reverse("run-needs", args=[project.slug])
    client_for(bob).post(needs, {"preset": "toolbench", "size": "test"}, headers={"Accept-Language": "zh-hans"})
    Preparation.objects.update(created_at=timezone.now() - timedelta(hours=25))
    look_all()
    item = Preparation.objects.get()
    assert (item.language, item.note) == ("zh-hans", "一天之内未能准备就绪。")
