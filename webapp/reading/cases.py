"""A recorded rollout as a reward test case."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from webapp.people.teams.models import Project, User
from webapp.reading.inspector.cases import case_of
from webapp.reading.parts import config_for, spec_of
from webapp.reading.rows import task_row
from webapp.rewards.cases import reward_case_create
from webapp.rewards.models import RewardCase
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn

Ranges = dict[str, list[float]]


def rollout_case_save(
    *,
    rollout: Rollout,
    project: Project,
    user: User | None,
    name: str,
    expected: Ranges | None = None,
    total: list[float] | None = None,
) -> RewardCase:
    """Keep what was played under a name, with the ranges that are expected of it. Raises ``ValidationError``."""
    if rollout.status == RolloutStatus.RUNNING:
        raise ValidationError(_("It is still in flight."))
    turns = list(Turn.objects.filter(rollout=rollout).defer("words").order_by("number"))
    if not any(turn.number for turn in turns):
        raise ValidationError(_("Its transcript is not stored (any more)."))
    config = config_for(rollout)
    found = task_row(rollout, config, spec_of(rollout, config))
    case = case_of(rollout, turns)
    case.name, case.row = name, found.row if found else {}
    case.expected, case.total = expected or {}, total
    return reward_case_create(case=case, project=project, user=user)
