"""The questions that a person brings to the front page, and how many clicks away their answers are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from tests.training.doctor.planted import FAULTS, healthy, planted
from tests.webapp.evaluation.sweeps.conftest import hold_out, make_sweep, runs_of
from tests.webapp.reading.inspector.conftest import Played, played
from tests.webapp.runs.advisories.conftest import record, running
from webapp.engine.doctor import look
from webapp.launch.models import Sweep
from webapp.people.notifications.events import notify
from webapp.people.notifications.models import Event, Kind, Visit
from webapp.people.teams.models import User
from webapp.runs.models import Run

__all__ = ["make_sweep", "played", "record", "running"]
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
LANGUAGES = pytest.mark.parametrize("locale", ["en-US", "zh-CN"])


@pytest.fixture
def front(page_for: Callable[..., Page], bob: User) -> Callable[[str], Page]:
    """The front page in a language; it is the overview of the only project."""

    def opened(locale: str) -> Page:
        page = page_for(bob, locale=locale)
        page.goto("/")
        return page

    return opened


@LANGUAGES
def test_is_it_learning_is_answered_at_a_look(
    front: Callable[[str], Page], make_run: Callable[..., Run], record: Any, running: Run, locale: str
) -> None:
    gamed = make_run(name="gamed", state="running", attempt=1)
    record(running, healthy(2))
    record(gamed, planted(FAULTS["over_optimisation"]))
    look()
    rows = front(locale).locator("#latest-runs tbody tr")
    for name, kind, words in (
        (running.name, "learning", {"en-US": "Learning", "zh-CN": "正在学习"}),
        ("gamed", "gamed", {"en-US": "The reward is gamed", "zh-CN": "奖励被钻了空子"}),
    ):
        answer = rows.filter(has_text=name).locator(".diagnosis")
        expect(answer).to_have_text(words[locale])
        expect(answer).to_have_attribute("data-diagnosis", kind)


@LANGUAGES
def test_why_did_these_fail_is_answered_in_two_clicks(
    front: Callable[[str], Page], played: Played, locale: str
) -> None:
    page = front(locale)
    page.locator("#latest-runs").get_by_role("link", name=played.run.name).click()
    page.locator(".run-tabs").get_by_role("link", name={"en-US": "Rollouts", "zh-CN": "轨迹"}[locale]).click()
    causes = page.locator(".cause")
    expect(causes).to_have_count(3)
    said = [cause.locator(".cause-quotes a > :nth-child(2)").first.inner_text() for cause in causes.all()]
    assert len(said) == 3 and all(said) and "I think that 9 * 5 is 54." in " ".join(causes.all_text_contents())


@LANGUAGES
def test_what_happened_overnight_is_answered_without_a_click(
    front: Callable[[str], Page], make_run: Callable[..., Run], project: Any, bob: User, locale: str
) -> None:
    broken, done = make_run(name="broken", state="failed"), make_run(name="done", state="succeeded")
    Visit.objects.create(user=bob, project=project, last_at=timezone.now() - timedelta(hours=12))
    error = {"code": "storage_full", "boundary": "storage", "message": "", "hint": ""}
    notify(Kind.RUN_FAILED, broken, key="a", facts={"error": error})
    notify(Kind.RUN_SUCCEEDED, done, key="b", facts={"step": 60, "total_steps": 60})
    notify(Kind.RUN_FAILED, done, key="c")
    Event.objects.filter(key="c").update(created_at=timezone.now() - timedelta(hours=13))  # before the last visit
    news = front(locale).locator("section[aria-labelledby=news-title]")
    counts = {"en-US": "1 run failed · 1 run succeeded", "zh-CN": "1 个训练任务失败 · 1 个训练任务成功"}[locale]
    expect(news.locator(".news-counts")).to_have_text(counts)
    expect(news.locator("li")).to_have_count(2)
    expect(news.locator("li").filter(has_text="broken")).to_contain_text(
        {"en-US": "The disk is full.", "zh-CN": "磁盘已满"}[locale]
    )


@LANGUAGES
def test_which_setting_helped_is_answered_in_one_click(
    front: Callable[[str], Page], make_sweep: Callable[..., Sweep], locale: str
) -> None:
    """From the mark of any of its runs; from the rail it is two."""
    sweep = make_sweep([("optim.learning_rate", [1e-5, 3e-5, 1e-4]), ("run.seed", [1, 2])])
    for run, solved in zip(runs_of(sweep), (10, 12, 34, 36, 11, 12), strict=True):
        hold_out(run, {task: [float(task < solved)] for task in range(40)})
    page = front(locale)
    address = f"/p/joust/sweeps/{sweep.pk}/"
    mark = page.locator("#latest-runs tbody tr").first.locator(f"a[href='{address}']")
    expect(mark).to_have_text({"en-US": "sweep", "zh-CN": "扫描"}[locale])
    mark.click()
    answer = page.get_by_role("heading", level=1)
    expect(answer).to_have_attribute("data-answer", "helped")
    expect(answer).to_contain_text(
        {"en-US": "Learning rate 3e-5 helped: +60.0", "zh-CN": "学习率 3e-5 有效：+60.0"}[locale]
    )
    helped = page.locator("#settings tr[data-word=helped]")
    expect(helped).to_have_count(1)
    expect(helped).to_contain_text("87.5%")
    expect(page.locator("#forest tbody tr")).to_have_count(2)
    page.goto("/p/joust/runs/")
    page.get_by_role("navigation").get_by_role("link", name={"en-US": "Sweeps", "zh-CN": "参数扫描"}[locale]).click()
    page.get_by_role("link", name=sweep.name).click()
    expect(answer).to_have_attribute("data-answer", "helped")
