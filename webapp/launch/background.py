"""Launches that need no open page: drafts that a worker checks and queues, and presets that are made ready."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any, NamedTuple, cast
from uuid import UUID

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import Http404
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from training.config import JobConfig
from training.errors import ConfigError, DataError, TiltyardError
from training.presets import Preset, Size, presets
from webapp.common import work
from webapp.common.text import in_words
from webapp.common.work import Claim
from webapp.engine.history import event_add
from webapp.engine.resolve import resolve
from webapp.engine.services import run_change, run_create, run_launch
from webapp.launch.findings import Check, Offer, Outcome, in_language
from webapp.launch.forms import suggested_name
from webapp.launch.models import CheckState, LaunchCheck, Preparation, PreparationState
from webapp.launch.needs import Situation, filled, needs_make, runs_of, situation
from webapp.launch.preflight import LONG_LIMIT_S, preflight
from webapp.people.teams.access import project_for
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, Role, User
from webapp.runs.models import CHECKING, Run
from webapp.runs.records.limits import require_storage
from webapp.runs.registry.models import Checkpoint
from webapp.runs.states import Priority, RunState

# A launch that opens the run's page at once: the run is a draft until a worker has checked it, and queues it then.
#
# 1. The references must resolve, which takes milliseconds; a problem is shown next to the option. Then the draft and a
#    ``LaunchCheck`` are written, and the person who sent the form gets the run's page.
# 2. A worker checks it and writes each finding as it is known; the page shows them line by line.
# 3. Nothing found, or only remarks: the run is queued. Else it stays a draft, and a person changes it, or launches it
#    anyway where nothing hard was found.
# 4. What was checked within ``FRESH`` is not checked again: the same config, in the same language.

FRESH = timedelta(minutes=5)
KEPT_WITHOUT_RUN = timedelta(days=1)


def launch_checked(
    *,
    project: Project,
    user: User,
    name: str,
    config: JobConfig,
    idempotency_key: str | None = None,
    checkpoint: Checkpoint | None = None,
    draft: Run | None = None,
    anyway: bool = False,
    priority: Priority | None = None,
) -> Run:
    """Make the run, or change the draft, and have it checked and queued. Raises ``ConfigError`` as ``run_create``.

    Without a ``priority`` a draft keeps its class, and a new run has the normal one. Sent twice under one idempotency
    key it is one run, checked once.
    """
    resolve(project, config)
    with transaction.atomic():
        if draft is None:
            run = run_create(
                project=project,
                user=user,
                name=name,
                config=config,
                idempotency_key=idempotency_key,
                launch=False,
                checkpoint=checkpoint,
                priority=priority or Priority.NORMAL,
            )
            if run.launch_checks.exists():
                return run
        else:
            run = draft
            if not run_change(run=run, name=name, config=config, priority=priority):
                return run  # the first of two clicks
            _open_checks(run).update(state=CheckState.DROPPED, token="")  # it checks an older config
            run.refresh_from_db()
        check_begin(run=run, user=user, anyway=anyway)
    run.refresh_from_db()
    return run


def check_begin(*, run: Run, user: User, anyway: bool = False) -> LaunchCheck | None:
    """Have a draft checked and queued; ``None`` when it is not a draft. A check that is under way is joined.

    Raises ``StorageLimit`` where its project stores as much as it may.
    """
    with transaction.atomic():
        # Locked: the second of two clicks finds the check of the first.
        draft = Run.objects.select_for_update(no_key=True).filter(pk=run.pk, state=RunState.DRAFT).first()
        if draft is None or (found := _open_checks(draft).first()) is not None:
            return None if draft is None else found
        require_storage(draft.project)
        config = JobConfig.model_validate(draft.config)
        made = LaunchCheck(
            project=draft.project,
            run=draft,
            created_by=user,
            anyway=anyway,
            **_digest_and_language(draft.project, config),
        )
        fresh = _recent_check(made)
        if fresh is not None:
            made.findings, made.state, made.ended_at = fresh.findings, CheckState.PASSED, fresh.ended_at
            made.save()
            run_launch(run=draft, user=user)
            return made
        made.save()
        _set_phase(draft, CHECKING)
        audit(AuditAction.RUN_LAUNCHED, draft, by=user)
        work.enqueue(made)
    return made


def check_record(*, project: Project, user: User, config: JobConfig, outcome: Outcome) -> None:
    """Remember what a person had checked on the form, so that the launch after it does not check it again."""
    LaunchCheck.objects.filter(project=project, run=None, created_at__lt=Now() - KEPT_WITHOUT_RUN).delete()
    LaunchCheck.objects.create(
        project=project,
        created_by=user,
        state=CheckState.STOPPED if outcome.problems else CheckState.PASSED,
        findings=[_check_as_json(item) for item in outcome.checks],
        ended_at=Now(),
        **_digest_and_language(project, config),
    )


def check_run(claim: Claim[LaunchCheck]) -> None:
    """The worker's part: check, write each finding, then queue the run or leave it to a person."""
    item, run = claim.item, cast(Run, claim.item.run)
    found: list[dict[str, Any]] = []

    def say(check: Check) -> None:
        found.append(_check_as_json(check))
        claim.keep(findings=found)

    with translation.override(item.language or None):
        outcome = preflight(item.project, JobConfig.model_validate(run.config), say=say, limit_s=LONG_LIMIT_S)
        stops = outcome.blocked or (outcome.problems and not item.anyway)
        with claim.held():  # a run that was stopped or changed meanwhile is not queued
            claim.finish(state=CheckState.STOPPED if stops else CheckState.PASSED, ended_at=Now())
            if stops:
                _keep_draft(item)
            else:
                run_launch(run=run, user=item.created_by, audited=True)


def check_failed(item: LaunchCheck, error: TiltyardError) -> dict[str, Any]:
    """The columns of a check that could not be made: a person may launch without it."""
    with translation.override(item.language or None):
        sentence, hint = in_words(error.message), in_words(error.hint) if error.hint else ""
        finding = Check(_("Check"), False, sentence, hint, isinstance(error, ConfigError))
    _keep_draft(item)
    now = LaunchCheck.objects.filter(pk=item.pk).values_list("findings", flat=True).first() or []
    return {"state": CheckState.STOPPED, "findings": [*now, _check_as_json(finding)], "ended_at": Now()}


def _keep_draft(item: LaunchCheck) -> None:
    """The run stays a draft; its viewers get a warning event."""
    if item.run is None:
        return  # checked before there was a run
    run = item.run
    with translation.override(item.language or None), transaction.atomic():
        if Run.objects.filter(pk=run.pk, state=RunState.DRAFT).update(phase=""):
            sentence = _(
                "The check before the launch found something that needs your decision; the run was not queued."
            )
            event_add(run.pk, "warning", {"message": sentence}, attempt=0)


def _set_phase(run: Run, phase: str) -> None:
    Run.objects.filter(pk=run.pk, state=RunState.DRAFT).update(phase=phase)


def _open_checks(run: Run) -> QuerySet[LaunchCheck]:
    return LaunchCheck.objects.filter(run=run, state=CheckState.OPEN)


def _digest_and_language(project: Project, config: JobConfig) -> dict[str, Any]:
    """The digest covers what references mean now: a dataset that was read again counts as another one."""
    language = translation.get_language() or ""
    resolved = resolve(project, config).config.model_dump(mode="json")
    text = json.dumps([language, config.model_dump(mode="json"), resolved], sort_keys=True)
    return {"digest": hashlib.sha256(text.encode()).hexdigest(), "language": language}


def _recent_check(wanted: LaunchCheck) -> LaunchCheck | None:
    """A recent check of the same config that would not stop this launch; else ``None``."""
    rows = LaunchCheck.objects.filter(project=wanted.project, digest=wanted.digest, ended_at__gt=Now() - FRESH)
    newest = rows.order_by("-ended_at").first()
    if newest is None or newest.state == CheckState.PASSED:
        return newest
    soft = wanted.anyway and not blocked(newest)
    return newest if soft and newest.state == CheckState.STOPPED else None


# --- Findings as rows keep them -------------------------------------------------------------------------------------
def _check_as_json(check: Check) -> dict[str, Any]:
    return check._asdict() | {"offer": check.offer and check.offer._asdict()}


def findings_of(item: LaunchCheck) -> list[Check]:
    """The findings so far."""
    return [Check(**(raw | {"offer": raw["offer"] and Offer(**raw["offer"])})) for raw in item.findings]


def blocked(item: LaunchCheck) -> bool:
    """Whether something was found that needs a change."""
    return any(raw["hard"] and not raw["ok"] for raw in item.findings)


def newest_check(run: Run) -> LaunchCheck | None:
    """The check that the run's page shows."""
    return LaunchCheck.objects.filter(run=run).exclude(state=CheckState.DROPPED).first()


class CheckView(NamedTuple):
    """The check of a run as its page shows it. ``shown`` in full: the run is still a draft; ``near``: at the top."""

    state: str
    open: bool
    shown: bool
    near: bool
    blocked: bool
    findings: list[Check]
    seconds: float

    @property
    def remarks(self) -> int:
        """How many findings are only remarks."""
        return sum(check.remark for check in self.findings)


def check_view(run: Run) -> CheckView | None:
    """The check before a run's launch, for its page; ``None`` where there was none and none is needed."""
    found = newest_check(run)
    draft = run.state == RunState.DRAFT
    if found is None:
        return CheckView("", False, True, True, False, [], 0) if draft else None
    checking = found.state == CheckState.OPEN and draft
    seconds = (timezone.now() - found.created_at).total_seconds()
    near = draft or run.state == RunState.QUEUED
    return CheckView(found.state, checking, draft, near, blocked(found), findings_of(found), seconds)


# Making presets ready in the background, and launching them if asked: the page need not stay open.
#
# A ``Preparation`` is worked on every few seconds until it ends (``webapp.common.work``), and each time what can be
# made by then is made. Two workers at once would do no harm: what is there is found, and a run has the preparation's id
# as its idempotency key.

OPEN, DONE, FAILED, DROPPED = (
    PreparationState.OPEN,
    PreparationState.DONE,
    PreparationState.FAILED,
    PreparationState.DROPPED,
)
PREPARED_LIMIT_S = 150.0  # below LIMIT_S of Preparation
LONGEST = timedelta(hours=24)  # a warm-up of the full size takes hours
SHOWN = 20
SHOWN_FOR = timedelta(days=2)


def preparation_open(*, project: Project, user: User, preset: Preset, size: Size, launch: bool) -> Preparation:
    """Begin, or join what is under way; what can be made now is made first. Raises ``ValidationError``."""
    needs_make(project=project, user=user, preset=preset, size=size, again=True)
    asked = {"launch": launch, "created_by": user, "language": translation.get_language() or ""}
    same: dict[str, Any] = {"project": project, "preset": preset.id, "size": size}
    Preparation.objects.filter(**same, state=FAILED).update(state=DROPPED)
    item, _created = Preparation.objects.update_or_create(**same, state=OPEN, defaults=asked)
    audit(AuditAction.PRESET_BEGUN, item, by=user)
    if not launch and situation(project, preset, size).settled:
        Preparation.objects.filter(pk=item.pk, state=OPEN).update(state=DONE)
        item.refresh_from_db()
    else:
        work.enqueue(item)
    return item


def preparation_drop(*, item: Preparation) -> None:
    """Stop preparing, or do not show the failure any more. What was made stays."""
    if Preparation.objects.filter(pk=item.pk, state__in=(OPEN, FAILED)).update(state=DROPPED):
        audit(AuditAction.PRESET_DROPPED, item)
    item.refresh_from_db()


def preparation_advance(claim: Claim[Preparation]) -> None:
    """Make what can be made now; launch once all of it is there, else try again in a few seconds."""
    item = claim.item
    with translation.override(item.language or None):
        preset, size, user = _asked_preset(item)
        needs_make(project=item.project, user=user, preset=preset, size=size)
        now = situation(item.project, preset, size)
        _raise_if_failed(item, now)
        if not now.settled:
            claim.wait()
        elif item.launch:
            _launch_prepared(claim, user, preset, size, now)
        else:
            claim.finish(state=DONE)


def preparation_failed(item: Preparation, error: TiltyardError) -> dict[str, Any]:
    """The columns of a preparation that cannot continue."""
    with translation.override(item.language or None):
        return {"state": FAILED, "note": " ".join(in_words(text) for text in (error.message, error.hint) if text)}


def preparation_shown(project: Project, preset: Preset, size: Size) -> Preparation | None:
    """The newest one of a preset that is open or failed."""
    return _preparations_of(project).filter(preset=preset.id, size=size, state__in=(OPEN, FAILED)).first()


def preparation_ended(project: Project, watched: str) -> Preparation | None:
    """The one that a page watches, once it is done."""
    try:
        return _preparations_of(project).filter(pk=UUID(watched), state=DONE).first()
    except ValueError:
        return None


def preset_page(project: Project, preset: str, size: str) -> str:
    """Where a preset in one size is chosen."""
    return f"{reverse('run-new', args=[project.slug])}?{urlencode({'preset': preset, 'size': size})}"


class PreparationLine(NamedTuple):
    """A preparation as the list of runs shows it."""

    item: Preparation
    title: str
    url: str


def preparation_lines(project: Project) -> list[PreparationLine]:
    """All that are open, and what failed lately."""
    since = timezone.now() - SHOWN_FOR
    found = _preparations_of(project).filter(Q(state=OPEN) | Q(state=FAILED, created_at__gt=since))
    lines = sorted(found[: 2 * SHOWN], key=lambda item: item.state == FAILED)  # open ones first
    known = presets()
    return [
        PreparationLine(
            item,
            in_language(known[item.preset].title) if item.preset in known else item.preset,
            preset_page(project, item.preset, item.size),
        )
        for item in lines
        if item.state == OPEN or not _is_settled(item)
    ]


def _is_settled(item: Preparation) -> bool:
    """Whether its goal was reached since: the preset was prepared again, or a run of it launched."""
    later = Preparation.objects.filter(project=item.project, preset=item.preset, size=item.size, state__in=(OPEN, DONE))
    if later.filter(created_at__gt=item.created_at).exists():
        return True
    preset = presets().get(item.preset)
    size = preset.size_named(item.size) if preset is not None else None
    ran = runs_of(item.project, preset, size) if preset is not None and size is not None else Run.objects.none()
    return ran.filter(created_at__gt=item.created_at).exclude(state=RunState.DRAFT).exists()


def _preparations_of(project: Project) -> QuerySet[Preparation]:
    return Preparation.objects.filter(project=project).select_related("created_by", "run")


def _asked_preset(item: Preparation) -> tuple[Preset, Size, User]:
    """Preset, size and person. Raises ``DataError`` if the preset is gone, or the person may not edit any more."""
    preset, user = presets().get(item.preset), item.created_by
    size = preset.size_named(item.size) if preset is not None else None
    if preset is None or size is None:
        raise DataError(_("There is no such preset."))
    try:
        project_for(user or AnonymousUser(), item.project.slug, need=Role.EDITOR)
    except (Http404, PermissionDenied) as exc:
        raise DataError(_("The person who asked for this may no longer change the project.")) from exc
    return preset, size, cast(User, user)


def _raise_if_failed(item: Preparation, now: Situation) -> None:
    for need in now.needs:
        if need.state == "failed":
            raise DataError(f"{need.label}: {need.note or need.state_label}")
    if timezone.now() - item.created_at > LONGEST:
        raise DataError(_("It was not ready within a day."))


def _launch_prepared(claim: Claim[Preparation], user: User, preset: Preset, size: Size, now: Situation) -> None:
    item, config = claim.item, filled(preset, size, now)
    for check in preflight(item.project, config, limit_s=PREPARED_LIMIT_S).checks:
        if not check.ok and not check.remark:
            raise DataError(_("Everything is ready, but the check before the launch reports: %s") % check.sentence)
    name = suggested_name(item.project, config, stem=preset.run_name(size))
    with claim.held():  # a preparation that was dropped while the check ran launches nothing
        key = f"preset:{item.pk}"
        run = run_create(project=item.project, user=user, name=name, config=config, idempotency_key=key)
        claim.finish(state=DONE, run=run)
