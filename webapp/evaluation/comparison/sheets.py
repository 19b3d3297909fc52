"""The results of each contestant by task, from the rollouts in the database; weighed by one reward spec for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from training.config import RewardComponent
from training.evaluation.figures import Sheet, Try, sheet_of
from training.rollout.figures import SUCCESS_PART
from webapp.common.text import finite
from webapp.evaluation.comparison.contestants import Contestant, tasks_sets
from webapp.evaluation.rescoring.columns import columns_of_runs
from webapp.evaluation.rescoring.scale import Lacks, Scale
from webapp.runs.rollouts.models import RolloutStatus
from webapp.runs.rollouts.selectors import latest_rollouts

FIELDS = (
    "pk", "row", "status", "reward", "parts", "env_parts", "turns", "tokens", "seconds",
    "parse_errors", "calls", "failed_calls", "cost",
)  # fmt: skip


class Spec(NamedTuple):
    """The components of rewards; ``name`` is the spec's."""

    name: str
    components: list[RewardComponent]


class Weighing(NamedTuple):
    """A contestant's values under a spec, and what is missing of components that it has not recorded."""

    sheet: Sheet
    lacks: Lacks


def sheets_for(contestants: Sequence[Contestant]) -> list[Sheet]:
    """The values of each contestant with the rewards that it recorded, in two queries for all."""
    rows, sets = _rollouts_by_run(contestants), tasks_sets(contestants)
    return [
        sheet_of([_try_of_row(row, row["reward"], row["parts"]) for row in rows.get(item.run.pk, [])], tasks)
        for item, tasks in zip(contestants, sets, strict=True)
    ]


def weighed_sheets(contestants: Sequence[Contestant], spec: Spec) -> list[Weighing]:
    """The values of each with the rewards that this spec would have given, from what was recorded and computed; in
    three queries for all.

    A try without a value of a counted component has no reward under it; an excluded try is not weighed.
    """
    rows, sets = _rollouts_by_run(contestants), tasks_sets(contestants)
    computed = columns_of_runs([item.run for item in contestants], spec.components)
    found = []
    for item, tasks in zip(contestants, sets, strict=True):
        scale = Scale(spec.components, item.components, computed.get(item.run.pk, {}))
        tries = [_weighed_try(row, scale) for row in rows.get(item.run.pk, [])]
        found.append(Weighing(sheet_of(tries, tasks), scale.lacks))
    return found


def _weighed_try(row: dict[str, Any], scale: Scale) -> Try:
    if row["status"] == RolloutStatus.EXCLUDED:
        return _try_of_row(row, None, {})
    return _try_of_row(row, *scale.weigh(row["pk"], row["reward"], row["parts"]))


def same_rewards(first: Sequence[RewardComponent], second: Sequence[RewardComponent]) -> bool:
    """Whether two specs give the same rewards."""
    return [item.model_dump() for item in first] == [item.model_dump() for item in second]


def _rollouts_by_run(contestants: Sequence[Contestant]) -> dict[UUID, list[dict[str, Any]]]:
    """The finished rollouts of each run, in one query."""
    found: dict[UUID, list[dict[str, Any]]] = {}
    for row in latest_rollouts(*(item.run for item in contestants)).values("run_id", *FIELDS):
        found.setdefault(row["run_id"], []).append(row)
    return found


def _try_of_row(row: dict[str, Any], reward: float | None, parts: Mapping[str, float | None]) -> Try:
    return Try(
        task=row["row"] if row["row"] is not None else -1,
        excluded=row["status"] == RolloutStatus.EXCLUDED,
        success=row["env_parts"].get(SUCCESS_PART),
        reward=finite(reward),
        parts=parts,
        turns=row["turns"],
        tokens=row["tokens"],
        seconds=row["seconds"],
        parse_errors=row["parse_errors"],
        calls=row["calls"] or 0,
        failed_calls=row["failed_calls"] or 0,
        truncated=row["status"] == RolloutStatus.TRUNCATED,
        cost=row["cost"],
    )
