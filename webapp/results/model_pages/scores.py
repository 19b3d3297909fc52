"""The scores of a model: its evaluations, and those of its ancestors on the same tasks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _

from training.evaluation import Report
from training.evaluation.figures import Figure
from webapp.evaluation.comparison.boards import interval_of, report_of_run
from webapp.evaluation.comparison.contestants import LEAST, MOST, Contestant, Played
from webapp.evaluation.comparison.figures import Cell, Column, cell, known_columns, left_out_text
from webapp.launch.learned import Overlap, overlap_of
from webapp.people.teams.models import Project
from webapp.results.model_pages.lineage import Origins, dataset_words, environment_name
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.registry.models import RegisteredModel
from webapp.runs.registry.selectors import Weights, runs_with, weights_of_model, weights_of_run
from webapp.runs.states import RunState

READ = 100
SHOWN = 20


class Score(NamedTuple):
    """One evaluation of a model. ``cells`` are its success, pass^k and reward; ``base`` is the newest evaluation of its
    nearest ancestor on the same tasks, and ``all`` what else of its lineage played them. ``overlap`` says how many of
    the tasks it was trained on."""

    run: Run
    report: Report
    data: str
    environment: str
    spec: str
    cells: list[Cell]
    left_out: str
    at: datetime | None
    base_url: str
    all_url: str
    overlap: Overlap

    @property
    def solved(self) -> Figure | None:
        """The share of tries that solve their task, where the report has it."""
        return self.report.figures.get("success")

    @property
    def trained_on(self) -> bool:
        """Whether it was trained on any of the tasks."""
        return self.overlap.learned

    @property
    def success(self) -> Cell:
        """The share of tries that solve their task, with its interval."""
        return self.cells[0]


class Evaluated(NamedTuple):
    """An evaluation as it was read."""

    run: Run
    report: Report
    weights: Weights
    played: Played


def scores(model: RegisteredModel, origins: Origins) -> list[Score]:
    """The evaluations of a model, newest first."""
    own = weights_of_model(model)
    return scores_of(model.project, own, origins) if own is not None else []


def scores_of(project: Project, own: Weights, origins: Origins) -> list[Score]:
    """The evaluations of some weights, newest first."""
    found = _evaluations_of(project, [own, *origins.ancestors])
    return [_score_of(project, item, found, origins) for item in found if item.weights == own][:SHOWN]


def headline(found: Sequence[Score]) -> Score | None:
    """The evaluation that says most: the newest on tasks that were not trained on, else the newest."""
    return next((score for score in found if not score.trained_on), found[0] if found else None)


def _evaluations_of(project: Project, all_weights: Sequence[Weights]) -> list[Evaluated]:
    rows = Run.objects.filter(project=project, state=RunState.SUCCEEDED, evaluation__isnull=False)
    found = []
    for run in rows.filter(runs_with(all_weights)).order_by("-finished_at", "-created_at")[:READ]:
        weights, report = weights_of_run(run), report_of_run(run)
        played = Contestant(0, run, config_of(run)).played
        if weights is not None and weights in all_weights and report is not None and played is not None:
            found.append(Evaluated(run, report, weights, played))
    return found


def _score_of(project: Project, item: Evaluated, found: Sequence[Evaluated], origins: Origins) -> Score:
    report = item.report
    same = [_newest_of(found, weights, item.played) for weights in origins.ancestors]
    others = [other for other in same if other is not None]
    config = config_of(item.run)
    trainers = [stage.run for stage in origins.stages]
    return Score(
        run=item.run,
        report=report,
        data=dataset_words(item.run),
        environment=environment_name(item.run),
        spec=Contestant(0, item.run, config).spec,
        cells=[cell(column, interval_of(report, column.name)) for column in columns(report)],
        left_out=left_out_text(item.run.name, report.tasks, report.missing_tasks, report.excluded),
        at=item.run.finished_at,
        base_url=compare_url(project, [others[0].run, item.run]) if others else "",
        all_url=compare_url(project, [*(other.run for other in reversed(others)), item.run]) if others[1:] else "",
        overlap=overlap_of(project, config, trainers) if config is not None else Overlap(),
    )


def _newest_of(found: Sequence[Evaluated], weights: Weights, played: Played) -> Evaluated | None:
    return next((item for item in found if item.weights == weights and item.played == played), None)


def columns(report: Report) -> list[Column]:
    """Success, pass^k where a task was tried more than once, and the reward of the evaluation's own spec."""
    wanted = ["success", *([f"pass^{report.most}"] if report.most > 1 else []), "reward"]
    known = {column.name: column for column in known_columns(report.most)}
    return [known[name] for name in wanted]


def compare_url(project: Project, runs: Sequence[Run]) -> str:
    """The address of a comparison of these runs; empty for fewer than two."""
    chosen = list(dict.fromkeys(str(run.pk) for run in runs))[-MOST:]
    if len(chosen) < LEAST:
        return ""
    return f"{reverse('compare', args=[project.slug])}?{urlencode({'c': chosen}, doseq=True)}"


def tries_words(report: Report) -> str:
    """Tasks × samples, as text."""
    return _("%(tasks)d × %(samples)d") % {"tasks": report.tasks, "samples": report.most}
