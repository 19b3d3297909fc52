"""What a person can do with a run: create, launch, stop, pause and resume it."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from training.config import JobConfig
from training.errors import ConfigError
from training.words import Sentence, sentence
from webapp.common.ids import name_validator
from webapp.common.pools import ENDPOINT, TRAIN
from webapp.common.text import clean_json
from webapp.common.words import CREATED, reason_of
from webapp.engine import outbox
from webapp.engine.history import event_add, run_transition
from webapp.engine.resolve import Resolved, resolve
from webapp.engine.resuming import can_resume
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, CheckpointState
from webapp.runs.states import LEASED, TERMINAL, RunState

__all__ = ["run_change", "run_create", "run_launch", "run_pause", "run_resume", "run_stop", "run_transition"]

# The options that the shape of the saved weights depends on.
WEIGHT_OPTIONS = ("source", "revision", "lora_rank", "lora_alpha", "lora_rslora", "lora_targets")
UNLEASED_OPEN = frozenset({RunState.DRAFT, RunState.QUEUED, RunState.PAUSED})


def run_create(
    *,
    project: Project,
    user: User | None,
    name: str,
    config: JobConfig,
    idempotency_key: str | None = None,
    launch: bool = True,
    checkpoint: Checkpoint | None = None,
) -> Run:
    """Make a run and, unless ``launch`` is false, queue it. With ``checkpoint`` it starts there, as a child.

    1. A run made before under the same idempotency key is returned as it is.
    2. References are resolved, which raises ``ConfigError`` naming the option. A draft's are resolved at its launch.
    3. Run, state event and outbox row are written in one transaction; workers get their message after it.
    4. Of two requests that race, the unique constraints let one through; the other returns its run or raises that
       the name is taken.
    """
    key = idempotency_key or None
    if key and (found := Run.objects.filter(project=project, idempotency_key=key).first()):
        return found
    _check_name(name)
    if checkpoint is not None:
        check_child(project, config, checkpoint)
    stored = _storable_config(config)
    resolved = resolve(project, config) if launch else None
    try:
        with transaction.atomic():
            run = Run.objects.create(
                project=project,
                name=name,
                kind=config.kind,
                config=stored,
                created_by=user,
                idempotency_key=key,
                state=RunState.QUEUED if launch else RunState.DRAFT,
                queued_at=Now() if launch else None,
                parent=checkpoint.run if checkpoint else None,
                resume_checkpoint=checkpoint,
                resume_step=checkpoint.step if checkpoint else None,
                **_resolved_fields(config, resolved),
            )
            created = {"from": None, "to": run.state, "reason": sentence(CREATED).data, "error": None}
            event_add(run.pk, "state", created, attempt=0)
            audit(AuditAction.RUN_LAUNCHED if launch else AuditAction.RUN_ADDED, run, by=user)
            if launch:
                outbox.add(run)
    except IntegrityError as exc:
        if key and (found := Run.objects.filter(project=project, idempotency_key=key).first()):
            return found
        raise _name_taken(name) from exc
    run.refresh_from_db()
    return run


def run_change(*, run: Run, name: str, config: JobConfig) -> bool:
    """Give a draft another name and config; false when it is no draft any more. Raises ``ConfigError``."""
    _check_name(name)
    if run.resume_checkpoint is not None:
        check_child(run.project, config, run.resume_checkpoint)
    columns = {
        "name": name,
        "kind": config.kind,
        "config": _storable_config(config),
        "total_steps": config.run.max_steps,
    }
    try:
        with transaction.atomic():
            return bool(Run.objects.filter(pk=run.pk, state=RunState.DRAFT).update(**columns))
    except IntegrityError as exc:
        raise _name_taken(name) from exc


def run_launch(*, run: Run, user: User | None = None, audited: bool = False) -> Run:
    """Queue a draft. Raises ``ConfigError`` as ``run_create`` does; a run that is no draft is left as it is.

    ``audited``: the person's act has its row already.
    """
    config = JobConfig.model_validate(run.config)
    fields = {**_resolved_fields(config, resolve(run.project, config)), "archived_at": None}
    drafts = frozenset({RunState.DRAFT})
    if (
        run_transition(run.pk, RunState.QUEUED, sources=drafts, reason=_reason_with_user("launched", user), **fields)
        and not audited
    ):
        audit(AuditAction.RUN_LAUNCHED, run, by=user)
    run.refresh_from_db()
    return run


def run_stop(*, run: Run, user: User | None = None) -> Run:
    """Stop a run: one that no worker has is cancelled at once, another when its trainer has ended. Idempotent."""
    reason = _reason_with_user("stopped", user)
    # A worker may claim or drop the run between two of these, so they are repeated until one succeeds.
    for _attempt in range(5):
        run.refresh_from_db()
        if run.state in TERMINAL or run.state == RunState.STOPPING:
            break
        if run_transition(run.pk, RunState.CANCELLED, sources=UNLEASED_OPEN, reason=reason) or run_transition(
            run.pk, RunState.STOPPING, sources=LEASED, reason=reason
        ):
            audit(AuditAction.RUN_STOPPED, run, by=user)
            break
    run.refresh_from_db()
    return run


def run_pause(*, run: Run, user: User | None = None, reason: Sentence | None = None) -> Run:
    """Ask a run that a worker has to pause; it gives its device back and later continues from its newest checkpoint."""
    if run_transition(run.pk, RunState.PAUSING, reason=reason or _reason_with_user("paused", user)):
        audit(AuditAction.RUN_PAUSED, run, by=user)
    run.refresh_from_db()
    return run


def run_resume(*, run: Run, user: User | None = None, reason: Sentence | None = None) -> Run:
    """Queue a run again that was paused or ended, if it has something to start from.

    The next attempt starts from the newest whole checkpoint, and the count of crashes begins at 0. A run that never
    began is resolved as at its launch. Raises ``ConfigError`` as ``run_create`` does.
    """
    if can_resume(run):
        fields: dict[str, Any] = {"attempts_forgiven": run.attempt, "archived_at": None}
        if run.attempt == 0:
            config = JobConfig.model_validate(run.config)
            fields |= _resolved_fields(config, resolve(run.project, config))
        words = reason or _reason_with_user("resumed", user)
        sources = frozenset({RunState(run.state)})
        if run_transition(run.pk, RunState.QUEUED, sources=sources, reason=words, **fields):
            audit(AuditAction.RUN_RESUMED, run, by=user)
    run.refresh_from_db()
    return run


def check_child(project: Project, config: JobConfig, checkpoint: Checkpoint) -> None:
    """Check that a run with this config can continue from the checkpoint. Raises ``ConfigError`` naming the option."""
    parent = checkpoint.run
    if checkpoint.project_id != project.pk or parent.imported or checkpoint.final:
        raise ConfigError(_("this checkpoint cannot be resumed from."), option="model.source")
    if checkpoint.state != CheckpointState.WHOLE or not checkpoint.folder.is_dir():
        raise ConfigError(_("the checkpoint to resume from is damaged or gone."), option="model.source")
    if config.kind != parent.kind:
        raise ConfigError(_("a run that continues from a checkpoint keeps its kind, %s.") % parent.kind, option="kind")
    was = JobConfig.model_validate(parent.config)
    for name in WEIGHT_OPTIONS:
        read = "adapter_alpha" if name == "lora_alpha" else name  # as it is, also where it follows the rank
        if getattr(config.model, read) != getattr(was.model, read):
            sentence = _("cannot be changed, because the weights come from the checkpoint.")
            raise ConfigError(sentence, option=f"model.{name}")
    if config.optim.optimizer != was.optim.optimizer:
        sentence = _("cannot be changed, because its state comes from the checkpoint.")
        raise ConfigError(sentence, option="optim.optimizer")
    if config.run.max_steps <= checkpoint.step:
        sentence = _("must be above %d, the step of the checkpoint to resume from.") % checkpoint.step
        raise ConfigError(sentence, option="run.max_steps")


def _reason_with_user(act: str, user: User | None) -> Sentence:
    return reason_of(act, user.get_username() if user is not None else "")


def _check_name(name: str) -> None:
    try:
        name_validator(name)
    except ValidationError as exc:
        raise ConfigError(exc.messages[0], option="name") from exc


def _name_taken(name: str) -> ConfigError:
    sentence = _("there is already a run “%s” in this project; choose another name.") % name
    return ConfigError(sentence, option="name")


def _storable_config(config: JobConfig) -> dict[str, Any]:
    stored: dict[str, Any] = config.model_dump(mode="json")
    if clean_json(stored) != stored:
        sentence = _("a text contains characters that cannot be stored (NUL or half a surrogate pair).")
        raise ConfigError(sentence, option="config")
    return stored


def _resolved_fields(config: JobConfig, resolved: Resolved | None) -> dict[str, Any]:
    if resolved is None:
        return {"total_steps": config.run.max_steps}
    after = resolved.after
    return {
        "pool": ENDPOINT if resolved.config.asks_endpoint else TRAIN,
        "resolved": resolved.config.model_dump(mode="json"),
        "baselines": resolved.baselines,
        "after": after if after is not None and after.state != RunState.SUCCEEDED else None,
        "total_steps": config.run.max_steps,
    }
