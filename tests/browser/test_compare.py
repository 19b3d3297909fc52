"""Comparing in a real browser: from the boxes of the run list to one task side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse

from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
GATED = [{"name": "env_success", "weight": 0.8, "params": {}}, {"name": "format", "weight": 0.2, "params": {}}]


@pytest.mark.parametrize("width", [1280, 390])
def test_from_the_run_list_to_one_task(
    page_for: Callable[..., Any],
    rita: User,
    project: Project,
    evaluation: Callable[..., Run],
    make_run: Callable[..., Run],
    width: int,
) -> None:
    a = evaluation("a", {0: [1, 1], 1: [0, 0], 2: [0, 0], 3: [0, 1]})
    b = evaluation(
        "b",
        {0: [1, 1], 1: [1, 1], 2: [1, 0], 3: [1, 1]},
        components=GATED,
        parts=lambda success: {"env_success": success, "format": 1.0},
    )
    make_run(name="at-work", state="running")  # so that the list asks for itself again
    page = page_for(rita, viewport={"width": width, "height": 900})
    page.goto(reverse("run-list", args=[project.slug]))
    page.get_by_label("Choose a", exact=True).check()
    page.get_by_label("Choose b", exact=True).check()
    with page.expect_response(lambda answer: "/runs/" in answer.url and answer.request.headers.get("hx-request")):
        page.evaluate("document.dispatchEvent(new Event('live-tick'))")
    assert page.locator(".pick:checked").count() == 2, "the refreshed list forgot what was chosen"
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_url(f"**/compare/?c=*{b.pk}*")
    assert str(a.pk) in page.url
    assert "b and a cannot be told apart" in page.locator("#verdicts").inner_text()
    assert page.locator("#figures th").all_inner_texts().count("Reward") == 0
    page.get_by_label("Reward spec").select_option(str(a.pk))
    page.get_by_role("button", name="Weigh again").click()
    assert "Reward" in page.locator("#figures table").first.inner_text()
    page.get_by_role("link", name="b solves, a fails").click()
    page.locator("#tasks").get_by_role("link", name="task 1", exact=True).click()
    heads = dict(text.splitlines()[:2] for text in page.locator(".side-head").all_inner_texts())
    assert heads == {"a": "failed", "b": "solved"}
    assert page.evaluate("document.documentElement.scrollWidth") <= width
