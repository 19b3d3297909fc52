"""A run's recorded steps as the doctor's facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from uuid import UUID

from django.db.models import Max, Q

from envs.wire import Message
from training.doctor.digest import KEPT, PARTS
from training.doctor.facts import RolloutFact, StepFacts
from training.doctor.reading import manner_of, success_in
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn

CHUNK_STEPS = 10
_LOOKED_AT = Q(name__in=KEPT) | Q(name__startswith=PARTS)


def steps_between(run: Run, after: int, upto: int) -> Iterator[StepFacts]:
    """The steps above ``after`` up to ``upto`` that have figures, in order; of two attempts at one the later counts.

    Rollouts that were played since the step before belong to the next one that has figures.
    """
    numbers = MetricPoint.objects.filter(_LOOKED_AT, run=run, step__gt=after, step__lte=upto)
    found = list(numbers.order_by("step").values_list("step", flat=True).distinct())  # not a row for each figure
    for start in range(0, len(found), CHUNK_STEPS):
        yield from _step_facts(run, after if start == 0 else found[start - 1], found[start : start + CHUNK_STEPS])


def _step_facts(run: Run, after: int, steps: Sequence[int]) -> Iterator[StepFacts]:
    figures: dict[int, dict[str, float]] = {step: {} for step in steps}
    points = MetricPoint.objects.filter(_LOOKED_AT, run=run, step__in=steps).order_by("attempt")
    for step, name, value in points.values_list("step", "name", "value"):
        figures[step][name] = value
    rollouts = _rollout_facts_by_step(run, after, steps[-1])
    for step in steps:
        played = [fact for number in range(after + 1, step + 1) for fact in rollouts.get(number, [])]
        yield StepFacts(step, figures[step], played, _stage_of_step(run, step))
        after = step


def _rollout_facts_by_step(run: Run, after: int, upto: int) -> dict[int, list[RolloutFact]]:
    rows = Rollout.objects.filter(run=run, step__gt=after, step__lte=upto, held_out=False)
    newest = dict(rows.values_list("step").annotate(newest=Max("attempt")).values_list("step", "newest"))
    ended = rows.exclude(status=RolloutStatus.RUNNING).defer("task").order_by("step", "group", "index")
    counted = [row for row in ended if row.attempt == newest[row.step]]
    said = _policy_messages([row.pk for row in counted if row.status != RolloutStatus.EXCLUDED])
    return {
        step: [_rollout_fact(row, said.get(row.pk)) for row in found]
        for step, found in groupby(counted, attrgetter("step"))
    }


def _policy_messages(ids: Sequence[UUID]) -> dict[UUID, list[Message]]:
    """What the policy wrote, by rollout."""
    found: dict[UUID, list[Message]] = {}
    turns = Turn.objects.filter(rollout_id__in=ids, number__gt=0).order_by("rollout_id", "number")
    for rollout, messages in turns.values_list("rollout_id", "messages").iterator(chunk_size=500):
        own = [Message.model_validate(each) for each in messages if each.get("role") == "assistant"]
        found.setdefault(rollout, []).extend(own)
    return found


def _rollout_fact(row: Rollout, said: Sequence[Message] | None) -> RolloutFact:
    repeats, loops = manner_of(said) if said else (None, None)
    return RolloutFact(
        name=str(row.pk),
        group=row.group,
        reward=row.reward,
        success=success_in(row.parts, row.env_parts),
        tokens=row.tokens,
        turns=row.turns,
        seconds=row.seconds,
        truncated=row.status == RolloutStatus.TRUNCATED,
        excluded=row.status == RolloutStatus.EXCLUDED,
        parse_errors=row.parse_errors,
        calls=row.calls,
        failed_calls=row.failed_calls,
        repetition=repeats,
        loops=loops,
    )


def _stage_of_step(run: Run, step: int) -> int:
    """The stage that the step was trained in; 1 where a run has none."""
    stages = run.health.get("stages", [])
    return max((each["stage"] for each in stages if each["began"] < step), default=1)
