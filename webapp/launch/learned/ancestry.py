"""The runs on the way to some weights: each began with the weights of the one before, or continued its training."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from training.plain import number_in
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.people.teams.models import Project
from webapp.rewards.models import RewardSpec
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, ModelKind
from webapp.runs.registry.selectors import Weights, run_in, weights_of_checkpoint, weights_of_run

MOST_STAGES = 16


class Stage(NamedTuple):
    """A run on the way to a model, up to ``step``, and the weights that it gave on (``None``: no longer known).

    ``dataset``, ``spec`` and ``environment`` are the rows that it was trained on, where they are still there;
    ``started`` is what the trainer said of itself when it began.
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
    attempt = number_in(weights.at.partition("/")[0])
    kept = Checkpoint.objects.filter(run=UUID(weights.name), path=weights.at, project=later.project_id)
    kept = kept if attempt is None else kept.filter(attempt=attempt)
    found = kept.select_related("run__parent", "run__resume_checkpoint").first()
    if found is not None and found.run.removed_at is None:
        return found.run, found.step
    rows = Run.objects.filter(project=later.project_id, pk=weights.name)
    return rows.select_related("parent", "resume_checkpoint").first(), None
