"""A rollout rewound in real Chromium: from its page to a turn, the checked turns, a branch by hand, its score."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.test_playground import LIMIT_MS, Table
from tests.webapp.reading.rewinding.conftest import environment, play, played, run, tasks, trained
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.people.teams.models import User
from webapp.runs.rollouts.models import Rollout, Turn

__all__ = ["environment", "play", "played", "run", "tasks", "trained"]
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]
Make = Callable[..., Any]
CHECKED = "#rewind-check:is([data-kind=success], [data-kind=warning])"


class Rewound(Table):
    """One person at one rollout."""

    def __init__(self, page: Any, rollout: Rollout) -> None:
        self.page, self.rollout = page, rollout
        self.problems: list[str] = []
        page.on("console", lambda line: self.problems.append(line.text) if line.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.set_default_timeout(LIMIT_MS)

    def open(self, turn: int) -> None:
        self.page.goto(f"/p/joust/rollouts/{self.rollout.pk}/")
        self.page.locator(f'a[href$="rewind/?turn={turn}"]').click()
        self.page.wait_for_selector(CHECKED)


def test_a_rollout_is_rewound_and_a_branch_played_to_its_score(
    played: Make, environment: Environment, bob: User, page_for: Make
) -> None:
    rollout = played()
    table = Rewound(page_for(bob), rollout)
    page = table.page
    page.goto(f"/p/joust/rollouts/{rollout.pk}/")
    table.shoot("rewind-0-rollout")
    table.open(3)
    assert "every answer is the recorded one. Turn 3 is yours." in page.inner_text("#rewind-check")
    assert page.locator("#transcript .turn >> text=✓ same").count() == 3
    assert page.inner_text("#out-turns") == "2" and page.locator("#scored-parts table").count() == 0
    table.shoot("rewind-1-open")
    table.fill("calculator", {"expression": "4 * 5"})
    table.send()
    table.say("It is 20.")
    page.wait_for_selector("#scored-parts table")
    assert "Task success" in page.inner_text("#scored") and table.reward == "1.00"
    table.shoot("rewind-2-over")
    page.click("#scored a.button")
    page.wait_for_selector("#side .difference")
    assert page.locator(".side-head").count() == 2 and "turn 3" in page.inner_text("table.branches")
    table.shoot("rewind-5-branches")
    page.go_back()
    page.wait_for_selector(CHECKED)
    table.fill("calculator", {"expression": "4 * 6"})
    table.send()
    table.say("It is 24.")
    page.wait_for_selector("#scored-parts table")
    made = table.keep("by hand")
    row = json.loads(made.upload_path.read_text())
    assert row["provenance"]["rollout"] == str(rollout.pk) and len(row["messages"]) == 8
    page.fill("#rewind-turn", "9")
    page.click("#rewind-start")
    assert page.inner_text("#rewind-problem") == "Choose a turn from 1 to 4."
    page.fill("#rewind-turn", "1")
    page.click("#rewind-start")
    page.wait_for_selector("#rewind-check:has-text('is at its beginning')")
    assert page.locator("#transcript .turn").count() == 1 and page.locator("#scored-parts table").count() == 0
    assert table.problems == [] and Dataset.objects.filter(name="by hand").count() == 1


def test_another_answer_is_shown_next_to_the_recorded_one(played: Make, bob: User, page_for: Make) -> None:
    rollout = played()
    turn = Turn.objects.get(rollout=rollout, number=2)
    turn.messages[0]["content"] = "17"
    turn.save()
    table = Rewound(page_for(bob), rollout)
    table.open(3)
    check = table.page.locator("#rewind-check")
    assert check.get_attribute("data-kind") == "warning" and "from turn 1 on" in check.inner_text()
    assert table.page.locator(".rewind-sides .said").all_inner_texts() == ["17", "16"]
    assert table.page.locator("#transcript .turn >> text=✗ other answer").count() == 1
    table.shoot("rewind-3-other")
    assert table.problems == []


def test_it_works_on_a_phone_in_chinese(played: Make, bob: User, page_for: Make) -> None:
    table = Rewound(page_for(bob, viewport={"width": 390, "height": 844}, locale="zh-CN"), played())
    table.open(2)
    assert table.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    table.shoot("rewind-4-zh")
    table.say("我不知道。")
    table.page.wait_for_selector("#scored-parts table")
    table.page.click("#scored a.button")
    table.page.wait_for_selector("#side .difference")
    assert table.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    table.shoot("rewind-6-zh-branches")
    assert table.problems == []
