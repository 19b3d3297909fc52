"""Channels of a project: make, change, try, resume and delete them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import translation
from django.utils.translation import gettext as _

from training.addresses import parse_place
from training.errors import SecretUnreadable, TiltyardError
from webapp.common import work
from webapp.common.outbound import target_with_query
from webapp.common.pages import clean_name
from webapp.common.secrets.vault import secrets_forget
from webapp.common.text import in_words
from webapp.people.notifications.delivering import Verdict, channel_post
from webapp.people.notifications.formats import Webhook, webhook_of, webhook_write
from webapp.people.notifications.models import Channel, ChannelKind, Delivery, DeliveryState, Kind
from webapp.people.notifications.words import test_message
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User

MOST = 20
CHANGED = ("name", "kind", "events", "language")
MAX_ADDRESS_CHARS, MAX_SECRET_CHARS = 1000, 200
HELD_FOR = timedelta(hours=24)
_PRINTABLE = re.compile(r"[\x21-\x7e]+")


def channel_create(
    *,
    project: Project,
    user: User,
    name: str,
    kind: str,
    url: str,
    secret: str = "",
    events: Sequence[str] = (),
    language: str = "",
) -> Channel:
    """Make a channel. Its address and secret are stored where no page shows them. Raises ``ValidationError``."""
    url, secret = url.strip(), secret.strip()
    if Channel.objects.filter(project=project).count() >= MOST:
        raise ValidationError(_("The project has %(n)d channels; delete one first.") % {"n": MOST})
    channel = Channel(pk=uuid.uuid4(), project=project, host=_checked_host(url), signed=bool(secret), created_by=user)
    _set_values(channel, {"name": name, "kind": kind, "events": events, "language": language or settings.LANGUAGE_CODE})
    _check_secret(secret)
    try:
        with transaction.atomic():
            channel.save(force_insert=True)
            webhook_write(channel.pk, Webhook(url, secret))
            audit(AuditAction.CHANNEL_ADDED, channel, by=user)
    except IntegrityError as exc:
        raise _name_taken() from exc
    return channel


def channel_change(*, channel: Channel, url: str = "", secret: str | None = None, **values: Any) -> Channel:
    """Change what is given of ``CHANGED``. An empty ``url`` leaves the address; ``secret`` replaces the secret, an
    empty one removes it, ``None`` leaves it.

    A secret never signs for a host that it was not entered for: with another host it must be given again, or removed.
    Messages that wait go to the address that the channel has when they are sent. Raises ``ValidationError``.
    """
    _set_values(channel, values)
    url, given = url.strip(), None if secret is None else secret.strip()
    fields = [name for name in CHANGED if name in values]
    if url:
        channel.host = _checked_host(url)
        fields.append("host")
    if given is not None:
        _check_secret(given)
        channel.signed = bool(given)
        fields.append("signed")
    try:
        with transaction.atomic():
            Channel.objects.select_for_update().get(pk=channel.pk)  # two people: one address and secret after the other
            webhook = _webhook_after(channel, url, given)
            channel.save(update_fields=fields)
            audit(AuditAction.CHANNEL_CHANGED, channel)
            if webhook is not None:
                webhook_write(channel.pk, webhook)
    except IntegrityError as exc:
        raise _name_taken() from exc
    return channel


def _webhook_after(channel: Channel, url: str, secret: str | None) -> Webhook | None:
    """Its new address and secret; ``None`` where they do not change."""
    if not url and secret is None:
        return None
    try:
        before = webhook_of(channel.pk) or Webhook("", "")
    except SecretUnreadable:  # entered again, as where it is missing
        before = Webhook("", "")
    if not (url or before.url):
        raise ValidationError({"url": _("Paste the whole address of the webhook, without spaces or #.")})
    moved = bool(url) and (not before.url or _scheme_host_port(url) != _scheme_host_port(before.url))
    if secret is None and channel.signed and moved:
        raise ValidationError({"secret": _("The address is another server's: enter the secret again, or remove it.")})
    return Webhook(url or before.url, before.secret if secret is None else secret)


def _set_values(channel: Channel, values: dict[str, Any]) -> None:
    """Set what is given. Raises ``ValidationError`` by field."""
    if "name" in values:
        channel.name = clean_name(values["name"])
    if "kind" in values:
        channel.kind = values["kind"]
        if channel.kind not in ChannelKind.values:
            raise ValidationError({"kind": _("There is no such kind of channel.")})
    if "events" in values:
        wanted = set(values["events"])
        channel.events = [value for value in Kind.values if value in wanted]
        if not channel.events or len(channel.events) != len(wanted):
            raise ValidationError({"events": _("Choose at least one event.")})
    if "language" in values:
        channel.language = values["language"]
        if channel.language not in dict(settings.LANGUAGES):
            raise ValidationError({"language": _("There is no such language.")})


def _check_secret(secret: str) -> None:
    if len(secret) > MAX_SECRET_CHARS or (secret and not _PRINTABLE.fullmatch(secret)):
        raise ValidationError({"secret": _("A secret is printable ASCII without spaces, at most 200 characters.")})


def _name_taken() -> ValidationError:
    return ValidationError({"name": _("This project has a channel with this name.")})


def _scheme_host_port(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of an address that was checked."""
    place = parse_place(urlunsplit(urlsplit(url)._replace(query="")))
    return place.scheme, place.host, place.port


def _checked_host(url: str) -> str:
    """The host of an address that may be reached from here, with its port if unusual. Raises ``ValidationError``."""
    if not url or len(url) > MAX_ADDRESS_CHARS or not _PRINTABLE.fullmatch(url) or "#" in url or "\\" in url:
        raise ValidationError({"url": _("Paste the whole address of the webhook, without spaces or #.")})
    try:
        target_with_query(url)
        return urlsplit(url).netloc.lower()[:260]
    except TiltyardError as exc:
        raise ValidationError({"url": f"{in_words(exc.message)} {in_words(exc.hint)}".strip()}) from exc
    except ValueError as exc:
        raise ValidationError({"url": _("This is not a valid address.")}) from exc


def channel_test(channel: Channel) -> Verdict:
    """Post a test message now, and return what the server answered. It is not counted."""
    with translation.override(channel.language):
        return channel_post(channel, test_message(channel, str(uuid.uuid4())))


def channel_resume(channel: Channel) -> int:
    """Post again to a paused channel; messages held for less than a day follow. Returns how many."""
    with transaction.atomic():
        rows = Channel.objects.filter(pk=channel.pk, paused_at__isnull=False)
        if not rows.update(paused_at=None, failures=0):
            return 0
        held = Delivery.objects.filter(channel=channel, state=DeliveryState.HELD)
        held.filter(created_at__lt=Now() - HELD_FOR).update(state=DeliveryState.DROPPED)
        fresh = list(held.order_by("created_at"))
        held.update(state=DeliveryState.WAITING, attempts=0, tries=0, token="", heard_at=None, again_at=None)
        for delivery in fresh:
            work.enqueue(delivery)
        audit(AuditAction.CHANNEL_RESUMED, channel)
    return len(fresh)


def channel_delete(channel: Channel) -> None:
    """Delete it with its waiting messages and its address."""
    with transaction.atomic():
        audit(AuditAction.CHANNEL_DELETED, channel)
        secrets_forget([channel.pk])
        channel.delete()


def channels_of(project: Project) -> QuerySet[Channel]:
    """The channels of a project, by name."""
    return Channel.objects.filter(project=project)


def last_deliveries(project: Project) -> dict[UUID, Delivery]:
    """The delivery that was tried last, by channel."""
    rows: Any = Delivery.objects.filter(channel__project=project, tried_at__isnull=False)
    newest = rows.order_by("channel_id", "-tried_at").distinct("channel_id").select_related("event")
    return {delivery.channel_id: delivery for delivery in newest}
