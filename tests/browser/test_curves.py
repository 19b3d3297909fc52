"""Curves of a long run in a real browser: folded away, looked at closely, over hours, next to another run, pinned."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.pins.models import PinnedChart

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
STEPS = 5_000
SHOWN = """(chart) => {
  const { data, layout } = document.querySelector(`[data-chart="${chart}"] .chart-plot`);
  const [first, last] = layout.xaxis.range;
  const drawn = data.filter((trace) => trace.hoverinfo === "none").map((trace) => trace.x);
  return drawn.map((x) => x.filter((place) => first <= place && place <= last).length);
}"""


@pytest.fixture
def trained(make_run: Callable[..., Run]) -> Callable[..., Run]:
    """``trained(name)``: a run of 5,000 steps of half an hour each, that has ended."""

    def make(name: str, weight: float = 1.0) -> Run:
        spec = {"components": [{"name": "task_success", "weight": weight}, {"name": "coherence", "weight": 0.5}]}
        run = make_run(name=name, state="succeeded", step=STEPS, total_steps=STEPS, seq=1)
        Run.objects.filter(pk=run.pk).update(config={"kind": "grpo", "rewards": spec}, attempt=1)
        values: dict[str, Callable[[int], float]] = {
            "reward": lambda step: math.sin(step / 500),
            "rewards/task_success/mean": lambda step: math.sin(step / 500) + 0.1,
            "rewards/coherence/mean": lambda step: -0.1,
            "learning_rate": lambda step: 1e-4,
            "timing/step": lambda step: 1800.0,
        }
        MetricPoint.objects.bulk_create(
            [
                MetricPoint(run=run, attempt=1, step=step, name=name, value=value(step), seq=1)
                for name, value in values.items()
                for step in range(1, STEPS + 1)
            ],
            batch_size=5_000,
        )
        return run

    return make


def open_run(page: Page, run: Run, query: str = "") -> None:
    page.goto(reverse("run-detail", args=[run.project.slug, run.pk]) + query)
    page.wait_for_function("() => document.querySelector('[data-chart=reward] .chart-plot .trace')")


def drag(page: Page, chart: str, share: float) -> None:
    place = page.locator(f'[data-chart="{chart}"] .chart-plot')
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + box["width"] * share, y, steps=4)
    page.mouse.up()


def test_a_zoom_brings_the_points_that_were_thinned_away(trained: Any, page_for: Any, bob: Any) -> None:
    page = page_for(bob)
    open_run(page, trained("long"))
    expect(page.locator("#charts-still > summary")).to_have_text("One chart without movement: Learning rate 1.00e-4")
    expect(page.locator('#charts [data-chart="learning_rate"]')).to_have_count(0)
    assert max(page.evaluate(SHOWN, "reward")) < 450
    drag(page, "reward", 0.1)
    page.wait_for_function(f"() => ({SHOWN})('reward').some((count) => count > 400)")
    first, last = page.evaluate("document.querySelector('[data-chart=reward] .chart-plot').layout.xaxis.range")
    assert 400 < last - first < 600
    page.locator("#charts-still > summary").click()
    expect(page.locator('[data-chart="learning_rate"] .chart-plot svg').first).to_be_visible()
    assert "still=1" in page.url


def test_over_hours_and_next_to_a_run_that_was_rewarded_in_another_way(trained: Any, page_for: Any, bob: Any) -> None:
    run, same, other = trained("first"), trained("second"), trained("third", weight=2.0)
    page = page_for(bob)
    open_run(page, run)
    page.get_by_role("button", name="Hours").click()
    page.wait_for_function(
        "() => document.querySelector('[data-chart=reward] .chart-plot').layout.xaxis.range[1] === 2500"
    )
    legend = page.locator("#others-legend li")
    for name in ("second", "third"):
        page.locator("#overlay-menu summary").click()
        page.locator("#others-list button", has_text=name).click()
    expect(legend).to_have_count(3)
    expect(legend.nth(2)).to_contain_text("its rewards are not drawn")
    page.wait_for_function(f"() => ({SHOWN})('reward').length === 2")
    assert page.url.count("with=") == 2 and f"{same.pk}.1" in page.url and f"{other.pk}.2" in page.url
    legend.nth(1).get_by_role("button").click()
    expect(legend).to_have_count(2)
    assert f"{other.pk}.2" in page.url  # its colour stays its own


def test_a_run_that_was_asked_for_during_an_outage_comes_after_it(trained: Any, page_for: Any, bob: Any) -> None:
    """It was called gone for as long as the page was open, and curves whose answer was lost stayed away."""
    run, same, gone = trained("first"), trained("second"), uuid.uuid4()
    page = page_for(bob)
    page.clock.install()
    page.route("**/axes?*", lambda route: route.fulfill(status=503, json={"message": "away"}))
    page.route(f"**/runs/{same.pk}/metrics?*", lambda route: route.abort())
    open_run(page, run, f"?with={same.pk}.1&with={gone}.2")
    legend = page.locator("#others-legend li")
    second, third = legend.nth(1), legend.nth(2)
    expect(second).to_contain_text("Tiltyard does not answer.")
    page.unroute("**/axes?*")
    page.clock.fast_forward(31_000)
    expect(second).to_contain_text("second")
    expect(second).not_to_contain_text("does not answer")
    expect(third).to_contain_text("This run is gone, or you may not see it.")
    assert len(page.evaluate(SHOWN, "reward")) == 1
    page.unroute_all()
    page.clock.fast_forward(31_000)
    page.wait_for_function(f"() => ({SHOWN})('reward').length === 2")


def test_an_axis_whose_answer_is_lost_may_be_chosen_again(trained: Any, page_for: Any, bob: Any) -> None:
    """The buttons said that the run does not know its hours, for as long as the page was open."""
    run = trained("first")
    page = page_for(bob)
    page.route("**/axes", lambda route: route.fulfill(status=503, json={"message": "Tiltyard restarts."}))
    open_run(page, run)
    time, steps = page.locator("[data-axis=time]"), page.locator("[data-axis=step]")
    time.click()
    expect(page.locator("#toasts")).to_contain_text("Tiltyard restarts.")
    expect(steps).to_have_attribute("aria-pressed", "true")
    expect(time).to_be_enabled()
    page.unroute("**/axes")
    time.click()
    expect(time).to_have_attribute("aria-pressed", "true")
    page.wait_for_function(f"() => ({SHOWN})('reward').length === 1")
    assert "x=time" in page.url


def test_a_stack_is_saved_as_a_table_and_pinned_to_the_projects_page(trained: Any, page_for: Any, bob: Any) -> None:
    run = trained("first")
    page = page_for(bob)
    open_run(page, run, "?smooth=0.6")
    chart = page.locator('[data-chart="components"]')
    groups = "document.querySelector('[data-chart=components] .chart-plot').data.map((trace) => trace.stackgroup)"
    assert set(page.evaluate(groups)) >= {"above", "below"}
    chart.locator(".chart-menu summary").click()
    with page.expect_download() as table:
        chart.locator('[data-act="csv"]').click()
    lines = table.value.path().read_text().splitlines()
    assert len(lines) == STEPS + 1 and lines[0].endswith('"step","rewards/task_success/mean","rewards/coherence/mean"')
    chart.locator(".chart-menu summary").click()
    with page.expect_download() as drawing:
        chart.locator('[data-act="svg"]').click()
    assert "first: Reward components" in drawing.value.path().read_text()
    chart.locator(".chart-menu summary").click()
    chart.locator('[data-act="pin"]').click()
    expect(page.get_by_text("it is on the project's page")).to_be_visible()
    pin = PinnedChart.objects.get()
    assert pin.view == {"smooth": 0.6, "log": False, "x": "step", "stack": True}
    page.goto(reverse("project-page", args=[run.project.slug]))
    pinned = page.locator(f"#pin-{pin.pk}")
    expect(pinned.locator(".chart-plot svg").first).to_be_visible()
    expect(pinned).to_contain_text("as of")
    pinned.get_by_role("button", name="Unpin").click()
    expect(page.get_by_text("no longer pinned")).to_be_visible()
    expect(page.locator(".pin")).to_have_count(0)
