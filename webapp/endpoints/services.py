"""Writing endpoints: add, change, replace the key, delete. Nothing is sent from here (``testing.py`` does that)."""

from __future__ import annotations

import logging
import math
import re
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from training.addresses import AddressRefused, parse_place
from training.config import EndpointConfig
from training.errors import TiltyardError
from webapp.common.outbound import OutboundRefused, target_of
from webapp.common.pages import clean_name
from webapp.common.secrets.models import Kind
from webapp.common.secrets.vault import secret_of, secret_set, secret_since, secrets_forget
from webapp.common.text import in_words
from webapp.endpoints.models import Endpoint, ToolFormat
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.models import Run
from webapp.runs.states import LEASED, RunState

# --- Keys -----------------------------------------------------------------------------------------------------------
# Keys of endpoints: encrypted secrets, never shown.
#
# The process that asks (the trainer of a run, the process of a chat) gets its endpoint's key in its environment, with
# the one host that it may be sent to.

KEY_VARIABLE = "TILTYARD_ENDPOINT_KEY"


def key_write(endpoint_id: UUID, key: str) -> None:
    """Keep this key instead of the one before; an empty one removes it."""
    if key:
        secret_set(Kind.ENDPOINT_KEY, endpoint_id, key)
    else:
        secrets_forget([endpoint_id])


def key_of(endpoint_id: UUID) -> str:
    """The key, or nothing. Raises ``SecretUnreadable``."""
    return secret_of(Kind.ENDPOINT_KEY, endpoint_id)


def has_key(endpoint_id: UUID) -> bool:
    """Whether there is a key."""
    return secret_since(Kind.ENDPOINT_KEY, endpoint_id) is not None


def asked_with(endpoint: Endpoint) -> dict[str, Any]:
    """The options of ``EndpointConfig`` that an endpoint fills in, with the variable that will hold its key."""
    return {**endpoint.job_values(), "key_variable": KEY_VARIABLE if has_key(endpoint.pk) else ""}


def key_env(project: Project, config: EndpointConfig) -> dict[str, str]:
    """The variables that let a process use the endpoint that its resolved config names. Raises ``SecretUnreadable``."""
    if config.key_variable != KEY_VARIABLE:
        return {}
    found = Endpoint.objects.filter(project=project, name=config.name, url=config.url).first()
    key = key_of(found.pk) if found is not None else ""
    return {KEY_VARIABLE: key, f"{KEY_VARIABLE}_HOST": parse_place(config.url).host} if key else {}


logger = logging.getLogger(__name__)
MAX_ENDPOINTS = 100
MAX_KEY_CHARS = 500
CHANGED = (
    "url",
    "model",
    "tool_format",
    "context_tokens",
    "concurrency",
    "timeout_s",
    "price_in",
    "price_out",
    "currency",
    "max_run_tokens",
    "max_run_cost",
    "max_day_tokens",
    "max_day_cost",
)
TESTED = ("url", "model", "tool_format")
RANGES: dict[str, tuple[float, float]] = {
    "context_tokens": (1, 100_000_000),
    "concurrency": (1, 256),
    "timeout_s": (1, 3600),
    "price_in": (0, 1_000_000),
    "price_out": (0, 1_000_000),
    "max_run_tokens": (1, 10**12),
    "max_run_cost": (1e-9, 1_000_000),
    "max_day_tokens": (1, 10**12),
    "max_day_cost": (1e-9, 1_000_000),
}
REQUIRED = ("url", "model", "concurrency", "timeout_s")
KEY = re.compile(r"[\x21-\x7e]+")


def endpoint_create(*, project: Project, user: User, name: str, key: str = "", **values: Any) -> Endpoint:
    """Save an endpoint and its key. Raises ``ValidationError`` by field. Its address need not answer yet."""
    endpoint = Endpoint(project=project, name=clean_name(name), created_by=user)
    if Endpoint.objects.filter(project=project).count() >= MAX_ENDPOINTS:
        raise ValidationError(_("This project has reached its limit of endpoints."))
    _set_values(endpoint, values)
    key = _clean_key(key)
    try:
        with transaction.atomic():
            endpoint.save(force_insert=True)
            key_write(endpoint.pk, key)
            audit(AuditAction.ENDPOINT_ADDED, endpoint, by=user)
    except IntegrityError as exc:
        raise ValidationError({"name": _("An endpoint with this name exists already.")}) from exc
    logger.info("endpoint added", extra={"endpoint_id": endpoint.pk, "project_id": project.pk})
    return endpoint


def endpoint_change(*, endpoint: Endpoint, key: str | None = None, **values: Any) -> Endpoint:
    """Change what is given; ``key`` replaces the key, an empty one removes it, ``None`` leaves it.

    A key is never sent to a host that it was not entered for: with another host it must be given again, or removed.
    Runs at work keep what they began with.
    """
    before, tested = endpoint.url, {name: getattr(endpoint, name) for name in TESTED}
    _set_values(endpoint, values)
    if key is None and has_key(endpoint.pk) and parse_place(before)[:3] != parse_place(endpoint.url)[:3]:
        raise ValidationError({"key": _("The address is another server's: enter the key again, or remove it.")})
    cleaned = None if key is None else _clean_key(key)
    fields = [name for name in CHANGED if name in values]
    if cleaned is not None or any(getattr(endpoint, name) != value for name, value in tested.items()):
        endpoint.test = endpoint.tested_at = None
        fields += ["test", "tested_at"]
    with transaction.atomic():
        if fields:
            endpoint.save(update_fields=fields)
        if key is not None:
            audit(AuditAction.ENDPOINT_KEY, endpoint)
        if values or key is None:
            audit(AuditAction.ENDPOINT_CHANGED, endpoint)
        if cleaned is not None:
            key_write(endpoint.pk, cleaned)
    return endpoint


def endpoint_delete(*, endpoint: Endpoint) -> None:
    """Delete an endpoint and its key. Refused while a run that uses it is queued or at work; records of runs stay."""
    busy = runs_naming(endpoint).filter(state__in=LEASED | {RunState.QUEUED})
    names = list(busy.values_list("name", flat=True)[:3])
    if names:
        raise ValidationError(
            _("A queued or active run uses it: %(runs)s. Stop it first.") % {"runs": ", ".join(names)},
            code="conflict",
        )
    with transaction.atomic():
        audit(AuditAction.ENDPOINT_DELETED, endpoint)
        secrets_forget([endpoint.pk])
        endpoint.delete()


def runs_naming(endpoint: Endpoint) -> Any:
    """Runs whose config names this endpoint, newest first."""
    return Run.objects.filter(project_id=endpoint.project_id, config__model__source=endpoint.reference).order_by(
        "-created_at"
    )


def _clean_key(key: str) -> str:
    key = key.strip()
    if len(key) > MAX_KEY_CHARS or (key and not KEY.fullmatch(key)):
        raise ValidationError({"key": _("A key is one word of plain letters, digits and signs, 500 at most.")})
    return key


def _set_values(endpoint: Endpoint, values: dict[str, Any]) -> None:
    """Set what is given and validate all fields together. Raises ``ValidationError`` by field."""
    for name in CHANGED:
        if name in values:
            value = values[name]
            setattr(endpoint, name, value.strip() if isinstance(value, str) else value)
    endpoint.currency = (endpoint.currency or "").upper()
    endpoint.url = endpoint.url.rstrip("/").removesuffix("/chat/completions")
    errors = _out_of_range(endpoint)
    for name, limit in (("url", 500), ("model", 200)):
        if len(getattr(endpoint, name)) > limit or "\x00" in getattr(endpoint, name):
            errors[name] = _("It may have at most %(limit)s characters.") % {"limit": limit}
    if endpoint.tool_format not in ToolFormat.values:
        errors["tool_format"] = _("It must be one of %(names)s.") % {"names": ", ".join(ToolFormat.values)}
    if endpoint.currency and not re.fullmatch(r"[A-Z]{3}", endpoint.currency):
        errors["currency"] = _("Write three letters, such as USD or CNY.")
    for name in ("max_run_cost", "max_day_cost"):
        if getattr(endpoint, name) and not endpoint.priced:
            errors.setdefault(name, _("A limit on cost needs prices."))
    if "url" in values and "url" not in errors and (problem := _address_problem(endpoint)):
        errors["url"] = problem
    if errors:
        raise ValidationError(errors)


def _out_of_range(endpoint: Endpoint) -> dict[str, Any]:
    errors: dict[str, Any] = {name: _("Required.") for name in REQUIRED if getattr(endpoint, name) in (None, "")}
    for name, (low, high) in RANGES.items():
        value = getattr(endpoint, name)
        if value is not None and not (math.isfinite(value) and low <= value <= high):
            errors.setdefault(
                name, _("Enter a number from %(low)s to %(high)s.") % {"low": f"{low:g}", "high": f"{high:g}"}
            )
    return errors


def _address_problem(endpoint: Endpoint) -> list[str] | None:
    """Sentences on why the address may not be reached, or ``None``. An unknown host is accepted: it may exist later."""
    try:
        target_of(endpoint.url)
    except (AddressRefused, OutboundRefused) as exc:
        return [part for part in (in_words(exc.message), in_words(exc.hint)) if part]
    except TiltyardError:
        return None
    return None
