"""Writing environments and what people want of them. No request is sent inside a transaction.

Nothing here starts or stops a server: the keeper does, when it reads what these functions wrote.
"""

from __future__ import annotations

import logging
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from training.errors import TiltyardError
from webapp.common.pages import clean_name
from webapp.common.secrets.vault import secrets_forget
from webapp.environments.builtin import arguments_clean, builtins
from webapp.environments.checks import NATIVE, Answer, Examination, Finding, Server, ask, examine, require_identity
from webapp.environments.checks import validation_of as ask_validation
from webapp.environments.launchers import Handle, LaunchError, require_allowed
from webapp.environments.models import MAX_REPLICAS, Environment, Kind, Replica, ReplicaState
from webapp.environments.tokens import files_forget, ours, site_token, token_for, token_write
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.config import having
from webapp.runs.models import Run
from webapp.runs.states import TERMINAL

logger = logging.getLogger(__name__)
MAX_ENVIRONMENTS = 100
RESTART = "restart"


class RegistrationRefused(ValidationError):
    """A server was asked and not taken; ``findings`` say what each check found."""

    def __init__(self, errors: dict[str, list[str]], findings: list[Finding]) -> None:
        super().__init__(errors)
        self.findings = findings


def environment_register(
    *,
    project: Project,
    user: User,
    name: str,
    url: str,
    protocol: str = "openenv",
    options: dict[str, Any] | None = None,
    token: str = "",
    server_name: str = "",
    accept: bool = False,
) -> Environment:
    """Save a server at an address after it validated itself. Raises ``ValidationError`` by field.

    What may be accepted (``Finding.may_pass``) is refused under ``accept`` unless that is true.
    """
    environment = Environment(
        project=project,
        name=_free_name(project, name),
        url=url.strip().rstrip("/"),
        created_by=user,
        protocol=protocol,
        options=options or {},
    )
    server = Server(environment.url, protocol, environment.options, token or site_token(environment.url))
    found = examine(server, wanted=server_name)
    _require_passed(found, accept=accept)
    now = timezone.now()
    if found.answer is not None:
        environment.server_name, environment.healthy = found.answer.name, True
        environment.health, environment.checked_at = found.answer.model_dump(), now
    if found.validation is not None:
        environment.validation = found.validation | {"at": now.isoformat()}
    return _save_new(environment, token=token)


def environment_launch(
    *,
    project: Project,
    user: User,
    name: str,
    kind: str,
    program: str = "",
    image: str = "",
    protocol: str = "openenv",
    options: dict[str, Any] | None = None,
    arguments: dict[str, Any] | None = None,
    slots: int = 128,
    cpus: float = 1.0,
    memory_mb: int = 1024,
    pids: int = 128,
    wanted: int = 1,
) -> Environment:
    """Save an environment whose servers the keeper starts. Raises ``ValidationError`` by field."""
    environment = Environment(
        project=project,
        name=_free_name(project, name),
        created_by=user,
        kind=kind,
        slots=slots,
        cpus=cpus,
        memory_mb=memory_mb,
        pids=pids,
        wanted=_check_wanted(wanted),
    )
    if kind == Kind.PROCESS:
        if program not in builtins():
            raise ValidationError({"program": _("Choose one of the built-in servers.")})
        environment.program = environment.server_name = program
    else:
        environment.image, environment.protocol, environment.options = image.strip(), protocol, options or {}
        if not environment.image:
            raise ValidationError({"image": _("Name the image.")})
        try:
            require_allowed(environment.image)
        except LaunchError as exc:
            raise ValidationError({"image": [exc.message, exc.hint]}) from exc
    environment.arguments = arguments_of(environment, arguments or {})
    return _save_new(environment)


def arguments_of(environment: Environment, given: dict[str, Any]) -> dict[str, Any]:
    """The options of its server as they are kept. Raises ``ValidationError`` by ``arguments.<option>``."""
    program = environment.built_in
    return arguments_clean(program.options if program else [], given, prefix="arguments.")


def _free_name(project: Project, name: str) -> str:
    name = clean_name(name)
    if Environment.objects.filter(project=project).count() >= MAX_ENVIRONMENTS:
        raise ValidationError(_("This project has reached its limit of environments."))
    if Environment.objects.filter(project=project, name=name).exists():
        raise ValidationError({"name": _("An environment with this name exists already.")})
    return name


def _require_passed(found: Examination, *, accept: bool) -> None:
    for field, findings in (("url", found.refused), ("accept", [] if accept else found.doubtful)):
        sentences = [part for item in findings for part in (item.sentence, item.hint) if part]
        if sentences:
            raise RegistrationRefused({field: sentences}, found.findings)


def _save_new(environment: Environment, *, token: str = "") -> Environment:
    """Write the row, the one replica of a server at an address, and the token."""
    try:
        with transaction.atomic():
            environment.save(force_insert=True)
            if token or environment.launched:
                token_write(environment.pk, token)
            audit(AuditAction.ENVIRONMENT_ADDED, environment, by=environment.created_by)
            if not environment.launched:
                Replica.objects.create(
                    environment=environment,
                    number=1,
                    url=environment.url,
                    state=ReplicaState.HEALTHY,
                    health=environment.health,
                    checked_at=environment.checked_at,
                )
    except IntegrityError as exc:
        raise ValidationError({"name": _("An environment with this name exists already.")}) from exc
    what = {"environment_id": environment.pk, "project_id": environment.project_id, "kind": environment.kind}
    logger.info("environment registered", extra=what)
    return environment


def _check_wanted(wanted: int) -> int:
    if not 0 <= wanted <= MAX_REPLICAS:
        raise ValidationError({"wanted": _("Between 0 and %(most)s replicas can run.") % {"most": MAX_REPLICAS}})
    return wanted


def environment_scale(*, environment: Environment, wanted: int) -> Environment:
    """Say how many replicas are wanted; 0 stops all. The keeper does the rest."""
    if not environment.launched:
        raise ValidationError(_("This server was started elsewhere, so it cannot be started or stopped here."))
    Environment.objects.filter(pk=environment.pk).update(wanted=_check_wanted(wanted))
    audit(AuditAction.ENVIRONMENT_SCALED, environment, subject=f"{environment} × {wanted}")
    logger.info("environment scaled", extra={"environment_id": environment.pk, "wanted": wanted})
    environment.refresh_from_db()
    return environment


def environment_restart(*, environment: Environment, number: int | None = None) -> int:
    """Ask for a restart of one replica, or of every one. Returns of how many."""
    if not environment.launched:
        raise ValidationError(_("This server was started elsewhere, so it cannot be started or stopped here."))
    audit(AuditAction.ENVIRONMENT_RESTARTED, environment)
    rows = Replica.objects.filter(environment=environment)
    return (rows if number is None else rows.filter(number=number)).update(wish=RESTART)


def server_of(environment: Environment, url: str) -> Server:
    """How a replica of the environment is reached. Raises ``SecretUnreadable``."""
    return Server(url, environment.protocol, environment.options, token_for(environment, url), ours(environment))


def environment_check(*, environment: Environment) -> Environment:
    """Check the server again and have it validate itself; store the result."""
    addresses = environment.addresses()
    if not addresses:
        return environment
    try:
        server = server_of(environment, addresses[0])
        answer = ask(server)
        require_identity(answer, environment.server_name)
    except TiltyardError as exc:
        answer_store(environment, addresses[0], exc)
    else:
        answer_store(environment, addresses[0], answer)
        validation_store(environment, server)
    environment.refresh_from_db()
    return environment


def answer_store(
    environment: Environment, url: str, outcome: Answer | TiltyardError, *, handle: Handle | None = None
) -> None:
    """Write what one replica answered, and sum the environment up; not if another process has its address now."""
    now = timezone.now()
    rows = Replica.objects.filter(environment_id=environment.pk, url=url)
    if handle is not None:
        rows = rows.filter(handle=handle)
    if isinstance(outcome, Answer):
        live = [ReplicaState.STARTING, ReplicaState.UNHEALTHY, ReplicaState.HEALTHY]
        rows.filter(state__in=live).update(
            state=ReplicaState.HEALTHY, health=outcome.model_dump(), error=None, checked_at=now
        )
        values: dict[str, Any] = {"healthy": True, "health": outcome.model_dump()}
        if not environment.server_name:
            values["server_name"] = outcome.name
    else:
        failing = [ReplicaState.HEALTHY, ReplicaState.UNHEALTHY]
        # A server that we have just started is given its time; one at an address is simply not there.
        failing += [] if environment.launched else [ReplicaState.STARTING]
        error = outcome.info.model_dump(mode="json")
        rows.filter(state__in=failing).update(state=ReplicaState.UNHEALTHY, error=error, checked_at=now)
        others = Replica.objects.filter(environment_id=environment.pk, state=ReplicaState.HEALTHY).exists()
        values = {"healthy": others}
        if not others:
            values["health"] = environment.health | {"error": error}
    Environment.objects.filter(pk=environment.pk).update(checked_at=now, **values)


def validation_store(environment: Environment, server: Server) -> None:
    """Have a server validate itself and keep the result; a protocol without validation has none."""
    if environment.protocol != NATIVE:
        return
    try:
        found = ask_validation(server).model_dump()
    except TiltyardError as exc:
        found = {"ok": False, "episodes": 0, "problems": [exc.message]}
    found["at"] = timezone.now().isoformat()
    Environment.objects.filter(pk=environment.pk).update(validation=found)


def environment_delete(*, environment: Environment) -> None:
    """Delete an environment; the keeper ends its servers. Refused while an open run plays on it."""
    require_unused(environment)
    pk = environment.pk
    with transaction.atomic():
        audit(AuditAction.ENVIRONMENT_DELETED, environment)
        secrets_forget([pk])
        environment.delete()
    transaction.on_commit(lambda: files_forget(pk))


def require_unused(environment: Environment) -> None:
    """Raises ``ValidationError`` while a run that has not ended plays on it."""
    used = Run.objects.filter(having("environment", "name", environment.reference), project_id=environment.project_id)
    names = list(used.exclude(state__in=TERMINAL).values_list("name", flat=True)[:3])
    if names:
        raise ValidationError(
            _("It is used by a run that has not ended: %(runs)s.") % {"runs": ", ".join(names)}, code="conflict"
        )


# --- Changes --------------------------------------------------------------------------------------------------------
# Changing the options and limits of an environment's servers.


def environment_change(
    *, environment: Environment, arguments: dict[str, Any], slots: int, cpus: float, memory_mb: int, pids: int
) -> bool:
    """Keep other options and limits, and restart every replica with them. Returns whether anything changed.

    Refused while an open run plays on it: its episodes would end, and its tasks might mean something else afterwards.
    Raises ``ValidationError`` by field.
    """
    if not environment.launched:
        raise ValidationError(_("This server was started elsewhere, so it cannot be started or stopped here."))
    values = {
        "arguments": arguments_of(environment, arguments),
        "slots": slots,
        "cpus": cpus,
        "memory_mb": memory_mb,
        "pids": pids,
    }
    if all(getattr(environment, name) == value for name, value in values.items()):
        return False
    require_unused(environment)
    with transaction.atomic():
        # The proof of another server does not hold for this one.
        Environment.objects.filter(pk=environment.pk).update(**values, validation=None)
        audit(AuditAction.ENVIRONMENT_CHANGED, environment)
        environment_restart(environment=environment)
    logger.info("environment changed", extra={"environment_id": environment.pk})
    environment.refresh_from_db()
    return True
