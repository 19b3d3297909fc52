"""Events by mail: plain text and simple HTML, in the reader's language. Only workers send."""

from __future__ import annotations

from smtplib import SMTPException, SMTPRecipientsRefused, SMTPResponseException

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from training.words import Sentence, sentence
from webapp.people.notifications.answers import Verdict
from webapp.people.notifications.words import Message, absolute
from webapp.people.teams.models import User

MAX_SAID_CHARS = 200
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
    title, text = _("Test from Tiltyard"), _("Notifications by mail arrive at this address.")
    message = Message(number, "test", "", "", "", title, [text], absolute(reverse("notification-list")), {})
    return message_mail(user, message)


test_mail.__test__ = False  # type: ignore[attr-defined]  # not pytest's


def _mail_of(user: User, message: Message) -> EmailMultiAlternatives:
    """The mail; its ``Message-ID`` is the delivery's, so that one that is sent twice is shown once."""
    settings_url = absolute(reverse("notification-settings"))
    more = _("Notification settings:")
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
    code, said = _code_and_text(exc)
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    shown = Sentence("{text}", {"text": " ".join(text.split())[:MAX_SAID_CHARS] or type(exc).__name__})
    told = sentence(gettext_noop("The mail server did not accept the message. It said: {said}"), said=shown)
    return Verdict(False, told, again=code not in PERMANENT)


def _code_and_text(exc: SMTPException | OSError) -> tuple[int, bytes | str]:
    if isinstance(exc, SMTPRecipientsRefused):
        return next(iter(exc.recipients.values()), (0, b""))
    if isinstance(exc, SMTPResponseException):
        return exc.smtp_code, exc.smtp_error
    return 0, str(exc)
