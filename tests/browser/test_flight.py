"""*In flight* on the run page: the grid of a step, the slowest, and that nothing of it moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from envs.wire import Message, ToolCall
from tests.browser.test_run_page import Trainer, _begin, _finish, _wait, tab, trainer
from tests.webapp.runs.records.test_held_out import report
from training.errors import Boundary, ErrorInfo
from training.journal import (
    HeldOutEvaluated,
    Metrics,
    PhaseChanged,
    RolloutFinished,
    RolloutStarted,
    TasksHeldOut,
    TurnAdded,
)
from webapp.engine.history import run_transition
from webapp.people.teams.models import User
from webapp.runs.models import Run, RunEvent
from webapp.runs.states import RunState

__all__ = ["tab", "trainer"]  # fixtures
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
PLACES = """() => ["#flight", "#flight-said", ".flight-legend"].map((part) => {
  const { top, height } = document.querySelector(part).getBoundingClientRect();
  return [Math.round(top - document.querySelector("#flight-card").getBoundingClientRect().top), Math.round(height)];
})"""


def test_the_grid_of_a_step_keeps_its_shape(tab: Any, trainer: Trainer) -> None:
    """It was empty for most of a step, then 64 lines for a second, and everything below it jumped."""
    tab.wait_for_selector(".flight-cell[data-status=running]")
    cells = tab.locator("#flight .flight-cell")
    assert cells.count() == 64, "one for each rollout that the step will have"
    assert tab.locator(".flight-cell[data-status=waiting]").count() == 62
    places = tab.evaluate(PLACES)
    trainer.say(*(event for number in range(2, 8) for event in _begin(f"r{number}", 2, number)))
    slow = tab.locator("#flight-slow li")
    _wait(tab, "#flight-slow", "0.2 · Buy red shoes")
    assert [line.split(" · ")[0].strip() for line in slow.all_inner_texts()] == ["0.0", "0.1", "0.2"]
    trainer.say(*(_finish(f"r{number}", 1.0) for number in range(2, 8)), _finish("b", 0.0), _finish("c", 1.0))
    _wait(tab, "#flight-count", "8 / 64")
    assert tab.locator(".flight-cell[data-reward='5']").count() == 7, "a scored rollout stays, coloured by its reward"
    assert tab.inner_text("#flight-slow").strip() == "No rollout is being played now."
    assert (cells.count(), tab.evaluate(PLACES)) == (64, places)
    assert tab.locator("#flight [tabindex='0']").count() == 1, "one tab stop"
    cells.first.focus()
    tab.keyboard.press("ArrowRight")
    assert "0.1 · solved" in tab.inner_text("#flight-about") and "reward 1" in tab.inner_text("#flight-about")
    trainer.say(*(event for place in range(8, 64) for event in _begin(f"r{place}", 2, place % 8, place // 8)))
    trainer.say(*(_finish(f"r{place}", 1.0) for place in range(8, 64)), PhaseChanged(phase="training", step=2))
    _wait(tab, "#flight-step", "step 2, done")
    trainer.say(Metrics(step=2, values={"reward": 0.5}), PhaseChanged(phase="generating", step=3))
    _wait(tab, "#run-steps", "step 2 of 10")
    assert tab.inner_text("#flight-count") == "64 / 64", "it stays until the next one begins"
    trainer.say(*_begin("d", 3, 0))
    _wait(tab, "#flight-step", "3")
    assert tab.locator(".flight-cell[data-status=waiting]").count() == 63 and tab.evaluate(PLACES) == places
    run_transition(trainer.lease.run_id, RunState.FAILED, lease=trainer.lease)
    _wait(tab, "#run-state", "failed")
    assert tab.evaluate(PLACES) == places and "Last step" in tab.inner_text(".watch-flight")
    cells.first.focus()
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#transcript:visible")
    assert tab.problems == []


LOOKS = """() => [...document.querySelectorAll(
    "#flight .flight-cell, #flight-slow li > :not(.flight-age, .flight-acts), #flight-step, #flight-count"
)].map(node => [node.textContent.trim(), node.title, node.getAttribute("href"), node.getAttribute("aria-label"),
    node.dataset.status, node.dataset.outcome, node.dataset.reward, node.getAttribute("role")])"""


@pytest.mark.parametrize("locale", ["en", "zh-CN"])
def test_the_first_look_at_the_grid_is_the_last(
    locale: str, trainer: Trainer, page_for: Callable[..., Any], bob: User
) -> None:
    """What the server draws and what the page makes of the first frames is the same, or it would jump."""
    call = ToolCall(id="1", name="search", arguments={})
    asked = Message(role="assistant", content="", tool_calls=[call])
    trainer.say(*_begin("d", 2, 2), TurnAdded(rollout="d", turn=1, messages=[asked], tokens=1))
    trainer.say(*_begin("e", 2, 3), TurnAdded(rollout="e", turn=1, messages=[asked], tokens=1))
    trainer.say(TurnAdded(rollout="e", turn=2, messages=[Message(role="tool", content="1")]), _finish("c", 0.4))
    timeout = ErrorInfo(code="environment_timeout", boundary=Boundary.ENVIRONMENT, message="No answer in 30 s.")
    trainer.say(*_begin("f", 2, 4), RolloutFinished(rollout="f", status="excluded", error=timeout))
    trainer.say(*_begin("g", 2, 0, 3), _finish("g", 1.0), RolloutStarted(rollout="h", step=2, group=1, index=0))
    run = Run.objects.select_related("project").get(pk=trainer.lease.run_id)
    address = f"/p/{run.project.slug}/runs/{run.pk}/"
    page = page_for(bob, locale=locale)
    page.add_init_script(
        f"document.addEventListener('readystatechange', () => {{ window.first ??= JSON.stringify(({LOOKS})()) }})"
    )
    page.goto(address)
    page.wait_for_function("() => document.querySelector('.flight-cell[data-sign]')")
    page.wait_for_function("() => document.querySelector('#run-live').dataset.state === 'live'")
    page.wait_for_timeout(1500)
    drawn = page.evaluate("() => JSON.parse(window.first)")
    assert page.evaluate(LOOKS) == drawn and len(drawn) == 2 + 64 + 3 * 2
    assert sorted(mark for mark, *_rest in drawn[2:66] if mark) == ["1", "1", "1", "2", "~", "✓"]


def test_two_tabs_and_one_that_slept_show_the_same_grid(
    tab: Any, trainer: Trainer, page_for: Callable[..., Any], bob: User
) -> None:
    """One tab follows, another's line is cut while a step ends and the next begins, a third is opened afterwards."""
    sleeper = page_for(bob, viewport={"width": 390, "height": 844})
    sleeper.goto(tab.address)
    _wait(sleeper, "#run-live", "live")
    sleeper.context.set_offline(True)
    sleeper.route_web_socket("**/ws/**", lambda line: line.close())
    trainer.say(_finish("b", 1.0), _finish("c", 0.4), Metrics(step=2, values={"reward": 0.7}))
    call = Message(role="assistant", content="", tool_calls=[ToolCall(id="1", name="search", arguments={})])
    for place in range(20):
        trainer.say(*_begin(f"n{place}", 3, place % 8, place // 8))
        if place % 3:
            trainer.say(TurnAdded(rollout=f"n{place}", turn=1, messages=[call], tokens=1))
        if place % 3 == 2:
            trainer.say(_finish(f"n{place}", place / 20))
    _wait(tab, "#flight-count", "6 / 64")
    sleeper.context.set_offline(False)
    sleeper.unroute_all()
    late = page_for(bob)
    late.goto(tab.address)
    seen = []
    for page in (tab, sleeper, late):
        _wait(page, "#flight-step", "step 3")
        _wait(page, "#flight-count", "6 / 64")
        page.wait_for_function("() => document.querySelectorAll('.flight-cell[data-status=running]').length === 14")
        _wait(page, "#flight-slow", "turn 1 · waits for search")
        seen.append(page.evaluate(LOOKS))
    assert seen[0] == seen[1] == seen[2] and len(seen[0]) == 2 + 64 + 3 * 2


def test_ending_one_asks_first_and_says_who(tab: Any, trainer: Trainer) -> None:
    """The dialog names the rollout of the line that was pressed, whatever has moved up since."""
    _wait(tab, "#flight-slow", "0.1 · Buy red shoes")
    lines = tab.locator("#flight-slow li")
    assert lines.nth(2).locator("button:visible").count() == 0, "an empty line offers nothing"
    places = tab.evaluate(PLACES)
    lines.nth(1).locator("[data-order=fail]").click()
    assert "0.1 · Buy red shoes" in tab.inner_text("#order-fail") and "counts as failed" in tab.inner_text(
        "#order-fail"
    )
    tab.click("#order-fail >> text=Let it play")
    lines.nth(1).locator("[data-order=end]").click()
    trainer.say(_finish("b", 1.0))
    _wait(tab, "#flight-count", "1 / ")
    assert "0.1 · Buy red shoes" in tab.inner_text("#order-end")
    tab.click("#order-end >> text=End it")
    _wait(tab, "#main", "The rollout is being ended; it is excluded.")
    _wait(tab, "#flight-slow", "bob ordered its end")
    order = RunEvent.objects.get(kind="rollout_order").payload
    assert (order["act"], order["index"], order["by"]) == ("end", 1, "bob")
    assert lines.nth(0).locator("button:visible").count() == 0, "it is ordered once"
    ended = ErrorInfo(code="rollout_ended", boundary=Boundary.TRAINER, message="It was ended by bob.")
    trainer.say(RolloutFinished(rollout="c", status="excluded", error=ended))
    _wait(tab, "#flight-slow", "No rollout is being played now.")
    label = tab.get_attribute("#flight [data-cell='0.1']", "aria-label")
    assert label == "0.1 · Ended by a person while it was in flight. · 0 turns"
    assert tab.evaluate(PLACES) == places
    tab.click("[data-tab=events]")
    _wait(tab, "#events", "bob ended rollout 0.1 of step 2")
    assert tab.problems == []


def test_a_viewer_is_offered_no_orders(trainer: Trainer, page_for: Callable[..., Any], rita: User) -> None:
    page = page_for(rita)
    run = Run.objects.select_related("project").get(pk=trainer.lease.run_id)
    page.goto(f"/p/{run.project.slug}/runs/{run.pk}/")
    _wait(page, "#flight-slow", "0.1 · Buy red shoes")
    assert page.locator("[data-order], #order-end").count() == 0


TIMING = {"timing/step": 4.0, "timing/generation": 1.0, "timing/environment": 2.0, "timing/training": 1.0}


def test_a_step_that_ends_before_the_first_frame_is_on_its_card(
    page_for: Callable[..., Page], bob: User, trainer: Trainer
) -> None:
    """The page was drawn before the step and its evaluation ended, and its socket answers after."""
    page, sockets = page_for(bob), []
    page.route_web_socket("**/ws/runs/**", lambda socket: sockets.append(socket))
    page.goto(f"/p/joust/runs/{trainer.lease.run_id}/")
    page.locator("#times").scroll_into_view_if_needed()
    _wait(page, ".times-legend", "No times were recorded.")
    evaluated = HeldOutEvaluated(step=1, report=report(0.5, 0.2, 0.8))
    trainer.say(Metrics(step=2, values={"reward": 0.5, **TIMING}))
    trainer.say(TasksHeldOut(source="dataset", rows=[0, 1], groups=2), evaluated)
    sockets[0].connect_to_server()
    _wait(page, ".times-legend", "environment 50%")
    expect(page.locator("#held-out tbody tr")).to_have_count(1, timeout=15_000)


def test_a_step_that_ends_while_its_card_is_fetched_is_fetched_too(tab: Any, trainer: Trainer) -> None:
    tab.locator("#times").scroll_into_view_if_needed()
    _wait(tab, ".times-legend", "No times were recorded.")
    asked: list[Route] = []
    tab.route("**/times/", lambda route: route.continue_() if asked else asked.append(route))
    with tab.expect_request("**/times/"):
        trainer.say(Metrics(step=2, values={"reward": 0.5, **TIMING}))
    tab.wait_for_timeout(50)  # in which Playwright calls the route
    early = asked[0].fetch()
    trainer.say(Metrics(step=3, values={"reward": 0.5, **TIMING, "timing/environment": 3.0}))
    _wait(tab, "#run-steps", "step 3 of 10")
    tab.wait_for_timeout(3500)  # longer than the page waits after one step before it has the cards fetched for the next
    asked[0].fulfill(response=early)
    expect(tab.locator("#times table tbody tr")).to_have_count(2, timeout=15_000)


def test_an_evaluation_that_ends_while_its_card_is_fetched_is_on_it(tab: Any, trainer: Trainer) -> None:
    asked: list[Route] = []
    tab.route("**/held-out/", lambda route: route.continue_() if asked else asked.append(route))
    with tab.expect_request("**/held-out/"):
        trainer.say(TasksHeldOut(source="dataset", rows=[0, 1], groups=2))
    tab.wait_for_timeout(50)  # in which Playwright calls the route, which never answers
    trainer.say(HeldOutEvaluated(step=1, report=report(0.5, 0.2, 0.8)))
    expect(tab.locator("#held-out tbody tr")).to_have_count(1, timeout=15_000)
    above, below = (tab.locator(card).bounding_box() for card in ("#devices", "#held-out"))
    assert below["y"] - above["y"] - above["height"] >= 8, "the cards do not touch"


def test_the_bars_of_the_last_steps_come_by_themselves_and_move_nothing(tab: Any, trainer: Trainer) -> None:
    tab.locator("#times").scroll_into_view_if_needed()
    _wait(tab, ".times-legend", "No times were recorded.")
    height = tab.locator("#times").bounding_box()["height"]
    trainer.say(Metrics(step=2, values={"reward": 0.5, **TIMING}))
    _wait(tab, ".times-legend", "environment 50%")
    assert tab.locator("#times svg rect").count() == 3
    assert (
        tab.locator("#times rect >> nth=1").evaluate("node => node.textContent.trim()")
        == "step 2 · environment 2 s (50%)"
    )
    assert abs(tab.locator("#times").bounding_box()["height"] - height) < 1, "half a pixel is not visible"
    assert tab.locator("#times table tbody tr").count() == 1 and tab.problems == []
