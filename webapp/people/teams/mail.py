"""Login links by mail, where the operator named a mail server."""

from __future__ import annotations

import logging
import threading
from smtplib import SMTPException

from django.conf import settings
from django.core.mail import EmailMessage
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _

from webapp.people.teams.audit import audit
from webapp.people.teams.login_links import login_link_create
from webapp.people.teams.models import AuditAction, User
from webapp.people.teams.throttle import mail_allowed

logger = logging.getLogger(__name__)


def link_mail(request: HttpRequest, username: str) -> None:
    """Send a one-time link to the mail address of this account, if it has one and is no administrator's.

    The mail leaves in a thread of its own: the time of the answer must not show who has an account.
    """
    allowed = mail_allowed(username, request.META.get("REMOTE_ADDR", ""))
    user = User.objects.filter(username__iexact=username, is_active=True, is_staff=False, is_superuser=False).first()
    if not allowed or user is None or not user.email:
        logger.info("no reset mail", extra={"action": "link_mail", "allowed": allowed, "known": user is not None})
        return
    # The origin is ours: a Host header, even an allowed one, must not choose where the link leads.
    link = settings.TRUSTED_ORIGINS[0] + reverse("login-link", args=[login_link_create(user=user)])
    audit(AuditAction.LINK_MAILED, user, by=user)
    text = _(
        "A person, most likely you, asked for a link to log in to Tiltyard as %(name)s.\n\n%(link)s\n\nIt logs in "
        "once, within 24 hours. If it was not you, do nothing: your password does not change."
    ) % {"name": user.username, "link": link}
    message = EmailMessage(_("Log in to Tiltyard"), text, settings.DEFAULT_FROM_EMAIL, [user.email])
    threading.Thread(target=_send_mail, args=[message], name="reset-mail", daemon=True).start()


def _send_mail(message: EmailMessage) -> None:
    try:
        message.send()
    except (SMTPException, OSError) as exc:
        logger.error("the mail server refused a mail", extra={"action": "link_mail", "error": repr(exc)[:200]})
