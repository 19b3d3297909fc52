"""Rewards of different specs in a real browser: one spec is chosen, what was not recorded of it is scored in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse

from tests.webapp.evaluation.comparison.test_page import GATED
from tests.webapp.evaluation.rescoring.conftest import OWN, SOLVED
from tests.working import done
from webapp.evaluation.rescoring.models import Rescoring
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("width", [1280, pytest.param(390, marks=pytest.mark.slow)])
def test_one_spec_for_all_by_scoring_what_lacks(
    page_for: Any, project: Project, bob: User, evaluation: Callable[..., Run], make_reward_spec: Any, width: int
) -> None:
    tries = {0: [1, 1], 1: [0, 0], 2: [0, 1], 3: [1, 1]}
    a = evaluation("a", tries)
    b = evaluation("b", tries, components=GATED, parts=lambda success: {"env_success": success, "format": 0.5})
    make_reward_spec(name="strict", components=[OWN, SOLVED])
    page = page_for(bob, viewport={"width": width, "height": 900})
    page.goto(f"{reverse('compare', args=[project.slug])}?c={a.pk}&c={b.pk}")
    page.get_by_label("Reward spec").select_option("reward:strict@1")
    page.get_by_role("button", name="Weigh again").click()
    offer = page.locator("#to-score")
    assert "16 recorded rollouts lack values of this spec." in offer.inner_text()
    offer.get_by_role("button", name="Score the rollouts").click()
    page.get_by_text("Waiting for a worker to score the recorded rollouts").wait_for()
    assert offer.get_by_role("button", name="Score the rollouts").count() == 0
    offer.get_by_role("button", name="Cancel").click()
    page.get_by_text("It was cancelled; the scores so far are kept.").wait_for()
    offer.get_by_role("button", name="Score the rollouts").click()
    page.get_by_text("Waiting for a worker to score the recorded rollouts").wait_for()
    done(Rescoring.objects.get(state="waiting"))
    offer.wait_for(state="detached")
    assert "b: Pattern match computed from the transcripts of 8 rollouts." in page.locator("#specs-differ").inner_text()
    assert "Reward" in page.locator("#figures table").first.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
