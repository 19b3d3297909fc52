"""The run doctor: a project's rules, and the look at the newest steps of runs every few seconds."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Case, Exists, F, Max, OuterRef, Q, QuerySet, When
from django.db.models.functions import Coalesce, Now
from django.utils import timezone
from django.utils.translation import gettext as _
from pydantic import ValidationError as ShapeError

from envs.wire import Message
from training.algorithms.checkpoints import pin
from training.config import METHODS
from training.doctor import (
    KEPT,
    PARTS,
    RULES,
    Doctor,
    DoctorOptions,
    RolloutFact,
    StepFacts,
    diagnosis_of,
    manner_of,
    success_in,
)
from training.doctor import Advisory as Found
from training.words import option_of, sentence
from webapp.common.fields import error_sentence
from webapp.common.words import PAUSED_BY_DOCTOR
from webapp.engine.services import run_pause
from webapp.people.notifications.events import notify
from webapp.people.notifications.models import Kind
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.advisories.models import Advisory, DoctorRules, Examination, Reaction
from webapp.runs.advisories.selectors import checkpoint_before
from webapp.runs.metrics.models import DeviceStep, MetricPoint
from webapp.runs.models import Attempt, Run
from webapp.runs.registry.models import Checkpoint
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn
from webapp.runs.states import TERMINAL, RunState

REACTION = "reaction-"
"""The prefix of a reaction's form field and of its errors; the advisory's code follows."""


class Rules(NamedTuple):
    """The thresholds of a project, and its reactions by an advisory's code; the others are ``NOTIFY``."""

    options: DoctorOptions
    reactions: dict[str, Reaction]
    resumes: bool = True

    def reaction(self, code: str) -> Reaction:
        """The project's reaction to an advisory."""
        return self.reactions.get(code, Reaction.NOTIFY)


def rules_of(project: Project) -> Rules:
    """The rules of a project; a stored value that this version does not know is replaced by its default."""
    row = DoctorRules.objects.filter(project=project).first()
    return _rules_of_row(row) if row is not None else Rules(DoctorOptions(), {})


def _rules_of_row(row: DoctorRules) -> Rules:
    options = DoctorOptions()
    for name, value in row.thresholds.items():
        with suppress(ShapeError, ValueError):
            setattr(options, name, value)
    known = {code: value for code, value in row.reactions.items() if code in RULES and value in Reaction.values}
    return Rules(options, {code: Reaction(value) for code, value in known.items()}, row.resumes)


def rules_change(
    *,
    project: Project,
    user: User,
    thresholds: Mapping[str, float | None],
    reactions: Mapping[str, str],
    resumes: bool | None = None,
) -> Rules:
    """Change the rules that are named; ``None`` and ``notify`` are the defaults. An unchanged value leaves no audit
    row.

    ``resumes`` stays as it is where it is ``None``.

    Raises ``ValidationError`` by threshold, or by ``reaction-<code>``.
    """
    with transaction.atomic():
        # Locked: of two people neither may overwrite the other's change.
        row, made = DoctorRules.objects.select_for_update().get_or_create(project=project)
        before = (row.thresholds, row.reactions, row.resumes)
        row.thresholds = _changed_thresholds(_rules_of_row(row).options, thresholds)
        row.reactions = _changed_reactions(_rules_of_row(row).reactions, reactions)
        row.resumes = row.resumes if resumes is None else resumes
        if (row.thresholds, row.reactions, row.resumes) != before:
            row.changed_by = user
            row.save(update_fields=["thresholds", "reactions", "resumes", "changed_by", "changed_at"])
            audit(AuditAction.DOCTOR_CHANGED, project, by=user)
        elif made:
            row.delete()
    return _rules_of_row(row)


def _changed_thresholds(now: DoctorOptions, changed: Mapping[str, float | None]) -> dict[str, Any]:
    """The thresholds that differ from the defaults. Raises ``ValidationError``."""
    fresh = DoctorOptions()
    given = {name: getattr(fresh, name, None) if value is None else value for name, value in changed.items()}
    try:
        wanted = DoctorOptions.model_validate(now.model_dump() | given)
    except ShapeError as exc:
        raise ValidationError({option_of(each): error_sentence(each) for each in exc.errors()}) from exc
    return wanted.model_dump(mode="json", exclude_defaults=True)


def _changed_reactions(now: Mapping[str, Reaction], changed: Mapping[str, str]) -> dict[str, str]:
    """The reactions other than ``NOTIFY``. Raises ``ValidationError``."""
    problems = {REACTION + code: _("There is no such advisory.") for code in changed if code not in RULES}
    for code, value in changed.items():
        if value not in Reaction.values:
            words = _("It must be one of {expected}.").format(expected=", ".join(Reaction.values))
            problems[REACTION + code] = words
    if problems:
        raise ValidationError(problems)
    return {code: str(value) for code, value in {**now, **changed}.items() if value != Reaction.NOTIFY}


# Examining runs: every few seconds the doctor reads the steps that were recorded since its last look.
#
# 1. Take the runs with steps or an attempt that were not seen yet, and running runs that have been silent. Running runs
#    come first; within each kind, the run whose last look is longest ago. Each is examined once before any is examined
#    again.
# 2. Lock the run's ``Examination``; a row that another worker has locked is left to that worker.
# 3. Show the doctor the new steps in order, and write its memory, the step and the advisories in one transaction: a
#    look that is cut off is repeated, and nothing is announced twice.

# A run's recorded steps as the doctor's facts.

CHUNK_STEPS = 10
_LOOKED_AT = Q(name__in=KEPT) | Q(name__startswith=PARTS)


def steps_between(run: Run, after: int, upto: int) -> Iterator[StepFacts]:
    """The steps above ``after`` up to ``upto`` that have figures, in order; of two attempts at one the later counts.

    Rollouts that were played since the step before belong to the next one that has figures.
    """
    numbers = MetricPoint.objects.filter(_LOOKED_AT, run=run, step__gt=after, step__lte=upto)
    found = list(numbers.order_by("step").values_list("step", flat=True).distinct())  # not a row for each figure
    for start in range(0, len(found), CHUNK_STEPS):
        yield from _step_facts(run, after if start == 0 else found[start - 1], found[start : start + CHUNK_STEPS])


def _step_facts(run: Run, after: int, steps: Sequence[int]) -> Iterator[StepFacts]:
    figures: dict[int, dict[str, float]] = {step: {} for step in steps}
    points = MetricPoint.objects.filter(_LOOKED_AT, run=run, step__in=steps).order_by("attempt")
    for step, name, value in points.values_list("step", "name", "value"):
        figures[step][name] = value
    rollouts = _rollout_facts_by_step(run, after, steps[-1])
    devices = _device_rows_by_step(run, steps)
    begun = {first + 1 for first in Attempt.objects.filter(run=run).values_list("first_step", flat=True)}
    for step in steps:
        played = [fact for number in range(after + 1, step + 1) for fact in rollouts.get(number, [])]
        rows = devices.get(step, [])
        unusual = step in begun or any(row.held for row in rows)
        uses = [row.found.use for row in rows]
        yield StepFacts(step, figures[step], played, _stage_of_step(run, step), uses, unusual)
        after = step


def _device_rows_by_step(run: Run, steps: Sequence[int]) -> dict[int, list[DeviceStep]]:
    rows = DeviceStep.objects.filter(run=run, step__in=steps).order_by("step", "host", "device")
    return {step: list(found) for step, found in groupby(rows, attrgetter("step"))}


def _rollout_facts_by_step(run: Run, after: int, upto: int) -> dict[int, list[RolloutFact]]:
    rows = Rollout.objects.filter(run=run, step__gt=after, step__lte=upto, held_out=False)
    newest = dict(rows.values_list("step").annotate(newest=Max("attempt")).values_list("step", "newest"))
    ended = rows.exclude(status=RolloutStatus.RUNNING).defer("task").order_by("step", "group", "index")
    counted = [row for row in ended if row.attempt == newest[row.step]]
    messages = _policy_messages([row.pk for row in counted if row.status != RolloutStatus.EXCLUDED])
    return {
        step: [_rollout_fact(row, messages.get(row.pk)) for row in found]
        for step, found in groupby(counted, attrgetter("step"))
    }


def _policy_messages(ids: Sequence[UUID]) -> dict[UUID, list[Message]]:
    """The policy's messages, by rollout."""
    found: dict[UUID, list[Message]] = {}
    turns = Turn.objects.filter(rollout_id__in=ids, number__gt=0).order_by("rollout_id", "number")
    for rollout, messages in turns.values_list("rollout_id", "messages").iterator(chunk_size=500):
        own = [Message.model_validate(each) for each in messages if each.get("role") == "assistant"]
        found.setdefault(rollout, []).extend(own)
    return found


def _rollout_fact(row: Rollout, messages: Sequence[Message] | None) -> RolloutFact:
    repeats, loops = manner_of(messages) if messages else (None, None)
    return RolloutFact(
        name=str(row.pk),
        group=row.group,
        reward=row.reward,
        success=success_in(row.parts, row.env_parts),
        tokens=row.tokens,
        turns=row.turns,
        seconds=row.seconds,
        truncated=row.status == RolloutStatus.TRUNCATED,
        excluded=row.status == RolloutStatus.EXCLUDED,
        parse_errors=row.parse_errors,
        calls=row.calls,
        failed_calls=row.failed_calls,
        repetition=repeats,
        loops=loops,
    )


def _stage_of_step(run: Run, step: int) -> int:
    """The stage that the step was trained in; 1 where a run has none."""
    stages = run.health.get("stages", [])
    return max((each["stage"] for each in stages if each["began"] < step), default=1)


# What a project's rules do when an advisory opens: a checkpoint from before it is kept, and the run paused.

logger = logging.getLogger(__name__)
MOST_KEPT = 5
"""Checkpoints kept for one run, so that advisories never fill the disk."""


def react(run: Run, row: Advisory, reaction: Reaction) -> None:
    """Do what the project's rule says, and note it in the row. A pause also keeps the checkpoint, to go back to."""
    if reaction == Reaction.NOTIFY:
        return
    row.kept = _pin_checkpoint_before(run, row.first)
    if reaction == Reaction.PAUSE and run.state in (RunState.PREPARING, RunState.RUNNING):
        reason = sentence(PAUSED_BY_DOCTOR, advisory=sentence(RULES[row.code].title))
        row.paused = run_pause(run=run, reason=reason).state == RunState.PAUSING
    row.save(update_fields=["kept", "paused"])


def _pin_checkpoint_before(run: Run, first: int) -> Checkpoint | None:
    """The newest checkpoint from before the step ``first``, which retention leaves from now on."""
    found = checkpoint_before(run, first)
    if found is None:
        return None
    others = set(Advisory.objects.filter(run=run, kept__isnull=False).values_list("kept", flat=True))
    if found.pk not in others and len(others) >= MOST_KEPT:
        return None
    try:
        pin(found.folder)
    except OSError as exc:
        logger.warning("not kept", extra={"action": "advisories", "run_id": run.pk, "error": repr(exc)[:200]})
        return None
    return found if found.folder.is_dir() else None  # retention may have deleted it meanwhile


RUNS_AT_ONCE = 20
BUDGET_S = 20.0
LOOK_S = 2.0
"""The doctor's memory is read and written once a look: 230 KB after 20,000 steps."""
SILENT_S, NEW_STEPS = 60, 10
NEWS = timedelta(minutes=10)
NOTIFIED = ("stop", "warn")
LEARNS = [kind for kind, method in METHODS.items() if method.plays and method.trains]


def look() -> int:
    """Examine the runs that have something new, for about 20 s at most. Returns how many steps were seen."""
    end, seen = time.monotonic() + BUDGET_S, 0
    while steps := sum(_steps_seen_or_skipped(run_id) for run_id in waiting()[:RUNS_AT_ONCE] if time.monotonic() < end):
        seen += steps
    return seen


def _steps_seen_or_skipped(run_id: UUID) -> int:
    """``run_look``; a run that cannot be read is skipped, so that it never keeps the doctor from the others."""
    try:
        return run_look(run_id)
    except (ValueError, TypeError, LookupError) as exc:
        logger.warning("not examined", extra={"action": "advisories", "run_id": run_id, "error": repr(exc)[:200]})
        for step, attempt in Run.objects.filter(pk=run_id).values_list("step", "attempt"):
            skipped = {"step": step, "attempt": attempt, "memory": None, "diagnosis": None, "looked_at": timezone.now()}
            Examination.objects.update_or_create(run_id=run_id, defaults=skipped)
        return 0


def waiting() -> QuerySet[Run, UUID]:
    """The ids of the runs that have something new, or no diagnosis yet."""
    since = Now() - timedelta(seconds=SILENT_S)
    rows = Run.objects.filter(kind__in=LEARNS, step__gt=0).annotate(
        seen=Coalesce("examination__step", 0), of=Coalesce("examination__attempt", 0)
    )
    whole = Q(step__gt=F("seen") + 1) | Q(step__gt=F("seen")) & ~Q(state=RunState.RUNNING)
    later_attempt = Exists(_attempts_with_steps().filter(run=OuterRef("pk"), number__gt=OuterRef("of")))
    silent = Q(state=RunState.RUNNING, last_step_at__lt=since, examination__looked_at__lt=since)
    undiagnosed = Q(
        examination__memory__isnull=False, examination__diagnosis__isnull=True
    )  # by a version without diagnoses
    at_work = Case(When(state=RunState.RUNNING, then=0), default=1)
    longest_ago = F("examination__looked_at").asc(nulls_first=True)
    found = rows.filter(whole | later_attempt | silent | undiagnosed).order_by(at_work, longest_ago, "pk")
    return found.values_list("pk", flat=True)


def run_look(run_id: UUID) -> int:
    """Examine more steps of a run, for about two seconds. Returns how many; 0 also where another worker has the run."""
    with transaction.atomic():
        run = Run.objects.select_related("project").filter(pk=run_id).first()
        if run is None:
            return 0
        Examination.objects.get_or_create(run=run)
        row = Examination.objects.select_for_update(skip_locked=True).filter(run=run).first()
        if row is None:
            return 0
        rules = rules_of(run.project)
        doctor = Doctor.from_json(row.memory, rules.options) if row.memory else Doctor(rules.options)
        after, attempt = _last_examined(run, row)
        upto, end = max(after, _newest_final_step(run)), time.monotonic() + LOOK_S
        changed: dict[tuple[str, int], Found] = {}
        steps = 0
        for facts in steps_between(run, after, upto):
            steps += 1
            changed |= {(each.code, each.first): each for each in doctor.see(facts)}
            if steps % CHUNK_STEPS == 0 and time.monotonic() > end:
                upto = facts.step
                break
        if not steps and (found := _find_stall(run, doctor)) is not None:
            changed[found.code, found.first] = found
        row.step, row.attempt, row.memory, row.looked_at = upto, attempt, doctor.as_json(), timezone.now()
        row.diagnosis = diagnosis_of(doctor).model_dump(mode="json")
        row.save(update_fields=["step", "attempt", "memory", "diagnosis", "looked_at"])
        _save_advisories(run, list(changed.values()), rules)
    return upto - after


def _attempts_with_steps() -> QuerySet[Attempt]:
    """The attempts that have made a step: the first step of an attempt is not known before."""
    return Attempt.objects.filter(last_step__gt=F("first_step"))


def _last_examined(run: Run, row: Examination) -> tuple[int, int]:
    """The last step that needs no new look, and the newest attempt.

    An attempt that began since the last look trains some steps again.
    """
    begun = dict(_attempts_with_steps().filter(run=run, number__gt=row.attempt).values_list("number", "first_step"))
    return min([row.step, *begun.values()]), max([row.attempt, *begun])


def _newest_final_step(run: Run) -> int:
    """The newest step that is complete: while a run trains, held-out figures of its newest step may still come."""
    return run.step - 1 if run.state == RunState.RUNNING else run.step


def _find_stall(run: Run, doctor: Doctor) -> Found | None:
    """The stall of a running run whose step does not end; ``None`` where there is none."""
    if run.state != RunState.RUNNING or run.last_step_at is None:
        return None
    return doctor.wait((timezone.now() - run.last_step_at).total_seconds())


def _save_advisories(run: Run, changed: list[Found], rules: Rules) -> None:
    """Write the advisories that opened or changed; react to new ones and announce them, unless the run ended long
    ago."""
    if not changed:
        return
    known = {(each.code, each.first): each for each in Advisory.objects.filter(run=run)}
    places = _rollout_places(run, {name for found in changed for name in found.evidence.rollouts})
    for found in changed:
        shown = [places[name] for name in found.evidence.rollouts if name in places]
        evidence = found.evidence.model_dump(mode="json") | {"rollouts": shown}
        row = known.get((found.code, found.first))
        if row is not None:
            row.last, row.open, row.evidence = found.last, found.open, evidence
            row.save(update_fields=["last", "open", "evidence"])
            continue
        row = Advisory.objects.create(
            run=run, code=found.code, first=found.first, last=found.last, open=found.open, evidence=evidence
        )
        if not _is_news(run):
            continue
        reaction = rules.reaction(found.code)
        if found.open and run.step - found.last <= NEW_STEPS:  # not to advisories that were over before the first look
            react(run, row, reaction)
        if RULES[found.code].severity in NOTIFIED or reaction != Reaction.NOTIFY:
            _notify_advisory(run, row, found)


def _rollout_places(run: Run, names: set[str]) -> dict[str, dict[str, Any]]:
    """Step, group and index of the rollouts, by id: so that a page can name them without a query."""
    rows = Rollout.objects.filter(run=run, pk__in=names).values_list("pk", "step", "group", "index")
    return {str(pk): {"id": str(pk), "step": step, "group": group, "index": index} for pk, step, group, index in rows}


def _is_news(run: Run) -> bool:
    ended = run.finished_at if run.state in TERMINAL else None
    return not run.imported and (ended is None or timezone.now() - ended < NEWS)


def _notify_advisory(run: Run, row: Advisory, found: Found) -> None:
    facts: dict[str, Any] = {"code": found.code, "step": found.first, "sentence": found.sentence.data}
    facts |= {"paused": row.paused, "kept": row.kept.step if row.kept is not None else None}
    key = f"advisory:{run.pk}:{found.code}:{found.first}"
    notify(Kind.RUN_ADVISORY, run, key=key, person_id=run.created_by_id, facts=facts)
