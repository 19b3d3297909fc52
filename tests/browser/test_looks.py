"""The looks of every page: cards of runs, density, paper, and marks of what changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from tests.webapp.reading.inspector.conftest import Played, played  # noqa: F401 - a fixture
from webapp.people.teams.models import User
from webapp.runs.models import Run
from webapp.runs.states import RunState

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]
APART = """() => {
  const [card, link] = ["#preview", "[aria-describedby=preview]"].map((one) =>
    document.querySelector(one).getBoundingClientRect());
  return card.top >= link.bottom || card.bottom <= link.top;
}"""


@pytest.fixture
def runs(make_run: Callable[..., Run]) -> list[Run]:
    """Two that have ended, so that their list does not poll."""
    fields: dict[str, Any] = {"state": RunState.SUCCEEDED, "total_steps": 40, "step": 40, "success": 0.5}
    return [make_run(name=name, **fields) for name in ("first", "名" * 80)]


def _list(page: Page) -> Page:
    page.goto(reverse("run-list", args=["joust"]))
    page.wait_for_function("document.readyState === 'complete'")
    return page


def test_a_card_comes_while_the_pointer_rests_on_a_run(
    runs: list[Run], page_for: Callable[..., Page], bob: User
) -> None:
    page = _list(page_for(bob))
    card, link = page.get_by_role("tooltip"), page.get_by_role("link", name="first", exact=True)
    before = page.evaluate("document.documentElement.scrollHeight")
    link.hover()
    expect(card).to_contain_text("64 rollouts, 95%: 38.1% – 61.9%")
    expect(link).to_have_attribute("aria-describedby", "preview")
    assert page.evaluate(APART) and page.evaluate("document.documentElement.scrollHeight") == before
    card.hover()
    page.wait_for_timeout(300)
    expect(card).to_be_visible()
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    link.hover()
    expect(card).to_be_visible()
    page.locator("h1").hover()
    expect(card).to_be_hidden()
    assert link.get_attribute("aria-describedby") is None


def test_a_pointer_that_passes_asks_for_nothing(runs: list[Run], page_for: Callable[..., Page], bob: User) -> None:
    page, asked = _list(page_for(bob)), []
    page.on("request", lambda request: asked.append(request.url) if "preview" in request.url else None)
    page.get_by_role("link", name="first", exact=True).hover()
    page.locator("h1").hover()
    page.wait_for_timeout(500)
    assert asked == []


def test_a_card_comes_by_keyboard_and_goes_with_the_focus(
    runs: list[Run], page_for: Callable[..., Page], bob: User
) -> None:
    page = _list(page_for(bob))
    card = page.get_by_role("tooltip")
    page.locator(f"#pick-{runs[1].pk}").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == runs[1].name
    expect(card).to_contain_text(runs[1].name)
    assert page.evaluate(APART)
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    expect(card).to_be_visible()
    page.keyboard.press("Tab")
    expect(card).to_be_hidden()


def test_a_finger_gets_the_page_and_no_card(runs: list[Run], page_for: Callable[..., Page], bob: User) -> None:
    page = _list(page_for(bob, has_touch=True, viewport={"width": 390, "height": 800}))
    page.get_by_role("link", name="first", exact=True).tap()
    page.wait_for_url(f"**/{runs[0].pk}/")
    assert page.get_by_role("tooltip").count() == 0


def test_a_card_stays_while_its_list_comes_again(
    runs: list[Run], make_run: Any, page_for: Callable[..., Page], bob: User
) -> None:
    make_run(name="at work", state=RunState.RUNNING, step=1)
    page = _list(page_for(bob))
    card, link = page.get_by_role("tooltip"), page.get_by_role("link", name="at work", exact=True)
    link.hover()
    expect(card).to_be_visible()
    link.evaluate("node => (window.before = node)")
    page.evaluate("document.addEventListener('htmx:afterSettle', () => (window.came = true))")
    page.wait_for_function("() => window.came")  # every four seconds
    page.wait_for_timeout(400)
    assert page.evaluate("window.before.isConnected"), "what did not change stays"
    expect(card).to_be_visible()
    expect(link).to_have_attribute("aria-describedby", "preview")


def test_density_is_chosen_next_to_the_theme_and_stays(
    runs: list[Run], page_for: Callable[..., Page], bob: User
) -> None:
    page = _list(page_for(bob))
    row, cell = page.locator("#run-list tbody tr").first, page.locator("#run-list td.num").first
    size = "node => getComputedStyle(node).fontSize"
    before, comfortable = row.bounding_box(), cell.evaluate(size)
    page.get_by_label("Theme and density").click()
    page.get_by_role("button", name="Compact", exact=True).click()
    expect(page.locator("html")).to_have_attribute("data-density", "compact")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-density", "compact")
    after = row.bounding_box()
    assert before and after and before["height"] - after["height"] >= 6
    assert (comfortable, cell.evaluate(size)) == ("13px", "12px")
    page.get_by_label("Theme and density").click()
    page.get_by_role("button", name="Dark", exact=True).click()
    page.reload()
    for name, value in (("data-theme", "dark"), ("data-density", "compact")):
        expect(page.locator("html")).to_have_attribute(name, value)


def test_paper_is_light_and_has_nothing_to_press(runs: list[Run], page_for: Callable[..., Page], bob: User) -> None:
    page = _list(page_for(bob, color_scheme="dark"))
    ink, ground = "getComputedStyle(document.body).color", "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ink) == "rgb(231, 234, 234)"
    page.emulate_media(media="print", color_scheme="dark")
    assert (page.evaluate(ink), page.evaluate(ground)) == ("rgb(25, 28, 29)", "rgba(0, 0, 0, 0)")
    for gone in (".rail", ".topbar", ".button", ".menu", ".toasts", ".pick", ".star"):
        assert page.locator(f"{gone}:visible").count() == 0, gone
    expect(page.get_by_role("link", name="first", exact=True)).to_be_visible()
    page.context.add_cookies([{"name": "tiltyard-theme", "value": "dark", "url": page.url}])
    page.reload()
    assert page.evaluate(ink) == "rgb(25, 28, 29)", "also where dark was chosen by hand"


def test_a_cell_that_changed_is_marked_and_no_other(
    runs: list[Run], make_run: Any, page_for: Callable[..., Page], bob: User
) -> None:
    run = make_run(name="at work", state=RunState.RUNNING, step=1)
    page = _list(page_for(bob))
    page.evaluate("""() => {
      window.seen = [];
      const note = (all) => all.forEach((one) =>
        one.target.hasAttribute("data-changed") && window.seen.push(one.target.textContent));
      new MutationObserver(note).observe(document.body, { subtree: true, attributeFilter: ["data-changed"] });
    }""")
    Run.objects.filter(pk=run.pk).update(step=2)
    page.wait_for_function("() => window.seen.length")
    assert page.evaluate("window.seen") == ["2 / 100"]
    expect(page.locator("[data-changed]")).to_have_count(0)
    page.emulate_media(reduced_motion="reduce")
    Run.objects.filter(pk=run.pk).update(step=3)
    page.wait_for_function("() => window.seen.length > 1")
    assert page.locator("[data-changed]").evaluate("node => getComputedStyle(node).animationName") == "none"


def test_a_card_of_a_rollout_comes_by_pointer_and_by_keyboard_and_not_by_touch(
    page_for: Callable[..., Page],
    played: Played,  # noqa: F811
    bob: User,
) -> None:
    address = reverse("run-rollouts", args=["joust", played.run.pk])
    page = page_for(bob)
    page.goto(address)
    card, link = page.get_by_role("tooltip"), page.locator(f".found-place[data-rollout='{played.rows['wrong'].pk}']")
    link.hover()
    expect(card).to_contain_text("task of wrong")
    expect(card).to_contain_text("I think that 9 * 5 is 54.")
    expect(link).to_have_attribute("aria-describedby", "preview")
    assert page.evaluate(APART)
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    page.mouse.move(0, 0)
    shown = page.locator(".found-place[aria-current=true]")
    shown.hover()
    page.wait_for_timeout(500)
    expect(card).to_be_hidden()  # its transcript is next to it
    phone = page_for(bob, viewport={"width": 390, "height": 760}, has_touch=True, is_mobile=True)
    phone.goto(address)
    asked: list[str] = []
    phone.on("request", lambda request: asked.append(request.url) if "/preview/" in request.url else None)
    phone.locator(".found-place").nth(1).tap()
    phone.wait_for_timeout(900)
    assert asked == []


def test_a_card_of_a_rollout_comes_where_a_group_names_it(
    page_for: Callable[..., Page],
    played: Played,  # noqa: F811
    bob: User,
) -> None:
    page = page_for(bob)
    page.goto(reverse("run-group", args=["joust", played.run.pk, 1, 0]))
    link = page.locator(f"main a[href*='/rollouts/{played.rows['right'].pk}/']:not(.button)").first
    link.scroll_into_view_if_needed()
    page.keyboard.press("Shift+Tab")  # from here on the focus is the keyboard's
    link.focus()
    expect(page.get_by_role("tooltip")).to_contain_text("9 * 5 is 45.")
