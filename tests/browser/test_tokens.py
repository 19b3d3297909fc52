"""A token just made, on a phone: it is shown whole, and the page does not scroll sideways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from webapp.people.teams.models import Project, User

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
WIDTH = 390


@pytest.mark.parametrize(("place", "button"), [("/tokens/", "Make a token"), ("settings/machines/", "Make it")])
def test_a_new_token_fits_on_a_phone(
    page_for: Callable[..., Any], alice: User, project: Project, place: str, button: str
) -> None:
    page = page_for(alice, viewport={"width": WIDTH, "height": 800})
    page.goto(place if place.startswith("/") else f"/p/{project.slug}/{place}")
    page.get_by_label("Name", exact=True).fill("nightly")
    page.get_by_role("button", name=button).click()
    shown = page.locator("#new-token")
    assert shown.inner_text().startswith("tiltyard_") and len(shown.inner_text()) > 40
    box = shown.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= WIDTH
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH
