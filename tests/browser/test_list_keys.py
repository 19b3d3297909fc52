"""Lists by keyboard alone: from row to row, choosing, opening, and the list of keys."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from tests.webapp.reading.inspector.conftest import Played, played  # noqa: F401 - a fixture
from webapp.people.teams.models import User
from webapp.runs.models import Run
from webapp.runs.states import RunState

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]
FOCUS = "document.activeElement.textContent.trim()"


def test_a_list_of_runs(page_for: Callable[..., Page], alice: User, make_run: Callable[..., Run]) -> None:
    """A list that comes again every four seconds keeps the row."""
    made = [make_run(name=name, state=RunState.RUNNING, attempt=1) for name in ("first", "名" * 80)]
    page = page_for(alice)
    page.goto(reverse("run-list", args=["joust"]))
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUS) != made[1].name, "arrows scroll the page until a row has the focus"
    page.keyboard.press("j")
    assert page.evaluate(FOCUS) == made[1].name
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUS) == "first"
    page.keyboard.press("j")
    assert page.evaluate(FOCUS) == "first", "the last one"
    page.keyboard.press("x")
    expect(page.locator(f"#pick-{made[0].pk}")).to_be_checked()
    with page.expect_response(lambda answer: answer.url.endswith("/runs/")):
        page.evaluate("document.dispatchEvent(new CustomEvent('live-tick'))")
    page.wait_for_function(f"{FOCUS} === 'first'")
    page.keyboard.press("x")
    expect(page.locator(f"#pick-{made[0].pk}")).not_to_be_checked()
    page.keyboard.press("k")
    assert page.evaluate(FOCUS) == made[1].name
    page.keyboard.press("/")
    page.keyboard.type("jx?")
    assert page.input_value("#run-q") == "jx?", "keys that are typed into a field are its own"
    page.locator("h1").click()
    page.keyboard.press("?")
    expect(page.locator("#list-keys")).to_be_visible()
    expect(page.locator("#list-keys")).to_contain_text("chooses the row")
    page.keyboard.press("Escape")
    page.goto(reverse("run-list", args=["joust"]))
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{made[0].pk}/")


@pytest.mark.parametrize("name", ["dataset-list", "reward-list", "environment-list", "model-list", "suite-list"])
def test_every_list_of_the_rail(
    page_for: Callable[..., Page],
    rita: User,
    name: str,
    make_dataset: Callable[..., object],
    make_reward_spec: Callable[..., object],
    make_environment: Callable[..., object],
) -> None:
    make_dataset()
    make_reward_spec()
    make_environment()
    page = page_for(rita)
    page.goto(reverse(name, args=["joust"]))
    if page.locator("main tbody td.cell-main a").count():
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.closest('td.cell-main') !== null"), name
    page.keyboard.press("?")
    expect(page.locator("#list-keys")).to_be_visible()


def test_rollouts_and_the_task_map_say_their_keys(
    page_for: Callable[..., Page],
    rita: User,
    played: Played,  # noqa: F811
) -> None:
    page = page_for(rita)
    page.goto(reverse("run-rollouts", args=["joust", played.run.pk]))
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.className") == "found-place"
    page.keyboard.press("?")
    expect(page.locator("#list-keys")).to_contain_text("previous and next step")
    page.goto(reverse("run-tasks", args=["joust", played.run.pk]))
    page.keyboard.press("?")
    expect(page.locator("#list-keys")).to_contain_text("from cell to cell")
