"""A test-bed and a model's sample, launched from their pages and played by the real worker and the real trainer."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from django.test import Client
from django.urls import reverse

from tests.chaos.house import House
from tests.chaos.test_real_run import real_house  # noqa: F401 - a fixture
from training.config import Policy
from webapp.environments.models import Environment
from webapp.launch.play_views import policy_table
from webapp.rewards.models import RewardSpec
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run, RunEvent
from webapp.runs.registry.models import RegisteredModel
from webapp.runs.rollouts.models import Rollout, RolloutGroup
from webapp.runs.states import RunState

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]


def _launch(house: House, page: str, **data: Any) -> Run:
    spec, _made = RewardSpec.objects.get_or_create(
        project=house.project, name="s", components=[{"name": "task_success", "weight": 1.0}]
    )
    environment = Environment.objects.filter(project=house.project).latest("created_at")
    client = Client()
    client.force_login(house.user)
    fields = {"environment": environment.reference, "tasks": 4, "turns": 12, "launch_anyway": "yes", **data}
    answer = client.post(reverse(page, args=[house.project.slug, spec.pk]), fields)
    assert answer.status_code == 302, answer.content.decode()[-3000:]
    return Run.objects.get(pk=answer.url.rstrip("/").rpartition("/")[2])  # type: ignore[attr-defined]


def test_both_pages_end_in_recorded_rollouts(real_house: House, settings: Any) -> None:  # noqa: F811
    settings.OUTBOUND_ALLOW = ["127.0.0.1/32"]
    bed = _launch(real_house, "reward-testbed", dataset="")
    sample = _launch(
        real_house, "reward-sample", dataset="dataset:d@1", model="starter", tasks=1, generations=2, turns=1
    )
    real_house.ends(bed, 180)
    assert (bed.state, bed.attempt, bed.step) == (RunState.SUCCEEDED, 1, 1), (bed.error, real_house.tail())
    rollouts = Rollout.objects.filter(run=bed)
    assert rollouts.count() == 4 * len(get_args(Policy)) and set(rollouts.values_list("policy", flat=True)) == set(
        get_args(Policy)
    )
    assert set(rollouts.values_list("reward", "status")) == {(0.0, "completed")}
    assert all(len(rollout.turn_set.all()) >= 2 for rollout in rollouts)
    assert RolloutGroup.objects.filter(run=bed).count() == 4
    table = policy_table(bed)
    assert table is not None and {row.reward for row in table.rows} == {0.0} and table.paid == []
    real_house.ends(sample, 300)
    assert (sample.state, sample.step) == (RunState.SUCCEEDED, 1), (sample.error, real_house.tail())
    played = Rollout.objects.filter(run=sample)
    assert played.count() == 2 and not played.exclude(policy="").exists()
    assert not played.filter(row=None).exists() and not played.filter(status="excluded").exists()
    figures = dict(MetricPoint.objects.filter(run=sample).values_list("name", "value"))
    assert {"reward", "rewards/task_success/mean", "groups/pass_share", "groups/best_reward_mean"} <= set(figures)
    assert not {"loss", "kl", "grad_norm"} & set(figures)
    assert not RegisteredModel.objects.filter(project=real_house.project).exists(), "nothing was trained"
    assert not RunEvent.objects.filter(run__in=[bed, sample], kind="warning").exists()
