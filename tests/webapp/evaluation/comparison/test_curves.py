"""Curves of training side by side: one axis for all, seeds of one setting together, rewards only where they compare."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from webapp.evaluation.comparison.contestants import Contestant
from webapp.evaluation.comparison.views import overlay
from webapp.runs.config import config_of
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.metrics.selectors import curves, curves_of
from webapp.runs.models import Attempt, Run
from webapp.runs.rollouts.models import Rollout

pytestmark = pytest.mark.django_db


@pytest.fixture
def trained(make_run: Callable[..., Run]) -> Callable[..., Run]:
    """``trained(name, seed=…)``: two steps of 10 and 20 s with four rollouts each, of 5 and 7 tokens."""

    def make(name: str, seed: int = 1, **groups: Any) -> Run:
        config = {"kind": "grpo", "run": {"seed": seed}} | groups
        run = make_run(name=name, config=config)
        points = [
            MetricPoint(run=run, attempt=1, step=step, name=metric, value=value, seq=1)
            for step in (1, 2)
            for metric, value in (("timing/step", 3600.0 * step), ("reward", 0.1 * step), ("loss", 1.0 / step))
        ]
        MetricPoint.objects.bulk_create(points)
        for step in (1, 2):
            for index in range(4):
                fields = {
                    "attempt": 1,
                    "step": step,
                    "group": 0,
                    "index": index,
                    "seq": 1,
                    "tokens": 5 + 2 * (step == 2),
                }
                Rollout.objects.create(run=run, started_at=timezone.now(), **fields)
        Rollout.objects.create(
            run=run, attempt=1, step=2, group=0, index=0, seq=1, tokens=99, held_out=True, started_at=timezone.now()
        )
        return run

    return make


def of(*runs: Run) -> Any:
    return overlay([Contestant(number, run, config_of(run)) for number, run in enumerate(runs)])


def test_each_axis_says_what_had_gone_by_at_the_end_of_a_step(trained: Callable[..., Run]) -> None:
    found = of(trained("a"), trained("b"))
    axes = found["runs"][0]["axes"]
    assert axes["time"] == {"steps": [1, 2], "at": [1.0, 3.0]}
    assert axes["rollouts"] == {"steps": [1, 2], "at": [4.0, 8.0]}  # the held-out one teaches nothing
    assert axes["tokens"] == {"steps": [1, 2], "at": [20.0, 48.0]}
    assert found["runs"][0]["curves"]["loss"] == {"steps": [1, 2], "values": [1.0, 0.5]}


def test_runs_that_differ_in_their_seed_alone_are_one_setting(trained: Callable[..., Run]) -> None:
    other = trained("c", optim={"learning_rate": 0.5})
    found = of(trained("a", seed=1), trained("b", seed=2), other)
    assert [run["setting"] for run in found["runs"]] == [0, 0, 1]


def test_rewards_of_different_specs_are_not_drawn_together(trained: Callable[..., Run]) -> None:
    spec = {"components": [{"name": "task_success", "weight": 1.0}]}
    other = {"components": [{"name": "coherence", "weight": 1.0}]}
    found = of(trained("a", rewards=spec), trained("b", rewards=other))
    assert found["rewards_differ"] and "reward" not in [chart["name"] for chart in found["charts"]]
    same = of(trained("c", rewards=spec), trained("d", rewards=spec))
    assert not same["rewards_differ"] and "reward" in [chart["name"] for chart in same["charts"]]


def test_one_run_that_trains_has_nothing_to_be_laid_over(
    trained: Callable[..., Run], evaluation: Callable[..., Run]
) -> None:
    assert of(trained("a"), evaluation("e", {0: [1]})) is None


def test_the_page_carries_the_curves_of_runs_that_train(
    trained: Callable[..., Run], evaluation: Callable[..., Run], client_for: Any, rita: Any
) -> None:
    a, b, e = trained("a"), trained("b", seed=2), evaluation("e", {0: [1]})
    address = reverse("compare", args=[a.project.slug])
    page = client_for(rita).get(address, {"c": [str(a.pk), str(b.pk)]}).content.decode()
    assert 'id="overlay-data"' in page and "js/pages/compare" in page and re.search(r'data-axis="tokens"', page)
    assert 'id="overlay-data"' not in client_for(rita).get(address, {"c": [str(a.pk), str(e.pk)]}).content.decode()


def test_eight_curves_are_asked_for_at_once(trained: Callable[..., Run], django_assert_num_queries: Any) -> None:
    """In three queries, however many: which have a second attempt, the points, the rollouts. Each is as when read
    alone, thinned by itself, and steps that a later attempt played again are the later ones."""
    runs = [trained(f"r{number}", seed=number) for number in range(7)]
    again = trained("again")
    Run.objects.filter(pk=again.pk).update(attempt=2)
    Attempt.objects.create(run=again, number=2, owner="w", started_at=timezone.now(), first_step=1, last_step=3)
    MetricPoint.objects.create(run=again, attempt=2, step=2, name="reward", value=0.9, seq=9)
    long = [MetricPoint(run=runs[0], attempt=1, step=step, name="kl", value=step % 7, seq=1) for step in range(900)]
    MetricPoint.objects.bulk_create(long)
    Run.objects.filter(pk=runs[1].pk).update(state="succeeded", attempt=1)
    runs[1].refresh_from_db()
    with django_assert_num_queries(3):
        assert len(of(*runs, again)["runs"]) == 8
    with django_assert_num_queries(2):
        found = curves_of([*runs, again], (["reward", "kl"], 100), (["timing/step"], 10**6))
    assert found == [curves(run, ["reward", "kl"], 100) | curves(run, ["timing/step"], 10**6) for run in [*runs, again]]
    assert found[7]["reward"] == {"steps": [1, 2], "values": [0.1, 0.9], "attempts": [1, 2]}
    assert 60 < len(found[0]["kl"]["steps"]) <= 110 and curves_of([], (["kl"], 9)) == []


def test_what_was_trained_on_is_counted_with_every_pass(
    client: Any, alice: Any, project: Any, trained: Callable[..., Run]
) -> None:
    """TRL's own count is of one pass; prompts are among its tokens. A run that trained nothing has no figure, not 0."""
    once, twice, none = trained("once"), trained("twice", grpo={"num_iterations": 2}), trained("none", seed=2)
    for run in (once, twice):
        for step, value in ((1, 6_000.0), (2, 12_345.0)):
            MetricPoint.objects.create(run=run, attempt=1, step=step, name="num_tokens", value=value, seq=1)
    client.force_login(alice)
    query = "&".join(f"c={run.pk}" for run in (once, twice, none))
    page = client.get(f"{reverse('compare', args=[project.slug])}?{query}").content.decode()
    cells = re.findall(r'data-label="Tokens trained on">\s*([^<\s]+)', page)
    assert cells == ["12,345", "24,690", "–"]
