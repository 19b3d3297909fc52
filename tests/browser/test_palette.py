"""The command palette in a real browser: by keyboard and by mouse, in Chinese, and when an answer fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.test_every_page import AXE, FAULTS
from tests.webapp.reading.inspector.conftest import Played, played  # noqa: F401 - a fixture
from webapp.people.teams.models import Project, User

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
Pages = Callable[..., Page]
WIDE = {"width": 1280, "height": 900}


def opened(page: Page, address: str) -> Locator:
    """The field of the palette, opened by the keyboard on a page."""
    page.goto(address)
    page.locator(".palette-open").wait_for()
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Search")
    expect(field).to_be_focused()
    return field


def active(page: Page) -> Locator:
    """The option that Enter opens."""
    return page.locator("#palette-list [aria-selected=true]")


def test_a_run_is_opened_by_the_keyboard_alone(
    page_for: Pages,
    alice: User,
    make_run: Any,
    played: Played,  # noqa: F811
) -> None:
    page, problems = page_for(alice, viewport=WIDE), list[Any]()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    other = make_run(name="night watch", state="failed")
    field = opened(page, "/p/joust/")
    expect(page.locator(".palette-title").first).to_have_text("Latest runs")
    expect(active(page)).to_contain_text("night watch")
    assert page.locator("#palette-list [role=option]").count() > 20
    field.press_sequentially("night")
    expect(page.locator(".palette-title").first).to_have_text("Runs")
    expect(active(page)).to_contain_text("night watch")
    assert field.get_attribute("aria-activedescendant") == active(page).get_attribute("id")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    assert page.evaluate(FAULTS) == []
    field.press("ArrowDown")
    expect(active(page)).to_contain_text("night")
    field.press("End")
    expect(active(page)).to_have_text("Find rollouts with “night”")
    field.press("Home")
    field.press("ArrowUp")  # no further
    expect(active(page)).to_contain_text("night watch")
    field.press("Enter")
    page.wait_for_url(f"**/runs/{other.pk}/")
    assert problems == []


def test_other_words_begin_with_the_first_option_again(page_for: Pages, alice: User, make_run: Any) -> None:
    make_run(name="zeta-1"), make_run(name="zeta-2")
    page = page_for(alice, viewport=WIDE)
    page.route(re.compile("part=texts"), lambda route: None)  # names come first
    field = opened(page, "/p/joust/")
    field.fill("zeta")
    runs = page.get_by_role("group", name="Runs").get_by_role("option")
    expect(runs).to_have_count(2)
    field.press("ArrowDown")
    expect(runs.nth(1)).to_have_attribute("aria-selected", "true")
    field.press("Backspace")
    expect(runs).to_have_count(2)
    expect(runs.nth(0)).to_have_attribute("aria-selected", "true")


def test_keys_that_choose_a_character_choose_no_option(page_for: Pages, alice: User, make_run: Any) -> None:
    """Enter takes what an input method offers, as for Chinese."""
    make_run(name="夜间-1"), make_run(name="夜间-2")
    field = opened(page_for(alice, viewport=WIDE), "/p/joust/")
    field.fill("夜间")
    runs = field.page.get_by_role("group", name="Runs").get_by_role("option")
    expect(runs).to_have_count(2)
    for key in ("ArrowDown", "Enter"):
        field.dispatch_event("keydown", {"key": key, "isComposing": True})
    expect(runs.nth(0)).to_have_attribute("aria-selected", "true")
    assert field.page.url.endswith("/p/joust/") and field.page.locator("#palette").is_visible()


def test_enter_before_the_answer_means_its_first_option(page_for: Pages, alice: User, make_run: Any) -> None:
    run, page = make_run(name="zeta"), page_for(alice, viewport=WIDE)
    field = opened(page, "/p/joust/")
    page.locator("#palette-list [role=option]").first.wait_for()
    field.fill("zeta")
    field.press("Enter")
    page.wait_for_url(f"**/runs/{run.pk}/")


def test_escape_gives_the_focus_back_and_the_keys_work_in_a_field(
    page_for: Pages, alice: User, project: Project
) -> None:
    page = page_for(alice, viewport=WIDE)
    page.goto("/p/joust/runs/new/")
    name = page.locator("#id_name")
    name.focus()
    page.keyboard.press("Meta+k")
    expect(page.get_by_role("combobox", name="Search")).to_be_focused()
    page.keyboard.press("Escape")
    expect(name).to_be_focused()
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).to_be_hidden()
    expect(name).to_be_focused()


def test_by_mouse_a_phrase_of_a_rollout_leads_to_its_turn(
    page_for: Pages,
    alice: User,
    played: Played,  # noqa: F811
) -> None:
    page = page_for(alice, viewport=WIDE)
    page.goto("/p/joust/")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("combobox", name="Search").fill("9 * 5 is 45")
    hit = page.get_by_role("group", name="Rollout text").get_by_role("option")
    expect(hit).to_have_count(1)
    expect(hit.locator("mark")).to_have_text("9 * 5 is 45")
    expect(hit).to_contain_text("I ask the calculator: ")
    hit.click()
    page.wait_for_url(f"**/rollouts/{played.rows['right'].pk}/#turn-1")
    expect(page.locator("#palette")).to_be_hidden()


def test_an_option_opens_its_place_in_the_form(page_for: Pages, alice: User, project: Project) -> None:
    page = page_for(alice, viewport=WIDE)
    opened(page, "/p/joust/").fill("ppo clip")
    page.get_by_role("group", name="Options of a run").get_by_role("option").first.click()
    page.wait_for_url("**/runs/new/?kind=ppo#id_ppo.*")
    chosen = page.locator(f"[id='{page.url.partition('#')[2]}']")
    expect(chosen).to_be_in_viewport()


def test_a_chinese_page_and_a_chinese_phrase(
    page_for: Pages,
    alice: User,
    played: Played,  # noqa: F811
) -> None:
    page = page_for(alice, viewport=WIDE, locale="zh-CN")
    page.goto("/p/joust/")
    page.keyboard.press("Control+k")
    field = page.locator("#palette input")
    field.fill("今天天气")
    expect(page.locator("#palette-list mark")).to_have_text("今天天气")
    field.fill("奖励")
    expect(page.locator("#palette-list [role=option]", has_text="奖励").first).to_be_visible()


def test_the_last_phrase_wins_and_a_slow_answer_is_named(page_for: Pages, alice: User, make_run: Any) -> None:
    make_run(name="slow"), make_run(name="quick")
    page, held = page_for(alice, viewport=WIDE), list[Route]()
    field = opened(page, "/p/joust/")
    page.locator("#palette-list [role=option]").first.wait_for()
    page.route("**/palette/?q=slow&**", lambda route: held.append(route))
    field.fill("slow")
    expect(page.locator("#palette-status")).to_have_text("Still searching…")
    field.fill("quick")
    expect(active(page)).to_contain_text("quick")
    expect(page.locator("#palette-status")).to_be_hidden()
    assert len(held) == 2  # names and texts
    for route in held:
        route.abort()
    page.wait_for_timeout(100)
    expect(active(page)).to_contain_text("quick")


def test_a_failed_request_is_named_and_typing_continues(page_for: Pages, alice: User, make_run: Any) -> None:
    make_run(name="after all")
    page = page_for(alice, viewport=WIDE)
    field = opened(page, "/p/joust/")
    page.route("**/palette/?q=after&**", lambda route: route.abort())
    page.route("**/palette/?q=broken&**", lambda route: route.fulfill(status=500, body="no"))
    field.fill("after")
    expect(page.locator("#palette-status")).to_contain_text("Tiltyard does not answer")
    expect(page.locator("#palette-list [role=option]")).to_have_count(0)
    field.fill("broken")
    expect(page.locator("#palette-status")).to_contain_text("That did not work (500)")
    field.press("Enter")
    field.press("ArrowDown")
    field.press_sequentially(" no more")
    expect(page.locator("#palette-status")).to_have_text("Nothing has these words.")
    expect(active(page)).to_have_text("Find rollouts with “broken no more”")
    field.fill("after all")
    expect(active(page)).to_contain_text("after all")
    expect(page.locator("#palette-status")).to_be_hidden()


def test_names_do_not_wait_for_texts_and_what_was_chosen_stays(
    page_for: Pages,
    alice: User,
    make_run: Any,
    played: Played,  # noqa: F811
) -> None:
    for number in range(3):
        make_run(name=f"calculator {number}")
    page, held = page_for(alice, viewport=WIDE), list[Route]()
    field = opened(page, "/p/joust/")
    page.route("**/palette/?q=calculator&part=texts", lambda route: held.append(route))
    field.fill("calculator")
    expect(active(page)).to_contain_text("calculator 2")
    field.press("ArrowDown")
    expect(active(page)).to_contain_text("calculator 1")
    expect(page.get_by_role("group", name="Rollout text")).to_have_count(0)
    held[0].continue_()
    expect(page.get_by_role("group", name="Rollout text").get_by_role("option")).to_have_count(1)
    expect(active(page)).to_contain_text("calculator 1")
    page.route("**/palette/?q=night&part=texts", lambda route: route.fulfill(status=503, body="{}"))
    field.fill("night")
    expect(page.locator("#palette-status")).to_contain_text("That did not work (503)")
    expect(active(page)).to_contain_text("night")  # names are there all the same


def test_on_a_phone_the_button_is_an_icon_and_nothing_overflows(
    page_for: Pages,
    alice: User,
    played: Played,  # noqa: F811
) -> None:
    page = page_for(alice, viewport={"width": 390, "height": 844}, has_touch=True)
    page.goto("/p/joust/")
    button = page.get_by_role("button", name="Search")
    words, icon = button.get_by_text("Search").bounding_box(), button.bounding_box()
    assert words and words["width"] <= 1 and icon and icon["width"] == icon["height"]
    button.click()
    page.get_by_role("combobox", name="Search").fill("task of")
    page.get_by_role("group", name="Options of a run").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    box = page.locator("#palette").bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["y"] + box["height"] <= 844
