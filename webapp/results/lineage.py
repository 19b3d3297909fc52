"""A model's lineage as a drawing, from the first weights over its runs to the model and the runs that started from it;
and its scores next to those of its ancestors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.db.models import Q
from django.urls import reverse
from django.utils.translation import gettext as _
from pydantic import ValidationError

from training.config import METHODS, RewardComponent, name_in
from training.evaluation import Figure, Report
from webapp.common.text import translated
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.evaluation.comparison.boards import interval_of, report_of_run
from webapp.evaluation.comparison.contestants import LEAST, MOST, Contestant, Played
from webapp.evaluation.comparison.figures import Cell, Column, cell, known_columns, left_out_text
from webapp.launch.learned import Origins, Overlap, Stage, origins_of_checkpoint, overlap_of
from webapp.people.teams.models import Project
from webapp.rewards.models import RewardSpec
from webapp.runs.config import all_components, config_of
from webapp.runs.models import Run, RunEvent
from webapp.runs.registry.models import ModelKind, RegisteredModel
from webapp.runs.registry.selectors import Weights, runs_with, weights_of_model, weights_of_run
from webapp.runs.states import RunState

# --- Origins --------------------------------------------------------------------------------------------------------
# The origins of a model: the runs that trained it, one after the other, and the data of each.
#
# Only recorded facts are shown. A dataset is found by the folder of its resolved reference, a spec without a version by
# its resolved components; where neither has a row any more, only the words of the config are shown.

_OF_DATASET = re.compile(r"/datasets/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/")


def origins_of(model: RegisteredModel) -> Origins:
    """The way to a registered model."""
    if model.kind != ModelKind.RUN or model.checkpoint is None:
        return Origins(weights_of_model(model), [])
    found = origins_of_checkpoint(model.checkpoint)
    return found._replace(stages=_with_rows(model.project, found.stages))


def _with_rows(project: Project, stages: Sequence[Stage]) -> list[Stage]:
    """The stages with the rows that they were trained on: one query for each kind of row."""
    datasets = _datasets_of(project, [stage.run for stage in stages])
    specs = _specs_of(project, [stage.run for stage in stages])
    names = {environment_name(stage.run) for stage in stages} - {""}
    places = Environment.objects.filter(project=project, name__in=names)
    environments = {item.name: item for item in places} if names else {}
    started: dict[Any, dict[str, Any]] = {}
    events = RunEvent.objects.filter(run__in=[stage.run.pk for stage in stages], kind="attempt").order_by("seq")
    for run_id, payload in events.values_list("run_id", "payload"):
        if "device" in payload or "versions" in payload:
            started[run_id] = payload
    return [
        stage._replace(
            dataset=datasets.get(stage.run.pk),
            spec=specs.get(stage.run.pk),
            environment=environments.get(environment_name(stage.run)),
            started=started.get(stage.run.pk, {}),
        )
        for stage in stages
    ]


def _datasets_of(project: Project, runs: Sequence[Run]) -> dict[Any, Dataset]:
    wanted: dict[Any, str] = {}
    for run in runs:
        if found := _OF_DATASET.search(str(run.resolved.get("data", {}).get("train") or "")):
            wanted[run.pk] = found[1]
    rows = {str(row.pk): row for row in Dataset.objects.filter(project=project, pk__in=set(wanted.values()))}
    return {pk: rows[text] for pk, text in wanted.items() if text in rows}


def _specs_of(project: Project, runs: Sequence[Run]) -> dict[Any, RewardSpec]:
    names = {run.pk: spec_name(run).partition("@") for run in runs if spec_name(run)}
    rows = list(RewardSpec.objects.filter(project=project, name__in={name for name, _at, _version in names.values()}))
    found: dict[Any, RewardSpec] = {}
    for run in runs:
        name, _at, version = names.get(run.pk, ("", "", ""))
        versions = sorted((row for row in rows if row.name == name), key=lambda row: -row.version)
        scored = run.resolved.get("rewards", {}).get("components")
        for row in versions:
            if str(row.version) == version if version else scored and _same_components(row.components, scored):
                found[run.pk] = row
                break
    return found


def _same_components(written: list[dict[str, Any]], scored: list[dict[str, Any]]) -> bool:
    """Whether a spec's components are what a run was scored with. The hash that a launch adds to custom code does not
    count."""
    return [_normalised_part(part) for part in written] == [_normalised_part(part) for part in scored]


def _normalised_part(part: dict[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = RewardComponent.model_validate(part).model_dump(mode="json")
    except ValidationError:  # written by a version that no longer fits
        return part
    return plain | {"params": {name: value for name, value in plain["params"].items() if name != "sha256"}}


def dataset_words(run: Run) -> str:
    """The dataset as the config names it; empty where the environment draws the tasks."""
    return name_in("dataset", str(run.config.get("data", {}).get("train") or ""))


def parts_words(run: Run) -> str:
    """The parts of a mix with their weights, their data and environments, as the config names them; else nothing."""
    found = []
    for part in run.config.get("mix", {}).get("parts") or []:
        own = ((part.get(group) or {}).get(option) for group, option in (("data", "train"), ("environment", "name")))
        names = [str(name).partition(":")[2] or str(name) for name in own if name]
        found.append(f"{part['name']} × {part.get('weight', 1):g}" + (f" ({', '.join(names)})" if names else ""))
    return "; ".join(found)


def spec_name(run: Run) -> str:
    """The reward spec as the config names it, with its version where it has one."""
    return name_in("reward", str(run.config.get("rewards", {}).get("spec") or ""))


def environment_name(run: Run) -> str:
    """The environment as the config names it; empty where it was trained without one."""
    name = name_in("environment", str(run.config.get("environment", {}).get("name") or ""))
    return "" if name == "none" else name


def components_of(stage: Stage) -> list[RewardComponent]:
    """The components of the run's rewards; empty where it does not play, or its config cannot be read."""
    config = config_of(stage.run)
    if config is None or not config.method.plays:
        return []
    return all_components(config) if config.mix.parts else config.rewards.components


CHILDREN_SHOWN = 6
TRAINING = sorted(kind for kind, method in METHODS.items() if method.trains)


class Fact(NamedTuple):
    """One fact of a node; ``url`` is empty where it leads nowhere (any more)."""

    label: str
    text: str
    url: str = ""


class Node(NamedTuple):
    """A place of the drawing. ``kind`` is base, run, model or child; ``id`` that of a run or a model."""

    kind: str
    title: str
    about: str
    url: str
    facts: list[Fact]
    id: str = ""


class Children(NamedTuple):
    """Runs that were trained from a model, the newest first, and how many more there are."""

    nodes: list[Node]
    more: int


def lineage(model: RegisteredModel, origins: Origins) -> list[Node]:
    """The drawing's nodes, from the first weights to the model itself."""
    nodes = [_run_node(model.project, stage) for stage in reversed(origins.stages)]
    if origins.stages:
        nodes.insert(0, _base_node(origins))
    return [*nodes, _model_node(model)]


def children(model: RegisteredModel) -> Children:
    """The runs that were trained from this model: those that started from its weights, or continued from its
    checkpoint."""
    weights = weights_of_model(model)
    if weights is None:
        return Children([], 0)
    rows = Run.objects.filter(project=model.project, kind__in=TRAINING).filter(_began_with(model, weights))
    found = list(rows.order_by("-created_at")[: CHILDREN_SHOWN + 1])
    more = rows.count() - CHILDREN_SHOWN if len(found) > CHILDREN_SHOWN else 0
    return Children([_child_node(model.project, run) for run in found[:CHILDREN_SHOWN]], more)


def _began_with(model: RegisteredModel, weights: Weights) -> Q:
    # A run that no worker has begun names the model, or the run that made it.
    names = [model.reference]
    if model.checkpoint is not None and model.checkpoint.final:
        names.append(model.checkpoint.run.reference)
    waiting = Q(started_at=None, config__model__source__in=names)
    # A run that continued a parent also has a model in its own config: that is where the parent began.
    fresh = Q(resume_step=None) & (runs_with([weights]) | waiting)
    return fresh | Q(resume_checkpoint=model.checkpoint) if model.checkpoint is not None else fresh


def base_words(base: Weights | None, *, cut: bool = False) -> tuple[str, str]:
    """The first weights: a name, and a sentence about them."""
    if cut:
        return "…", _("earlier stages are not shown")
    match base:
        case None:
            return _("not recorded"), _("The starting model was deleted or never recorded.")
        case Weights(ModelKind.STARTER):
            return "starter", _("a tiny model built from scratch")
        case Weights(ModelKind.HUB, name, at):
            return name, _("Hugging Face, revision %(revision)s") % {"revision": at[:12]} if at else _("Hugging Face")
    return base.name, _("a folder of this server")


def revision_of(origins: Origins) -> str:
    """The commit of the base model that was trained; empty where it has none, or none is recorded."""
    if not origins.stages or origins.base is None or origins.base.kind != ModelKind.HUB:
        return origins.base.at if origins.base is not None and origins.base.kind == ModelKind.HUB else ""
    resolved = origins.stages[-1].started.get("resolved", {})
    return str(resolved.get("model.revision") or "") or origins.base.at


def _base_node(origins: Origins) -> Node:
    base, commit = origins.base, revision_of(origins)
    if base is not None and commit:
        base = base._replace(at=commit)
    title, about = base_words(base, cut=origins.cut)
    return Node("base", title, about, "", [])


def _run_node(project: Project, stage: Stage) -> Node:
    run = stage.run
    steps = {"step": stage.step, "total": run.total_steps}
    about = translated(run.method.short)
    if stage.step is not None:
        about += " · " + (_("step %(step)s of %(total)s") if run.total_steps else _("step %(step)s")) % steps
    return Node(
        "run", run.name, about, _page_url(project, "run-detail", run.pk), trained_on(project, stage), str(run.pk)
    )


def trained_on(project: Project, stage: Stage) -> list[Fact]:
    """Dataset, reward spec and environment of a run, each with its version, where it has them."""
    run, facts = stage.run, []
    if parts := parts_words(run):
        facts.append(Fact(_("Parts"), parts))
    if stage.dataset is not None:
        facts.append(Fact(_("Dataset"), str(stage.dataset), _page_url(project, "dataset-detail", stage.dataset.pk)))
    elif dataset_words(run):
        facts.append(Fact(_("Dataset"), dataset_words(run)))
    if not run.method.plays:
        return facts
    if stage.spec is not None:
        facts.append(Fact(_("Reward spec"), str(stage.spec), _page_url(project, "reward-detail", stage.spec.pk)))
    elif spec_name(run):
        facts.append(Fact(_("Reward spec"), spec_name(run)))
    elif not run.imported_from:
        facts.append(Fact(_("Reward spec"), _("written in the config")))
    if name := environment_name(run):
        text = f"{name} {run.environment_version}".strip()
        place = stage.environment
        facts.append(
            Fact(
                _("Environment"), text, _page_url(project, "environment-detail", place.pk) if place is not None else ""
            )
        )
    return facts


def _model_node(model: RegisteredModel) -> Node:
    checkpoint = model.checkpoint
    about = str(model.get_kind_display())
    if checkpoint is not None:
        about = _("step %(step)s") % {"step": checkpoint.step}
        about += f" · {_('final')}" if checkpoint.final else ""
    return Node("model", model.name, about, "", [], str(model.pk))


def _child_node(project: Project, run: Run) -> Node:
    about = f"{translated(run.method.short)} · {run.get_state_display()}"
    return Node("child", run.name, about, _page_url(project, "run-detail", run.pk), [], str(run.pk))


def _page_url(project: Project, name: str, pk: Any) -> str:
    return reverse(name, args=[project.slug, pk])


# --- Scores ---------------------------------------------------------------------------------------------------------
# The scores of a model: its evaluations, and those of its ancestors on the same tasks.

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
