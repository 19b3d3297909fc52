"""Facts on how a rollout was made: its time by phase, its seeds, its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from django.db.models import Case, F, FloatField, QuerySet, Sum, Value, When

from training.config import JobConfig
from training.errors import CannotContinue
from training.rollout.past import mix_seed, read_past
from webapp.runs.rollouts.models import Rollout, Turn


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
    turns, said = found["all"] or 0.0, found["model"] or 0.0
    if not turns:
        return None
    return Phases(said, turns - said, max(0.0, rollout.seconds - turns))


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


def beside(rollout: Rollout) -> QuerySet[Rollout]:
    """The rollouts of its step, as the same attempt played it."""
    names = ("run_id", "attempt", "step", "held_out")
    return Rollout.objects.filter(**{name: getattr(rollout, name) for name in names})


def siblings_of(rollout: Rollout) -> list[Rollout]:
    """Its group, by index."""
    return list(beside(rollout).filter(group=rollout.group).order_by("index"))


def neighbours_of(rollout: Rollout, siblings: Sequence[Rollout]) -> Neighbours:
    """The rollouts before and after it; a step continues from group to group."""
    places = [item.pk for item in siblings]
    at = places.index(rollout.pk)
    before = siblings[at - 1] if at else None
    after = siblings[at + 1] if at + 1 < len(siblings) else None
    step = beside(rollout)
    earlier = before or step.filter(group__lt=rollout.group).order_by("-group", "-index").first()
    later = after or step.filter(group__gt=rollout.group).order_by("group", "index").first()
    return Neighbours(before, after, earlier, later)
