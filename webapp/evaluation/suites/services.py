"""Suites: who can play one, writing them, having a contestant play one, and the results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Max, Model, OuterRef, Subquery
from django.urls import reverse
from django.utils.translation import gettext as _
from pydantic import ValidationError as ShapeError

from training.config import POLICY_CHOICES, EndpointConfig, JobConfig, ModelConfig, Reference, ReferenceKind, name_in
from training.errors import ConfigError
from training.evaluation import ALPHA, Interval, Score, Values, better_by, holm, joined
from webapp.common.pages import clean_name
from webapp.common.text import in_words, translated
from webapp.endpoints.models import Endpoint
from webapp.engine.resolve import resolve
from webapp.engine.services import run_create
from webapp.environments.models import Environment
from webapp.evaluation.comparison.boards import interval_of, mark_of, report_of_run
from webapp.evaluation.comparison.contestants import Contestant
from webapp.evaluation.comparison.figures import (
    Cell,
    Column,
    cell,
    known_columns,
    left_out_text,
    numbers_of,
    same_tasks,
)
from webapp.evaluation.comparison.verdicts import at_floor, p_text
from webapp.evaluation.suites.models import Suite, SuiteEvaluation, SuiteRun, SuiteVersion
from webapp.launch.forms import model_choices, suggested_name
from webapp.launch.learned import overlaps_of
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.registry.models import RegisteredModel
from webapp.runs.registry.selectors import marks_of
from webapp.runs.states import RunState

# --- Contestants ----------------------------------------------------------------------------------------------------
# Who can play a suite, by one reference each: a model, the model of a run, an endpoint, a scripted policy.

FLOOR = ("claim_success", "empty", "copy_prompt", "one_tool")


def with_contestant(config: JobConfig, reference: str) -> JobConfig:
    """The same evaluation played by another contestant. Of the model's options only how it is held in memory stays."""
    kept = {"dtype": config.model.dtype}
    found = Reference.parse(reference)
    policy, source = "none", reference
    if found is not None and found.kind == "policy":
        policy, source = found.name, "starter"
    groups = {
        "model": ModelConfig.model_validate(kept | {"source": source}),
        "endpoint": EndpointConfig(),
        "evaluate": config.evaluate.model_copy(update={"policy": policy}),
    }
    return JobConfig.model_validate(config.model_copy(update=groups).model_dump())


def contestants_offered(project: Project) -> list[tuple[str, str]]:
    """The contestants of a form: the project's models and endpoints, then a few policies as a floor."""
    floor = [str(Reference("policy", name)) for name in FLOOR]
    return model_choices(project) + [(reference, title_of_contestant(reference)) for reference in floor]


def may_play(reference: str) -> bool:
    """Whether a reference has the form of a contestant's; launching looks up whether there is such a one."""
    match Reference.parse(reference):
        case Reference("policy", name):
            return name in POLICY_CHOICES
        case Reference("model" | "run" | "endpoint", name):
            return name != ""
    return reference == "starter"


def title_of_contestant(reference: str) -> str:
    """A contestant as a table names it."""
    match Reference.parse(reference):
        case Reference("policy", name):
            return _("policy: %(name)s") % {"name": translated(POLICY_CHOICES.get(name, name))}
        case Reference("endpoint", name):
            return _("%(name)s (endpoint)") % {"name": name}
        case Reference("model" | "run", name):
            return name
    return reference


def pages_of(project: Project, references: Iterable[str]) -> dict[str, str]:
    """The addresses of those contestants that have a page of their own here."""
    asked = {Reference.parse(reference) for reference in references}
    pages: tuple[tuple[ReferenceKind, type[Model], str], ...] = (
        ("model", RegisteredModel, "model-detail"),
        ("run", Run, "run-detail"),
        ("endpoint", Endpoint, "endpoint-detail"),
    )
    found: dict[str, str] = {}
    for kind, model, page in pages:
        names = {each.name for each in asked if each is not None and each.kind == kind}
        if not names:
            continue
        rows = model._default_manager.filter(project=project, name__in=names).values_list("name", "pk")
        found |= {str(Reference(kind, name)): reverse(page, args=[project.slug, pk]) for name, pk in rows}
    return found


# --- Writing --------------------------------------------------------------------------------------------------------

MOST_PARTS = 12
Part = dict[str, Any]


def suite_create(
    *, project: Project, user: User | None, name: str, parts: Sequence[Part], note: str = ""
) -> SuiteVersion:
    """A suite with its first version. Raises ``ValidationError`` by field."""
    suite = Suite(project=project, name=clean_name(name), note=note.strip()[:500], created_by=user)
    try:
        with transaction.atomic():
            suite.save(force_insert=True)
            version = _create_version(suite, 1, parts, user)
            audit(AuditAction.SUITE_SAVED, suite, by=user)
    except IntegrityError as exc:
        raise ValidationError({"name": _("A suite with this name exists already.")}) from exc
    return version


def suite_change(
    *, suite: Suite, user: User | None, parts: Sequence[Part], note: str | None = None
) -> tuple[SuiteVersion, bool]:
    """The suite's newest version and whether it is new: parts that are the same make none."""
    with transaction.atomic():
        Suite.objects.select_for_update().get(pk=suite.pk)  # two changes at once must not take the same number
        if note is not None:
            suite.note = note.strip()[:500]
            suite.save(update_fields=["note"])
        newest = suite.versions.order_by("-number").first()
        checked = [_storable_part(part) for part in _checked_parts(parts)]
        if newest is not None and [_played_identity(part) for part in newest.parts] == [
            _played_identity(part) for part in checked
        ]:
            return newest, False
        number = (suite.versions.aggregate(Max("number"))["number__max"] or 0) + 1
        version = _create_version(suite, number, parts, user)
        audit(AuditAction.SUITE_SAVED, suite, by=user)
    return version, True


def suite_delete(*, suite: Suite) -> None:
    """Delete a suite and the list of runs that played it; the runs stay."""
    with transaction.atomic():
        audit(AuditAction.SUITE_DELETED, suite)
        suite.delete()


def suite_evaluate(*, version: SuiteVersion, contestant: str, user: User | None) -> SuiteEvaluation:
    """Have a contestant play every part: one run each, queued together or not at all. Raises ``ConfigError``."""
    suite = version.suite
    environments = environments_of_parts(suite.project, version.parts)
    with transaction.atomic():
        evaluation = SuiteEvaluation.objects.create(
            version=version, contestant=contestant[:200], environments=environments, created_by=user
        )
        for place, part in enumerate(version.parts):
            config = with_contestant(JobConfig.model_validate(part["config"]), contestant)
            name = suggested_name(suite.project, config, stem=_run_name(version, contestant, part))
            run = run_create(project=suite.project, user=user, name=name, config=config)
            SuiteRun.objects.create(evaluation=evaluation, part=place, run=run)
    return evaluation


def _run_name(version: SuiteVersion, contestant: str, part: Part) -> str:
    words = [version.suite.name, contestant.rpartition(":")[2], part["title"]]
    text = "-".join("".join(c if c.isalnum() or c in "_.()+-" else "-" for c in word) for word in words if word)
    return text[:70].strip("-._ ") or "evaluation"


def _create_version(suite: Suite, number: int, parts: Sequence[Part], user: User | None) -> SuiteVersion:
    checked = [_storable_part(part) for part in _checked_parts(parts)]
    for place, part in enumerate(checked):
        _require_there(suite.project, place, part)
    servers = environments_of_parts(suite.project, checked)
    kept = [part | {"environment": server} for part, server in zip(checked, servers, strict=True)]
    return SuiteVersion.objects.create(suite=suite, number=number, parts=kept, created_by=user)


def _checked_parts(parts: Sequence[Part]) -> Sequence[Part]:
    if not 1 <= len(parts) <= MOST_PARTS:
        raise ValidationError(_("A suite has 1 to %(n)d parts.") % {"n": MOST_PARTS})
    if sum(float(part["weight"]) for part in parts) <= 0:
        raise ValidationError(_("Give at least one part a weight above 0."))
    titles = [part["title"] for part in parts]
    if len(set(titles)) < len(titles):
        raise ValidationError(_("Two parts have the same title."))
    return parts


def _storable_part(part: Part) -> Part:
    """A part as it is stored: its config complete, of kind `evaluate`, without its player."""
    try:
        config = JobConfig.model_validate(part["config"] | {"kind": "evaluate"})
    except ShapeError as exc:
        first = exc.errors(include_url=False)[0]
        raise ValidationError(f"{part['title']}: {first['msg']}") from exc
    plain = with_contestant(config, "starter").model_dump(mode="json")
    return {"title": part["title"], "weight": float(part["weight"]), "config": plain}


def _require_there(project: Project, place: int, part: Part) -> None:
    """Raises ``ValidationError`` where the part names data, an environment or a spec that the project does not have:
    no contestant could play it."""
    try:
        resolve(project, JobConfig.model_validate(part["config"]))
    except ConfigError as exc:
        message = f"{part['title']}: {in_words(exc.sentence)}"
        raise ValidationError({f"parts.{place}.config.{exc.option}": message}) from exc


def _played_identity(part: Part) -> tuple[Any, ...]:
    return part["title"], part["weight"], part["config"]


def environments_of_parts(project: Project, parts: Sequence[Part]) -> list[dict[str, Any]]:
    """What the server of each part's environment reports of itself now: its name, version and tasks; empty where
    that is not known."""
    names = [name_in("environment", str(part["config"].get("environment", {}).get("name", ""))) for part in parts]
    found = {item.name: item for item in Environment.objects.filter(project=project, name__in=names)}
    reports = []
    for name in names:
        health = found[name].health if name in found else {}
        reports.append({key: health[key] for key in ("name", "version", "tasks") if health.get(key) is not None})
    return reports


# --- Results --------------------------------------------------------------------------------------------------------
# The results of a suite: a score for each contestant, who is better, and the best over time.

MOST_COMPARED = 8
READ = 200


class PartResult(NamedTuple):
    """One part of an evaluation: its run, and its success if it has ended well."""

    title: str
    weight: float
    run: Run | None
    success: Interval | None
    cell: Cell | None


@dataclass
class Line:
    """A contestant's evaluation. ``verdict`` compares it with the first of the board, ``page`` is the contestant's
    own, ``mark`` the one of the model that played."""

    evaluation: SuiteEvaluation
    title: str
    parts: list[PartResult]
    score: Interval | None
    score_cell: Cell | None
    notes: list[str]
    verdict: str = ""
    page: str = ""
    mark: str = ""

    @property
    def runs(self) -> list[Run]:
        """Its runs, in the order of the parts."""
        return [part.run for part in self.parts if part.run is not None]


class Columns(NamedTuple):
    """Success by task, a column for each line, and which lines played the same tasks as the first."""

    success: Values
    same: list[bool]


class Best(NamedTuple):
    """The best score that had been reached at a moment, and by whom."""

    at: datetime
    title: str
    value: float


@dataclass
class SuiteBoard:
    """A version's results: the newest evaluation of each contestant, the best first; those that have no score yet."""

    version: SuiteVersion
    lines: list[Line] = field(default_factory=list)
    waiting: list[Line] = field(default_factory=list)
    baselines: list[dict[str, Any]] = field(default_factory=list)
    history: list[Best] = field(default_factory=list)
    corrected: int = 0


def board_of(version: SuiteVersion, *, judged: bool = True) -> SuiteBoard:
    """Read everything that a version's page says; without ``judged`` not the comparison with the first contestant, for
    which every try of all of them is read."""
    rows = version.evaluations.select_related("created_by").prefetch_related("runs__run").order_by("-created_at", "pk")
    lines = [_line_of(version, evaluation) for evaluation in rows[:READ]]
    scored = [line for line in lines if line.score is not None and line.score.value is not None]
    board = SuiteBoard(version, history=_score_records(scored))
    newest: dict[str, Line] = {}
    for line in scored:
        newest.setdefault(line.evaluation.contestant, line)
    board.lines = sorted(newest.values(), key=lambda line: -_score_value(line))
    shown = {line.evaluation.pk for line in scored}
    board.waiting = [line for line in lines if line.evaluation.pk not in shown]
    board.baselines = _baselines_of(board.lines)
    _add_pages_and_notes(version.suite.project, [*board.lines, *board.waiting])
    if judged:
        board.corrected = _set_verdicts(version, board.lines[:MOST_COMPARED])
    return board


class Leader(NamedTuple):
    """The best of ``scored`` contestants on the newest version of a suite that was played."""

    version: SuiteVersion
    line: Line
    scored: int


def leaders_of(project: Project, most: int) -> list[Leader]:
    """The leaders of the suites that were evaluated last, with what their scores leave out; as many queries for one
    suite as for several."""
    newest = Subquery(
        SuiteVersion.objects.filter(suite=OuterRef("suite"), evaluations__isnull=False)
        .order_by("-number")
        .values("pk")[:1]
    )
    versions = SuiteVersion.objects.filter(suite__project=project, pk=newest).select_related("suite")
    played = versions.annotate(last=Max("evaluations__created_at")).order_by("-last")
    shown = {version.pk: version for version in played[:most]}
    rows = SuiteEvaluation.objects.filter(version__in=shown).prefetch_related("runs__run").order_by("-created_at", "pk")
    of_version: dict[UUID, dict[str, Line]] = {pk: {} for pk in shown}
    for evaluation in rows[: most * READ]:
        line = _line_of(shown[evaluation.version_id], evaluation)
        if line.score is not None and line.score.value is not None:
            of_version[evaluation.version_id].setdefault(evaluation.contestant, line)
    found = [
        Leader(shown[pk], max(lines.values(), key=_score_value), len(lines))
        for pk, lines in of_version.items()
        if lines
    ]
    if found:
        _add_pages_and_notes(project, [leader.line for leader in found])
    return found


def _add_pages_and_notes(project: Project, lines: Sequence[Line]) -> None:
    """Give each line its contestant's page, the mark of its model, and a note if it learned from what it plays."""
    pages = pages_of(project, {line.evaluation.contestant for line in lines})
    marks = marks_of(project)
    learned = overlaps_of(run for line in lines for run in line.runs)
    for line in lines:
        line.notes += [
            _("%(part)s: %(learned)s.") % {"part": part.title, "learned": learned[part.run.pk].words}
            for part in line.parts
            if part.run is not None and part.run.pk in learned and learned[part.run.pk].words
        ]
        line.page = pages.get(line.evaluation.contestant, "")
        line.mark = mark_of(line.runs[0], marks) if line.runs else ""


def _score_value(line: Line) -> float:
    return line.score.value if line.score is not None and line.score.value is not None else 0.0


def _success_column(title: str) -> Column:
    success = next(column for column in known_columns(1) if column.name == "success")
    return success._replace(title=title)


def _line_of(version: SuiteVersion, evaluation: SuiteEvaluation) -> Line:
    runs = {item.part: item.run for item in evaluation.runs.all()}
    parts = [_part_of(part, runs.get(place)) for place, part in enumerate(version.parts)]
    found = [part.success for part in parts if part.success is not None]
    score = joined(found, [part.weight for part in parts]) if len(found) == len(parts) else None
    shown = cell(_success_column(_("Score")), score) if score is not None else None
    title = title_of_contestant(evaluation.contestant)
    return Line(evaluation, title, parts, score, shown, _notes_of(version, evaluation, parts))


def _part_of(part: dict[str, Any], run: Run | None) -> PartResult:
    title, weight = str(part["title"]), float(part["weight"])
    report = report_of_run(run) if run is not None else None
    success = interval_of(report, "success") if report is not None else None
    return PartResult(
        title, weight, run, success, cell(_success_column(title), success) if success is not None else None
    )


def _notes_of(version: SuiteVersion, evaluation: SuiteEvaluation, parts: Sequence[PartResult]) -> list[str]:
    """Sentences on what the score leaves out, and on what has changed since the version was made."""
    notes = []
    for place, part in enumerate(parts):
        if part.run is None:
            notes.append(_("The run of %(part)s was deleted.") % {"part": part.title})
            continue
        if part.run.state in {RunState.FAILED, RunState.CANCELLED}:
            state = {"part": part.title, "state": part.run.get_state_display()}
            notes.append(_("%(part)s has no result: its run is %(state)s.") % state)
        report = report_of_run(part.run)
        left = left_out_text(part.title, report.tasks, report.missing_tasks, report.excluded) if report else ""
        if left:
            notes.append(left)
        before, then = version.parts[place].get("environment", {}), dict(enumerate(evaluation.environments)).get(place)
        if then and before and then.get("version") != before.get("version"):
            versions = {"part": part.title, "then": then.get("version"), "before": before.get("version")}
            notes.append(
                _("%(part)s was played on version %(then)s of its environment; the suite was made on %(before)s.")
                % versions
            )
    return notes


def _score_records(scored: Sequence[Line]) -> list[Best]:
    """Each time that the best score rose, oldest first."""
    found: list[Best] = []
    for line in sorted(scored, key=lambda line: line.evaluation.created_at):
        if not found or _score_value(line) > found[-1].value:
            found.append(Best(line.evaluation.created_at, line.title, _score_value(line)))
    return found


def _baselines_of(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The environment's figures of simple policies, where the suite has one part: several have no common figure."""
    runs = next((line.runs for line in lines if len(line.runs) == len(line.parts) == 1), [])
    return list(runs[0].baselines or []) if runs else []


def _set_verdicts(version: SuiteVersion, lines: Sequence[Line]) -> int:
    """Compare each line with the first. Returns how many p-values were corrected for each other."""
    if len(lines) < 2:
        return 0
    parts = [_success_columns(lines, place) for place in range(len(version.parts))]
    weights = [float(part["weight"]) for part in version.parts]
    found = [_against_first(parts, number, weights) for number in range(1, len(lines))]
    corrected = holm([score.p_value if score is not None else None for score in found])
    for line, score, p_value in zip(lines[1:], found, corrected, strict=True):
        line.verdict = _verdict_text(score, p_value)
    return sum(p_value is not None for p_value in corrected)


def _against_first(parts: Sequence[Columns], number: int, weights: Sequence[float]) -> Score | None:
    """How much better the first is than another; ``None`` where they did not play the same tasks in every part."""
    if not all(columns.same[number] for columns in parts):
        return None
    return better_by([(columns.success[:, number], columns.success[:, 0]) for columns in parts], weights)


def _success_columns(lines: Sequence[Line], place: int) -> Columns:
    """The lines' success in one part."""
    runs = [line.parts[place].run for line in lines]
    playing = [Contestant(number, run, config_of(run)) for number, run in enumerate(runs) if run is not None]
    if len(playing) < len(lines):
        return Columns(np.empty((0, len(lines))), [False] * len(lines))
    sheets = numbers_of(playing, None).sheets
    tasks = sorted({task for sheet in sheets for task in sheet.tasks})
    columns = []
    for sheet in sheets:
        values = dict(zip(sheet.tasks, sheet.of("success"), strict=True))
        columns.append([values.get(task, np.nan) for task in tasks])
    return Columns(np.array(columns, dtype=np.float64).T, [same_tasks(playing[0], item) for item in playing])


def _verdict_text(score: Score | None, p_value: float | None) -> str:
    if score is None or score.difference.value is None:
        return _("played other tasks than the first, so they are not compared")
    points = -100 * score.difference.value
    figures = {"points": f"{points:+.1f}".replace("-", "−"), "p": p_text(p_value, floor=at_floor(score.p_value))}
    if p_value is not None and p_value <= ALPHA:
        return _("%(points)s points to the first, %(p)s") % figures
    return _("cannot be told apart from the first (%(points)s points, %(p)s)") % figures
