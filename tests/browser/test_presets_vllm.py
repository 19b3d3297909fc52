"""The five systems from their cards with vLLM chosen in the form: ``pytest -m vllm``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from benchmarks.demos import DEMOS
from tests.browser.test_presets import TRAIN_LIMIT_MS, create, house, launch
from tests.training.algorithms.test_real_vllm import GAP, MOST_GAP, needs_vllm
from webapp.people.teams.models import Project, User
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.rollouts.models import Rollout, RolloutStatus

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["house"]
pytestmark = [*needs_vllm, pytest.mark.browser, pytest.mark.django_db(transaction=True)]
STEPS = 2


@pytest.mark.parametrize("preset", DEMOS)
def test_a_preset_is_sampled_by_vllm_from_its_card(
    preset: str, project: Project, bob: User, page_for: Callable[..., Page], house: None
) -> None:
    page = page_for(bob)
    page.set_default_timeout(60_000)
    create(page, project, preset)
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    for name, value in {"run.max_steps": STEPS, "rollout.top_p": 1, "rollout.top_k": 0}.items():  # vLLM cuts nothing
        page.fill(f"[name='{name}']", str(value))
    page.select_option("[name='rollout.engine']", "vllm")
    run = launch(page)
    page.wait_for_selector("#run-state:is([data-state=succeeded], [data-state=failed])", timeout=TRAIN_LIMIT_MS)
    run.refresh_from_db()
    assert (run.state, run.error, run.step) == ("succeeded", None, STEPS)
    assert run.config["rollout"]["engine"] == "vllm"
    gaps = MetricPoint.objects.filter(run=run, name=GAP).values_list("value", flat=True)
    assert len(gaps) == STEPS and max(gaps) <= MOST_GAP
    played = Rollout.objects.filter(run=run)
    assert not played.filter(status=RolloutStatus.EXCLUDED).exists()
    assert set(played.values_list("policy_step", flat=True)) == set(range(STEPS))
