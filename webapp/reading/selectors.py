"""One rollout: whether a person may see it, how it was made, and the words that earned its reward."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from django.contrib.auth.models import AnonymousUser
from django.db.models import Case, F, FloatField, Func, IntegerField, QuerySet, Sum, Value, When
from django.http import Http404, HttpRequest
from django.utils.translation import gettext as _

from training.config import JobConfig, RewardComponent
from training.errors import CannotContinue
from training.rewards.base import ENVIRONMENT, Episode, Span
from training.rewards.lab import asks_others
from training.rewards.scorer.wire import Asked, Said
from training.rewards.scoring import COMPONENTS
from training.rollout.rewinding import mix_seed, read_past
from training.words import Sentence
from webapp.common.text import in_words
from webapp.people.teams.access import project_for
from webapp.people.teams.models import Project, Role, User
from webapp.reading.groups import task_row
from webapp.reading.inspector.causes import cause_and_answer, cause_title
from webapp.reading.parts import Part, config_for, parts_of, spec_of
from webapp.reading.turns import removed_words
from webapp.rewards.scorers import scorers
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn
from webapp.runs.rollouts.selectors import episode_of

# --- Access ---------------------------------------------------------------------------------------------------------
# The rollout of an address, if the person may see it.


def own_rollout(
    request: HttpRequest, slug: str, pk: UUID, *, need: Role = Role.VIEWER, **columns: Case
) -> tuple[Project, Rollout]:
    """A rollout of the project that the address names, with its run and these columns."""
    project = project_for(request.user, slug, need=need)
    rows = Rollout.objects.filter(pk=pk, run__project=project).select_related("run")
    rollout = rows.annotate(**columns).first()
    if rollout is None:
        raise Http404
    rollout.run.project = project
    return project, rollout


def rollout_for(user: User | AnonymousUser, pk: UUID, *, need: Role = Role.VIEWER) -> Rollout:
    """The rollout with this id, with its run and project, if the person's role in it is at least ``need``."""
    rollout = Rollout.objects.filter(pk=pk).select_related("run__project").first()
    if rollout is None:
        raise Http404
    rollout.run.project = project_for(user, rollout.run.project.slug, need=need)
    return rollout


# --- Making ---------------------------------------------------------------------------------------------------------
# Facts on how a rollout was made: its time by phase, its seeds, its neighbours.


class Phases(NamedTuple):
    """Seconds of the model's turns and of everything else that answered; ``other`` is the rest."""

    model: float
    environment: float
    other: float

    @property
    def total(self) -> float:
        """All seconds."""
        return self.model + self.environment + self.other

    @property
    def shares(self) -> list[tuple[str, float]]:
        """Name and percentage of each, for a drawing."""
        whole = self.total or 1.0
        return [(name, 100 * value / whole) for name, value in zip(self._fields, self, strict=True)]


class Seeds(NamedTuple):
    """Seeds of the episode, which the whole group has, and of this rollout's sampling."""

    episode: int
    sampling: int


class Neighbours(NamedTuple):
    """The rollouts before and after one, ``None`` at an end: in its group, and in its step."""

    group_before: Rollout | None
    group_after: Rollout | None
    step_before: Rollout | None
    step_after: Rollout | None


def phases_of(rollout: Rollout) -> Phases | None:
    """Where its time went; ``None`` where that was not measured."""
    model = Case(When(messages__0__role="assistant", then=F("seconds")), default=Value(0.0), output_field=FloatField())
    found = Turn.objects.filter(rollout=rollout).aggregate(all=Sum("seconds"), model=Sum(model))
    turns, sampling = found["all"] or 0.0, found["model"] or 0.0
    if not turns:
        return None
    return Phases(sampling, turns - sampling, max(0.0, rollout.seconds - turns))


def seeds_of(rollout: Rollout, config: JobConfig | None) -> Seeds | None:
    """Its seeds, derived from the run's seed; ``None`` where another trainer played, or another plan of seeds."""
    run = rollout.run
    if config is None or run.imported_from or not run.method.plays:
        return None
    seed = config.run.seed
    if run.method.evaluates or rollout.held_out:
        episode = _episode_seed(rollout, config)
        if rollout.row is None or episode is None:
            return None
        return Seeds(episode, mix_seed(seed, rollout.row, rollout.index))
    return Seeds(mix_seed(seed, rollout.step, rollout.group) % 2**31, _sampling_seed(seed, rollout))


def _episode_seed(rollout: Rollout, config: JobConfig) -> int | None:
    """The seed of an evaluated task; one that continued from a recorded rollout had that one's."""
    if not (config.evaluate.continue_from and rollout.run.method.evaluates):
        return None if rollout.row is None else mix_seed(config.run.seed, rollout.row) % 2**31
    try:
        return read_past(Path(config.evaluate.continue_from)).seed
    except CannotContinue:
        return None


def _sampling_seed(seed: int, rollout: Rollout) -> int:
    return mix_seed(seed, rollout.step, rollout.group, rollout.index)


def same_step(rollout: Rollout) -> QuerySet[Rollout]:
    """The rollouts of its step, as the same attempt played it."""
    names = ("run_id", "attempt", "step", "held_out")
    return Rollout.objects.filter(**{name: getattr(rollout, name) for name in names})


def siblings_of(rollout: Rollout) -> list[Rollout]:
    """Its group, by index."""
    return list(same_step(rollout).filter(group=rollout.group).order_by("index"))


def neighbours_of(rollout: Rollout, siblings: Sequence[Rollout]) -> Neighbours:
    """The rollouts before and after it; a step continues from group to group."""
    places = [item.pk for item in siblings]
    at = places.index(rollout.pk)
    before = siblings[at - 1] if at else None
    after = siblings[at + 1] if at + 1 < len(siblings) else None
    step = same_step(rollout)
    earlier = before or step.filter(group__lt=rollout.group).order_by("-group", "-index").first()
    later = after or step.filter(group__gt=rollout.group).order_by("group", "index").first()
    return Neighbours(before, after, earlier, later)


# --- Words ----------------------------------------------------------------------------------------------------------
# The words that earned a reward: where in a recorded transcript each component's value comes from.
#
# Nothing is scored again: values are the recorded ones. Components report, for the episode rebuilt from its records,
# which pieces of text they read; all of them together have ``WORDS_LIMIT_S``. Where one cannot, ``reason`` says why.

WORDS_LIMIT_S = 3.0
MAX_TURNS = 4_000
MAX_BYTES = 4 << 20
MAX_SPANS = 200
EXPECTED_MAX = 200


class PartWords(NamedTuple):
    """A part of the reward, the pieces of text that it comes from, and why there are none. ``turns`` has the number of
    each message's turn."""

    part: Part
    spans: list[Span]
    reason: str
    turns: list[int]


def words_of(rollout: Rollout, user: User) -> list[PartWords]:
    """Each recorded part with its words, in the spec's order. Raises ``TooMany``."""
    config = config_for(rollout)
    components = spec_of(rollout.run, config)
    parts = parts_of(rollout, components)
    refusal = _refusal_reason(rollout)
    if refusal or not parts:
        return [PartWords(part, [], refusal, []) for part in parts]
    turns = list(Turn.objects.filter(rollout=rollout).defer("words").order_by("number"))
    found = task_row(rollout, config, components)
    episode = episode_of(rollout, turns, found.row if found else {})
    chosen = {item.name: item for item in components}
    places = [turn.number for turn in turns for _message in turn.messages]
    return _ask_components(rollout, parts, chosen, episode, places, user)


def verdict_reason(rollout: Rollout) -> str:
    """Why the environment gave its verdict, as far as that is recorded."""
    cause, expected = cause_and_answer(rollout)
    if not cause:
        return _("The environment's own verdict.")
    said = _("The environment's own verdict. %(cause)s.") % {"cause": cause_title(cause)}
    if expected:
        said += " " + _("Expected: %(answer)s") % {"answer": expected[:EXPECTED_MAX]}
    return said


def _refusal_reason(rollout: Rollout) -> str:
    """Why no component is asked; empty where they are."""
    if rollout.status == RolloutStatus.RUNNING:
        return _("It is still in flight.")
    size = Func(F("messages"), function="pg_column_size", output_field=IntegerField())
    found = Turn.objects.filter(rollout=rollout).aggregate(bytes=Sum(size))["bytes"]
    if found is None:
        return removed_words(rollout) or _("Its transcript is not stored (any more).")
    if rollout.turns > MAX_TURNS or found > MAX_BYTES:
        return _("The transcript is too long to look for the words in it.")
    return ""


def _ask_components(
    rollout: Rollout,
    parts: list[Part],
    chosen: dict[str, RewardComponent],
    episode: Episode,
    places: list[int],
    user: User,
) -> list[PartWords]:
    reasons = {part.name: _skip_reason(rollout, chosen.get(part.name)) for part in parts}
    components = [chosen[name] for name, reason in reasons.items() if not reason]
    by_name: dict[str, Said] = {}
    if components:
        asked = Asked(episode=episode, components=components, values=False, spans=MAX_SPANS)
        late = _("Looking for the words took longer than %(s)g seconds.") % {"s": WORDS_LIMIT_S}
        (by_name,) = scorers.ask(user.pk, [asked], WORDS_LIMIT_S, late=late)
    found = [(part, by_name.get(part.name) or Said(why=Sentence.of(reasons[part.name]))) for part in parts]
    return [PartWords(part, answer.spans, in_words(answer.why), places) for part, answer in found]


def _skip_reason(rollout: Rollout, item: RewardComponent | None) -> str:
    """Why a component is not asked; empty where it is."""
    if item is None:
        return _("The run's config does not have this component.")
    if item.registered == ENVIRONMENT:
        return verdict_reason(rollout)
    known = COMPONENTS.get(item.registered)
    if known is None:
        return _("This component is not known here (any more).")
    if known.spans is None:
        if asks_others(item):
            return _("A judge or a model gave this value; it is not asked again.")
        return _("This component does not report which words it looks at.")
    return ""
