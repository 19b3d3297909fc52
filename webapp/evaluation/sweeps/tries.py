"""The tries that settings of a sweep are compared by: one kind for all of them, the strongest that all have.

1. ``played``: the runs are evaluations themselves.
2. ``held_out``: tasks that the runs held out, played with the weights after their last evaluation.
3. ``evaluated``: other runs evaluated the models of these on one set of tasks.
4. ``training``: the last tenth of the steps, whose tasks differ from run to run.

Of the first three a task is the same for all, so settings are paired by task. Only runs that succeeded count: one that
was stopped early is no result of its setting.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from uuid import UUID

from django.db.models import Q, QuerySet

from training.config import JobConfig
from training.evaluation import Try
from training.rewards.base import verdict_of
from webapp.evaluation.comparison.contestants import Contestant, Played
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.registry.selectors import run_in
from webapp.runs.rollouts.figures import judge_functions
from webapp.runs.rollouts.models import Rollout, RolloutStatus
from webapp.runs.rollouts.selectors import latest_rollouts
from webapp.runs.states import RunState

Kind = Literal["played", "held_out", "evaluated", "training"]
TENTH = 10
FIELDS = ("run_id", "step", "group", "row", "part", "status", "parts", "env_parts")


class Tries(NamedTuple):
    """The tries of each run, of one kind. A task's number is the same for all runs where they are ``paired``.
    ``by`` has the evaluation of each run's model, where those are what was played."""

    kind: Kind
    of: dict[UUID, list[Try]]
    by: dict[UUID, Run]

    @property
    def paired(self) -> bool:
        """Whether the same tasks were played by all."""
        return self.kind != "training"


class Numbering:
    """Tasks as numbers: equal keys have one number."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def tries_of(settings: Sequence[Sequence[Run]]) -> Tries:
    """The tries to compare settings by; each setting is given by its runs that are there."""
    done = [[run for run in runs if run.state == RunState.SUCCEEDED] for runs in settings]
    ended = [run for runs in done for run in runs]
    if not ended:
        return Tries("training", {}, {})
    if all(run.measures for run in ended):
        return Tries("played", _played(ended, {run.pk: run for run in ended}), {})
    wanted = [{run.pk for run in runs} for runs in done if runs]
    held_out = _held_out(ended)
    if _covers(wanted, held_out):
        return Tries("held_out", held_out, {})
    by = _evaluations_of(ended)
    evaluated = _played(by.values(), by)
    if _covers(wanted, evaluated):
        return Tries("evaluated", evaluated, by)
    return Tries("training", _last_steps(ended), {})


def _covers(settings: Iterable[set[UUID]], found: Mapping[UUID, Sequence[Try]]) -> bool:
    """Whether each setting has a try with a verdict."""
    known = {pk for pk, tries in found.items() if any(item.success is not None for item in tries)}
    return all(runs & known for runs in settings)


def _played(runs: Iterable[Run], by: Mapping[UUID, Run]) -> dict[UUID, list[Try]]:
    """The tries of evaluations, by the run that each stands for."""
    places = {run.pk: Contestant(0, run, config_of(run)).played for run in runs}
    for_run = {run.pk: pk for pk, run in by.items()}
    known = [run for run in by.values() if places[run.pk] is not None]
    found = _read(known, latest_rollouts(*known), lambda run, row: (places[run.pk], row["row"]))
    return {for_run[pk]: tries for pk, tries in found.items()}


def _held_out(runs: Sequence[Run]) -> dict[UUID, list[Try]]:
    """The last evaluation within each run. The rows are those of the held-out data, or of the part of a mix."""
    last = {run.pk: ((run.health.get("held_out") or {}).get("newest") or {}).get("step") for run in runs}
    known = [run for run in runs if last[run.pk] is not None]
    if not known:
        return {}
    asked = Q(pk__in=[])
    for run in known:
        asked |= Q(run=run, step=last[run.pk])
    data = {run.pk: _held_out_data(config_of(run)) for run in known}
    rows = latest_rollouts(*known).filter(asked, held_out=True)
    return _read(known, rows, lambda run, row: (data[run.pk], row["part"], row["row"]))


def _held_out_data(config: JobConfig | None) -> tuple[str, str]:
    if config is None:
        return "", ""
    return config.evaluate.data or config.data.train, config.environment.name or config.environment.url


def _evaluations_of(runs: Sequence[Run]) -> dict[UUID, Run]:
    """For each run the newest evaluation of its final model on one set of tasks: the one that most of them played."""
    asked = Q(pk__in=[])
    for run in runs:
        asked |= Q(resolved__model__source__regex=f"/runs/{run.pk}/[^/]+/model$")
    rows = Run.objects.filter(asked, project=runs[0].project_id, kind="evaluate", state=RunState.SUCCEEDED)
    found: dict[Played, dict[UUID, Run]] = {}
    for run in rows.order_by("-created_at"):
        config = config_of(run)
        played, model = Contestant(0, run, config).played, run_in(config.model.source) if config else None
        if played is not None and model is not None:
            found.setdefault(played, {}).setdefault(model, run)
    return max(found.values(), key=len, default={})


def _last_steps(runs: Sequence[Run]) -> dict[UUID, list[Try]]:
    """The rollouts of the last tenth of each run's steps; those of a group are one task's."""
    asked = Q(pk__in=[])
    for run in runs:
        asked |= Q(run=run, step__gt=run.step - max(1, -(-run.step // TENTH)), step__lte=run.step)
    rows = latest_rollouts(*runs).filter(asked, held_out=False)
    return _read(runs, rows, lambda run, row: (run.pk, row["step"], row["group"]))


def _read(
    runs: Sequence[Run], rows: QuerySet[Rollout], key: Callable[[Run, Mapping[str, Any]], Hashable]
) -> dict[UUID, list[Try]]:
    """The tries of runs in one query. The verdict is the environment's, else that of a judging component where all runs
    have the same ones: two judges would be compared otherwise, not two settings."""
    by_id, number = {run.pk: run for run in runs}, Numbering()
    functions = [judge_functions(run) for run in runs]
    judged = all(each == functions[0] for each in functions)
    found: dict[UUID, list[Try]] = {}
    for row in rows.values(*FIELDS) if runs else ():
        run = by_id[row["run_id"]]
        excluded = row["status"] == RolloutStatus.EXCLUDED
        verdict = None if excluded else verdict_of(row["env_parts"], row["parts"] if judged else {}, functions[0])
        success = verdict.value if verdict else None
        found.setdefault(run.pk, []).append(Try(number(key(run, row)), excluded, success))
    return found
