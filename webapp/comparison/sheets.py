"""What each contestant reached, by task, from the rollouts in the database; weighed by one reward spec for all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from training.config import RewardComponent
from training.evaluation.figures import Sheet, Try, sheet_of
from training.rewards.combining import SCHEDULES_ENDED, terms_of, total_of
from training.rollout.figures import SUCCESS_PART
from webapp.comparison.contestants import Contestant, tasks_sets
from webapp.rollouts.models import Rollout, RolloutStatus
from webapp.text import finite

FIELDS = (
    "step", "group", "index", "row", "status", "reward", "parts", "env_parts", "turns", "tokens", "seconds",
    "parse_errors", "calls", "failed_calls", "cost",
)  # fmt: skip


class Spec(NamedTuple):
    """What rewards are made of; ``name`` as people know it."""

    name: str
    components: list[RewardComponent]


def sheets_for(contestants: Sequence[Contestant], spec: Spec | None = None) -> list[Sheet]:
    """The values of each contestant, in two queries for all. With ``spec`` their rewards are those that this spec would
    have given.

    A try whose spec value is not on record has no reward under it.
    """
    rows, sets = _newest(contestants), tasks_sets(contestants)
    return [_sheet(item, rows.get(item.run.pk, []), tasks, spec) for item, tasks in zip(contestants, sets, strict=True)]


def _sheet(
    contestant: Contestant, rows: Sequence[dict[str, Any]], tasks: Sequence[int] | None, spec: Spec | None
) -> Sheet:
    recorded = None if spec is None else known_to(spec, contestant.components)
    tries = []
    for row in rows:
        reward, parts = row["reward"], row["parts"]
        if spec is not None and recorded is not None:
            parts = {item.name: parts.get(item.name) for item in recorded}
            reward = None if reward is None else weighed(parts, spec, recorded)
        tries.append(_try(row, reward, parts))
    return sheet_of(tries, tasks)


def known_to(spec: Spec, own: Sequence[RewardComponent]) -> list[RewardComponent]:
    """The components of a spec whose raw values a run with components ``own`` has recorded: the same function with the
    same parameters and categories."""
    by_name = {item.name: item for item in own}
    return [item for item in spec.components if item.name in by_name and _same(item, by_name[item.name])]


def unknown_to(spec: Spec, own: Sequence[RewardComponent]) -> list[str]:
    """Names of the components that count in a spec and that such a run has not recorded."""
    known = {item.name for item in known_to(spec, own)}
    return [item.name for item in spec.components if item.weight and item.name not in known]


def same_rewards(first: Sequence[RewardComponent], second: Sequence[RewardComponent]) -> bool:
    """Whether two specs give the same rewards."""
    return [item.model_dump() for item in first] == [item.model_dump() for item in second]


def _same(one: RewardComponent, other: RewardComponent) -> bool:
    return (one.registered, one.params, one.categories) == (other.registered, other.params, other.categories)


def weighed(parts: Mapping[str, float | None], spec: Spec, recorded: Sequence[RewardComponent]) -> float | None:
    """The reward of one try under a spec of which the components ``recorded`` are on record; ``None`` where one that
    counts is not."""
    names = {item.name for item in recorded}
    if any(item.weight and item.name not in names for item in spec.components):
        return None
    known = {name: value for name, value in parts.items() if value is not None}
    total = total_of(terms_of(known, spec.components, SCHEDULES_ENDED), spec.components)
    return total if math.isfinite(total) else None


def _newest(contestants: Sequence[Contestant]) -> dict[UUID, list[dict[str, Any]]]:
    """The finished rollouts of each run; of a place that two attempts played, the later one's."""
    runs = [item.run.pk for item in contestants]
    rows = Rollout.objects.filter(run__in=runs).exclude(status=RolloutStatus.RUNNING).order_by("attempt")
    found: dict[UUID, dict[tuple[int, int, int], dict[str, Any]]] = {}
    for row in rows.values("run_id", *FIELDS):
        found.setdefault(row["run_id"], {})[row["step"], row["group"], row["index"]] = row
    return {pk: list(places.values()) for pk, places in found.items()}


def _try(row: dict[str, Any], reward: float | None, parts: Mapping[str, float | None]) -> Try:
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
