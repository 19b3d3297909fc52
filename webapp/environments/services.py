"""Writing environments. No request is sent inside a transaction."""

from __future__ import annotations

import logging

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from pydantic import ValidationError as ShapeError

from envs.wire import WIRE_VERSION, Health
from training.errors import EnvironmentProtocolError, TiltyardError
from webapp.environments.models import Environment
from webapp.outbound import fetch
from webapp.pages import clean_name
from webapp.runs.models import Run
from webapp.runs.states import TERMINAL
from webapp.teams.models import Project, User

logger = logging.getLogger(__name__)
MAX_ENVIRONMENTS = 100


def health_of(url: str) -> Health:
    """Ask a server who it is. Raises ``TiltyardError`` with a sentence when it is not one of ours."""
    reply = fetch(url.rstrip("/") + "/health")
    if reply.status != 200:
        raise EnvironmentProtocolError(_("The server answered with status %(status)s.") % {"status": reply.status})
    try:
        health = Health.model_validate_json(reply.body)
    except (ShapeError, ValueError, RecursionError) as exc:
        raise EnvironmentProtocolError(
            _("Something answers there, but it does not identify itself as an environment server."),
            hint=_("Check the address: /health must report name, version, sessions and slots."),
        ) from exc
    if health.wire_version != WIRE_VERSION:
        raise EnvironmentProtocolError(
            _("The server speaks version %(theirs)s of the protocol, and this is version %(ours)s.")
            % {"theirs": health.wire_version, "ours": WIRE_VERSION}
        )
    if "\x00" in health.name + health.version or not health.name or len(health.name) > 80 or len(health.version) > 80:
        raise EnvironmentProtocolError(_("The server's name or version is empty or too long."))
    return health


def environment_register(*, project: Project, user: User, name: str, url: str) -> Environment:
    """Save a server after it identified itself. Raises ``ValidationError`` by field."""
    environment = Environment(project=project, name=clean_name(name), url=url.strip().rstrip("/"), created_by=user)
    if Environment.objects.filter(project=project).count() >= MAX_ENVIRONMENTS:
        raise ValidationError(_("This project has as many environments as it may."))
    if Environment.objects.filter(project=project, name=environment.name).exists():
        raise ValidationError({"name": _("An environment with this name exists already.")})
    try:
        health = health_of(environment.url)
    except TiltyardError as exc:
        raise ValidationError({"url": [part for part in (exc.message, exc.hint) if part]}) from exc
    environment.server_name = health.name
    environment.healthy, environment.health, environment.checked_at = True, health.model_dump(), timezone.now()
    try:
        with transaction.atomic():
            environment.save(force_insert=True)
    except IntegrityError as exc:
        raise ValidationError({"name": _("An environment with this name exists already.")}) from exc
    logger.info("environment registered", extra={"environment_id": environment.pk, "project_id": project.pk})
    return environment


def environment_check(*, environment: Environment) -> Environment:
    """Ask once more and store what it said; another identity than the registered one is a failure."""
    try:
        health = health_of(environment.url)
        if environment.server_name and health.name != environment.server_name:
            raise EnvironmentProtocolError(
                _("Another server answers there now: it calls itself %(name)s.") % {"name": health.name}
            )
        values = {"healthy": True, "health": health.model_dump()}
    except TiltyardError as exc:
        values = {"healthy": False, "health": {"error": exc.info.model_dump(mode="json")}}
    Environment.objects.filter(pk=environment.pk).update(checked_at=timezone.now(), **values)
    environment.refresh_from_db()
    return environment


def environment_delete(*, environment: Environment) -> None:
    """Forget a server. Refused while a run that has not ended plays on it."""
    used = Run.objects.filter(project=environment.project, resolved__environment__url=environment.url)
    names = list(used.exclude(state__in=TERMINAL).values_list("name", flat=True)[:3])
    if names:
        raise ValidationError(
            _("It is used by a run that has not ended: %(runs)s.") % {"runs": ", ".join(names)}, code="conflict"
        )
    environment.delete()
