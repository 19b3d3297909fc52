"""Saving what was found: as a view, as a dataset to learn from, as the tasks to evaluate on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from webapp.common.pages import clean_name
from webapp.datasets.models import Dataset
from webapp.datasets.pairs import pairs_order
from webapp.datasets.recorded import Use, dataset_of_step, rows_at
from webapp.datasets.rollouts import MOST, rollouts_order
from webapp.people.teams.models import User
from webapp.reading.inspector.finding import View
from webapp.reading.inspector.page import chips
from webapp.reading.inspector.saved_views import view_save
from webapp.rewards.cases import reward_case_create
from webapp.rewards.lab.sets import rollout_set_create
from webapp.rewards.models import RewardCase, SetKind
from webapp.rewards.paid import origin_of
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.rollouts.selectors import episode_of

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
    """What was made: its kind, id and name, and where it is."""

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
