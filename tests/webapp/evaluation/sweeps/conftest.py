"""Sweeps of which the test says who solved what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from django.utils import timezone

from training.config import Axis, JobConfig, base_setting, points_of, typed_axes
from webapp.common.words import outcome_of
from webapp.launch.models import Sweep, SweepRun
from webapp.people.teams.models import Project
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import RunState

Solved = Mapping[int, Sequence[float | None]]
"""The tries of each task, or of each group."""


def try_of(run: Run, task: int, index: int, success: float | None, **over: Any) -> Rollout:
    """A rollout with a verdict of its environment; ``None`` is one that was excluded."""
    fields: dict[str, Any] = {
        "run": run, "attempt": 1, "step": run.step, "group": task, "index": index, "row": task,
        "status": "excluded" if success is None else "completed",
        "outcome": "excluded" if success is None else outcome_of(success),
        "env_parts": {} if success is None else {"task_success": success}, "started_at": timezone.now(), "seq": 1,
    }  # fmt: skip
    return Rollout.objects.create(**(fields | over))


def hold_out(run: Run, solved: Solved) -> Run:
    """The last evaluation of a run on tasks that it held out."""
    for task, tries in solved.items():
        for index, success in enumerate(tries):
            try_of(run, task, index, success, held_out=True)
    newest = {"step": run.step, "success": 0.5, "low": 0.4, "high": 0.6}
    Run.objects.filter(pk=run.pk).update(health={"held_out": {"newest": newest, "best": newest, "tasks": len(solved)}})
    run.refresh_from_db()
    return run


def train(run: Run, solved: Solved) -> Run:
    """The groups of a run's last step."""
    for group, tries in solved.items():
        for index, success in enumerate(tries):
            try_of(run, group, index, success)
    return run


@pytest.fixture
def make_sweep(project: Project, make_run: Callable[..., Run]) -> Callable[..., Sweep]:
    """``make_sweep([(option, values), …], **fields)``: a sweep whose runs have succeeded, without a rollout."""

    def make(
        axes: Sequence[tuple[str, Sequence[Any]]], *, config: Any = None, mode: Any = "product", **over: Any
    ) -> Sweep:
        base = JobConfig.model_validate(config or {})
        typed = typed_axes(base, [Axis(*axis) for axis in axes])
        points = points_of(base, typed, mode)
        fields: dict[str, Any] = {
            "project": project,
            "name": "rates",
            "mode": mode,
            "config": base.model_dump(mode="json"),
        }
        fields |= {"axes": [{"option": a.option, "values": list(a.values)} for a in typed]}
        fields |= {"base": base_setting(base, typed, mode), "points": [point.values for point in points]}
        state = over.pop("state", RunState.SUCCEEDED)
        sweep = Sweep.objects.create(**(fields | over))
        for number, point in enumerate(points):
            run = make_run(
                name=f"{sweep.name}-{number}", config=point.config, state=state, attempt=1, step=100,
                resolved=point.config.model_dump(mode="json"),
            )  # fmt: skip
            SweepRun.objects.create(sweep=sweep, number=number, run=run)
        return sweep

    return make


def runs_of(sweep: Sweep) -> list[Run]:
    """The runs of a sweep in their order."""
    return [row.run for row in sweep.runs.select_related("run__project")]
