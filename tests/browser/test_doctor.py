"""As a new user would: a run whose reward rises while success does not, and where the answer is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from tests.webapp.reading.conftest import ASKED, play, tasks, trained
from webapp.engine.doctor import look
from webapp.people.teams.models import User
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Attempt, Run

__all__ = ["play", "tasks", "trained"]
pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
Make = Callable[..., Any]
STEPS = 30
BLIND = {
    "role": "assistant",
    "content": "It is 44.",
    "tool_calls": [{"id": "0", "name": "calculator", "arguments": {"expression": "40 + 4"}}],
}


@pytest.fixture
def fooled(trained: Make, play: Make) -> Run:
    """A run that trains and learns to call the tool, whatever for: half of the tasks stay solved, no more."""
    run: Run = trained(name="fooled")
    now = timezone.now()
    for step in range(1, STEPS + 1):
        paid = min(1.0, step / STEPS)
        figures = {"reward": 0.3 + 0.4 * paid, "reward_std": 0.2, "rollouts/task_success": 0.5}
        MetricPoint.objects.bulk_create(
            MetricPoint(run=run, attempt=1, step=step, name=name, value=value, seq=1) for name, value in figures.items()
        )
        for index in range(4):
            success = float(index % 2 == 0)
            parts = {"task_success": success, "tool_necessity": paid}
            reward = 0.6 * success + 0.4 * paid
            play(run, step, 0, index, row=3, success=success, reward=reward, talk=(ASKED, BLIND), parts=parts)
    Attempt.objects.create(run=run, number=1, owner="w", started_at=now, first_step=0, last_step=STEPS)
    Run.objects.filter(pk=run.pk).update(state="running", step=STEPS, last_step_at=now, last_event_at=now)
    run.refresh_from_db()
    return run


def test_why_did_reward_rise_while_success_did_not(fooled: Run, alice: User, page_for: Callable[..., Page]) -> None:
    """The bar is five clicks from the list of runs; the list names the run, its page the fault, a rollout the words."""
    look()
    page = page_for(alice)
    page.goto("/p/joust/runs/")
    row = page.locator("tr, li", has_text="fooled").first
    expect(row).to_contain_text("1 advisory")
    row.get_by_role("link", name="fooled").click()  # 1
    advisory = page.locator("[data-code=over_optimisation]")
    expect(advisory).to_contain_text("Reward rises, success does not")
    expect(advisory.locator(".advisory-curve")).to_have_count(2)
    advisory.get_by_role("link", name="Rollout").first.click()  # 2
    reward = page.locator("#reward")
    expect(reward.locator("tr[data-part=task_success] .num").first).to_have_text("0.00")
    expect(reward).to_contain_text("failed")
    paid = float(reward.locator("tr[data-part=tool_necessity] .num").nth(2).inner_text())
    assert paid == pytest.approx(float(reward.locator(".parts-total .num").inner_text()), abs=0.002)
    page.click("#reward tr[data-part=tool_necessity] button")  # 3
    expect(page.locator("#words")).to_be_visible()
