"""Reading in real Chromium: the words next to the turns, more turns on demand, keys, the group and the task map."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.webapp.reading.conftest import ANSWERED, ASKED, CALLED, SAID, TALK, play, tasks, trained
from tests.webapp.reading.test_tokens import keep
from webapp.people.teams.models import User
from webapp.runs.models import Run

__all__ = ["play", "tasks", "trained"]
pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
Make = Callable[..., Any]
PARTS = {"task_success": 1.0, "tool_necessity": 1.0}


@pytest.fixture
def run(trained: Make, play: Make) -> Run:
    """Three steps; of the second one a group of three, the last one long."""
    made = trained()
    for step, solved in ((1, 0.0), (3, 1.0)):
        for index in range(2):
            play(made, step, 0, index, row=3, success=solved, reward=solved, talk=TALK, parts=PARTS)
    for index, talk in enumerate([TALK, (ASKED, SAID), [ASKED, *([CALLED, ANSWERED] * 30), SAID]]):
        play(made, 2, 0, index, row=3, success=1.0, reward=index / 2, talk=talk, parts=PARTS, advantage=index - 1.0)
    return made


def test_a_rollout_is_read_with_its_words_and_keys(run: Run, alice: User, page_for: Make) -> None:
    page = page_for(alice)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    first, _second, long = run.rollouts.filter(step=2).order_by("index")
    page.goto(f"/p/joust/rollouts/{first.pk}/")
    page.wait_for_selector("mark.earned, .word-note")
    assert page.locator("#reward tr[data-part] button").count() == 2
    page.click("#reward tr[data-part=tool_necessity] button")
    assert page.locator("#words li").count() >= 1 and page.locator(".word-note:visible").count() >= 1
    page.click("#reward tr[data-part=task_success] button")
    page.wait_for_selector("#words >> text=environment's own verdict")
    assert page.locator(".word-note:visible").count() == 0
    page.click("#copy-json")
    page.wait_for_selector("#toasts .notice")
    copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert copied["id"] == str(first.pk) and len(copied["transcript"]) == 4
    page.keyboard.press("?")
    page.wait_for_selector("dialog#keys[open]")
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("ArrowRight")
    page.wait_for_url(lambda url: str(first.pk) not in url)
    page.keyboard.press("j")
    page.wait_for_url(f"**/{long.pk}/")
    page.click("#turns-more a")
    page.wait_for_selector("#turn-61")
    assert page.locator("section.turn").count() == 62
    page.keyboard.press("r")
    page.wait_for_url("**view=raw*")
    assert page.locator("[data-raw]").first.inner_text().startswith("{")


def test_forgotten_tasks_are_found_in_three_clicks_and_open_their_group(
    run: Run, play: Make, alice: User, page_for: Make
) -> None:
    for index in range(8):  # 5 of 7 before: so many are beyond chance, two would not be
        play(run, 5, 1, index, row=3, success=0.0, reward=0.1 * index, talk=TALK)
    page = page_for(alice)
    page.goto(f"/p/joust/runs/{run.pk}/")
    page.click(".run-tabs >> text=Tasks")
    page.click(".task-kinds >> text=forgotten")
    cells = page.locator("td > a")
    assert cells.count() == 4
    cells.first.focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.wait_for_url("**/groups/5/1/")
    assert page.locator(".notice").inner_text().startswith("phantom")
    page.click("#visits a >> text=Step 2")
    page.wait_for_url("**/groups/2/0/")
    assert page.locator("#first-difference").count() == 1
    page.goto(f"/p/joust/runs/{run.pk}/?tab=rollouts&step=2")
    page.click(".found-group h2 a")
    page.wait_for_url("**/groups/2/0/")


def test_all_tokens_of_a_long_rollout_come_in_their_colours(run: Run, alice: User, page_for: Make) -> None:
    rollout = run.rollouts.filter(step=2).earliest("index")
    keep(rollout, count=6_000)
    page = page_for(alice)
    page.goto(f"/p/joust/rollouts/{rollout.pk}/?view=tokens")
    page.locator("#tokens .token[data-at='6001']").wait_for(state="attached")
    shown = page.locator("#tokens .token[data-at]")
    assert shown.count() == 6_002
    assert shown.nth(5_000).get_attribute("data-shade") == "4" and shown.nth(1).get_attribute("data-shade") is None
    page.select_option("#tokens-by", "logprob")
    assert (shown.nth(2).get_attribute("data-shade"), shown.nth(6_001).get_attribute("data-shade")) == ("2", None)
    page.focus("#tokens")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#tokens .token[data-chosen]")
    assert page.locator("#tokens-one").inner_text().startswith("“天” · token 1")
