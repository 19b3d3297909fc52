"""Finding rollouts in a real browser: typing, ticking, a bar, a key, a saved view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.webapp.inspector.conftest import Played, played  # noqa: F401 - a fixture
from webapp.inspector.models import SavedView
from webapp.teams.models import User

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
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.goto(f"/p/joust/runs/{played.run.pk}/?tab=rollouts")
    page.get_by_role("link", name="Find rollouts").click()
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
    expect(page.get_by_role("heading", name="Step 1, group 0, rollout 2")).to_be_visible()
    expect(page.locator("h1 .badge[data-state=failed]")).to_have_text("failed")
    assert problems == []


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
