"""The plan to score a run by a spec: which of its rollouts, which components, and which judges or models are asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from training.config import RewardComponent
from training.rewards.lab.scoring import asks_others
from training.rewards.registry import COMPONENTS
from training.rewards.scoring import resolve
from webapp.evaluation.rescoring.columns import column_key, columns_of
from webapp.evaluation.rescoring.scale import UNSEEN, unrecorded, wanting
from webapp.runs.config import common_components, config_of, title_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import RolloutStatus
from webapp.runs.rollouts.selectors import latest_rollouts


class Plan(NamedTuple):
    """The components of a spec that a run has not recorded, and the rollouts that lack each of them."""

    run: Run
    own: list[RewardComponent]
    components: list[RewardComponent]
    wanting: dict[str, list[UUID]]

    @property
    def rollouts(self) -> list[UUID]:
        """Those that lack any of them, in order."""
        return list(dict.fromkeys(pk for found in self.wanting.values() for pk in found))


class Asked(NamedTuple):
    """A judge or a model, and how many times it may be asked at most: of a rollout that has no value yet, once."""

    name: str
    times: int


def plan_of(run: Run, components: Sequence[RewardComponent]) -> Plan:
    """The missing values of a run now. Without a readable config all values count as missing."""
    own = common_components(config_of(run))
    lacking = unrecorded(components, own)
    if not lacking:
        return Plan(run, own, [], {})
    rollouts = [
        pk for pk, status in latest_rollouts(run).values_list("pk", "status") if status != RolloutStatus.EXCLUDED
    ]
    columns = columns_of(run, lacking)
    found = {item.name: wanting(columns.get(column_key(item), UNSEEN).marks, rollouts) for item in lacking}
    return Plan(run, own, [item for item in lacking if found[item.name]], {k: v for k, v in found.items() if v})


def asked_by(wanted: Iterable[tuple[RewardComponent, int]]) -> list[Asked]:
    """Who would be asked how often for these components, each with its number of rollouts."""
    times: dict[str, int] = {}
    for item, rollouts in wanted:
        if rollouts and asks_others(item):
            times[judge_of(item)] = times.get(judge_of(item), 0) + rollouts
    return [Asked(name, count) for name, count in times.items()]


def asked_by_plans(plans: Iterable[Plan]) -> list[Asked]:
    """Who would be asked how often to carry out these plans."""
    return asked_by((item, len(plan.wanting[item.name])) for plan in plans for item in plan.components)


def judge_of(component: RewardComponent) -> str:
    """The name of a judge or a model: the model that it asks, else the component's title."""
    if component.registered not in COMPONENTS:
        return component.registered
    _component, params = resolve(component)
    return str(getattr(params, "model", "")) or title_of(component)
