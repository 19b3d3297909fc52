"""Comparing in a real browser: from the boxes of the run list to one task side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse

from webapp.evaluation.sharing.services import Query, comparison_save, link_create
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

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
    assert page.locator("h1").inner_text().startswith("No difference can be shown: +50 points of success for b (")
    assert page.locator(".forest").first.locator(".forest-value strong").all_inner_texts() == ["87.5%", "37.5%"]
    assert "b and a cannot be told apart" in page.locator("#verdicts").inner_text()
    assert page.locator("#figures th").all_inner_texts().count("Reward") == 0
    page.get_by_label("Reward spec").select_option(str(a.pk))
    page.get_by_role("button", name="Weigh again").click()
    page.locator("#figures th", has_text="Reward").first.wait_for()
    page.get_by_role("link", name="b solves, a fails").click()
    page.locator("#tasks").get_by_role("link", name="task 1", exact=True).click()
    page.wait_for_url("**/tasks/1/**")
    heads = dict(text.splitlines()[:2] for text in page.locator(".side-head").all_inner_texts())
    assert heads == {"a": "failed", "b": "solved"}
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_task_that_one_solves_opens_the_try_that_was_shown(
    page_for: Callable[..., Any], rita: User, project: Project, evaluation: Callable[..., Run]
) -> None:
    a, b = evaluation("a", {1: [1, 0], 2: [0, 0]}), evaluation("b", {1: [1, 1], 2: [0, 0]})
    page = page_for(rita, viewport={"width": 390, "height": 900})
    page.goto(reverse("compare", args=[project.slug]) + f"?c={a.pk}&c={b.pk}")
    example = page.locator("#examples .example")
    assert [text.replace("\n", " ") for text in example.locator("q").all_inner_texts()] == ["solved", "given up"]
    example.get_by_role("link", name="task 1").click()
    page.wait_for_url("**/tasks/1/?**try=2")
    heads = dict(text.splitlines()[:2] for text in page.locator(".side-head").all_inner_texts())
    assert heads == {"a": "failed", "b": "solved"}


@pytest.mark.parametrize("width", [1440, 390])
def test_no_column_is_cut_off_where_every_figure_has_an_interval(
    page_for: Callable[..., Any], bob: User, project: Project, evaluation: Callable[..., Run], width: int
) -> None:
    """The time, last of eleven columns, was beyond the edge of the page and of the shared report."""
    runs = [evaluation(name, {n: [n % 2, 1, 0, 1] for n in range(4)}) for name in ("n" * 80, "评估" * 40)]
    for number, item in enumerate(Rollout.objects.order_by("pk")):
        item.turns, item.tokens, item.seconds, item.failed_calls = (
            1 + number % 5,
            4_000 * number,
            97.0 * number,
            number % 3,
        )
        item.cost = 0.01 * number
        item.save()
    query = Query([str(run.pk) for run in runs])
    saved = comparison_save(project=project, user=bob, name="week 47", query=query)
    secret = link_create(saved=saved, user=bob, days=7)[1]
    page = page_for(bob, viewport={"width": width, "height": 900})
    address = reverse("compare", args=[project.slug]) + f"?c={runs[0].pk}&c={runs[1].pk}"
    for at in (address, reverse("compare-saved", args=[project.slug, saved.pk]), f"/s/{secret}/"):
        page.goto(at)
        assert page.locator("#figures th").last.inner_text() == "Cost" or width == 390
        wide = "[...document.querySelectorAll('#figures .table-wrap, #forest')].map(n => n.scrollWidth - n.clientWidth)"
        assert page.evaluate(wide) == [0, 0] and page.evaluate("document.documentElement.scrollWidth") <= width, at
