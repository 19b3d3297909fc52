"""Which font draws which characters, as Chromium itself reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Page

from webapp.people.teams.models import Project, User

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


PUT = """text => {
  document.getElementById("main").innerHTML = "<p id=drawn></p>";
  drawn.textContent = text;
}"""
WIDTH = """text => {
  drawn.style.display = "inline-block";
  drawn.textContent = text;
  return drawn.getBoundingClientRect().width;
}"""


def fonts_of(page: Page, text: str) -> dict[str, int]:
    """How many glyphs of a text each font draws in the page."""
    page.evaluate(PUT, text)
    page.evaluate("document.fonts.ready")
    tools: Any = page.context.new_cdp_session(page)
    for domain in ("DOM", "CSS"):
        tools.send(f"{domain}.enable")
    root = tools.send("DOM.getDocument")["root"]["nodeId"]
    node = tools.send("DOM.querySelector", {"nodeId": root, "selector": "#drawn"})["nodeId"]
    found = tools.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
    return {font["familyName"]: font["glyphCount"] for font in found}


@pytest.mark.parametrize(
    ("locale", "text", "ours"),
    [
        ("en-US", "can’t be “too similar” – 0.5 × 10…", 34),
        ("zh-CN", "first-grpo 0.5", 14),
        ("zh-CN", "“太相似”…", 0),
        ("en-US", "太相似", 0),
    ],
)
def test_latin_text_is_in_the_shipped_font_and_chinese_marks_are_not(
    page_for: Callable[..., Page], alice: User, project: Project, locale: str, text: str, ours: int
) -> None:
    page = page_for(alice, locale=locale)
    page.goto(reverse("project-page", args=[project.slug]))
    fonts = fonts_of(page, text)
    inter = sum(count for family, count in fonts.items() if family.startswith("Inter"))
    assert inter == ours and (sum(fonts.values()) == ours) == (ours > 0)


def test_digits_have_one_width_and_hyphens_are_not_as_wide(
    page_for: Callable[..., Page], alice: User, project: Project
) -> None:
    page = page_for(alice, locale="en-US")
    page.goto(reverse("project-page", args=[project.slug]))
    fonts_of(page, "1")
    one, eight, hyphen = (page.evaluate(WIDTH, each * 20) for each in ("1", "8", "-"))
    assert one == eight and hyphen < 0.85 * eight
