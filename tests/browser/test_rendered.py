"""What the model sees, from the form of a run to the tokens of a row, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.webapp.launch.test_rendered import ROWS
from webapp.people.teams.models import Project, User

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
LIMIT_MS = 60_000  # a child loads the trainer's libraries


def test_from_the_form_to_the_tokens_of_a_row(
    project: Project, alice: User, make_dataset: Callable[..., Any], page_for: Callable[..., Page]
) -> None:
    dataset = make_dataset(ROWS)
    page = page_for(alice)
    page.set_default_timeout(LIMIT_MS)
    page.goto(f"/p/{project.slug}/runs/new/?dataset={dataset.reference}&kind=sft")
    with page.expect_popup() as opened:
        page.get_by_role("button", name="What the model sees").click()
    rendered = opened.value
    learned = rendered.locator(".rendered-part[data-kind='learned']")
    learned.first.wait_for()
    assert "<tool_call>" in (learned.first.locator(".piece").text_content() or "")
    token = learned.first.locator(".tok").first
    assert (token.get_attribute("title") or "").isdigit()
    assert "stock" in (learned.first.locator(".rendered-reading").text_content() or "")
    assert rendered.locator("section.card").count() == 4
    rendered.get_by_role("link", name="Next rows").click()
    rendered.locator(".rendered-part").first.wait_for()
    assert rendered.locator("section.card").count() == 2
