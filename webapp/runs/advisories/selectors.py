"""Reading advisories: as pages and the API show them, in the reader's language."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Count, OuterRef, Subquery
from django.utils import timezone

from training.doctor import CURVES, RULES, SEVERITIES, TITLES, Diagnosis
from training.metrics import METRICS
from training.words import Sentence
from webapp.common.text import in_words, translated
from webapp.runs.advisories.models import Advisory, Examination
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, CheckpointState
from webapp.runs.states import TERMINAL, RunState

SHOWN = 50
POINTS = 200
LAST_LOOK = timedelta(minutes=1)
"""The last step of a run is examined soon after its end."""
ORDER = tuple(SEVERITIES)
CHARTED = {"success": "rollouts/task_success", "judge_failure_share": "judge/failures"}
"""Curves of evidence that a metric's chart shows."""


class CurveView(NamedTuple):
    """A curve of evidence with its title."""

    name: str
    title: str
    steps: list[int]
    values: list[float]


class AdvisoryView(NamedTuple):
    """An advisory in the reader's language. ``rollouts`` are {id, step, group, index}.

    ``paused`` and ``kept``, a step, are what a rule of the project did; ``before`` is the newest checkpoint from before
    it, which a child may go back to.
    """

    id: UUID
    code: str
    severity: str
    first: int
    last: int
    open: bool
    title: str
    sentence: str
    meaning: str
    remedy: str
    acts: tuple[str, ...]
    curves: list[CurveView]
    rollouts: list[dict[str, Any]]
    paused: bool
    kept: int | None
    before: Checkpoint | None


def advisories_of(run: Run, whole: Sequence[Checkpoint] | None = None) -> list[AdvisoryView]:
    """A run's advisories: open ones first, of these the gravest, then the newest; 50 at most.

    ``whole`` are its whole checkpoints, the newest first, where they were read before."""
    if not _learns_by_playing(run):
        return []
    rows = [row for row in Advisory.objects.filter(run=run).select_related("kept") if row.code in RULES]
    rows.sort(key=lambda row: (not row.open, ORDER.index(RULES[row.code].severity), -row.last))
    points = (
        [] if not rows else _saved_checkpoints(run) if whole is None else [point for point in whole if not point.final]
    )
    return [_advisory_view(row, _checkpoint_before_step(points, row.first)) for row in rows[:SHOWN]]


def checkpoint_before(run: Run, step: int) -> Checkpoint | None:
    """The newest whole checkpoint below a step that is still there: of the latest attempt, then of the highest step."""
    return _checkpoint_before_step(_saved_checkpoints(run), step)


def _saved_checkpoints(run: Run) -> list[Checkpoint]:
    rows = Checkpoint.objects.filter(run=run, state=CheckpointState.WHOLE, final=False)
    return list(rows.order_by("-attempt", "-step")[:POINTS])


def _checkpoint_before_step(points: list[Checkpoint], step: int) -> Checkpoint | None:
    return next((found for found in points if found.step < step and found.folder.is_dir()), None)


class DiagnosisView(NamedTuple):
    """The doctor's diagnosis in the reader's language.

    ``kind`` is one of ``training.doctor.diagnosis``; ``code`` is the advisory that decides it, or empty. ``reason`` is
    for a page that shows the advisory itself: its title, else the sentence.
    """

    kind: str
    code: str
    title: str
    sentence: str
    reason: str


def diagnosis_view(run: Run) -> DiagnosisView | None:
    """The diagnosis after the newest step that the doctor has seen; ``None`` before the first one."""
    row: Examination | None = getattr(run, "examination", None)
    return diagnosis_words(row.diagnosis) if row is not None else None


def diagnosis_words(stored: dict[str, Any] | None) -> DiagnosisView | None:
    """A stored diagnosis in the reader's language; ``None`` where there is none."""
    if stored is None:
        return None
    found = Diagnosis.model_validate(stored)
    if found.code and found.code not in RULES:  # of another version; the next look replaces it
        return None
    said = in_words(found.sentence)
    reason = translated(RULES[found.code].title) if found.code else said
    return DiagnosisView(found.kind, found.code, translated(TITLES[found.kind]), said, reason)


class Advised(NamedTuple):
    """The diagnosis and the advisories of a run page; ``key`` says whether the advisories are the same, ``answer_key``
    whether the diagnosis is, ``live`` whether there may be more."""

    diagnosis: DiagnosisView | None
    open: list[AdvisoryView]
    over: list[AdvisoryView]
    key: str
    answer_key: str
    live: bool

    @property
    def marks(self) -> str:
        """The marks of charts, as JSON: where each began and ended, and the metrics that show it."""
        return json.dumps([_chart_mark(each) for each in (*self.open, *self.over)], ensure_ascii=False)


def advised(run: Run, whole: Sequence[Checkpoint] | None = None) -> Advised:
    """The advisories of a run as its page shows them."""
    diagnosis, found = diagnosis_view(run), advisories_of(run, whole)
    key = "-".join(f"{each.code}.{each.first}{'' if each.open else '.over'}" for each in found)
    key += f" {run.state in TERMINAL} {run.state == RunState.PAUSED}"  # which decide what can be done about them
    ended = run.state in TERMINAL and (run.finished_at is None or timezone.now() - run.finished_at > LAST_LOOK)
    live = _learns_by_playing(run) and not ended
    open_, over = ([each for each in found if each.open is wanted] for wanted in (True, False))
    return Advised(diagnosis, open_, over, _digest(key), _digest(str(diagnosis)), live)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _chart_mark(found: AdvisoryView) -> dict[str, Any]:
    mark = {name: getattr(found, name) for name in ("first", "last", "open", "severity", "title")}
    return mark | {"names": [CHARTED.get(curve.name, curve.name) for curve in found.curves]}


def open_count() -> Subquery:
    """How many advisories a run of the outer query has open; null without any."""
    found = Advisory.objects.filter(run=OuterRef("pk"), open=True).order_by().values("run")
    return Subquery(found.annotate(n=Count("pk")).values("n"))


def curve_title(name: str) -> str:
    """The title of a curve of evidence."""
    return translated(METRICS[name].title if name in METRICS else CURVES.get(name, name))


def _learns_by_playing(run: Run) -> bool:
    return run.method.plays and run.method.trains


def _advisory_view(row: Advisory, before: Checkpoint | None) -> AdvisoryView:
    rule, evidence = RULES[row.code], row.evidence
    return AdvisoryView(
        id=row.pk,
        code=row.code,
        severity=rule.severity,
        first=row.first,
        last=row.last,
        open=row.open,
        title=translated(rule.title),
        sentence=in_words(Sentence.of({"template": rule.sentence, "values": evidence.get("figures", {})})),
        meaning=translated(rule.meaning),
        remedy=translated(rule.remedy),
        acts=rule.acts,
        curves=[_curve_view(each) for each in evidence.get("curves", [])],
        rollouts=evidence.get("rollouts", []),
        paused=row.paused,
        kept=row.kept.step if row.kept is not None and row.kept.state == CheckpointState.WHOLE else None,
        before=before,
    )


def _curve_view(found: dict[str, Any]) -> CurveView:
    return CurveView(found["name"], curve_title(found["name"]), found["steps"], found["values"])
