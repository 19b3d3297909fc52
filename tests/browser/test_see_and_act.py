"""See and act, on a run that really trains: its rollouts while they are played, found, read, compared and saved.

Real web server, workers, environment server and trainer. Nothing of the run is made up.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.test_journey import LIMIT_MS, Journey, own_rows
from webapp.datasets.models import Dataset
from webapp.reading.rewinding.models import Branch
from webapp.runs.models import Run
from webapp.runs.pins.models import PinnedChart
from webapp.runs.rollouts.models import Rollout, Turn

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(600),
]
STEPS = 12


class Seeing(Journey):
    """What a person does with the rollouts of a run; ``run`` is its page's address."""

    run = ""

    def fly(self) -> None:
        """While it trains, on the page that was open before: a dot for each place of a step, and those that play."""
        page = self.page
        page.wait_for_selector("#flight .flight-cell[data-status=running]", timeout=LIMIT_MS)
        config = Run.objects.get(name="seen").config["rollout"]
        wanted = config["prompts_per_step"] * config["num_generations"]
        assert page.locator("#flight .flight-cell").count() == wanted
        assert page.locator("#flight-slow li").count() == 3

    def ended(self) -> None:
        """What came of it, its curves, and one of them on the project's page."""
        page = self.page
        page.goto(self.run)
        expect(page.locator("#run-summary .ended")).to_contain_text("Success")
        assert page.locator("#flight-slow").count() == 0
        chart = page.locator('[data-chart="reward"]')
        chart.scroll_into_view_if_needed()
        expect(chart.locator(".chart-plot .trace path").first).to_be_visible()
        chart.locator(".chart-menu summary").click()
        chart.locator("[data-act=pin]").click()
        page.wait_for_timeout(500)
        assert PinnedChart.objects.get().run.name == "seen"
        page.locator("#times").scroll_into_view_if_needed()
        expect(page.locator("#times table tbody tr")).to_have_count(STEPS)

    def rewind(self) -> None:
        """Back to the first turn of a rollout: the run's own model continues from there, twice, and a policy once."""
        page = self.page
        rollout = Rollout.objects.filter(run__name="seen", status="completed").first()
        assert rollout is not None
        page.goto(f"{self.run.split('/runs/')[0]}/rollouts/{rollout.pk}/branches/")
        page.fill("#go-on-times", "2")
        page.locator("form:has(#go-on-times) button").click()
        page.wait_for_selector("text=Continuing now")
        expect(page.locator("table.branches tbody tr")).to_have_count(3, timeout=LIMIT_MS)
        run = Run.objects.get(continuation__rollout=rollout)
        assert run.kind == "evaluate" and run.config["model"]["source"]
        went = Rollout.objects.filter(run=run).values_list("status", flat=True)
        assert len(went) == 2 and set(went) <= {"completed", "truncated"}  # a dozen steps teach it little
        page.check("input[name=policy][value=empty]")
        page.locator("form:has(#branch-turn) button").click()
        page.wait_for_selector("#side .side-head")
        assert Branch.objects.get().rollout == rollout
        page.get_by_role("button", name="Add as a demonstration").click()
        page.wait_for_selector(".page-head .badge[data-state=ready]")
        assert Dataset.objects.get(name="branches").rows == 1

    def find(self) -> None:
        """From the run to those that failed, and to one of them by its bar."""
        page, run = self.page, Run.objects.get(name="seen")
        page.click("[data-tab=rollouts]")
        failed = Rollout.objects.filter(run=run, outcome="failed").count()
        page.check("input[name=outcome][value=failed]")
        expect(page.locator(".found-row")).to_have_count(min(failed, 50))
        assert failed > 0
        expect(page).to_have_url(re.compile("outcome=failed"))

    def save(self) -> None:
        """What was found, as an evaluation set."""
        page, found = self.page, self.page.url
        page.get_by_role("link", name="Save as…").click()
        page.check("input[name=kind][value=tasks]")
        page.fill("input[name=name]", "hard")
        page.get_by_role("button", name="Save", exact=True).click()
        page.wait_for_selector(".page-head .badge[data-state=ready]")
        played = (
            Rollout.objects.filter(run__name="seen", outcome="failed", held_out=False).values("row").distinct().count()
        )
        assert Dataset.objects.get(name="hard").rows == played
        page.goto(found)

    def read(self) -> None:
        """One of them: its turns, the words of a component, its tokens in colour."""
        page = self.page
        page.locator(".found-row .found-place").first.click()
        page.click("#pane-page")
        page.wait_for_url(re.compile(r"/rollouts/[0-9a-f-]{36}/"))
        rollout = Rollout.objects.get(pk=page.url.split("/rollouts/")[1][:36])
        assert page.locator("section.turn").count() == Turn.objects.filter(rollout=rollout).count()
        page.locator("#reward tr[data-part] button").first.click()
        expect(page.locator("#words")).to_be_visible()
        page.get_by_role("link", name="Tokens").click()
        sampled = page.locator("#tokens [data-at], #tokens span").first
        expect(sampled).to_be_visible()
        page.select_option("#tokens-by", "entropy")
        page.go_back()

    def compare(self) -> None:
        """Its group side by side, then what became of its task."""
        page = self.page
        page.get_by_role("link", name=re.compile(r"Why did this one|Group")).first.click()
        page.wait_for_url(re.compile(r"/groups/\d+/\d+/"))
        expect(page.locator("#advantages tbody tr")).not_to_have_count(0)
        page.goto(self.run)
        page.click(".run-tabs >> text=Tasks")
        expect(page.locator(".task-map tbody tr")).not_to_have_count(0)


def test_a_run_is_seen_and_acted_on(
    page: Any, alice: Any, project: Any, workers: None, tools_server: str, tmp_path: Path
) -> None:
    seen = Seeing(page, project.slug)
    seen.log_in()
    seen.upload(own_rows(tmp_path), "own-tasks")
    seen.keep_good_rows()
    seen.weigh("mine", tool_call_correctness=0.5, coherence=0.05)
    seen.register(tools_server)
    seen.fill_run("seen", dataset="own-tasks", reward="mine", steps=STEPS)
    seen.launch()
    seen.run = re.sub(r"[?#].*", "", page.url)
    seen.fly()
    seen.wait_state("succeeded", "failed", limit_ms=LIMIT_MS)
    assert Run.objects.get(name="seen").state == "succeeded"
    seen.ended()
    seen.find()
    seen.save()
    seen.read()
    seen.compare()
    seen.rewind()
    assert seen.problems == []
