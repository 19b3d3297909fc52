"""Saving what was found: as a view, as a dataset to learn from, as the tasks to evaluate on."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Count, Max, Min, Q, QuerySet
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from webapp.common.pages import clean_name
from webapp.datasets.models import Dataset
from webapp.datasets.recorded import Use, dataset_of_step, rows_at
from webapp.datasets.rollouts import BOUNDS, MOST, pairs_order, pairs_problem, rollouts_order
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, User
from webapp.reading.inspector.filters import Filters, Scope
from webapp.reading.inspector.finding import View
from webapp.reading.inspector.models import SavedView
from webapp.reading.inspector.page import chips
from webapp.rewards.cases import origin_of, reward_case_create
from webapp.rewards.lab.sets import recorded_rollouts, rollout_set_create
from webapp.rewards.models import RewardCase, SetKind
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn
from webapp.runs.rollouts.selectors import episode_of

# --- Named views ----------------------------------------------------------------------------------------------------
# Saving views under a name, listing and deleting them.

logger = logging.getLogger(__name__)
MAX_VIEWS = 200
QUERY_MAX = 4_000


def views_of(scope: Scope) -> QuerySet[SavedView]:
    """The named views that a page offers: those of its run and those of the project."""
    rows = SavedView.objects.filter(project=scope.project).select_related("project", "created_by", "run")
    return rows.filter(Q(run=scope.run) | Q(run=None)) if scope.run is not None else rows


def view_save(*, scope: Scope, filters: Filters, name: str, user: User | None) -> SavedView:
    """Keep filters and their order under a name. Raises ``ValidationError``."""
    query = urlencode(filters.pairs())
    if len(query) > QUERY_MAX:
        raise ValidationError(_("This view has too many filters to be kept."))
    if SavedView.objects.filter(project=scope.project).count() >= MAX_VIEWS:
        raise ValidationError(_("This project has reached its limit of saved views. Delete one that is not needed."))
    made = SavedView(project=scope.project, run=scope.run, name=clean_name(name), query=query, created_by=user)
    try:
        with transaction.atomic():
            made.save(force_insert=True)
            audit(AuditAction.VIEW_SAVED, made, by=user)
    except IntegrityError as exc:
        raise ValidationError({"name": _("A view with this name exists already.")}) from exc
    logger.info("view saved", extra={"view_id": made.pk, "project_id": scope.project.pk})
    return made


def view_delete(*, view: SavedView) -> None:
    """Delete a view."""
    with transaction.atomic():
        audit(AuditAction.VIEW_DELETED, view)
        view.delete()


# --- Cases ----------------------------------------------------------------------------------------------------------
# Rollouts as reward test cases: the episode, the dataset's row, and the reward that it got.

SLACK = 1e-6


def cases_from(rollouts: Sequence[Rollout], name: str, view: str) -> list[RewardCase]:
    """A case for each rollout that has a prompt, not saved; several are numbered. ``view`` says how they were found."""
    made = []
    for number, rollout in enumerate(rollouts, start=1):
        turns = list(Turn.objects.filter(rollout=rollout).defer("words").order_by("number"))
        if turns and rollout.reward is not None:
            case = case_of(rollout, turns, view)
            case.name = name if len(rollouts) == 1 else f"{name[:75]}-{number}"
            made.append(case)
    return made


def case_of(rollout: Rollout, turns: list[Turn], view: str = "") -> RewardCase:
    """A case without a name, not saved: the episode with the reward that it got."""
    source = dataset_of_step(rollout.run, rollout.step, rollout.part)
    row = {}
    if source is not None and rollout.row is not None:
        row = rows_at(source.rows_path, [rollout.row]).get(rollout.row, {})
    episode, config = episode_of(rollout, turns, row), config_of(rollout.run)
    reward = float(rollout.reward or 0.0)
    return RewardCase(
        environment=(config.environment.name if config else "")[:80],
        messages=[message.model_dump(mode="json", exclude_none=True) for message in episode.messages],
        prompt_length=episode.prompt_length,
        row=row,
        env_reward=episode.env_reward,
        env_parts=dict(episode.env_parts),
        truncated=episode.truncated,
        total=[reward - SLACK, reward + SLACK],
        origin=origin_of(rollout, view),
    )


CASES_MOST = 20
LEAST_GAP = 1e-6  # any difference


class Kept(NamedTuple):
    """The object that was made: its kind, id, name and address."""

    kind: str
    id: UUID
    label: str
    url: str


class Target(NamedTuple):
    """Something that what was found can be saved as."""

    kind: str
    title: str | Promise
    about: str | Promise


TARGETS: dict[str, Target] = {
    item.kind: item
    for item in (
        Target(
            "view",
            gettext_lazy("A named view"),
            gettext_lazy("Filters and order under a name: everyone in the project finds it, and its link stays."),
        ),
        Target(
            "demonstrations",
            gettext_lazy("A dataset for SFT"),
            gettext_lazy(
                "Each rollout's conversation as a row, with its tools. Excluded rollouts, those with unreadable calls "
                "and those on held-out tasks are left out."
            ),
        ),
        Target(
            "tasks",
            gettext_lazy("An evaluation set"),
            gettext_lazy("The dataset rows that these rollouts played, each once. Held-out tasks are left out."),
        ),
        Target(
            "pairs",
            gettext_lazy("Preference pairs"),
            gettext_lazy(
                "The best rollout against the worst of each group with a match, for DPO; from one run that has ended."
            ),
        ),
        Target(
            "lab",
            gettext_lazy("A set for the rewards lab"),
            gettext_lazy("All rollouts of each group with a match, to try other rewards on them. From one run."),
        ),
        Target(
            "cases",
            gettext_lazy("Reward test cases"),
            gettext_lazy(
                "Each rollout with its reward as the expected one, so that a changed spec that scores it differently "
                "is noticed. At most 20; those without a reward are left out."
            ),
        ),
    )
}


def found_save(*, view: View, kind: str, name: str, user: User | None, min_gap: float | None = None) -> Kept:
    """Save what a view finds as one of ``TARGETS``; ``min_gap`` is of pairs: how far their rewards lie apart at least,
    ``None`` for any difference. Raises ``ValidationError`` by field or with a sentence."""
    if kind == "pairs":
        return _save_pairs(view, name, user, LEAST_GAP if min_gap is None else min_gap)
    save = _SAVES.get(kind)
    if save is None:
        raise ValidationError({"kind": _("There are: %(kinds)s.") % {"kinds": ", ".join(TARGETS)}})
    return save(view, name, user)


def _save_view(view: View, name: str, user: User | None) -> Kept:
    made = view_save(scope=view.scope, filters=view.filters, name=name, user=user)
    return Kept("view", made.pk, made.name, reverse("rollout-view", args=[view.scope.project.slug, made.pk]))


def _dataset_saver(use: Use) -> Callable[[View, str, User | None], Kept]:
    def save(view: View, name: str, user: User | None) -> Kept:
        ids, runs = chosen_of(view)
        made = rollouts_order(
            project=view.scope.project, user=user, name=name, runs=runs, ids=ids, use=use, view=words_of(view)
        )
        return _kept_dataset(view, made)

    return save


def _kept_dataset(view: View, made: Dataset) -> Kept:
    return Kept("dataset", made.pk, str(made), reverse("dataset-detail", args=[view.scope.project.slug, made.pk]))


def _save_pairs(view: View, name: str, user: User | None, min_gap: float) -> Kept:
    run, groups = groups_of(view)
    made = pairs_order(run=run, user=user, name=name, min_gap=min_gap, groups=groups, view=words_of(view))
    return _kept_dataset(view, made)


def _save_lab_set(view: View, name: str, user: User | None) -> Kept:
    run, groups = groups_of(view)
    steps = [step for step, _group in groups]
    made = rollout_set_create(
        project=view.scope.project, user=user, name=name, kind=SetKind.RUN, run=run, first_step=min(steps),
        last_step=max(steps), groups=groups, found_by=words_of(view),
    )  # fmt: skip
    return Kept("lab", made.pk, made.name, reverse("lab-set", args=[view.scope.project.slug, made.pk]))


def _save_cases(view: View, name: str, user: User | None) -> Kept:
    rows = view.rows.filter(reward__isnull=False).select_related("run").order_by("run_id", "step", "group", "index")
    rollouts = list(rows[: CASES_MOST + 1])
    if not 1 <= len(rollouts) <= CASES_MOST:
        raise ValidationError(
            _("Between 1 and %(n)s rollouts with a reward can become test cases at once.") % {"n": CASES_MOST}
        )
    cases = cases_from(rollouts, clean_name(name), words_of(view))
    with transaction.atomic():
        made = [reward_case_create(case=case, project=view.scope.project, user=user) for case in cases]
    return Kept("cases", made[0].pk, name, reverse("reward-list", args=[view.scope.project.slug]))


def words_of(view: View) -> str:
    """How the rollouts of a view were found."""
    return " · ".join(chip.words for chip in chips(view))


def groups_of(view: View) -> tuple[Run, set[tuple[int, int]]]:
    """The groups with a rollout in the view, by step and number. Raises ``ValidationError`` unless they are of one
    run."""
    _require_few(view)
    found = view.rows.filter(held_out=False).order_by().values_list("run_id", "step", "group").distinct()
    places = list(found[:MOST])
    runs = {run for run, _step, _group in places}
    if len(runs) != 1:
        raise ValidationError(_("Choose the rollouts of one run; held-out tasks are in no group."))
    run = next(run for run in view.scope.runs if run.pk in runs)
    return run, {(step, group) for _run, step, group in places}


def _require_few(view: View) -> None:
    if view.count.more:
        raise ValidationError(_("More than %(n)s rollouts match. Narrow the view, then save it.") % {"n": MOST})


def chosen_of(view: View) -> tuple[list[UUID], list[Run]]:
    """The rollouts of a view in the order that they were played, and the runs that they are of."""
    _require_few(view)
    found: list[Any] = list(
        view.rows.order_by("run_id", "step", "group", "index", "attempt").values_list("pk", "run_id")[:MOST]
    )
    of = {run for _pk, run in found}
    return [pk for pk, _run in found], [run for run in view.scope.runs if run.pk in of]


_SAVES: dict[str, Callable[[View, str, User | None], Kept]] = {
    "view": _save_view,
    "demonstrations": _dataset_saver("demonstrations"),
    "tasks": _dataset_saver("tasks"),
    "lab": _save_lab_set,
    "cases": _save_cases,
}


# --- What saving would keep -----------------------------------------------------------------------------------------
# What saving a view would keep and leave out, shown before it is saved.

BACK = (RolloutStatus.EXCLUDED, RolloutStatus.RUNNING)


class Would(NamedTuple):
    """The result that one way to save would have: ``keeps`` things, named by ``says``, and why others are ``left_out``.
    ``problem`` where nothing can be saved in this way; then ``keeps`` is 0."""

    kind: str
    keeps: int
    says: str
    left_out: tuple[str, ...] = ()
    problem: str = ""


def would_save(view: View) -> dict[str, Would]:
    """All ways but the named view, which keeps no rollouts. A view of more than can be saved at once is not counted."""
    if view.count.more:
        why = _("More than %(n)s rollouts match. Narrow the view, then save it.") % {"n": view.count.number}
        return {kind: Would(kind, 0, "", problem=why) for kind in ("demonstrations", "tasks", "pairs", "lab", "cases")}
    of_rollouts = (_would_demonstrations(view), _would_tasks(view), _would_cases(view))
    return {each.kind: each for each in (*of_rollouts, *_would_by_groups(view))}


def _would_demonstrations(view: View) -> Would:
    learned = ~Q(status__in=BACK) & Q(held_out=False)
    found = view.rows.aggregate(
        all=Count("pk"),
        lost=Count("pk", filter=Q(status__in=BACK)),
        held=Count("pk", filter=~Q(status__in=BACK) & Q(held_out=True)),
        unread=Count("pk", filter=learned & Q(parse_errors__gt=0)),
    )
    keeps = found["all"] - found["lost"] - found["held"] - found["unread"]
    says = ngettext("at most %(n)s conversation", "at most %(n)s conversations", keeps) % {"n": keeps}
    return Would(
        "demonstrations", keeps, says,
        tuple(_reason_texts([
            (found["lost"], _("excluded or in flight: %(n)s")),
            (found["held"], _("on held-out tasks: %(n)s")),
            (found["unread"], _("with unreadable calls: %(n)s")),
        ])),
    )  # fmt: skip


def _would_tasks(view: View) -> Would:
    found = view.rows.aggregate(
        held=Count("pk", filter=Q(held_out=True)), without=Count("pk", filter=Q(held_out=False, row__isnull=True))
    )
    rows = view.rows.filter(held_out=False, row__isnull=False).order_by().values("run", "row").distinct()
    keeps = rows.count()
    says = ngettext("at most %(n)s task", "at most %(n)s tasks", keeps) % {"n": keeps}
    reasons = [
        (found["held"], _("rollouts on held-out tasks: %(n)s")),
        (found["without"], _("rollouts of no dataset's row: %(n)s")),
    ]
    return Would("tasks", keeps, says, tuple(_reason_texts(reasons)))


def _would_cases(view: View) -> Would:
    found = view.rows.aggregate(all=Count("pk"), scored=Count("pk", filter=Q(reward__isnull=False)))
    keeps = found["scored"]
    if keeps > CASES_MOST:
        why = _("%(found)s rollouts have a reward, and %(n)s can become test cases at once. Narrow the view.")
        return Would("cases", 0, "", problem=why % {"found": keeps, "n": CASES_MOST})
    says = ngettext("%(n)s test case", "%(n)s test cases", keeps) % {"n": keeps}
    return Would("cases", keeps, says, tuple(_reason_texts([(found["all"] - keeps, _("without a reward: %(n)s"))])))


def _would_by_groups(view: View) -> Iterator[Would]:
    """Pairs and sets for the lab, which are of whole groups of one run."""
    try:
        run, groups = groups_of(view)
    except ValidationError as exc:
        why = " ".join(exc.messages)
        yield from (Would(kind, 0, "", problem=why) for kind in ("pairs", "lab"))
        return
    held = tuple(_reason_texts([(view.rows.filter(held_out=True).count(), _("on held-out tasks: %(n)s"))]))
    if why := pairs_problem(run):
        yield Would("pairs", 0, "", problem=why)
    else:
        yield _would_pairs(gaps_in(run, groups), groups, held)
    steps = [step for step, _group in groups]
    rows = recorded_rollouts(run, min(steps), max(steps)).order_by().values_list("step", "group")
    number = sum((step, group) in groups for step, group in rows)
    values = {"groups": len(groups), "n": number}
    says = ngettext("%(n)s rollout (groups: %(groups)s)", "%(n)s rollouts (groups: %(groups)s)", number) % values
    yield Would("lab", number, says, held)


def _would_pairs(
    gaps: list[tuple[tuple[int, int], float]], groups: set[tuple[int, int]], held: tuple[str, ...]
) -> Would:
    keeps = sum(gap > 0 for _group, gap in gaps)
    says = ngettext("at most %(n)s pair", "at most %(n)s pairs", keeps) % {"n": keeps}
    if keeps:
        says += f" ({', '.join(f'≥ {bound:g}: {sum(gap >= bound for _group, gap in gaps)}' for bound in BOUNDS)})"
    reasons = [
        (sum(gap == 0 for _group, gap in gaps), _("groups whose rewards are equal: %(n)s")),
        (len(groups - {group for group, _gap in gaps}), _("groups without two rewards that count: %(n)s")),
    ]
    return Would("pairs", keeps, says, (*_reason_texts(reasons), *held))


def gaps_in(run: Run, groups: set[tuple[int, int]]) -> list[tuple[tuple[int, int], float]]:
    """By how much the best and the worst reward differ in each of these groups, among rollouts that can be learned
    from. A group with fewer than two of them is left out; one that several attempts played is in it once for each."""
    steps = [step for step, _group in groups]
    known = Rollout.objects.filter(run=run, held_out=False, reward__isnull=False, parse_errors=0)
    within = known.filter(step__gte=min(steps), step__lte=max(steps)).order_by()
    found = within.values("attempt", "step", "group").annotate(gap=Max("reward") - Min("reward"), n=Count("pk"))
    placed = [((each["step"], each["group"]), each["gap"]) for each in found if each["n"] > 1]
    return [(group, gap) for group, gap in placed if group in groups and math.isfinite(gap)]


def _reason_texts(counted: list[tuple[int, str]]) -> Iterator[str]:
    """A text for each reason whose count is not 0."""
    return (words % {"n": number} for number, words in counted if number)
