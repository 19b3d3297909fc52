"""The warning about a reward that pays for form, not for solving the task: how often that ranks a failure first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Exists, OuterRef
from django.urls import reverse
from django.utils.translation import gettext as _

from training.config import RewardComponent
from training.rewards.base import ENVIRONMENT
from training.rewards.combining import terms_of, total_of
from training.rewards.lab import worth_of
from training.shares import share_interval
from webapp.common.text import percent
from webapp.common.words import Outcome
from webapp.people.teams.models import Project
from webapp.rewards.models import RewardCase
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

RUNS, ROLLOUTS = 3, 3000
"""The newest runs with solved tasks whose rollouts are weighed again, and how many of their newest rollouts at most."""
TOLERANCE = 1e-9


class Paid(NamedTuple):
    """A warning about a reward: what it pays for, how it ranks recorded rollouts, and what to do."""

    sentence: str
    ranked: str
    hint: str

    @property
    def whole(self) -> str:
        """Both sentences."""
        return f"{self.sentence} {self.ranked}"


class Ranked(NamedTuple):
    """Of ``groups`` with both outcomes, ``cases`` give a failed rollout more than every solved one."""

    cases: int
    groups: int


def paid_for(project: Project, components: Sequence[RewardComponent]) -> Paid | None:
    """The warning about these components; ``None`` where they pay most for solving the task, or may."""
    found = worth_of(components)
    if found.unpaid:
        said = _("Nothing here pays for solving the task.")
    elif found.outranked:
        said = _(
            "A failed task can earn more than a solved one: all other components are worth up to %(others)s, solving "
            "it %(outcome)s."
        ) % {"others": f"{found.others:.3g}", "outcome": f"{found.outcome:.3g}"}
    else:
        return None
    hint = _("Give a component that judges the task, such as Task success, the largest weight.")
    return Paid(said, _ranked_words(failures_first(project, components)), hint)


def _ranked_words(found: Ranked) -> str:
    if not found.groups:
        return _("How often that ranks a failure above a success is not known: no recorded group shows it.")
    low, high = share_interval(found.cases, found.groups)
    text = _(
        "Of recorded groups with both outcomes, %(share)s (%(cases)s of %(groups)s; 95%%: %(low)s to %(high)s) rank a "
        "failure above a success."
    )
    share = {"share": percent(found.cases / found.groups), "low": percent(low), "high": percent(high)}
    return text % {"cases": found.cases, "groups": found.groups, **share}


def failures_first(project: Project, components: Sequence[RewardComponent]) -> Ranked:
    """How many recorded groups these components would rank wrongly, by the values that their rollouts recorded.

    A rollout that lacks a value of a weighted component is left out, and so is one that was partly solved.
    """
    solved = Rollout.objects.filter(run=OuterRef("pk"), outcome=Outcome.SOLVED)
    runs = Run.objects.filter(Exists(solved), project=project).order_by("-created_at").values_list("pk", flat=True)
    rows = Rollout.objects.filter(run__in=list(runs[:RUNS]), outcome__in=(Outcome.SOLVED, Outcome.FAILED))
    place = ("run_id", "attempt", "step", "group", "held_out")
    best: dict[tuple[object, ...], dict[str, float]] = defaultdict(dict)
    for *group, outcome, parts, env_reward in rows.order_by("-seq").values_list(
        *place, "outcome", "parts", "env_reward"
    )[:ROLLOUTS]:
        known = {name: value for name, value in parts.items() if value is not None}
        if env_reward is not None:
            known.setdefault(ENVIRONMENT, env_reward)
        if all(item.name in known for item in components if item.weight):
            reward = total_of(terms_of(known, components, group[2]), components)
            best[tuple(group)][outcome] = max(reward, best[tuple(group)].get(outcome, reward))
    both = [tops for tops in best.values() if len(tops) == 2]
    return Ranked(sum(tops[Outcome.FAILED] > tops[Outcome.SOLVED] + TOLERANCE for tops in both), len(both))


# --- Origins --------------------------------------------------------------------------------------------------------
# Where reward test cases come from: the recorded rollout of a run, and how it was found.

VIEW_CHARACTERS = 500


class Origin(NamedTuple):
    """The rollout that a case was made of, in words; ``url`` is empty once it is gone. ``view`` says how it was found,
    if it was found by a search."""

    words: str
    url: str
    view: str


def origin_of(rollout: Rollout, view: str = "") -> dict[str, Any]:
    """The facts that a case keeps of its rollout."""
    return {
        "run": str(rollout.run_id),
        "run_name": rollout.run.name,
        "rollout": str(rollout.pk),
        "step": rollout.step,
        "group": rollout.group,
        "index": rollout.index,
        "view": view[:VIEW_CHARACTERS],
    }


def origins_of(project: Project, cases: Sequence[RewardCase]) -> dict[UUID, Origin]:
    """The origins of those cases of a project that were made of recorded rollouts, in at most one query."""
    kept = {case.pk: case for case in cases if case.origin}
    if not kept:
        return {}
    wanted = [case.origin["rollout"] for case in kept.values()]
    there = {str(pk) for pk in Rollout.objects.filter(pk__in=wanted).values_list("pk", flat=True)}
    return {pk: _origin_of(project, case, there) for pk, case in kept.items()}


def _origin_of(project: Project, case: RewardCase, there: set[str]) -> Origin:
    words = _("rollout %(step)s.%(group)s.%(index)s of %(run_name)s") % case.origin
    rollout = case.origin["rollout"]
    url = reverse("rollout-detail", args=[project.slug, rollout]) if rollout in there else ""
    return Origin(words, url, case.origin["view"])
