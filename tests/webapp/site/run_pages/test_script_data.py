"""What the run page gives its script: lists and limits that both know are written down on the server alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from webapp.engine.services import GoingOn
from webapp.people.teams.models import User
from webapp.runs.models import Run
from webapp.runs.states import RunState
from webapp.site.run_pages import page

Data = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.django_db


@pytest.fixture
def data_of(client_for: Callable[..., Client], rita: User) -> Data:
    """The data of a run's page, as its script reads it."""

    def read(run: Run, query: str = "") -> dict[str, Any]:
        text = client_for(rita).get(reverse("run-detail", args=[run.project.slug, run.pk]) + query).content.decode()
        found = re.search(r'<script id="run-data" type="application/json">(.*?)</script>', text)
        assert found is not None
        return dict(json.loads(found[1]))

    return read


def test_states_marks_and_limits_come_with_the_page(make_run: Any, data_of: Data) -> None:
    data = data_of(make_run(state=RunState.RUNNING))
    assert data["acts"] == {
        "stop": ["draft", "paused", "pausing", "preparing", "queued", "running"],
        "pause": ["preparing", "running"],
        "resume": ["cancelled", "failed", "paused"],
    }
    assert data["terminal"] == ["cancelled", "failed", "succeeded"]
    assert data["flight"] == {
        "marks": {"solved": "✓", "partly": "~", "failed": "✗"},
        "sizes": {"small": 192, "middle": 64},
        "slow_after": 60,
    }
    assert list(data["flight"]["sizes"]) == ["small", "middle"], "the script takes the first that fits"
    assert data["curves_at_once"] == 32
    assert (data["stall_after"], data["silent_after"]) == (300, 30)


def test_a_worker_is_called_silent_by_the_lease_of_this_installation(
    make_run: Any, data_of: Data, settings: Any
) -> None:
    """The script said after 30 s that another worker takes over, also where leases live for minutes."""
    settings.LEASE_TTL_S = 120
    assert data_of(make_run(state=RunState.RUNNING))["silent_after"] == 180


@pytest.mark.parametrize("state", RunState.values)
def test_no_button_is_offered_in_a_state_in_which_the_script_hides_it(make_run: Any, state: str) -> None:
    run = make_run(state=state, attempt=1, step=3)
    can = page.actions(GoingOn(run), editor=True)
    for act, states in page.ACT_STATES.items():
        assert state in states or not can[act], act
    assert {act for act in ("stop", "pause") if can[act]} == {
        act for act in ("stop", "pause") if state in page.ACT_STATES[act]
    }


def test_the_tab_of_rollouts_is_that_of_a_run_that_has_some(make_run: Any, data_of: Data) -> None:
    """On the page of an imported run without any, the address ?tab=rollouts had the script hide everything."""
    run = make_run()
    assert data_of(run)["urls"]["rollouts"] == f"/p/{run.project.slug}/runs/{run.pk}/rollouts/"
    data = data_of(make_run(imported_from="verl", imported=True), "?tab=rollouts")
    assert (data["urls"]["rollouts"], data["tabs"], data["tab"]) == (
        "",
        ["curves", "log", "config", "events"],
        "curves",
    )
