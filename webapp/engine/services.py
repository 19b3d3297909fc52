"""What a person can do with a run: create, launch, stop, pause and resume it, and give orders about its rollouts."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Case, Q, When
from django.db.models.functions import Now
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from training.algorithms.checkpoints import pin, verify
from training.config import JobConfig
from training.errors import ConfigError, ModelError
from training.journal import ORDERS_NAME
from training.machine import reserve_bytes, write_refusal
from training.plain import os_reason
from training.words import Sentence, sentence
from webapp.common.ids import name_validator
from webapp.common.pools import ENDPOINT, TRAIN
from webapp.common.storage import attempt_dir, run_dir
from webapp.common.text import clean_json
from webapp.common.words import CREATED, reason_of
from webapp.common.workers.models import Needs
from webapp.engine import history
from webapp.engine.history import Lease, event_add, run_transition
from webapp.engine.resolve import Resolved, resolve, sessions_of
from webapp.engine.sampler import pool_of_model
from webapp.environments.models import Environment
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, Role, User
from webapp.runs.models import Run, RunEvent
from webapp.runs.records.limits import require_storage
from webapp.runs.records.sessions import reserved_fields
from webapp.runs.registry.models import Checkpoint, CheckpointState
from webapp.runs.rollouts.models import Rollout, RolloutStatus
from webapp.runs.states import LEASED, TERMINAL, Priority, RunState

# Where a run can resume: at its own newest whole checkpoint, or at the one of its parent.

LOOKED_AT = 20
WHOLE_MOST = 200
SAVED_MOST = 300
RESUMABLE = frozenset({RunState.PAUSED, RunState.FAILED, RunState.CANCELLED})


def newest_checkpoint(run: Run, *, final: bool = False) -> Checkpoint | None:
    """The newest checkpoint that is marked whole and still there: of the latest attempt, then of the highest step.

    A later attempt may have begun below a damaged checkpoint, so its lower steps are newer. With ``final`` the model
    that a finished run left counts too.
    """
    return next(_whole_on_disk(run, final=final), None)


def saved_checkpoints(run: Run) -> list[Checkpoint]:
    """The run's checkpoints: whole ones first, the newest first, then deleted ones; ``SAVED_MOST`` at most."""
    gone = Case(When(state=CheckpointState.WHOLE, then=0), default=1)
    return list(Checkpoint.objects.filter(run=run).order_by(gone, "-attempt", "-step", "final")[:SAVED_MOST])


def whole_checkpoints(run: Run) -> list[Checkpoint]:
    """The run's checkpoints that are marked whole, finished models too, the newest first; ``WHOLE_MOST`` at most."""
    return whole_among(saved_checkpoints(run))


def whole_among(saved: Sequence[Checkpoint]) -> list[Checkpoint]:
    """``whole_checkpoints`` among checkpoints that were read before."""
    return [each for each in saved if each.state == CheckpointState.WHOLE][:WHOLE_MOST]


def _whole_on_disk(run: Run, *, final: bool = False) -> Iterator[Checkpoint]:
    rows = Checkpoint.objects.filter(run=run, state=CheckpointState.WHOLE)
    rows = rows.filter(Q(final=False) | Q(final=final)).order_by("-attempt", "-step", "final")
    return (row for row in rows[:LOOKED_AT] if row.folder.is_dir())


def resume_from(run: Run) -> Path | None:
    """The checkpoint, or the folder of all attempts, that the trainer starts from; ``None``: at step 0.

    A later attempt gets the folder of all: the trainer takes the newest whole checkpoint by (attempt, step) and
    sets damaged ones aside; without one it begins at step 0 and reports what was lost. A child without a whole one gets
    its parent's, which must be whole, because to begin without it would silently train another model. Raises
    ``ModelError``.
    """
    if run.resume_step is None:
        began = run.attempt > 1 or newest_checkpoint(run) is not None
        return run_dir(run.pk) if began and run.method.trains else None
    if any(verify(own.folder) for own in _whole_on_disk(run)):
        return run_dir(run.pk)
    source = run.resume_checkpoint
    if source is None or source.state != CheckpointState.WHOLE or verify(source.folder) is None:
        raise ModelError(
            f"The checkpoint of step {run.resume_step} that this run starts from is damaged or gone.",
            hint="Start again from another checkpoint of the parent run.",
        )
    return source.folder


def pin_used(run: Run) -> None:
    """Have the trainer leave the checkpoints that a model is registered from, or that an open run starts from."""
    started = Run.objects.filter(resume_checkpoint__run=run).exclude(state__in=TERMINAL).values("resume_checkpoint")
    used = Q(models__isnull=False) | Q(pk__in=started)
    for checkpoint in Checkpoint.objects.filter(used, run=run, state=CheckpointState.WHOLE).distinct():
        if checkpoint.folder.is_dir():
            pin(checkpoint.folder)


def earlier_folders(run_id: UUID, attempt: int) -> list[Path]:
    """Folders of the attempts before this one that are still there, oldest first."""
    folders = [attempt_dir(run_id, number) for number in range(1, attempt)]
    return [folder for folder in folders if folder.is_dir()]


def can_resume(run: Run) -> bool:
    """Whether the same run can continue in a new attempt. One that no worker ever had simply waits again."""
    return GoingOn(run).can_resume


def branch_point(run: Run, chosen: str = "", step: int | None = None) -> Checkpoint | None:
    """The checkpoint that a child with changed options starts from: the newest one, the ``chosen`` one by its id, or
    that of a ``step``, of several the latest attempt's. ``None`` while the run is at work, and where there is no such
    checkpoint.
    """
    newest = GoingOn(run).branch_point
    if newest is None or not (chosen or step is not None):
        return newest
    rows = Checkpoint.objects.filter(run=run, state=CheckpointState.WHOLE, final=False).order_by("-attempt")
    try:
        rows = rows.filter(pk=UUID(chosen)) if chosen else rows
    except ValueError:
        return None
    rows = rows if step is None else rows.filter(step=step)
    return next((found for found in rows if found.folder.is_dir()), None)


@dataclass
class GoingOn:
    """Where a run could resume now. Its checkpoints are read once, for a page that shows several things of them.
    ``whole`` are its ``whole_checkpoints`` where they were read before."""

    run: Run
    whole: Sequence[Checkpoint] | None = None

    @cached_property
    def newest(self) -> Checkpoint | None:
        """``newest_checkpoint`` of the run."""
        if self.whole is None:
            return newest_checkpoint(self.run)
        return next((found for found in self.whole if not found.final and found.folder.is_dir()), None)

    @property
    def can_resume(self) -> bool:
        """``can_resume`` of the run."""
        run = self.run
        if run.imported or run.state not in RESUMABLE:
            return False
        if run.state == RunState.PAUSED or run.attempt == 0:
            return True
        if not run.method.trains:
            return run.step > 0
        return run.resume_step is not None or self.newest is not None

    @property
    def branch_point(self) -> Checkpoint | None:
        """``branch_point`` of the run."""
        ended = self.run.state in TERMINAL or self.run.state == RunState.PAUSED
        return self.newest if ended and not self.run.imported and self.run.method.trains else None


# The disk of the data folder: how much room there is, how much a run needs that a full disk paused, and whether it
# can be written at all.
#
# A run needs as much as its newest checkpoint twice (a new one is written before the old one goes) above the reserve.
# That is more than the reserve at which it paused, so that it does not pause again at once.

COPIES = 2  # the new checkpoint is written before the old one is deleted


class Disk(NamedTuple):
    """The disk of the data folder, in bytes; ``reserve`` is what must stay free."""

    total: int
    free: int
    reserve: int


def disk() -> Disk:
    """The disk now, with the reserve below which a trainer pauses its run."""
    folder = Path(settings.DATA_DIR)
    found = shutil.disk_usage(folder)
    return Disk(found.total, found.free, reserve_bytes(folder))


def disk_text() -> str:
    """The disk in words."""
    now = disk()
    return _("The disk that holds the data folder has %(free)s free of %(total)s.") % {
        "free": filesizeformat(now.free),
        "total": filesizeformat(now.total),
    }


def fault_text() -> str:
    """A sentence if the data folder cannot be written: which folder, why, and what to do. Empty if it can."""
    fault = write_refusal(Path(settings.DATA_DIR))
    if fault is None:
        return ""
    return _(
        "The data folder %(folder)s cannot be written (%(why)s): the operator of this site has to free or repair its "
        "disk. Stored data can be read; runs continue by themselves once it can be written."
    ) % {"folder": settings.DATA_DIR, "why": os_reason(fault)}


def needed_bytes(run: Run, now: Disk) -> int:
    """How many bytes must be free before the run resumes."""
    newest = Checkpoint.objects.filter(run=run).order_by("-attempt", "-step").first()
    return now.reserve + COPIES * (newest.bytes if newest else 0) + now.reserve // 2


# Orders about rollouts in flight, from a person to the trainer that plays them.
#
# 1. An order is an event of the run, written with its audit row under the run's lock: of two people one is first, and
#    the other gets an error that says so.
# 2. The attempt's supervisor looks twice a second and appends the orders of its own attempt to a file in its folder,
#    which the trainer obeys (``training/rollout/orders.py``); the rollout's end comes by the journal as every other.
# 3. An attempt that ends ends its orders too: what it left in flight is excluded anyway, and the next attempt plays
#    rollouts of its own.

logger = logging.getLogger(__name__)
Act = Literal["end", "fail"]
ORDER = "rollout_order"
ACTIONS = {"end": AuditAction.ROLLOUT_ENDED, "fail": AuditAction.ROLLOUT_FAILED}


def rollout_order(*, rollout: Rollout, act: Act, user: User) -> dict[str, Any]:
    """Have a rollout in flight ended, or marked as failed; what was ordered.

    Raises ``ValidationError`` with the code ``conflict`` where it is not in flight, or an order was given before.
    """
    with transaction.atomic():
        run = Run.objects.select_for_update(no_key=True).select_related("project").filter(pk=rollout.run_id).first()
        rollout.refresh_from_db(fields=["status", "attempt"])
        if run is None or run.state != RunState.RUNNING or rollout.attempt != run.attempt:
            state = run.get_state_display() if run is not None else ""
            raise _conflict(
                _("Nothing was changed: the run is %(state)s, and this rollout is over.") % {"state": state}
            )
        if rollout.status != RolloutStatus.RUNNING:
            raise _conflict(_("Nothing was changed: this rollout has ended by itself."))
        if rollout.held_out:
            raise _conflict(_("Nothing was changed: rollouts on held-out tasks are played to their end."))
        if (before := order_of(rollout)) is not None:
            raise _conflict(_("Nothing was changed: %(name)s ordered its end just before.") % {"name": before["by"]})
        place = {"step": rollout.step, "group": rollout.group, "index": rollout.index}
        order = {"rollout": str(rollout.pk), "act": act, "by": user.get_username(), **place}
        event_add(run.pk, ORDER, order, attempt=run.attempt)
        audit(ACTIONS[act], run, by=user, subject=f"{run.name} · {rollout}")
    return order


def order_of(rollout: Rollout) -> dict[str, Any] | None:
    """The order that was given for the rollout, or ``None``."""
    rows = RunEvent.objects.filter(run_id=rollout.run_id, kind=ORDER, payload__rollout=str(rollout.pk))
    return rows.values_list("payload", flat=True).first()


def orders_pass(lease: Lease, folder: Path, after: int) -> int:
    """Give the trainer the orders of its attempt that came after a ``seq``; the ``seq`` up to which it has them."""
    newest = Run.objects.filter(pk=lease.run_id).values_list("seq", flat=True).first() or after
    rows = RunEvent.objects.filter(run_id=lease.run_id, seq__gt=after, seq__lte=newest, kind=ORDER)
    found = list(rows.filter(attempt=lease.attempt).order_by("seq").values_list("payload", flat=True))
    if found:
        lines = "".join(f"{json.dumps(_trainer_order(lease, payload))}\n" for payload in found)
        try:
            with open(folder / ORDERS_NAME, "a", encoding="utf-8") as file:
                file.write(lines)
        except OSError as exc:  # tried again at the next look
            logger.warning("orders not passed on", extra={"action": "orders", "error": repr(exc)[:200]})
            return after
    return newest


def _trainer_order(lease: Lease, payload: Mapping[str, Any]) -> dict[str, Any]:
    """The order as the trainer reads it: it knows rollouts by their names in the journal."""
    name = f"a{lease.attempt}-s{payload['step']}-g{payload['group']}-i{payload['index']}"
    return {"rollout": name, "act": payload["act"], "by": payload["by"]}


def _conflict(sentence: str) -> ValidationError:
    return ValidationError(sentence, code="conflict")


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
    priority: Priority = Priority.NORMAL,
) -> Run:
    """Make a run and, unless ``launch`` is false, queue it. With ``checkpoint`` it starts there, as a child.

    ``priority`` is its class in the queue; who may choose another than normal is up to the caller.

    1. A run made before under the same idempotency key is returned as it is.
    2. References are resolved, which raises ``ConfigError`` naming the option, and a project that stores as much as it
       may launches nothing (``StorageLimit``). Of a draft both are looked at when it is launched.
    3. Run, state event and outbox row are written in one transaction; workers get their message after it.
    4. Of two requests that race, the unique constraints let one through; the other returns its run or raises that
       the name is taken.
    """
    key = idempotency_key or None
    if key and (found := Run.objects.filter(project=project, idempotency_key=key).first()):
        return found
    _check_name(name)
    if launch:
        require_storage(project)
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
                priority=priority,
                state=RunState.QUEUED if launch else RunState.DRAFT,
                queued_at=Now() if launch else None,
                parent=checkpoint.run if checkpoint else None,
                resume_checkpoint=checkpoint,
                resume_step=checkpoint.step if checkpoint else None,
                **_resolved_fields(project, config, resolved),
            )
            created = {"from": None, "to": run.state, "reason": sentence(CREATED).data, "error": None}
            event_add(run.pk, "state", created, attempt=0)
            audit(AuditAction.RUN_LAUNCHED if launch else AuditAction.RUN_ADDED, run, by=user)
            if launch:
                history.add(run)
    except IntegrityError as exc:
        if key and (found := Run.objects.filter(project=project, idempotency_key=key).first()):
            return found
        raise _name_taken(name) from exc
    run.refresh_from_db()
    return run


def run_change(*, run: Run, name: str, config: JobConfig, priority: Priority | None = None) -> bool:
    """Give a draft another name and config, and another class unless ``priority`` is ``None``; false when it is not a
    draft any more. Raises ``ConfigError``."""
    _check_name(name)
    if run.resume_checkpoint is not None:
        check_child(run.project, config, run.resume_checkpoint)
    columns = {
        "name": name,
        "kind": config.kind,
        "config": _storable_config(config),
        "total_steps": config.run.max_steps,
        **({"priority": priority} if priority is not None else {}),
    }
    try:
        with transaction.atomic():
            return bool(Run.objects.filter(pk=run.pk, state=RunState.DRAFT).update(**columns))
    except IntegrityError as exc:
        raise _name_taken(name) from exc


def run_launch(*, run: Run, user: User | None = None, audited: bool = False) -> Run:
    """Queue a draft. Raises ``ConfigError`` as ``run_create`` does; a run that is not a draft stays as it is.

    ``audited``: the person's act has its row already.
    """
    config = JobConfig.model_validate(run.config)
    fields = {**_resolved_fields(run.project, config, resolve(run.project, config)), "archived_at": None}
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
            fields |= _resolved_fields(run.project, config, resolve(run.project, config))
        else:  # a version that reserved nothing may have launched it
            known = dict(Environment.objects.filter(project=run.project).values_list("name", "pk"))
            found = reserved_fields(run.pool, run.config, run.resolved, known)
            fields |= {name: value for name, value in found.items() if not getattr(run, name)}
        words = reason or _reason_with_user("resumed", user)
        sources = frozenset({RunState(run.state)})
        if run_transition(run.pk, RunState.QUEUED, sources=sources, reason=words, **fields):
            audit(AuditAction.RUN_RESUMED, run, by=user)
    run.refresh_from_db()
    return run


def role_to_launch(priority: Priority | None) -> Role:
    """The role in a project's team that may launch runs of a class: another than normal changes the queue of all."""
    return Role.EDITOR if priority in {None, Priority.NORMAL} else Role.OWNER


def class_of_copy(run: Run, role: Role | None) -> Priority:
    """The class that a copy of a run begins with: that of the run, where the person may choose it."""
    return Priority(run.priority) if role == Role.OWNER else Priority.NORMAL


class Ahead(NamedTuple):
    """A change of a waiting run's place in the queue; fields that are ``None`` or false change nothing."""

    priority: Priority | None = None
    on_hold: bool | None = None
    first: bool = False


QUEUE_ACTS = {
    "hold": Ahead(on_hold=True),
    "release": Ahead(on_hold=False),
    "first": Ahead(first=True),
    **{str(priority): Ahead(priority=priority) for priority in Priority},
}
"""The changes by the names that buttons send."""


def run_queue_change(*, run: Run, user: User, change: Ahead) -> Run:
    """Hold or release a waiting run, give it another class, or put it before its class. Who may is up to the caller.

    Raises ``ValidationError`` with the code ``conflict`` where it does not wait: nothing is changed then.
    """
    with transaction.atomic():
        found = Run.objects.select_for_update(no_key=True).filter(pk=run.pk, state=RunState.QUEUED).first()
        if found is None:
            raise _conflict(_("Nothing was changed: the run does not wait in the queue."))
        columns: dict[str, Any] = {}
        acts: list[AuditAction] = []
        if change.priority is not None and change.priority != found.priority:
            columns |= {"priority": change.priority, "first_at": None}  # it was put before another class
            acts.append(AuditAction.RUN_PRIORITY)
        if change.on_hold is not None and change.on_hold != (found.on_hold_at is not None):
            columns["on_hold_at"] = Now() if change.on_hold else None
            acts.append(AuditAction.RUN_HELD if change.on_hold else AuditAction.RUN_RELEASED)
        if change.first:
            columns["first_at"] = Now()
            acts.append(AuditAction.RUN_FIRST)
        if columns:
            Run.objects.filter(pk=run.pk).update(**columns)
        for act in acts:
            audit(act, found, by=user)
        if AuditAction.RUN_RELEASED in acts:
            history.add(found)
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


def _pool_of(config: JobConfig) -> str:
    """Whose places a resolved job takes: one that continues a rollout with a small model does not wait for a run."""
    if config.asks_endpoint:
        return ENDPOINT
    continues = config.evaluate.continue_from and not config.method.trains
    needs_device = config.samples_with_vllm or config.run.device == "cuda"
    return pool_of_model(config.model) if continues and not needs_device else TRAIN


def _resolved_fields(project: Project, config: JobConfig, resolved: Resolved | None) -> dict[str, Any]:
    if resolved is None:
        return {"total_steps": config.run.max_steps}
    after, pool = resolved.after, _pool_of(resolved.config)
    return {
        "pool": pool,
        "needs": Needs.of(resolved.config).text if pool == TRAIN else "",
        "devices": resolved.config.devices,
        "sessions": sessions_of(project, config, resolved.config),
        "resolved": resolved.config.model_dump(mode="json"),
        "baselines": resolved.baselines,
        "after": after if after is not None and after.state != RunState.SUCCEEDED else None,
        "total_steps": config.run.max_steps,
    }
