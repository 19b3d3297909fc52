"""What each contestant reached, by task, from the rollouts in the database; weighed by one reward spec for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from training.config import RewardComponent
from training.evaluation.figures import Sheet, Try, sheet_of
from training.rollout.figures import SUCCESS_PART
from webapp.comparison.contestants import Contestant, tasks_set
from webapp.rescoring.weighing import Lacks, Scale
from webapp.rollouts.models import RolloutStatus
from webapp.rollouts.selectors import latest_rollouts
from webapp.text import finite

FIELDS = (
    "pk", "row", "status", "reward", "parts", "env_parts", "turns", "tokens", "seconds",
    "parse_errors", "calls", "failed_calls", "cost",
)  # fmt: skip


class Spec(NamedTuple):
    """What rewards are made of; ``name`` as people know it."""

    name: str
    components: list[RewardComponent]


class Weighing(NamedTuple):
    """A contestant's values under a spec, and what lacks of the components that it has not recorded."""

    sheet: Sheet
    lacks: Lacks


def sheet_for(contestant: Contestant) -> Sheet:
    """The contestant's values with the rewards that it recorded."""
    tries = [_try(row, row["reward"], row["parts"]) for row in _newest(contestant)]
    return sheet_of(tries, tasks_set(contestant))


def weighed_sheet(contestant: Contestant, spec: Spec) -> Weighing:
    """The contestant's values with the rewards that this spec would have given, from what was recorded and computed.

    A try of which a component that counts is missing has no reward under it; one that was excluded is not weighed.
    """
    scale = Scale(contestant.run, spec.components, contestant.components)
    tries = []
    for row in _newest(contestant):
        if row["status"] == RolloutStatus.EXCLUDED:
            tries.append(_try(row, None, {}))
        else:
            tries.append(_try(row, *scale.weigh(row["pk"], row["reward"], row["parts"])))
    return Weighing(sheet_of(tries, tasks_set(contestant)), scale.lacks)


def same_rewards(first: Sequence[RewardComponent], second: Sequence[RewardComponent]) -> bool:
    """Whether two specs give the same rewards."""
    return [item.model_dump() for item in first] == [item.model_dump() for item in second]


def _newest(contestant: Contestant) -> list[dict[str, Any]]:
    return list(latest_rollouts(contestant.run).values(*FIELDS))


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
