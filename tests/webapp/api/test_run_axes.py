"""Axes of a run's curves over the API, and whether another run's rewards may be drawn with its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from webapp.people.teams.models import Membership, Project, Team
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.records import selectors
from webapp.runs.rollouts.models import Rollout

pytestmark = pytest.mark.django_db
SPEC = {"components": [{"name": "task_success", "weight": 1.0}]}


@pytest.fixture
def trained(make_run: Callable[..., Run]) -> Callable[..., Run]:
    """``trained(rewards=…)``: two steps of one and two hours, with two and three rollouts of ten tokens."""

    def make(**over: Any) -> Run:
        run = make_run(**({"config": {"kind": "grpo", "rewards": SPEC}} | over))
        for step in (1, 2):
            MetricPoint.objects.create(run=run, attempt=1, step=step, name="timing/step", value=3600.0 * step, seq=1)
            for index in range(step + 1):
                place = {"attempt": 1, "step": step, "group": 0, "index": index, "seq": 1}
                Rollout.objects.create(run=run, tokens=10, started_at=timezone.now(), **place)
        extra = {"attempt": 1, "step": 2, "group": 0, "index": 0, "seq": 1, "held_out": True}
        Rollout.objects.create(run=run, tokens=99, started_at=timezone.now(), **extra)
        return run

    return make


def address(run: Run, other: Any = None) -> str:
    return f"/api/v1/runs/{run.pk}/axes" + (f"?beside={other}" if other else "")


def test_it_returns_what_had_gone_by_at_the_end_of_each_step(trained: Any, client_for: Any, rita: Any) -> None:
    run = trained(name="a")
    assert client_for(rita).get(address(run)).json() == {
        "id": str(run.pk),
        "name": "a",
        "state": run.state,
        "axes": {
            "time": {"steps": [1, 2], "at": [1.0, 3.0]},
            "rollouts": {"steps": [1, 2], "at": [2.0, 5.0]},
            "tokens": {"steps": [1, 2], "at": [20.0, 50.0]},
        },
        "same_rewards": None,
    }


def test_an_axis_that_the_run_does_not_know_is_not_there(make_run: Any, client_for: Any, bob: Any) -> None:
    assert client_for(bob).get(address(make_run())).json()["axes"] == {}


def test_rewards_compare_where_both_were_made_in_the_same_way(trained: Any, client_for: Any, rita: Any) -> None:
    run, same = trained(name="a"), trained(name="b")
    spec = {"components": [{"name": "task_success", "weight": 0.5}]}
    other = trained(name="c", config={"kind": "grpo", "rewards": spec})
    foreign = trained(name="d", imported_from="trl")
    rita = client_for(rita)
    found = [rita.get(address(run, each.pk)).json()["same_rewards"] for each in (same, other, foreign)]
    assert found == [True, False, False]


def test_a_run_of_another_project_is_not_compared(trained: Any, client_for: Any, alice: Any) -> None:
    """Although she may see both."""
    team = Team.objects.create(name="Faraway")
    Membership.objects.create(team=team, user=alice, role="owner")
    far = trained(name="far", project=Project.objects.create(team=team, name="Beyond", slug="beyond"))
    near, other = trained(name="a"), trained(name="b")
    client = client_for(alice)
    assert client.get(address(near, other.pk)).status_code == client.get(address(far)).status_code == 200
    assert client.get(address(near, far.pk)).status_code == client.get(address(far, near.pk)).status_code == 404


def test_long_axes_are_thinned_and_keep_their_ends(make_run: Any) -> None:
    run = make_run()
    points = [MetricPoint(run=run, attempt=1, step=n, name="timing/step", value=3600, seq=1) for n in range(1, 1_001)]
    MetricPoint.objects.bulk_create(points)
    found = selectors.run_axes(run)["time"]
    assert len(found["steps"]) == len(found["at"]) == selectors.KNOTS
    assert (found["steps"][0], found["steps"][-1], found["at"][-1]) == (1, 1_000, 1_000.0)
    assert all(step == hours for step, hours in zip(found["steps"], found["at"], strict=True))


def test_strangers_and_unknown_runs(trained: Any, client_for: Any, charlie: Any, bob: Any) -> None:
    run = trained()
    gone = "0b2f6f62-0000-4000-8000-0123456789ab"
    assert client_for(charlie).get(address(run)).status_code == 404
    assert client_for(None).get(address(run)).status_code == 401
    assert client_for(bob).get(address(run, gone)).status_code == 404
    assert client_for(bob).get(address(run, "x")).status_code == 422
    assert client_for(bob).post(address(run)).status_code == 405
