"""One delivery, from a worker that claimed it to its outcome. At least once, in practice once:

1. The attempt is counted before anything is sent, so a worker that dies while it sends costs one attempt. The row is
   then claimed again, and the receiver may get the message a second time, under the same id.
2. A failure that may pass is tried again after growing pauses, or after the pause that the service names; at most
   ``MOST_ATTEMPTS`` times.
3. A channel where ``PAUSE_AFTER`` attempts in a row failed is paused, and what was on its way there is held until a
   person tries again. Being too busy is no failure.
4. People who are no members any more, and deleted projects, get nothing.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone, translation

from training.errors import TiltyardError
from training.words import Sentence, _, sentence
from webapp.common.outbound import post
from webapp.common.work import Claim
from webapp.people.notifications.answers import Verdict, verdict_of, verdict_of_failure
from webapp.people.notifications.formats import post_of
from webapp.people.notifications.mailing import message_mail, test_mail
from webapp.people.notifications.models import Channel, Delivery, DeliveryState, Reader, ReaderState
from webapp.people.notifications.secret_files import webhook_of
from webapp.people.notifications.words import Message, message_of
from webapp.people.teams.models import Membership, Project

PAUSES_S = (30.0, 120.0, 600.0, 3600.0, 10800.0)
MOST_ATTEMPTS = len(PAUSES_S) + 1
LONGEST_PAUSE_S = 6 * 3600.0
PAUSE_AFTER = 8
GONE = _("Not sent: the person left the team, or the project was deleted.")
NO_FILE = _("The address of this channel is missing on the server; change the channel and enter it again.")


def delivery_run(claim: Claim[Delivery]) -> None:
    """Send it, and write the outcome."""
    delivery = claim.item
    if not _is_wanted(delivery):
        claim.finish(state=DeliveryState.DROPPED, told=sentence(GONE).data, again_at=None)
        return
    if delivery.channel is not None and delivery.channel.paused_at is not None:
        claim.finish(state=DeliveryState.HELD, again_at=None)
        return
    if delivery.again_at is not None and (early_s := (delivery.again_at - timezone.now()).total_seconds()) > 0:
        claim.wait(early_s)  # a second message was still on its way; the service asked for this pause
        return
    claim.keep(attempts=F("attempts") + 1, tried_at=Now())
    delivery.attempts += 1
    _write_outcome(claim, _send_delivery(delivery))


def delivery_failed(_delivery: Delivery, error: TiltyardError) -> dict[str, Any]:
    """The columns of a delivery that failed on our side."""
    told = error.message.data if isinstance(error.message, Sentence) else str(error.message)
    return {"state": DeliveryState.FAILED, "told": told, "again_at": None}


def channel_post(channel: Channel, message: Message) -> Verdict:
    """Post a message, whose words are in the channel's language already, and judge the answer."""
    webhook = webhook_of(channel.pk)
    if webhook is None:
        return Verdict(False, sentence(NO_FILE))
    made = post_of(channel.kind, message, webhook)
    try:
        with translation.override("en"):  # an error is kept as a sentence, and shown in the reader's language
            reply = post(made.url, made.body, made.headers)
    except TiltyardError as exc:
        return verdict_of_failure(exc)
    return verdict_of(channel.kind, reply, webhook)


def reader_test(claim: Claim[Reader]) -> None:
    """Send the test mail that a person asked for."""
    reader = claim.item
    with translation.override(reader.language):
        verdict = test_mail(reader.user, f"test-{claim.token}")
    claim.finish(state=ReaderState.IDLE, told=verdict.told.data, worked=verdict.ok, tested_at=Now())


def reader_failed(_reader: Reader, error: TiltyardError) -> dict[str, Any]:
    """The columns of a test mail that failed on our side."""
    told = error.message.data if isinstance(error.message, Sentence) else str(error.message)
    return {"state": ReaderState.IDLE, "told": told, "worked": False, "tested_at": Now()}


def _is_wanted(delivery: Delivery) -> bool:
    project = Project.objects.filter(pk=delivery.event.project_id).first()
    user = delivery.user
    if project is None or user is None:
        return project is not None
    return user.is_active and Membership.objects.filter(team_id=project.team_id, user_id=user.pk).exists()


def _send_delivery(delivery: Delivery) -> Verdict:
    number = str(delivery.pk)
    if delivery.channel is not None:
        with translation.override(delivery.channel.language):
            return channel_post(delivery.channel, message_of(delivery.event, number))
    user = delivery.user
    if user is None:  # the database refuses a delivery without a recipient
        return Verdict(False, sentence(GONE))
    reader = Reader.objects.filter(user_id=user.pk).first()
    with translation.override(reader.language if reader is not None else settings.LANGUAGE_CODE):
        return message_mail(user, message_of(delivery.event, number))


def _write_outcome(claim: Claim[Delivery], verdict: Verdict) -> None:
    """Write the outcome together with the channel's count, so that a lost claim is not counted."""
    delivery, told = claim.item, verdict.told.data
    with claim.held():
        paused = delivery.channel is not None and _count_try(delivery.channel, verdict)
        if verdict.ok:
            claim.finish(state=DeliveryState.SENT, told=told, again_at=None)
        elif not verdict.again or delivery.attempts >= MOST_ATTEMPTS:
            claim.finish(state=DeliveryState.FAILED, told=told, again_at=None)
        elif paused:
            claim.finish(state=DeliveryState.HELD, told=told, again_at=None)
        else:
            pause = _pause_s(delivery.attempts, verdict.after_s)
            claim.wait(pause, told=told, again_at=Now() + timedelta(seconds=pause))


def _pause_s(attempts: int, named_s: float | None) -> float:
    pause = PAUSES_S[min(attempts, len(PAUSES_S)) - 1] if named_s is None else named_s
    return min(max(pause, 1.0), LONGEST_PAUSE_S)


def _count_try(channel: Channel, verdict: Verdict) -> bool:
    """Count a try of the channel. Returns whether that paused it."""
    rows = Channel.objects.filter(pk=channel.pk)
    if verdict.ok:
        rows.filter(failures__gt=0).update(failures=0)
        return False
    if verdict.busy:
        return False
    rows.update(failures=F("failures") + 1)
    if rows.filter(failures__gte=PAUSE_AFTER, paused_at=None).update(paused_at=Now()):
        waiting = Delivery.objects.filter(channel=channel, state=DeliveryState.WAITING, token="")
        waiting.update(state=DeliveryState.HELD, again_at=None)
    return rows.filter(paused_at__isnull=False).exists()
