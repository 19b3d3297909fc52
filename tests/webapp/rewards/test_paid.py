"""Errors in red about rewards that pay for form: on the page of a spec, in its form, and next to the run's form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.webapp.launch.test_launch import _data as form_of
from training.config import JobConfig, RewardComponent
from training.rewards.scoring import form_components, starting_components
from webapp.people.teams.models import Project, User
from webapp.rewards.cases import Ranked, failures_first, paid_for
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

pytestmark = pytest.mark.django_db
UNPAID = "Nothing here pays for solving the task."


def spec(**weights: float) -> list[RewardComponent]:
    return [RewardComponent(name=name, weight=weight) for name, weight in weights.items()]


def recorded(run: Run, *groups: list[tuple[str, float | None]], step: int = 1, **over: Any) -> None:
    """Groups of rollouts, each by its outcome and its recorded value of `coherence`."""
    for number, members in enumerate(groups):
        for index, (outcome, form) in enumerate(members):
            values = {} if form is None else {"coherence": form}
            fields: dict[str, Any] = {"parts": values, "env_reward": float(outcome == "solved"), **over}
            place = {"attempt": 1, "step": step, "group": number, "index": index}
            moment = timezone.now()
            Rollout.objects.create(
                run=run, outcome=outcome, status="completed", started_at=moment, seq=index, **place, **fields
            )


GOOD = [("solved", 0.9), ("failed", 0.2)]
WRONG = [("solved", 0.2), ("failed", 0.9)]


def test_groups_are_ranked_by_what_their_rollouts_recorded(project: Project, make_run: Callable[..., Run]) -> None:
    tied, alike, lacking = [("solved", 0.5), ("failed", 0.5)], [("failed", 0.5)] * 2, [("solved", None), ("failed", 1)]
    partly = [("partly", 0.9), ("solved", 0.1)]
    recorded(make_run(), GOOD, WRONG, GOOD, tied, alike, lacking, partly)
    assert failures_first(project, spec(coherence=1)) == Ranked(1, 4)
    # 0.6 more for each solved one: 0.6 + 0.4 × 0.2 = 0.68 against 0.4 × 0.9 = 0.36
    assert failures_first(project, spec(task_success=0.6, coherence=0.4)) == Ranked(0, 4)
    assert failures_first(project, spec(task_success=0.3, coherence=0.7)) == Ranked(1, 4)  # 0.44 against 0.63
    assert failures_first(project, spec(coherence=1, custom_python=0)) == Ranked(1, 4)
    assert failures_first(project, spec(coherence=1, result_use=1)) == Ranked(0, 0)
    assert failures_first(project, spec(task_success=1)) == Ranked(0, 5), "its value is the environment's"


def test_the_best_of_each_outcome_is_compared_and_only_the_newest_rollouts(
    project: Project, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(make_run(), [("solved", 0.1), ("solved", 0.8), ("failed", 0.2), ("failed", 0.5)])
    assert failures_first(project, spec(coherence=1)) == Ranked(0, 1)
    monkeypatch.setattr("webapp.rewards.cases.ROLLOUTS", 2)
    assert failures_first(project, spec(coherence=1)) == Ranked(0, 0), "the two failed ones are the newest"
    monkeypatch.setattr("webapp.rewards.cases.ROLLOUTS", 3)
    assert failures_first(project, spec(coherence=1)) == Ranked(0, 1)


def test_groups_of_other_steps_and_held_out_ones_are_groups_of_their_own(
    project: Project, make_run: Callable[..., Run]
) -> None:
    run = make_run()
    recorded(run, [("solved", 0.1)])
    recorded(run, [("failed", 0.9)], step=2)
    recorded(run, [("failed", 0.9)], held_out=True)
    assert failures_first(project, spec(coherence=1)) == Ranked(0, 0)


def test_the_note_has_the_share_and_its_interval(project: Project, make_run: Callable[..., Run]) -> None:
    found = paid_for(project, form_components())
    assert found is not None and found.sentence == UNPAID and "no recorded group shows it" in found.ranked
    recorded(make_run(), GOOD, WRONG, GOOD, GOOD)
    found = paid_for(project, spec(coherence=1))
    # Wilson, z = 1.96: (0.25 + 0.480 ± 1.96 √(0.25 × 0.75 / 4 + 0.0600)) / 1.960 = 0.0456 and 0.699
    assert found is not None and found.ranked == (
        "Of recorded groups with both outcomes, 25% (1 of 4; 95%: 4.56% to 69.9%) rank a failure above a success."
    )
    low = paid_for(project, spec(task_success=0.3, coherence=0.7))
    assert low is not None and low.sentence.startswith("A failed task can earn more") and "25% (1 of 4;" in low.ranked
    assert paid_for(project, starting_components()) is None


def test_the_pages_of_a_spec_say_so_in_red(
    project: Project, bob: User, make_reward_spec: Any, client_for: Callable[..., Client]
) -> None:
    form = make_reward_spec(components=[{"name": "coherence", "weight": 1.0}])
    paid = make_reward_spec(components=[{"name": "task_success", "weight": 1.0}])
    client = client_for(bob)
    for name in ("reward-detail", "reward-edit"):
        page = client.get(reverse(name, args=[project.slug, form.pk])).content.decode()
        assert UNPAID in page and 'data-kind="error" id="paid"' in page
        assert UNPAID not in client.get(reverse(name, args=[project.slug, paid.pk])).content.decode()
    assert UNPAID not in client.get(reverse("reward-new", args=[project.slug])).content.decode()


def test_the_form_of_a_run_says_so_while_it_is_filled_in(
    project: Project,
    bob: User,
    make_reward_spec: Any,
    make_dataset: Any,
    make_environment: Any,
    client_for: Callable[..., Client],
) -> None:
    form = make_reward_spec(components=[{"name": "coherence", "weight": 1.0}])
    rows = [{"messages": [{"role": "user", "content": "2 + 2?"}], "answer": {"contains": ["4"]}}]
    chosen, seen = {"train": make_dataset(lines=rows).reference}, {"name": make_environment().reference}
    for spec, data, reported in ((form.reference, chosen, True), (form.reference, {}, True), ("", chosen, False)):
        options = {"data": data, "environment": seen, "rewards": {"spec": spec}}
        sent = form_of(project, JobConfig.model_validate(options))
        card = client_for(bob).post(reverse("run-memory", args=[project.slug]), sent).content.decode()
        assert 'id="reward-paid"' in card and (UNPAID in card) is reported, (spec, data)
    page = client_for(bob).get(reverse("run-new", args=[project.slug])).content.decode()
    assert page.count('id="reward-paid"') == 1
