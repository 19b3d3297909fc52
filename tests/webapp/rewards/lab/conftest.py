"""A run with recorded rollouts, and sets that are built as a worker builds them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.working import done
from training.config import JobConfig
from training.rewards.lab.scoring import score_set
from webapp.rewards.lab import scoring
from webapp.rewards.lab.sets import rollout_set_create
from webapp.rewards.models import RolloutSet
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn

SPEC = [{"name": "task_success", "weight": 1.0}, {"name": "numeric_match", "weight": 0.5}]
ROWS = [{"messages": [{"role": "user", "content": f"What is {n} + 1?"}], "answer": str(n + 1)} for n in range(8)]
GROUP = 4


@pytest.fixture
def recorded_run(make_run: Any, make_dataset: Any) -> Callable[..., Run]:
    """``recorded_run(steps=2)``: two groups of four a step; rollout 0 is right, 1 is wrong, 2 failed outside, 3 has an
    answer but no reward."""

    def make(steps: int = 2, **over: Any) -> Run:
        data = make_dataset(lines=ROWS)
        config = JobConfig.model_validate({"data": {"train": str(data.rows_path)}, "rewards": {"components": SPEC}})
        run: Run = make_run(config=config, resolved=config.model_dump(mode="json"), **over)
        for step in range(1, steps + 1):
            for number in range(2 * GROUP):
                _rollout(run, step, *divmod(number, GROUP))
        return run

    return make


def _rollout(run: Run, step: int, group: int, index: int, attempt: int = 1) -> Rollout:
    row = (step * 2 + group) % len(ROWS)
    right = float(index == 0)
    fault = {"boundary": "environment", "message": "The server died."} if index == 2 else None
    unscored = {"boundary": "reward", "message": "`judge` failed."} if index == 3 else None
    rollout = Rollout.objects.create(
        id=uuid.uuid5(run.pk, f"{attempt}/{step}/{group}/{index}"),
        run=run,
        attempt=attempt,
        step=step,
        group=group,
        index=index,
        row=row,
        task=f"What is {row} + 1?",
        status="excluded" if index > 1 else "completed",
        reward=None if index > 1 else 1.5 * right,
        error=fault or unscored,
        env_reward=None if index == 2 else right,
        parts={} if index > 1 else {"task_success": right, "numeric_match": right},
        tokens=10 + index,
        started_at=timezone.now(),
        seq=1,
    )
    answer = str(row + 1) if index == 0 else f"It is {row + 5}"
    messages = [ROWS[row]["messages"], [{"role": "assistant", "content": answer}]][: 1 if index == 2 else 2]
    Turn.objects.bulk_create(
        [
            Turn(rollout=rollout, run=run, number=number, messages=answer, seq=1)
            for number, answer in enumerate(messages)
        ]
    )
    return rollout


@pytest.fixture
def more_rollouts() -> Callable[..., Rollout]:
    """One more recorded rollout of a run."""
    return _rollout


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Values are computed in this process, which is quicker; what was computed, in order."""
    computed: list[list[str]] = []

    def start(job: scoring.Job) -> None:
        computed.append(job.names)
        score_set(job._folder, job._components)
        job._finish("")

    monkeypatch.setattr(scoring.Job, "start", start)
    return computed


@pytest.fixture
def built(project: Any, alice: Any) -> Callable[..., RolloutSet]:
    """``built(kind="run", run=…)``: a set as the worker leaves it."""

    def make(**over: Any) -> RolloutSet:
        fields = {"project": project, "user": alice, "name": "set"} | over
        return done(rollout_set_create(**fields))

    return make


@pytest.fixture
def scored(project: Any, client_for: Callable[..., Client], rita: Any) -> Callable[..., Any]:
    """``scored(rollout_set, components, **more)``: what the page gets, as a viewer."""

    def post(rollout_set: RolloutSet, components: list[dict[str, Any]], **more: Any) -> Any:
        address = reverse("lab-score", args=[project.slug, rollout_set.pk])
        body = json.dumps({"components": components, **more})
        answer = client_for(rita).post(address, body, content_type="application/json")
        return answer.json() if answer.status_code == 200 else answer

    return post
