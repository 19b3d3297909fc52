"""Deliveries: mail and messages to services, one attempt of a worker each, and what a service's answer means."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from smtplib import SMTPException, SMTPRecipientsRefused, SMTPResponseException
from typing import Any, NamedTuple

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.db.models import F
from django.db.models.functions import Now
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.translation import gettext, gettext_noop

from training.addresses import AddressRefused
from training.errors import SecretUnreadable, TiltyardError
from training.redaction import address_secrets, redact, without
from training.words import Sentence, _, sentence
from webapp.common.outbound import Answer, OutboundRefused, post
from webapp.common.text import clean_text
from webapp.common.work import Claim
from webapp.people.notifications.formats import Webhook, post_of, webhook_of
from webapp.people.notifications.models import Channel, ChannelKind, Delivery, DeliveryState, Reader, ReaderState
from webapp.people.notifications.words import Message, absolute, message_of
from webapp.people.teams.models import Membership, Project, User

# Verdicts on a service's answer: delivered, worth another try, or wrong until a person changes something.
#
# Feishu and DingTalk answer 200 with a code in the body, Slack 200 with ``ok``, Discord 204; a 429 names its pause in
# ``Retry-After``. The service's reply is shown to people, without the secret and the address or parts of it, which it
# may repeat.

MAX_SAID_CHARS = 200
MAX_CODE = 10**9
BUSY = 429
DELIVERED = _("Delivered.")
PAGE = _("a web page")
NOTHING_SAID = _("nothing")
NOT_OK = _("Slack answers “ok” to what it accepts; check the address. This server said: {said}")
STRANGE = _("This is no answer of this service; check the kind and the address. It said: {said}")
OTHER_CODE = _("The service did not accept the message (code {code}). It said: {said}")


class Verdict(NamedTuple):
    """The result of one try. ``again``: another one may succeed, after ``after_s`` seconds where the service said
    so."""

    ok: bool
    told: Sentence
    again: bool = False
    after_s: float | None = None
    busy: bool = False


def verdict_of(kind: str, reply: Answer, webhook: Webhook) -> Verdict:
    """The verdict on an answer of a service of this kind."""
    said = _shown_answer(reply.body, webhook)
    if 200 <= reply.status < 300:
        return _JUDGES[ChannelKind(kind)](reply, said)
    return _verdict_of_status(reply, said)


def verdict_of_failure(error: TiltyardError) -> Verdict:
    """The verdict where no answer came: only an address that may not be reached is final.

    The error was raised in English, so that its sentence can be translated.
    """
    cause = error.__cause__ if isinstance(error.__cause__, AddressRefused) else error
    message = sentence(cause.message)
    if cause.hint:
        message = sentence("{what} {hint}", what=message, hint=sentence(cause.hint))
    return Verdict(False, message, again=not isinstance(error, OutboundRefused))


def _verdict_of_status(reply: Answer, said: Sentence) -> Verdict:
    status = reply.status
    if status == BUSY:
        return _too_many(_after_s(reply))
    if status == 408 or status >= 500:
        message = sentence(_("The server failed (HTTP {status}). It said: {said}"), status=status, said=said)
        return Verdict(False, message, again=True, after_s=_after_s(reply))
    if 300 <= status < 400:
        return Verdict(False, sentence(_("The server redirects elsewhere, and redirects are not followed.")))
    if status in (401, 403):
        template = _("The server refuses us (HTTP {status}); check the address and the secret. It said: {said}")
    elif status in (404, 410):
        template = _("No such webhook (HTTP {status}): it was deleted, or the address is wrong. It said: {said}")
    else:
        template = _("The server did not accept the message (HTTP {status}). It said: {said}")
    return Verdict(False, sentence(template, status=status, said=said))


def _too_many(after_s: float | None) -> Verdict:
    message = sentence(_("The service has had too many messages and asks to wait."))
    return Verdict(False, message, again=True, after_s=after_s, busy=True)


def _success() -> Verdict:
    return Verdict(True, sentence(DELIVERED))


def _any_success(_reply: Answer, _shown_answer: Sentence) -> Verdict:
    return _success()


def _slack_verdict(reply: Answer, said: Sentence) -> Verdict:
    return _success() if reply.body.strip() == b"ok" else Verdict(False, sentence(NOT_OK, said=said))


# Codes of the two services that put them into the body of a 200: what to do about each.
FEISHU_CODES = {
    19021: _("Feishu does not accept the signature: the secret is wrong, or this server's clock is. It said: {said}"),
    19022: _("Feishu accepts messages for this robot only from listed IP addresses. It said: {said}"),
    19024: _("Feishu accepts only messages with the robot's keywords; use signing instead. It said: {said}"),
    19001: _("Feishu knows no such robot: it was removed, or the address is wrong. It said: {said}"),
}
FEISHU_BUSY = {11232, 11233}
DINGTALK_CODES = {
    310000: _("The robot's security settings refuse it (signature, keywords or IP addresses). It said: {said}"),
    300001: _("DingTalk knows no such robot: it was removed, or the address is wrong. It said: {said}"),
    300005: _("DingTalk knows no such robot: it was removed, or the address is wrong. It said: {said}"),
}
DINGTALK_BUSY = {130101, 410100}
SYSTEM_BUSY = -1


def _feishu_verdict(reply: Answer, said: Sentence) -> Verdict:
    answer = _json_object(reply.body)
    return _verdict_of_code(answer.get("code", answer.get("StatusCode")), said, FEISHU_CODES, FEISHU_BUSY)


def _dingtalk_verdict(reply: Answer, said: Sentence) -> Verdict:
    return _verdict_of_code(_json_object(reply.body).get("errcode"), said, DINGTALK_CODES, DINGTALK_BUSY)


def _verdict_of_code(code: Any, said: Sentence, codes: Mapping[int, str], busy: set[int]) -> Verdict:
    if code == 0 and not isinstance(code, bool):
        return _success()
    if not isinstance(code, int) or isinstance(code, bool) or abs(code) > MAX_CODE:
        return Verdict(False, sentence(STRANGE, said=said))
    if code in busy:
        return _too_many(None)
    message = sentence(codes.get(code, OTHER_CODE), said=said, code=code)
    return Verdict(False, message, again=code == SYSTEM_BUSY)


_JUDGES: dict[ChannelKind, Callable[[Answer, Sentence], Verdict]] = {
    ChannelKind.SLACK: _slack_verdict,
    ChannelKind.FEISHU: _feishu_verdict,
    ChannelKind.DINGTALK: _dingtalk_verdict,
    ChannelKind.DISCORD: _any_success,
    ChannelKind.JSON: _any_success,
}


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _shown_answer(body: bytes, webhook: Webhook) -> Sentence:
    """The beginning of an answer in one line, without secrets; for a web page only that it is one."""
    body_text = without(body.decode("utf-8", "replace"), (*address_secrets(webhook.url), webhook.secret), "…")
    text = " ".join(clean_text(redact(body_text)).split())
    if text[:500].lower().startswith(("<!doctype", "<html", "<?xml")):
        return sentence(PAGE)
    return Sentence("{text}", {"text": text[:MAX_SAID_CHARS]}) if text else sentence(NOTHING_SAID)


def _after_s(reply: Answer) -> float | None:
    """Seconds to wait: ``Retry-After`` as a number or a date, or the ``retry_after`` of Discord's body."""
    raw: Any = reply.headers.get("retry-after", _json_object(reply.body).get("retry_after"))
    try:
        found = float(raw)
    except (TypeError, ValueError):
        try:
            moment = parsedate_to_datetime(str(raw))
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            found = (moment - datetime.now(UTC)).total_seconds()
        except (TypeError, ValueError):
            return None
    return max(0.0, found) if math.isfinite(found) else None


# Events by mail: plain text and simple HTML, in the reader's language. Only workers send.

PERMANENT = range(500, 600)
TAKEN = gettext_noop("The mail server accepted the message.")
NO_SERVER = gettext_noop("No mail server is set up: the administrator names one in EMAIL_HOST.")
NO_ADDRESS = gettext_noop("Your account has no mail address.")


def has_server() -> bool:
    """Whether the operator named a mail server."""
    return bool(settings.EMAIL_HOST)


def message_mail(user: User, message: Message) -> Verdict:
    """Send a message, whose words are in the reader's language already, to this person."""
    if not has_server():
        return Verdict(False, sentence(NO_SERVER))
    if not user.email:
        return Verdict(False, sentence(NO_ADDRESS))
    try:
        _mail_of(user, message).send()
    except (SMTPException, OSError) as exc:
        return _refused_verdict(exc)
    return Verdict(True, sentence(TAKEN))


def test_mail(user: User, number: str) -> Verdict:
    """Send the mail that a person asked for, to see whether one arrives."""
    title, text = gettext("Test from Tiltyard"), gettext("Notifications by mail arrive at this address.")
    message = Message(number, "test", "", "", "", title, [text], absolute(reverse("notification-list")), {})
    return message_mail(user, message)


test_mail.__test__ = False  # type: ignore[attr-defined]  # not pytest's


def _mail_of(user: User, message: Message) -> EmailMultiAlternatives:
    """The mail; its ``Message-ID`` is the delivery's, so that one that is sent twice is shown once."""
    settings_url = absolute(reverse("notification-settings"))
    more = gettext("Notification settings:")
    text = "\n\n".join([message.title, *message.lines, message.url, f"{more} {settings_url}"])
    subject = f"[{message.project}] {message.title}" if message.project else message.title
    host = settings.DEFAULT_FROM_EMAIL.rpartition("@")[2].strip("<> ") or "tiltyard"
    mail = EmailMultiAlternatives(
        " ".join(subject.split()),
        f"{text}\n",
        settings.DEFAULT_FROM_EMAIL,
        [user.email],
        headers={"Message-ID": f"<{message.id}@{host}>", "Auto-Submitted": "auto-generated"},
    )
    context = {"message": message, "settings_url": settings_url}
    mail.attach_alternative(render_to_string("notifications/mail.html", context), "text/html")
    return mail


def _refused_verdict(exc: SMTPException | OSError) -> Verdict:
    """The verdict on what the mail server answered; an answer of 500 and above is final."""
    code, reply = _code_and_text(exc)
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
    shown = Sentence("{text}", {"text": " ".join(text.split())[:MAX_SAID_CHARS] or type(exc).__name__})
    message = sentence(gettext_noop("The mail server did not accept the message. It said: {said}"), said=shown)
    return Verdict(False, message, again=code not in PERMANENT)


def _code_and_text(exc: SMTPException | OSError) -> tuple[int, bytes | str]:
    if isinstance(exc, SMTPRecipientsRefused):
        return next(iter(exc.recipients.values()), (0, b""))
    if isinstance(exc, SMTPResponseException):
        return exc.smtp_code, exc.smtp_error
    return 0, str(exc)


# One delivery, from a worker that claimed it to its outcome. At least once, in practice once:
#
# 1. The attempt is counted before anything is sent, so a worker that dies while it sends costs one attempt. The row is
#    then claimed again, and the receiver may get the message a second time, under the same id.
# 2. A failure that may pass is tried again after growing pauses, or after the pause that the service names; at most
#    ``MOST_ATTEMPTS`` times.
# 3. A channel where ``PAUSE_AFTER`` attempts in a row failed is paused, and what was on its way there is held until a
#    person tries again. A busy service is not a failure.
# 4. People who are not members any more, and deleted projects, get nothing.

PAUSES_S = (30.0, 120.0, 600.0, 3600.0, 10800.0)
MOST_ATTEMPTS = len(PAUSES_S) + 1
LONGEST_PAUSE_S = 6 * 3600.0
PAUSE_AFTER = 8
GONE = _("Not sent: the person left the team, or the project was deleted.")
UNREADABLE = _(
    "The address of this channel cannot be read with this site's secret key; change the channel and enter it again, or "
    "have the operator add the earlier key to TILTYARD_SECRET_KEY_FALLBACKS."
)
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
    text = error.message.data if isinstance(error.message, Sentence) else str(error.message)
    return {"state": DeliveryState.FAILED, "told": text, "again_at": None}


def channel_post(channel: Channel, message: Message) -> Verdict:
    """Post a message, whose words are in the channel's language already, and judge the answer."""
    try:
        webhook = webhook_of(channel.pk)
    except SecretUnreadable:
        return Verdict(False, sentence(UNREADABLE))
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
    text = error.message.data if isinstance(error.message, Sentence) else str(error.message)
    return {"state": ReaderState.IDLE, "told": text, "worked": False, "tested_at": Now()}


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
    delivery, result = claim.item, verdict.told.data
    with claim.held():
        paused = delivery.channel is not None and _count_try(delivery.channel, verdict)
        if verdict.ok:
            claim.finish(state=DeliveryState.SENT, told=result, again_at=None)
        elif not verdict.again or delivery.attempts >= MOST_ATTEMPTS:
            claim.finish(state=DeliveryState.FAILED, told=result, again_at=None)
        elif paused:
            claim.finish(state=DeliveryState.HELD, told=result, again_at=None)
        else:
            pause = _pause_s(delivery.attempts, verdict.after_s)
            claim.wait(pause, told=result, again_at=Now() + timedelta(seconds=pause))


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
