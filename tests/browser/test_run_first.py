"""The run page answers first: an ended run with one act and its curve above the fold, a live one with its newest
text."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import Page, expect

from envs.wire import Message
from tests.browser.test_run_page import Trainer, tab, trainer
from tests.webapp.results.conftest import Ended, ended, points, saved, trained
from training.journal import Metrics, RolloutFinished, TurnAdded
from webapp.runs.models import Run

__all__ = ["ended", "saved", "tab", "trained", "trainer"]
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
STEPS = 40
LEAD = "#chart-lead [data-chart=success]"
ABOVE = """(chart) => {
  const top = document.querySelector(chart).getBoundingClientRect().top;
  const buttons = [...document.querySelectorAll("#main :is(button, .button)")].filter((node) => node.checkVisibility());
  return buttons.filter((node) => node.getBoundingClientRect().bottom <= top).length;
}"""


@pytest.fixture
def learned(ended: Ended, saved: Any) -> Run:
    """A run that succeeded, with held-out figures in its curves, 30 components and long names."""
    success = [0.1 + 0.02 * step for step in range(STEPS)]
    run = ended(name="名" * 40 + "ש" * 40, success=success, reward=[value / 2 for value in success])
    Run.objects.filter(pk=run.pk).update(health={"held_out": {"tasks": 200}})
    for name, value in (("success", 0.5), ("success_low", 0.44), ("success_high", 0.56)):
        points(run, f"heldout/{name}", [value], first=20)
    for number in range(30):
        points(run, f"rewards/part_{number}/mean", success)
    saved(run, STEPS)
    return run


def _open(page: Page, run: Run) -> Page:
    page.goto(reverse("run-detail", args=[run.project.slug, run.pk]))
    page.wait_for_selector(f"{LEAD} .trace path")
    return page


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_an_ended_run_has_its_curve_above_the_fold_and_one_act(
    learned: Run, page_for: Callable[..., Page], bob: Any, locale: str
) -> None:
    page = _open(page_for(bob, viewport={"width": 1440, "height": 900}, locale=locale), learned)
    box = page.locator(LEAD).bounding_box()
    assert box is not None and box["y"] + box["height"] <= 900
    expect(page.locator(".button-primary:visible")).to_have_count(1)
    expect(page.locator("#run-next[data-code=evaluate] .button-primary")).to_be_visible()
    assert page.locator("#run-live:visible, #run-progress:visible").count() == 0, "the badge says that it ended"
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_on_a_phone_the_answer_comes_before_two_buttons_and_the_curve(
    learned: Run, page_for: Callable[..., Page], bob: Any
) -> None:
    page = _open(page_for(bob, viewport={"width": 390, "height": 844}), learned)
    box = page.locator(LEAD).bounding_box()
    assert box is not None and box["y"] < 844
    assert page.evaluate(ABOVE, LEAD) <= 2
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.locator("#run-more > summary").click()
    expect(page.get_by_role("link", name="Clone")).to_be_visible()


def test_the_chart_that_answers_has_held_out_success_and_the_reward_behind_it(
    learned: Run, page_for: Callable[..., Page], bob: Any
) -> None:
    page = _open(page_for(bob), learned)
    figures = page.locator(f"{LEAD} .chart-figures")
    expect(figures).to_contain_text("Held-out success, n = 200")
    expect(figures).to_contain_text("50% (44% – 56%)")
    expect(figures).to_contain_text("Reward, on its own scale")
    assert page.locator("#charts [data-chart=success]").count() == 0 and page.locator("#charts .chart").count() >= 2
    page.locator(f"{LEAD} .chart-menu > summary").click()
    page.locator(f"{LEAD} [data-act=behind]").click()
    expect(figures).not_to_contain_text("on its own scale")
    assert "behind=0" in page.url
    page.locator(f"{LEAD} .chart-plot").hover()
    expect(page.locator("[data-chart=reward] .chart-step")).to_contain_text("step")  # one crosshair through all
    page.locator(f"{LEAD} .chart-plot").click()
    page.wait_for_url("**/rollouts/?step_from=**")


def test_the_step_under_the_pointer_is_named_in_the_readers_language(
    learned: Run, page_for: Callable[..., Page], bob: Any
) -> None:
    for locale, words in (("en-US", r"^step \d+$"), ("zh-CN", r"^第 \d+ 步$")):
        page = _open(page_for(bob, locale=locale), learned)
        page.locator(f"{LEAD} .chart-plot").hover()
        expect(page.locator("[data-chart=reward] .chart-step")).to_have_text(re.compile(words))


def test_the_crosshair_stays_where_it_points_while_charts_are_drawn_again(
    learned: Run, page_for: Callable[..., Page], bob: Any
) -> None:
    """A live run draws its charts four times a second, and the pointer of a person who reads does not move."""
    page = _open(page_for(bob), learned)
    page.locator(f"{LEAD} .chart-plot").hover()
    reward = page.locator("[data-chart=reward]")
    expect(reward.locator(".chart-step")).to_have_text(re.compile(r"^step \d+$"))
    shown = reward.locator(".chart-head").inner_text()
    reward.locator(".chart-plot > svg").evaluate("svg => svg.setAttribute('data-old', '')")
    page.evaluate("document.dispatchEvent(new Event('tiltyard:theme'))")
    expect(reward.locator("svg[data-old]")).to_have_count(0)
    assert reward.locator(".chart-head").inner_text() == shown
    expect(reward.locator(".chart-cross")).to_be_visible()
    page.mouse.move(0, 0)
    expect(reward.locator(".chart-step")).to_have_text("")
    expect(reward.locator(".chart-cross")).to_be_hidden()


def _speak(trainer: Trainer, rollout: str, words: str) -> None:
    said = [Message(role="assistant", content=words)]
    trainer.say(TurnAdded(rollout=rollout, turn=1, messages=said, tokens=9, seconds=0.1))
    done = RolloutFinished(rollout=rollout, status="completed", reward=1.0, parts={}, turns=1, tokens=9, seconds=1.0)
    trainer.say(done)


def test_the_newest_text_of_a_live_run_appears_and_changes_without_moving(tab: Page, trainer: Trainer) -> None:
    said = tab.locator("#flight-said")
    expect(said).to_contain_text("It wrote only calls, no text.")  # the rollout that ended has no turn with text
    height = said.bounding_box()
    _speak(trainer, "b", "The red shoes are 45 euros.")
    expect(said).to_contain_text("The red shoes are 45 euros.", timeout=15_000)
    expect(said).to_contain_text("Buy red shoes")
    began = timezone.now()
    _speak(trainer, "c", "我要红色的鞋。" * 60)
    expect(said).to_contain_text("我要红色的鞋。", timeout=15_000)
    assert timezone.now() - began > timedelta(seconds=3), "there was time to read the one before"
    after = said.bounding_box()
    assert height and after and abs(height["height"] - after["height"]) < 1 and abs(height["y"] - after["y"]) < 1
    said.get_by_role("link").click()
    tab.wait_for_url("**rollout=**")
    trainer.say(Metrics(step=2, values={"reward": 0.6}))
    assert tab.problems == []  # type: ignore[attr-defined]
