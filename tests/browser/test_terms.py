"""A word of the field is explained where it is used, by keyboard, on a wide screen and on a phone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.webapp.reading.inspector.conftest import Played, played  # noqa: F401 - a fixture
from webapp.people.teams.models import User

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize(("width", "locale"), [(1440, "en-US"), (390, "zh-CN")])
def test_a_term_opens_and_closes_by_keyboard_within_the_screen(
    page_for: Callable[..., Page],
    played: Played,  # noqa: F811
    alice: User,
    width: int,
    locale: str,
) -> None:
    page = page_for(alice, viewport={"width": width, "height": 900}, locale=locale)
    page.goto(f"/p/joust/runs/{played.run.pk}/rollouts/")
    button = page.locator(".sorts button.term")
    text = page.locator(f"[id='{button.get_attribute('popovertarget')}']")
    expect(text).to_be_hidden()
    button.focus()
    page.keyboard.press("Enter")
    expect(text).to_be_visible()
    expect(text).to_contain_text("−log₂")
    place = text.bounding_box()
    assert place is not None and place["x"] >= 0 and place["x"] + place["width"] <= width
    page.keyboard.press("Escape")
    expect(text).to_be_hidden()
    assert page.evaluate("document.activeElement.matches('button.term')")
