"""Evaluations of which the test says who solved what."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from training.config import JobConfig
from training.evaluation.figures import report_of
from webapp.common.words import Outcome, outcome_of
from webapp.datasets.models import Dataset
from webapp.evaluation.comparison.contestants import Contestant, contestants_of
from webapp.evaluation.comparison.figures import sheets_for
from webapp.evaluation.comparison.rewards import evaluations
from webapp.evaluation.votes.models import VoteRound
from webapp.evaluation.votes.services import round_create
from webapp.people.teams.models import Project, User
from webapp.runs.config import config_of
from webapp.runs.models import Attempt, Run
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.states import RunState

COMPONENTS = [{"name": "env_success", "weight": 1.0, "params": {}}]
Tries = Mapping[int, Sequence[float | None]]


@pytest.fixture
def tasks(make_dataset: Callable[..., Dataset]) -> Dataset:
    """Four tasks in two categories."""
    lines = [
        {"messages": [{"role": "user", "content": f"task {n}"}], "category": "even" if n % 2 == 0 else "odd"}
        for n in range(4)
    ]
    return make_dataset(lines, name="tasks")


@pytest.fixture
def evaluation(make_run: Callable[..., Run], tasks: Dataset) -> Callable[..., Run]:
    """``evaluation(name, {task: [success, …]})``: ended, a rollout a try; ``None`` is a try that was excluded.

    A reward is what the components make of ``parts``: by default the success alone.
    """

    def make(
        name: str,
        tries: Tries,
        *,
        components: Sequence[dict[str, Any]] = COMPONENTS,
        parts: Callable[[float], dict[str, float]] = lambda success: {"env_success": success},
        dataset: Dataset = tasks,
        state: str = RunState.SUCCEEDED,
        **options: Any,
    ) -> Run:
        plain = JobConfig.model_validate(
            {"kind": "evaluate", "rollout": {"num_generations": max(map(len, tries.values()))}} | options
        ).model_dump(mode="json")
        plain["data"]["train"], plain["rewards"]["components"] = dataset.reference, list(components)
        resolved = plain | {"data": plain["data"] | {"train": str(dataset.rows_path)}}
        now = timezone.now()
        run = make_run(name=name, config=plain, state=state, attempt=1)
        Run.objects.filter(pk=run.pk).update(resolved=resolved)
        run.refresh_from_db()
        Attempt.objects.create(run=run, number=1, owner="w", started_at=now, ended_at=now + timedelta(seconds=90))
        for task, successes in tries.items():
            for index, success in enumerate(successes):
                play(run, task, index, success, parts)
        if state == RunState.SUCCEEDED:
            contestant = Contestant(0, run, config_of(run))
            report = report_of(sheets_for([contestant])[0]).model_dump(mode="json")
            Run.objects.filter(pk=run.pk).update(evaluation=report, finished_at=now)
            run.refresh_from_db()
        return run

    return make


@pytest.fixture
def make_vote_round(project: Project) -> Callable[..., VoteRound]:
    """``make_vote_round(runs, voters, **fields)``: a round of these evaluations, made by the first voter, seed 7."""
    numbers = itertools.count(1)

    def make(runs: Sequence[Run], voters: Sequence[User], *, spec: str = "", **fields: Any) -> VoteRound:
        contestants, _notes = contestants_of(project, [str(run.pk) for run in runs])
        read = evaluations(project, contestants, spec)
        over = {"name": f"round-{next(numbers)}", "user": voters[0], "seed": 7} | fields
        made = round_create(project=project, read=read, voters=voters, **over)
        made.project = project
        return made

    return make


def play(run: Run, task: int, index: int, success: float | None, parts: Callable[[float], dict[str, float]]) -> Rollout:
    """One try of a task with its two turns."""
    components = {item["name"]: item["weight"] for item in run.config["rewards"]["components"]}
    made = {} if success is None else parts(success)
    rollout = Rollout.objects.create(
        run=run,
        attempt=1,
        step=1,
        group=task,
        index=index,
        row=task,
        task=f"task {task}",
        status="excluded" if success is None else "completed",
        outcome=Outcome.EXCLUDED if success is None else outcome_of(success),
        reward=None if success is None else sum(components[name] * value for name, value in made.items()),
        parts=made,
        env_parts={} if success is None else {"task_success": success},
        turns=2,
        tokens=10,
        calls=4,
        failed_calls=1,
        seconds=1.5,
        started_at=timezone.now(),
        seq=0,
    )
    answer = "solved" if success else "given up"
    for number, message in enumerate(
        ({"role": "user", "content": f"task {task}"}, {"role": "assistant", "content": answer})
    ):
        Turn.objects.create(rollout=rollout, run=run, number=number, messages=[message], seq=0)
    return rollout
