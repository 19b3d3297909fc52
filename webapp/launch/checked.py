"""A launch that opens the run's page at once: the run is a draft until a worker has checked it, and queues it then.

1. The references must resolve, which takes milliseconds; a problem is shown next to the option. Then the draft and a
   ``LaunchCheck`` are written, and the person who sent the form gets the run's page.
2. A worker checks it and writes each finding as it is known; the page shows them line by line.
3. Nothing found, or only remarks: the run is queued. Else it stays a draft, and a person changes it, or launches it
   anyway where nothing hard was found.
4. What was checked within ``FRESH`` is not checked again: the same config, in the same language.
"""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any, NamedTuple, cast

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from training.config import JobConfig
from training.errors import ConfigError, TiltyardError
from webapp.common import work
from webapp.common.text import in_words
from webapp.common.work import Claim
from webapp.engine.history import event_add
from webapp.engine.resolve import resolve
from webapp.engine.services import run_change, run_create, run_launch
from webapp.launch.findings import Check, Offer, Outcome
from webapp.launch.preflight import LONG_LIMIT_S, preflight
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.models import CheckState, LaunchCheck, Run
from webapp.runs.registry.models import Checkpoint
from webapp.runs.states import RunState

CHECKING = "checking"  # the phase of a draft that is being checked
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
) -> Run:
    """Make the run, or change the draft, and have it checked and queued. Raises ``ConfigError`` as ``run_create``.

    Sent twice under one idempotency key it is one run, checked once.
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
            )
            if run.launch_checks.exists():
                return run
        else:
            run = draft
            if not run_change(run=run, name=name, config=config):
                return run  # the first of two clicks
            _open_checks(run).update(state=CheckState.DROPPED, token="")  # it checks an older config
            run.refresh_from_db()
        check_begin(run=run, user=user, anyway=anyway)
    run.refresh_from_db()
    return run


def check_begin(*, run: Run, user: User, anyway: bool = False) -> LaunchCheck | None:
    """Have a draft checked and queued; ``None`` when it is no draft. A check that is under way is joined."""
    with transaction.atomic():
        # Locked: the second of two clicks finds the check of the first.
        draft = Run.objects.select_for_update(no_key=True).filter(pk=run.pk, state=RunState.DRAFT).first()
        if draft is None or (found := _open_checks(draft).first()) is not None:
            return None if draft is None else found
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
    """What was found so far."""
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
