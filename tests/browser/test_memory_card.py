"""The memory of a job next to its form follows the form, and changes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from django.urls import reverse

from tests.webapp.launch.test_memory import ANSWER
from tests.working import done
from webapp.launch import estimates
from webapp.launch.models import EstimateState, MemoryEstimate
from webapp.people.teams.models import Project, User

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
FITS: dict[str, Any] = {**ANSWER, "fits": True, "hint": "", "change": None, "changed": None}


def work(page: Page) -> None:
    """A worker takes what the page asks for next."""
    for _ in range(100):
        page.wait_for_timeout(100)
        if row := MemoryEstimate.objects.filter(state=EstimateState.OPEN).first():
            done(row)
            return
    raise AssertionError("nothing was asked for")


def test_the_card_follows_the_form_and_sets_options(
    page_for: Callable[..., Page], project: Project, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(claim: Any) -> dict[str, Any]:
        return FITS if claim.item.config["optim"]["micro_batch_size"] == 4 else ANSWER

    monkeypatch.setattr(estimates, "_run_estimate", answer)
    page = page_for(alice)
    page.goto(reverse("run-new", args=[project.slug]) + "?model=Qwen/Qwen3-8B")
    work(page)
    page.locator(".memory-table[data-level='short']").wait_for()
    assert "120.0 GiB" in page.locator(".memory-verdict").inner_text()
    page.locator("[data-set]").click()
    assert page.locator("[name='optim.micro_batch_size']").input_value() == "4"
    assert page.locator("[name='model.gradient_checkpointing']").is_checked()
    work(page)
    page.locator(".memory-table:not([data-level='short']):not([data-old])").wait_for()
    assert page.locator("[data-set]").count() == 0
    shown = page.locator("#options .field[data-path]:visible")
    assert {field.get_attribute("data-path") for field in shown.all()} >= {"optim.micro_batch_size"}, "what it changed"
    page.locator("[data-view='recipe']").click()
    page.locator("[name='rollout.num_generations']").fill("1")
    page.locator("#memory .errorlist").wait_for()
    page.locator("[name='rollout.num_generations']").fill("8")
    page.locator(".memory-table:not([data-level='short'])").wait_for()  # known already: no worker is asked
    assert not MemoryEstimate.objects.filter(state=EstimateState.OPEN).exists()
