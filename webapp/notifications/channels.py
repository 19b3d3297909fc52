"""Channels of a project: make, try, resume and delete them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import translation
from django.utils.translation import gettext as _

from training.errors import TiltyardError
from webapp import work
from webapp.notifications.answers import Verdict
from webapp.notifications.delivering import channel_post
from webapp.notifications.models import Channel, ChannelKind, Delivery, DeliveryState, Kind
from webapp.notifications.secret_files import Webhook, webhook_forget, webhook_write
from webapp.notifications.words import test_message
from webapp.outbound import target_with_query
from webapp.pages import clean_name
from webapp.teams.audit import audit
from webapp.teams.models import AuditAction, Project, User
from webapp.text import in_words

MOST = 20
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
    """Make a channel. Its address and secret are kept where nobody sees them again. Raises ``ValidationError``."""
    url, secret = url.strip(), secret.strip()
    chosen = [value for value in Kind.values if value in set(events)]
    channel = Channel(
        pk=uuid.uuid4(),
        project=project,
        name=clean_name(name),
        kind=kind,
        host=_host(url),
        signed=bool(secret),
        events=chosen,
        language=language or settings.LANGUAGE_CODE,
        created_by=user,
    )
    _check(channel, secret, events)
    webhook_write(channel.pk, Webhook(url, secret))
    try:
        with transaction.atomic():
            channel.save(force_insert=True)
            audit(AuditAction.CHANNEL_ADDED, channel, by=user)
    except IntegrityError as exc:
        webhook_forget(channel.pk)
        raise ValidationError({"name": _("This project has a channel with this name.")}) from exc
    return channel


def _check(channel: Channel, secret: str, events: Sequence[str]) -> None:
    if Channel.objects.filter(project=channel.project).count() >= MOST:
        raise ValidationError(_("The project has %(n)d channels; delete one first.") % {"n": MOST})
    if channel.kind not in ChannelKind.values:
        raise ValidationError({"kind": _("There is no such kind of channel.")})
    if not channel.events or len(channel.events) != len(set(events)):
        raise ValidationError({"events": _("Choose at least one event.")})
    if channel.language not in dict(settings.LANGUAGES):
        raise ValidationError({"language": _("There is no such language.")})
    if len(secret) > MAX_SECRET_CHARS or (secret and not _PRINTABLE.fullmatch(secret)):
        raise ValidationError({"secret": _("A secret is printable ASCII without spaces, at most 200 characters.")})


def _host(url: str) -> str:
    """The host of an address that may be reached from here, with its port where that is unusual."""
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
    """Post a test message now, and tell what the server answered. It counts nowhere."""
    with translation.override(channel.language):
        return channel_post(channel, test_message(channel, str(uuid.uuid4())))


def channel_resume(channel: Channel) -> int:
    """Post again to a channel that was paused; what was held for less than a day follows. The number of those."""
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
    """Delete it with what was on its way there, and forget its address."""
    pk: UUID = channel.pk
    with transaction.atomic():
        audit(AuditAction.CHANNEL_DELETED, channel)
        channel.delete()
        transaction.on_commit(lambda: webhook_forget(pk), robust=True)


def channels_of(project: Project) -> QuerySet[Channel]:
    """The channels of a project, by name."""
    return Channel.objects.filter(project=project)


def last_deliveries(project: Project) -> dict[UUID, Delivery]:
    """The delivery that was tried last, by channel."""
    rows: Any = Delivery.objects.filter(channel__project=project, tried_at__isnull=False)
    newest = rows.order_by("channel_id", "-tried_at").distinct("channel_id").select_related("event")
    return {delivery.channel_id: delivery for delivery in newest}
