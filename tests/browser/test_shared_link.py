"""A comparison is saved, commented on and shared; in a private window its link opens the report and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse

from webapp.evaluation.sharing.models import SavedComparison
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("width", [1280, pytest.param(390, marks=pytest.mark.slow)])
def test_from_a_comparison_to_a_report_in_a_private_window(
    page_for: Callable[..., Any], bob: User, project: Project, evaluation: Callable[..., Run], width: int
) -> None:
    a = evaluation("a", {0: [1, 1], 1: [0, 0], 2: [0, 0], 3: [0, 1]})
    b = evaluation("b", {0: [1, 1], 1: [1, 1], 2: [1, 0], 3: [1, 1]})
    size = {"width": width, "height": 900}
    page = page_for(bob, viewport=size)
    page.goto(reverse("compare", args=[project.slug]) + f"?c={a.pk}&c={b.pk}")
    page.locator(".save-menu summary").click()
    form = page.locator(".save-form").bounding_box()
    assert form["x"] >= 0 and form["x"] + form["width"] <= width, "the form is cut off"
    page.get_by_label("Name").fill("week 47")
    page.locator(".save-form").get_by_role("button", name="Save").click()
    page.wait_for_url("**/compare/saved/*/")
    page.get_by_label("Comment", exact=True).fill("ship b\n<b>now</b>")
    page.get_by_role("button", name="Add a comment").click()
    page.locator(".comment").wait_for()
    assert page.locator(".comment-text").inner_text() == "ship b\n<b>now</b>"
    page.get_by_role("link", name="Share by link").click()
    page.get_by_role("button", name="Make a link").click()
    url = page.locator("#new-link").inner_text()
    _private_window(page_for, url, size, project, SavedComparison.objects.get())
    page.goto(reverse("compare-links", args=[project.slug, SavedComparison.objects.get().pk]))
    row = page.locator("tbody tr", has_text=f"/s/{url.split('/s/')[1][:4]}")
    row.get_by_role("button", name="Revoke").click()
    page.get_by_text("The link is revoked").wait_for()
    late = page_for(None, viewport=size)
    assert late.goto(url).status == 404
    assert late.locator("h1").inner_text() == "This link does not exist or has ended"


def _private_window(
    page_for: Callable[..., Any], url: str, size: dict[str, int], project: Project, saved: SavedComparison
) -> None:
    """Without a login: the report is there in Chinese and whole, and every way onward ends."""
    reader, problems = page_for(None, viewport=size, locale="zh-CN"), []
    asked: list[str] = []
    reader.on("console", lambda message: problems.append(message.text))
    reader.on("request", lambda request: asked.append(request.url))
    assert reader.goto(url).status == 200
    assert reader.locator("h1").inner_text() == "week 47" and reader.locator("html").get_attribute("lang") == "zh-hans"
    assert reader.locator(".forest-value strong").all_inner_texts() == ["87.5%", "37.5%", "+50.0"]
    assert "由 bob 于" in reader.locator(".shared-by").inner_text()
    assert reader.locator("a").count() == 1 and reader.locator("form, script, iframe").count() == 0
    assert reader.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert problems == [], "the policy refused something that the page needs"
    assert all("/static/" in address or address == url for address in asked)
    with reader.expect_download() as download:
        reader.locator("a").click()
    assert download.value.suggested_filename == "comparison.html"
    assert reader.context.cookies() == []
    inside = reverse("compare-saved", args=[project.slug, saved.pk])
    places = [inside, reverse("project-page", args=[project.slug]), reverse("compare", args=[project.slug]), "/"]
    for place in [*places, *(reverse("run-detail", args=[project.slug, run]) for run in saved.run_ids)]:
        reader.goto(place)
        assert "/login/" in reader.url, place
    api = f"/api/v1/comparisons/{saved.pk}"
    near = [api, f"{api}/links", f"{url}../{saved.pk}/"]
    assert [reader.request.get(path).status for path in near] == [401, 401, 404]
