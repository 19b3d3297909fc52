"""A queued run's page and the list of runs say its place, in a real browser, and follow the queue."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from webapp.common.workers.models import Worker
from webapp.people.teams.models import User
from webapp.runs.models import Run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
HOSTILE = "<b>warm</b>\u202eup"


def _wait(page: Any, text: str) -> None:
    page.wait_for_function(
        "text => document.querySelector('#run-waiting').textContent.includes(text)", arg=text, timeout=15_000
    )


def test_the_page_follows_the_place_in_the_queue(page_for: Any, make_run: Any, bob: User) -> None:
    at = timezone.now()
    Worker.objects.create(name="train@a", queues=["train"], started_at=at, beat_at=at + timedelta(hours=1))
    beats = {"lease_worker": "train@a", "lease_beat_at": at + timedelta(hours=1), "step_seconds": 60.0}
    holder = make_run(name=HOSTILE, state="running", step=0, total_steps=10, attempt=1, **beats)
    ahead = make_run(name="ahead", state="queued", queued_at=at, step=5, total_steps=7, step_seconds=60.0, attempt=1)
    run = make_run(name="mine", state="queued", queued_at=at + timedelta(seconds=1))
    page, problems = page_for(bob), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(run.url)
    _wait(page, "2nd in line: starts in about 12 min.")
    assert "<b>warm</b>" in page.inner_text("#run-waiting") and "U+202E" in page.inner_text("#run-waiting")
    assert page.locator("#run-waiting a").first.get_attribute("href") == holder.url
    Run.objects.filter(pk=holder.pk).update(step=6)
    _wait(page, "2nd in line: starts in about 6 min.")
    assert "<b>warm</b>[U+202E]up" in page.inner_text("#run-waiting")
    Run.objects.filter(pk=ahead.pk).update(state="paused")
    _wait(page, "Next in line: starts in about 4 min.")
    assert page.locator("#run-waiting a").first.get_attribute("href") == holder.url
    Worker.objects.all().delete()
    _wait(page, "Next in line, but no worker is running.")
    assert page.locator("#run-waiting a").first.get_attribute("href") == "/workers/"
    Run.objects.filter(pk=run.pk).update(state="cancelled", seq=Run.objects.get(pk=run.pk).seq + 1)
    page.wait_for_selector("#run-waiting", state="hidden")
    assert problems == []


def test_the_list_says_the_place_of_each_queued_run(page_for: Any, make_run: Any, bob: User) -> None:
    at = timezone.now()
    Worker.objects.create(name="train@a", queues=["train"], started_at=at, beat_at=at)
    make_run(name="holds", state="running", total_steps=10, step_seconds=60.0, lease_worker="train@a", lease_beat_at=at)
    run = make_run(name="mine", state="queued", queued_at=at)
    page = page_for(bob)
    for address in (run.url.removesuffix(f"{run.pk}/"), f"/p/{run.project.slug}/"):
        page.goto(address)
        assert "next in line · about 10 min" in page.locator("tr", has_text="mine").inner_text()
