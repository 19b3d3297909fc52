"""The environment's server is away for three minutes under a real run with default settings."""

from __future__ import annotations

import os
import time
from urllib.parse import urlsplit

import pytest

from tests.chaos.house import House
from tests.chaos.services import wait_until
from tests.chaos.test_real_run import _launch, real_house, tools_start  # noqa: F401 - real_house is a fixture
from tests.chaos.truth import assert_exact
from webapp.environments.models import Environment
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run, RunEvent
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import RunState

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(1200)]
AWAY_S, STEPS, ROLLOUTS = float(os.environ.get("TILTYARD_CHAOS_AWAY_S", "180")), 20, 8


def _scores(run: Run) -> list[tuple[int, int, int, float | None]]:
    return sorted(Rollout.objects.filter(run=run).values_list("step", "group", "index", "reward"))


def _losses(run: Run) -> list[tuple[int, float]]:
    return sorted(MetricPoint.objects.filter(run=run, name="loss").values_list("step", "value"))


def test_an_environment_away_for_three_minutes_costs_nothing(real_house: House) -> None:  # noqa: F811
    """It ended the run for good after 5 s. Each rollout and each loss is that of the same run without an outage."""
    calm = _launch(real_house, steps=STEPS, save_every=0)
    real_house.ends(calm, 300)
    run = _launch(real_house, steps=STEPS, save_every=0)
    real_house.reaches(run, 5, 120)
    real_house.kill9("tools")
    gone = time.monotonic()
    wait_until(lambda: Run.objects.get(pk=run.pk).held, 60, what="the step is held")
    time.sleep(max(0.0, AWAY_S - (time.monotonic() - gone)))
    run.refresh_from_db()
    assert (run.state, run.held["error"]["code"]) == (RunState.RUNNING, "environment_unreachable")
    before = run.step
    tools_start(real_house, urlsplit(Environment.objects.get(project=real_house.project).url).port or 0)
    real_house.ends(run, 300)
    assert (run.state, run.attempt, run.step) == (RunState.SUCCEEDED, 1, STEPS), (run.error, real_house.tail())
    assert not Rollout.objects.filter(run=run, status="excluded").exists()
    assert len(_scores(run)) == STEPS * ROLLOUTS and _scores(run) == _scores(calm)
    assert _losses(run) == _losses(calm) and 5 <= before < STEPS
    held = [event.payload for event in RunEvent.objects.filter(run=run, kind="held").order_by("seq")]
    assert held[-1]["error"] is None
    print(f"away {AWAY_S:.0f} s from step {before}, {len(held) - 1} tries, {len(_scores(run))} rollouts, 0 excluded")
    assert_exact(run)
