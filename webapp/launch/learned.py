"""What a model has learned from: the runs on the way to its weights, and its data among the tasks of evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from django.utils.translation import gettext as _

from training.config import JobConfig
from training.data.checking import held_out, known
from training.errors import CannotContinue
from training.evaluation import drawn_tasks
from training.rollout.rewinding import read_past
from webapp.datasets.models import Dataset
from webapp.datasets.rows import identities_of
from webapp.environments.models import Environment
from webapp.people.teams.models import Project
from webapp.rewards.models import RewardSpec
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, ModelKind
from webapp.runs.registry.selectors import Weights, run_in, weights_of_checkpoint, weights_of_run

MOST_STAGES = 16


class Stage(NamedTuple):
    """A run on the way to a model, up to ``step``, and the weights that it gave on (``None``: no longer known).

    ``dataset``, ``spec`` and ``environment`` are the rows that it was trained on, where they are still there;
    ``started`` holds what the trainer reported when it began.
    """

    run: Run
    step: int | None
    gave: Weights | None
    dataset: Dataset | None = None
    spec: RewardSpec | None = None
    environment: Environment | None = None
    started: dict[str, Any] = {}


class Origins(NamedTuple):
    """Where a model comes from, the last stage first. ``base`` is what the first stage began with: ``None`` where
    that is not recorded, or was deleted. ``cut``: there are more stages than were read."""

    base: Weights | None
    stages: list[Stage]
    cut: bool = False

    @property
    def ancestors(self) -> list[Weights]:
        """All weights that the model comes from, the nearest first; none where it was not trained here."""
        if not self.stages:
            return []
        gave = [stage.gave for stage in self.stages[1:]]
        return [weights for weights in [*gave, self.base] if weights is not None]


def origins_of_checkpoint(checkpoint: Checkpoint) -> Origins:
    """The way to a checkpoint, without what each stage was trained on."""
    return _stages_before(checkpoint.run, checkpoint.step, weights_of_checkpoint(checkpoint))


def trainers_of(project: Project, source: str) -> list[Run]:
    """The runs that trained the weights that a resolved config means, the last one first."""
    run = run_in(source)
    if run is None:
        return []
    rows = Run.objects.filter(project=project, pk=run).select_related("parent", "resume_checkpoint")
    return [stage.run for stage in _stages_before(rows.first(), None, None).stages]


def _stages_before(run: Run | None, step: int | None, gave: Weights | None) -> Origins:
    stages: list[Stage] = []
    while run is not None and all(stage.run.pk != run.pk for stage in stages):
        if len(stages) == MOST_STAGES:
            return Origins(None, stages, cut=True)
        stages.append(Stage(run, step, gave))
        if run.resume_step is not None:  # it continued its parent's training, which may have been deleted since
            step, kept = run.resume_step, run.resume_checkpoint
            gave = weights_of_checkpoint(kept) if kept is not None else None
            run = run.parent
            continue
        gave = weights_of_run(run)
        if gave is None or gave.kind != ModelKind.RUN:
            return Origins(gave, stages)
        run, step = _run_of(run, gave)
    return Origins(None, stages)


def _run_of(later: Run, weights: Weights) -> tuple[Run | None, int | None]:
    """The run that left these weights, and the step of the checkpoint; the run alone where retention took it since."""
    kept = Checkpoint.objects.filter(run=UUID(weights.name), path=weights.at, project=later.project_id)
    found = kept.select_related("run__parent", "run__resume_checkpoint").first()
    if found is not None and found.run.removed_at is None:
        return found.run, found.step
    rows = Run.objects.filter(project=later.project_id, pk=weights.name)
    return rows.select_related("parent", "resume_checkpoint").first(), None


# How many tasks of an evaluation its model learned from: rows are compared by what they ask and expect, with the data
# of every run on the way to the model. The names of datasets do not matter.


class Source(NamedTuple):
    """Rows that a run learned from: those of ``path``, the first ``most`` of them (0: all), but for the share that it
    held out."""

    path: str
    share: float = 0.0
    most: int = 0


class Overlap(NamedTuple):
    """Of ``tasks`` tasks ``seen`` were learned from, ``where`` names the data that has them. ``unknown`` names data
    that could not be compared. Where the rows are gone, but the data is the same, both counts are ``None``."""

    seen: int | None = 0
    tasks: int | None = 0
    where: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def learned(self) -> bool:
        """Whether any of the tasks was learned from."""
        return self.seen is None or self.seen > 0

    @property
    def words(self) -> str:
        """The sentence on pages; empty where no task was learned from, as far as that is known."""
        names = {"where": ", ".join(self.where), "seen": self.seen, "tasks": self.tasks}
        if self.seen is None:
            return _("these tasks are in %(where)s, which it learned from") % names
        if self.seen:
            return _("%(seen)d of %(tasks)d tasks are in %(where)s, which it learned from") % names
        if self.unknown:
            names = {"where": ", ".join(self.unknown)}
            return (
                _("whether it learned from these tasks is not known: the rows of %(where)s were not compared") % names
            )
        return ""


def overlap_of(project: Project, config: JobConfig, trainers: Sequence[Run] | None = None) -> Overlap:
    """How many tasks that an evaluation of this (resolved) config plays its model learned from.

    ``trainers`` are the runs on the way to the model, where the caller has read them.
    """
    if not (config.method.evaluates and config.needs_model and config.data.train):
        return Overlap()
    runs = trainers_of(project, config.model.source) if trainers is None else trainers
    tasks = _played_rows(config.data.train, config) if runs else None
    return _overlap_with_runs(config, tasks, runs)


def overlaps_of(runs: Iterable[Run]) -> dict[UUID, Overlap]:
    """The same of evaluations that workers have begun, by their ids."""
    found: dict[UUID, Overlap] = {}
    trainers: dict[str, list[Run]] = {}
    for run in runs:
        config = config_of(run) if run.resolved else None
        if config is not None and run_in(config.model.source) is not None:
            source = config.model.source
            if source not in trainers:
                trainers[source] = trainers_of(run.project, source)
            found[run.pk] = overlap_of(run.project, config, trainers[source])
    return found


def overlap_of_held_out(run: Run) -> Overlap:
    """How many tasks that a training run held out its ancestors learned from; what it learned itself it leaves out."""
    config = config_of(run) if run.resolved else None
    if config is None or run_in(config.model.source) is None or not config.evaluate.every:
        return Overlap()
    found = [_held_out_overlap(run, course) for course in (config.courses if config.mix.parts else [config])]
    return found[0] if len(found) == 1 else _joined_overlap(found)


def overlap_of_plan(project: Project, course: JobConfig) -> Overlap:
    """The same of a (resolved) job, stage or part that is not launched yet."""
    if run_in(course.model.source) is None:
        return Overlap()
    path = course.evaluate.data or course.data.train
    return _overlap_with_runs(course, _played_rows(path, course), trainers_of(project, course.model.source), path)


def _joined_overlap(found: Sequence[Overlap]) -> Overlap:
    """The overlap of a whole mix, from the overlaps of its parts."""
    where = tuple(dict.fromkeys(name for each in found for name in each.where))
    unknown = tuple(dict.fromkeys(name for each in found for name in each.unknown))
    if any(each.seen is None for each in found):
        return Overlap(None, None, where, unknown)
    return Overlap(sum(each.seen or 0 for each in found), sum(each.tasks or 0 for each in found), where, unknown)


def _held_out_overlap(run: Run, config: JobConfig) -> Overlap:
    """The same of one config: that of the run, or of a part of its mix."""
    path = config.evaluate.data or config.data.train
    own = [source for source in sources_of(run) if config.evaluate.data]
    tasks = _played_rows(path, config)
    if tasks is not None:
        tasks = tuple(sorted(set(tasks).difference(*(_seen_tasks(path, tasks, source) or () for source in own))))
    return _overlap_with_runs(config, tasks, trainers_of(run.project, config.model.source), path)


def _overlap_with_runs(
    config: JobConfig, tasks: tuple[int, ...] | None, runs: Sequence[Run], path: str = ""
) -> Overlap:
    """The overlap of these tasks of ``path`` with everything that the runs learned from."""
    path = path or config.data.train
    sources = list(dict.fromkeys(source for run in runs for source in sources_of(run)))
    if not sources:
        return Overlap()
    seen = [None if tasks is None else _seen_tasks(path, tasks, source) for source in sources]
    found = list(zip(sources, seen, strict=True))
    same = [source for source, met in found if met is None and _same_rows(config, path, source)]
    if same:
        return Overlap(None, None, _source_names(same))
    met = {place for places in seen for place in places or ()}
    where, unknown = ([source for source, places in found if places], [source for source, at in found if at is None])
    return Overlap(len(met), len(tasks or ()), _source_names(where), _source_names(unknown))


def sources_of(run: Run) -> list[Source]:
    """The data that a run learned from, with all its stages and parts; nothing is learned from a part of weight 0."""
    config = config_of(run)
    if config is None:  # of another version: what it held out is not known
        path = str(run.resolved.get("data", {}).get("train") or "")
        return [Source(path)] if path else []
    if not config.method.trains:
        return []
    idle = {part.name for part in config.mix.parts if not part.weight}
    courses = [course for name, course in config.named_courses.items() if name not in idle]
    return [_source_of_course(course) for course in courses if course.data.train]


def _source_of_course(course: JobConfig) -> Source:
    shares = {"rollouts": course.evaluate.share, "demonstrations": course.sft.held_out_share}
    return Source(course.data.train, shares.get(course.method.learns_from, 0.0), course.data.max_rows)


def _same_rows(config: JobConfig, path: str, source: Source) -> bool:
    """Whether the played rows come from this same data and were not held out of it."""
    return source.path == path and not 0 < config.evaluate.share <= source.share


def _played_rows(path: str, config: JobConfig) -> tuple[int, ...] | None:
    """The places of the rows that are played; ``None`` where the rows are not known."""
    rows = identities_of(Path(path))
    if rows is None:
        return None
    if config.evaluate.continue_from:
        try:
            return (read_past(Path(config.evaluate.continue_from)).row,)
        except CannotContinue:
            return None
    if path == config.data.train:  # a dataset of held-out tasks is read whole
        rows = rows[: config.data.max_rows or None]
    places = np.flatnonzero(held_out(rows, config.evaluate.share)) if config.evaluate.share else range(len(rows))
    return tuple(drawn_tasks(config, [int(place) for place in places]))


def _seen_tasks(path: str, tasks: tuple[int, ...], source: Source) -> frozenset[int] | None:
    """Those of the tasks that are among the rows of a source; ``None`` where either's rows are not known."""
    try:
        return frozenset(_known_places(path, source).intersection(tasks))
    except LookupError:
        return None


@lru_cache(maxsize=64)
def _known_places(path: str, source: Source) -> frozenset[int]:
    """The rows of a file that a source has too: versions never change. Raises ``LookupError`` where one is unknown."""
    rows, others = identities_of(Path(path)), identities_of(Path(source.path))
    if rows is None or others is None:
        raise LookupError(path)
    others = others[: source.most or None]
    others = others[~held_out(others, source.share)]
    return frozenset(int(place) for place in np.flatnonzero(known(rows, others)))


@lru_cache(maxsize=1024)
def _name_at(path: str) -> str:
    """The name of the dataset whose rows are in the file. Raises ``LookupError``, which is not kept."""
    try:
        found = Dataset.objects.filter(pk=UUID(Path(path).parent.name)).first()
    except ValueError as exc:
        raise LookupError(path) from exc
    if found is None:
        raise LookupError(path)
    return str(found)


def _source_names(sources: Sequence[Source]) -> tuple[str, ...]:
    """The datasets' names of these sources, each name once."""
    return tuple(dict.fromkeys(_name_of(source) for source in sources))


def _name_of(source: Source) -> str:
    try:
        return _name_at(source.path)
    except LookupError:
        return _("data that was deleted")
