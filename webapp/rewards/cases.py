"""Reward test cases: recorded episodes and the scores that they should get; and the warning that suggests to keep
some."""

from __future__ import annotations

import json
import logging
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _
from pydantic import ValidationError as ShapeError

from envs.wire import Message
from training.config import RewardComponent
from training.data import categories_of
from training.evaluation import share_interval
from training.rewards.base import ENVIRONMENT, Episode
from training.rewards.combining import counts_for, terms_of, total_of
from training.rewards.lab import worth_of
from training.rewards.scorer.wire import Asked
from webapp.common.errors import TooMany
from webapp.common.pages import clean_name
from webapp.common.text import in_words, percent
from webapp.common.words import Outcome
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.rewards.models import RewardCase, RewardSpec
from webapp.rewards.scorers import scorers, unscored
from webapp.rewards.selectors import component_titles
from webapp.runs.config import title_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

# --- Warning --------------------------------------------------------------------------------------------------------
# The warning about a reward that pays for form, not for solving the task: how often that ranks a failure first.

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
        verdict = _("Nothing here pays for solving the task.")
    elif found.outranked:
        verdict = _(
            "A failed task can earn more than a solved one: all other components are worth up to %(others)s, solving "
            "it %(outcome)s."
        ) % {"others": f"{found.others:.3g}", "outcome": f"{found.outcome:.3g}"}
    else:
        return None
    hint = _("Give a component that judges the task, such as Task success, the largest weight.")
    return Paid(verdict, _ranked_words(failures_first(project, components)), hint)


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


# --- Cases ----------------------------------------------------------------------------------------------------------

logger = logging.getLogger(__name__)
MAX_CASES = 200
MAX_SHOWN = 50
MAX_CASE_BYTES = 1 << 20
SCORE_LIMIT_S = 5.0


def cases_of(project: Project) -> QuerySet[RewardCase]:
    """The project's cases by name."""
    return RewardCase.objects.filter(project=project).select_related("project", "created_by").order_by("name")


def reward_case_create(*, case: RewardCase, project: Project, user: User | None) -> RewardCase:
    """Save a case. Raises ``ValidationError`` with a sentence for each fault."""
    case.project, case.created_by, case.name = project, user, clean_name(case.name)
    if not case.expected and case.total is None:
        raise ValidationError(_("Enter what you expect: a range for the total, or for at least one component."))
    known = component_titles(project)
    unknown = [name for name in case.expected if name not in known]
    if unknown:
        raise ValidationError(_("There is no reward component “%(name)s”.") % {"name": unknown[0][:80]})
    for low, high in [*case.expected.values(), *([case.total] if case.total is not None else [])]:
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise ValidationError(_("A range runs from the lower number to the higher one."))
    if len(json.dumps([case.messages, case.row])) > MAX_CASE_BYTES:
        raise ValidationError(_("The episode is larger than 1 MB, too large for a test case."))
    if RewardCase.objects.filter(project=project).count() >= MAX_CASES:
        raise ValidationError(_("This project has reached its limit of reward test cases."))
    try:
        with transaction.atomic():
            case.save(force_insert=True)
            audit(AuditAction.CASE_SAVED, case, by=user)
    except IntegrityError as exc:
        raise ValidationError(_("A reward test case with this name exists already.")) from exc
    logger.info("reward case saved", extra={"case_id": case.pk, "project_id": project.pk})
    return case


def reward_case_delete(*, case: RewardCase) -> None:
    """Delete a case."""
    with transaction.atomic():
        audit(AuditAction.CASE_DELETED, case)
        case.delete()


class Mark(NamedTuple):
    """One score of one case: the value (``None``: missing), the expected range, and the verdict (``None``: unasked)."""

    title: str
    value: float | None
    reason: str
    expected: list[float] | None
    passed: bool | None


class CaseView(NamedTuple):
    """One case under one spec; ``passed`` is ``None`` where nothing that the spec scores was expected."""

    case: RewardCase
    marks: list[Mark]
    total: Mark
    passed: bool | None
    origin: Origin | None


def cases_under(spec: RewardSpec, user: User) -> list[CaseView]:
    """The first cases of the project, scored by a spec; scores that did not come in time are missing."""
    components = [RewardComponent.model_validate(part) for part in spec.components]
    shown = list(cases_of(spec.project)[:MAX_SHOWN])
    origins = origins_of(spec.project, shown)
    scores = _score_cases(shown, components, user)
    return [_case_view(case, components, scores[case.pk], origins.get(case.pk)) for case in shown]


def episode_of_case(case: RewardCase) -> Episode:
    """The stored episode. Raises pydantic's ``ValidationError`` when it cannot be read."""
    return Episode(
        messages=[Message.model_validate(item) for item in case.messages],
        prompt_length=case.prompt_length,
        row=case.row,
        env_reward=case.env_reward,
        env_parts=case.env_parts,
        truncated=case.truncated,
    )


Scores = dict[str, tuple[float | None, str]]


def _score_cases(cases: list[RewardCase], components: list[RewardComponent], user: User) -> dict[UUID, Scores]:
    """Each component's value by case, or why it is missing: also for rows that it does not count for, because a
    case tests the function."""
    found = {case.pk: _unreadable_scores(case, components) for case in cases}
    read = [case for case in cases if not found[case.pk]]
    asked = [Asked(episode=episode_of_case(case), components=components, weighed=True) for case in read]
    try:
        answers = scorers.ask(user.pk, asked, SCORE_LIMIT_S)
    except TooMany as exc:  # the page also has other parts to show
        answers = unscored(asked, str(exc))
    for case, values in zip(read, answers, strict=True):
        found[case.pk] = {name: (one.value, in_words(one.why)) for name, one in values.items()}
    return found


def _unreadable_scores(case: RewardCase, components: list[RewardComponent]) -> Scores:
    """Why nothing of a case can be scored; empty where it can."""
    try:
        episode_of_case(case)
    except ShapeError:
        return {part.name: (None, _("The stored conversation cannot be read.")) for part in components}
    return {}


def _case_view(
    case: RewardCase, components: list[RewardComponent], found: Scores, origin: Origin | None = None
) -> CaseView:
    marks = []
    for part in components:
        value, reason = found[part.name]
        marks.append(_mark_of(title_of(part), value, reason, case.expected.get(part.name)))
    values = [found[part.name][0] for part in components]
    total = None
    if all(value is not None for value in values):
        counted = [part for part in components if counts_for(part, categories_of(case.row))]
        parts = {part.name: found[part.name][0] or 0.0 for part in counted}
        total = total_of(terms_of(parts, counted), counted)
    missing = "" if total is not None else _("A component is missing, so there is no total.")
    whole = _mark_of(_("Reward"), total, missing, case.total)
    verdicts = [mark.passed for mark in (*marks, whole) if mark.passed is not None]
    return CaseView(case, marks, whole, all(verdicts) if verdicts else None, origin)


def _mark_of(title: str, value: float | None, reason: str, expected: Any) -> Mark:
    """The mark of one score. A missing value does not pass, because the expected one was not seen."""
    if expected is None:
        return Mark(title, value, reason, None, None)
    low, high = float(expected[0]), float(expected[1])
    slack = 1e-9 * max(1.0, abs(low), abs(high))  # a weighted sum of 1.0 may be 0.9999999999
    return Mark(title, value, reason, [low, high], value is not None and low - slack <= value <= high + slack)
