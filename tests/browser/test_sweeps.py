"""The fold of a sweep: the count while a person writes, problems at their option, and one click that launches all."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from webapp.launch.models import Sweep
from webapp.people.teams.models import User
from webapp.runs.models import Run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_sweep_is_written_counted_and_launched(
    page_for: Callable[..., Page], bob: User, project: Any, make_dataset: Any, make_environment: Any
) -> None:
    data, tools = make_dataset(), make_environment()
    page = page_for(bob)
    page.goto("/p/joust/sweeps/")
    page.get_by_role("link", name="New sweep").first.click()
    expect(page.locator("#sweep-fold")).to_have_attribute("open", "")
    page.goto(f"/p/joust/runs/new/?dataset={data.reference}&environment={tools.reference}#sweep")
    first = page.evaluate("document.querySelector('#run-form button:not([type=button])').id")
    assert first == "launch", "what the Enter key presses in any field is the launch of one run"
    plan, launch = page.locator("#sweep-plan"), page.locator("#launch")
    expect(launch).to_be_visible()
    page.locator("[name='sweep-0-option']").fill("optim.lerning_rate")
    page.locator("[name='sweep-0-values']").fill("1e-6, 3e-6, 1e-5")
    expect(plan).to_contain_text("Did you mean optim.learning_rate?")
    expect(plan.get_by_role("button")).to_be_disabled()
    page.locator("[name='sweep-0-option']").fill("optim.learning_rate")
    page.locator("[name='sweep-1-option']").fill("run.seed")
    page.locator("[name='sweep-1-values']").fill("1, 2")
    expect(plan).to_contain_text("Learning rate (3) × Seed (2) = 6 runs · 600 steps in all")
    expect(launch).to_be_hidden()
    page.get_by_label("One change at a time, compared with the form").check()
    expect(plan).to_contain_text("6 runs: the setting of the form, and one for each change")
    page.get_by_label("Every combination").check()
    page.get_by_role("button", name="Launch 6 runs").click()
    expect(page).to_have_url(re.compile(r"/sweeps/[0-9a-f-]{36}/$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Still running: 0 of 6 runs have ended.")
    assert Sweep.objects.get().runs.count() == Run.objects.count() == 6
