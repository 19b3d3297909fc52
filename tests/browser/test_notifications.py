"""The bell in a real browser: it counts without a reload, and leads through the list to the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from webapp.people.notifications.models import Event, Notification
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def notify(run: Run, user: User) -> None:
    event = Event.objects.create(
        project=run.project, kind="run_failed", key=str(run.pk), object_kind="runs.run", object_id=str(run.pk),
        subject=run.name, facts={}, state="spread",
    )  # fmt: skip
    Notification.objects.create(event=event, user=user)


def test_the_bell_counts_by_itself_and_leads_to_the_run(
    page_for: Callable[..., Page], project: Project, alice: User, make_run: Callable[..., Run]
) -> None:
    page, problems = page_for(alice), []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(f"/p/{project.slug}/")
    assert page.locator(".bell-count").count() == 0
    run = make_run(name="grpo-night")
    notify(run, alice)
    page.locator(".bell-count", has_text="1").wait_for(timeout=45_000)  # asked for every 30 s
    page.locator("#bell").click()
    page.get_by_role("link", name="Run “grpo-night” failed").click()
    page.wait_for_url(f"**/runs/{run.pk}/")
    assert page.locator(".bell-count").count() == 0 and problems == []
    page.go_back()
    page.goto("/notifications/?unread=1")
    page.get_by_text("Nothing here").wait_for()


def test_a_settings_page_is_filled_with_the_keyboard(
    page_for: Callable[..., Page], project: Project, bob: User
) -> None:
    page: Any = page_for(bob)
    page.goto("/notifications/settings/")
    page.get_by_label("Runs: Joust").select_option("all")
    page.get_by_label("Vote asked for").uncheck()
    page.get_by_role("button", name="Save").press("Enter")
    page.get_by_text("Saved.").wait_for()
    assert page.get_by_label("Runs: Joust").input_value() == "all"
    assert not page.get_by_label("Vote asked for").is_checked() and page.get_by_label("Run failed").is_checked()
