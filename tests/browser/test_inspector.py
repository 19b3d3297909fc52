"""Finding rollouts in a real browser: typing, ticking, a bar, a key, a saved view."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_run_page import ABORTED
from tests.webapp.reading.inspector.conftest import BEGAN, Played, played  # noqa: F401 - a fixture
from webapp.people.teams.models import User
from webapp.reading.inspector.models import SavedView
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def asked(page: Page) -> dict[str, list[str]]:
    """The filters of the address."""
    return parse_qs(urlsplit(page.url).query)


def test_why_did_these_fail(
    page_for: Callable[..., Page],
    played: Played,  # noqa: F811
    alice: User,
) -> None:
    page, problems = page_for(alice, viewport={"width": 1280, "height": 900}), list[Any]()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "console",
        lambda line: problems.append(line.text) if line.type == "error" and line.text not in ABORTED else None,
    )
    page.goto(f"/p/joust/runs/{played.run.pk}/")
    page.locator(".run-tabs").get_by_role("link", name="Rollouts").click()
    rows = page.locator(".found-row")
    expect(rows).to_have_count(8)
    page.check("input[name=outcome][value=failed]")
    expect(rows).to_have_count(3)
    assert asked(page) == {"outcome": ["failed"]}  # nothing empty
    page.fill("#inspector-q", "9 * 5")
    expect(rows).to_have_count(1)
    expect(page.locator("mark")).to_have_text("9 * 5")
    assert asked(page) == {"q": ["9 * 5"], "outcome": ["failed"]}
    page.reload()
    expect(rows).to_have_count(1)
    assert page.input_value("#inspector-q") == "9 * 5" and page.is_checked("input[value=failed]")
    page.get_by_role("link", name="Clear all").click()
    page.get_by_text("Distributions").click()
    expect(page.locator("#pane-title")).to_contain_text("2.0.0")  # the first that did not solve its task
    page.locator(".histogram", has_text="Turns").locator("a").nth(2).click()
    expect(rows).to_have_count(1)
    assert asked(page) == {"turns_from": ["3"], "turns_to": ["3"]}
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.className") == "found-place"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "inspector-q"
    page.get_by_role("link", name="Save as…").click()
    page.fill("input[name=name]", "third turns")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved as “third turns”.")).to_be_visible()
    assert SavedView.objects.get().query == "turns_from=3&turns_to=3" and asked(page)["turns_to"] == ["3"]
    rows.first.click()
    page.locator("#pane-page").click()
    expect(page.get_by_role("heading", name="Step 1, group 0, rollout 2")).to_be_visible()
    expect(page.locator("h1 .badge[data-state=failed]")).to_have_text("failed")
    assert problems == []


@pytest.mark.parametrize(
    ("locale", "cut", "everything"),
    [("en-US", "Cut off before the end", "All causes"), ("zh-CN", "结束前被截断", "全部原因")],
)
def test_from_a_run_one_click_shows_why_rollouts_failed_and_one_more_all_of_a_cause(
    page_for: Callable[..., Page],
    played: Played,  # noqa: F811
    alice: User,
    locale: str,
    cut: str,
    everything: str,
) -> None:
    page = page_for(alice, locale=locale)
    page.goto(f"/p/joust/runs/{played.run.pk}/")
    page.locator(f"a[href$='/runs/{played.run.pk}/rollouts/']").first.click()
    causes = page.locator(".cause")
    expect(causes).to_have_count(3)  # the answers of three, one cut off, one that its environment failed
    shown = causes.filter(has_text=cut)
    expect(shown.locator("q")).to_have_text("今天天气很好，我们需要先查询")
    shown.locator(".cause-acts a").first.click()
    expect(page.locator(".found-row")).to_have_count(1)
    expect(causes).to_have_count(1)
    assert asked(page) == {"cause": ["cut"]}
    page.check("input[name=outcome][value=failed]")  # the form keeps the cause
    page.wait_for_url("**outcome=failed**")
    assert asked(page)["cause"] == ["cut"]
    page.get_by_role("link", name=everything).click()
    expect(causes).to_have_count(2)


def test_without_scripts_the_causes_are_a_page_of_their_own(
    page_for: Callable[..., Page],
    played: Played,  # noqa: F811
    alice: User,
) -> None:
    page = page_for(alice, java_script_enabled=False)
    page.goto(f"/p/joust/runs/{played.run.pk}/rollouts/")
    page.get_by_role("link", name="Why they failed").click()
    expect(page.locator(".cause")).to_have_count(3)


def test_without_scripts_the_form_finds_the_same(
    page_for: Callable[..., Page],
    played: Played,  # noqa: F811
    alice: User,
) -> None:
    page = page_for(alice, java_script_enabled=False, viewport={"width": 390, "height": 800})
    page.goto(f"/p/joust/runs/{played.run.pk}/rollouts/")
    page.fill("#inspector-q", "天气")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".found-row")).to_have_count(1)
    expect(page.locator("mark")).to_have_text("天气")


def test_a_slider_of_steps_and_one_found_rollout_after_the_other(
    page_for: Callable[..., Page],
    played: Played,  # noqa: F811
    alice: User,
) -> None:
    page, problems = page_for(alice, viewport={"width": 1280, "height": 900}), list[Any]()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"/p/joust/runs/{played.run.pk}/rollouts/?sort=turns")
    expect(page.locator(".found-row")).to_have_count(8)
    first, last = page.get_by_label("First step"), page.get_by_label("Last step")
    first.press("ArrowRight")
    expect(page.locator(".found-row")).to_have_count(4)
    assert asked(page) == {"step_from": ["2"], "sort": ["turns"]} and page.input_value("[name=step_from]") == "2"
    first.press("ArrowLeft")
    last.press("ArrowLeft")
    expect(page.locator("#step-range output")).to_have_text("1")
    expect(page).to_have_url(re.compile("step_to=1"))
    expect(page.locator(".found-row")).to_have_count(4)
    assert asked(page) == {"step_to": ["1"], "sort": ["turns"]}
    page.locator(".found-place").first.click()
    expect(page.locator("#pane-title")).to_contain_text("1.0.0")
    page.locator("#pane-page").click()
    names = []
    for key in ("n", "n", "p"):
        title = page.get_by_role("heading", level=1)
        names.append(title.inner_text()[: len("Step 1, group 0, rollout 0")])
        page.locator("[data-key=found-after]").wait_for()
        page.keyboard.press(key)
        expect(title).not_to_contain_text(names[-1])
    assert [name[-1] for name in names] == ["0", "1", "2"]
    page.get_by_role("link", name="Tokens").click()
    page.locator("[data-key=found-after][href*='view=tokens']").wait_for()
    page.keyboard.press("n")
    page.wait_for_url("**/*view=tokens*")
    page.locator("[data-key=found-before]").wait_for()
    page.keyboard.press("f")
    expect(page.locator(".found-row")).to_have_count(4)
    assert asked(page) == {"step_to": ["1"], "sort": ["turns"]} and problems == []


def test_several_tools_are_chosen_in_a_menu(
    page_for: Callable[..., Page],
    played: Played,  # noqa: F811
    alice: User,
) -> None:
    page = page_for(alice, viewport={"width": 1280, "height": 900})
    page.goto(f"/p/joust/runs/{played.run.pk}/rollouts/")
    menu = page.locator(".pick").first
    expect(menu.locator("summary")).to_have_text("Any tool")
    menu.locator("summary").click()
    menu.get_by_label("calculator").check()
    expect(page.locator(".found-row")).to_have_count(2)
    expect(menu.locator("summary")).to_have_text("calculator")
    menu.get_by_label("python").check()
    expect(page.locator(".found-row")).to_have_count(3)
    expect(menu.locator("summary")).to_have_text("2 tools")
    page.check("input[name=outcome][value=failed]")
    expect(page.locator(".found-row")).to_have_count(2)
    assert asked(page) == {"tool": ["calculator", "python"], "outcome": ["failed"]}


CONTAINED = """() => {
    const pane = document.getElementById("found-pane"), row = document.querySelector(".found-row:has([aria-current])");
    const [here, there] = [pane.getBoundingClientRect(), row.getBoundingClientRect()];
    return {below: here.top >= there.bottom - 1, next: here.left >= there.right, wide: here.right <= innerWidth,
        fits: document.documentElement.scrollWidth <= document.documentElement.clientWidth};
}"""


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("width", [1440, 390])
def test_the_transcript_is_open_on_the_first_failure_and_follows_the_keys(
    page_for: Callable[..., Page],
    played: Played,  # noqa: F811
    alice: User,
    locale: str,
    width: int,
) -> None:
    page = page_for(alice, viewport={"width": width, "height": 900}, locale=locale)
    page.goto(f"/p/joust/runs/{played.run.pk}/rollouts/?step_to=1&step_from=1")
    title = page.locator("#pane-title")
    expect(title).to_contain_text("1.0.1")
    expect(page.locator("#transcript")).to_contain_text("I think that 9 * 5 is 54.")
    places = page.evaluate(CONTAINED)
    assert places == {"below": width == 390, "next": width != 390, "wide": True, "fits": True}
    winner = page.locator(".winner-turn")
    expect(winner).to_have_count(2)
    expect(page.locator("#first-difference")).to_have_count(1)
    page.locator("#found-pane [data-winner]").click()
    expect(winner).to_have_count(0)
    page.keyboard.press("ArrowDown")
    expect(title).to_contain_text("1.0.2")
    assert asked(page)["rollout"] == [str(played.rows["cut"].pk)]
    expect(winner).to_have_count(0)  # it stays closed
    page.locator("#found-pane [data-winner]").click()
    expect(winner).to_have_count(2)
    page.keyboard.press("ArrowUp")
    expect(title).to_contain_text("1.0.1")
    page.reload()
    expect(title).to_contain_text("1.0.1")
    page.locator(".found-members > a").first.click()
    expect(title).to_contain_text("1.0.0")
    assert asked(page)["rollout"] == [str(played.rows["right"].pk)] and page.evaluate(CONTAINED)["fits"]
    if width == 390:
        page.locator(".pane-close").click()
        expect(title).to_be_hidden()
        page.locator(".found-place").first.click()
        expect(title).to_be_visible()


def test_another_view_that_follows_opens_its_own_first_failure(
    page_for: Callable[..., Page],
    played: Played,  # noqa: F811
    alice: User,
) -> None:
    """What was chosen in the view before stays there, however many rollouts come."""
    Run.objects.filter(pk=played.run.pk).update(state="running", seq=40)
    page = page_for(alice, viewport={"width": 1440, "height": 900})
    page.goto(f"/p/joust/runs/{played.run.pk}/rollouts/?newest=yes")
    title = page.locator("#pane-title")
    page.locator(".found-place").nth(1).click()
    expect(title).to_contain_text("2.0.1")
    page.check("input[name=outcome][value=partly]")
    page.wait_for_url("**outcome=partly**")
    expect(title).to_contain_text("2.0.0")
    begun = {"run": played.run, "attempt": 1, "group": 0, "index": 0, "started_at": BEGAN, "reward": 0.5}
    Rollout.objects.create(**begun, step=3, seq=41, status="completed", outcome="partly")
    Run.objects.filter(pk=played.run.pk).update(seq=41)
    expect(title).to_contain_text("3.0.0", timeout=15_000)


def test_steps_are_gone_through_by_key_link_field_and_slider(
    page_for: Callable[..., Page],
    played: Played,  # noqa: F811
    alice: User,
) -> None:
    page = page_for(alice, viewport={"width": 1440, "height": 900})
    page.goto(f"/p/joust/runs/{played.run.pk}/?tab=rollouts&step=2&rollout={played.rows['half'].pk}")
    expect(page.locator("#pane-title")).to_contain_text("2.0.0")
    assert asked(page) == {"step_from": ["2"], "step_to": ["2"], "rollout": [str(played.rows["half"].pk)]}
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#step-summary")).to_contain_text("2 failed")
    expect(page.locator("#pane-title")).to_contain_text("1.0.1")
    assert asked(page) == {"step_from": ["1"], "step_to": ["1"]}
    assert (page.input_value("[name=step_from]"), page.input_value("[name=step_to]")) == ("1", "1")
    page.check("input[name=outcome][value=failed]")
    expect(page.locator(".found-row")).to_have_count(2)
    assert asked(page) == {"step_from": ["1"], "step_to": ["1"], "outcome": ["failed"]}, "the form keeps the step"
    page.fill("#step-input", "2")
    page.press("#step-input", "Enter")
    page.wait_for_url(re.compile("step_from=2&step_to=2"))
    expect(page.locator(".found-row")).to_have_count(1)
    page.locator("#step-scrub").fill("1")
    page.wait_for_url(re.compile("step_from=1&step_to=1"))
    page.locator("#step-follow").click()
    page.wait_for_url(re.compile("newest=yes"))
    assert page.input_value("#step-input") == "2"
    page.get_by_role("link", name="All steps").click()
    expect(page.locator(".found-row")).to_have_count(3)
