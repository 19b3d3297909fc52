"""Logging in: by password, by a link that works once; setting a password; the theme."""

from __future__ import annotations

import logging
import math
import threading
import time
from smtplib import SMTPException
from typing import Any, cast

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login, update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import PasswordChangeForm, SetPasswordForm
from django.contrib.auth.password_validation import password_validators_help_texts
from django.contrib.auth.views import LoginView
from django.core.exceptions import SuspiciousOperation
from django.core.mail import EmailMessage
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView

from training.errors import TiltyardError
from webapp.common.middleware import LOOKS, look_cookie
from webapp.common.pages import own_address
from webapp.common.text import clean_text
from webapp.people.teams.audit import audit
from webapp.people.teams.logins import login_link_create, login_link_use, mail_allowed
from webapp.people.teams.models import AuditAction, User
from webapp.people.teams.oidc import AUTH_TIME, LEEWAY_S, SignOnRefused, provider
from webapp.people.teams.selectors import login_link_usable
from webapp.people.teams.sudo import WINDOW_S, Act, ask, confirm, unconfirm
from webapp.people.teams.tokens import tokens_of
from webapp.people.teams.views import ForgottenForm, LoginForm, MailForm

# --- Mail -----------------------------------------------------------------------------------------------------------
# Login links by mail, where the operator named a mail server.

logger = logging.getLogger(__name__)


def link_mail(request: HttpRequest, username: str) -> None:
    """Send a one-time link to the mail address of this account, if it has one and is not an administrator's.

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


BY_LINK = "logged_in_by_link"
THEME_AGE_S = 365 * 24 * 3600


class Login(LoginView):
    """The login page; a failure is answered with 422, too many of them with 429."""

    template_name = "teams/login.html"
    authentication_form = LoginForm
    redirect_authenticated_user = True

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        """The form, and the provider of single sign-on by name."""
        return super().get_context_data(**context, sign_on=settings.OIDC_ISSUER and settings.OIDC_NAME)

    def form_invalid(self, form: LoginForm) -> HttpResponse:  # type: ignore[override]
        """Say the same for every failure."""
        answer = self.render_to_response(self.get_context_data(form=form), status=429 if form.wait_s else 422)
        if form.wait_s:
            answer["Retry-After"] = str(math.ceil(form.wait_s))
        return answer


# --- Single sign-on -------------------------------------------------------------------------------------------------


class SignOn(OIDCAuthenticationRequestView):  # type: ignore[misc]  # the package ships no types
    """To the provider, and from there back; with ``confirm`` it asks for the person's password again."""

    def __init__(self, **options: Any) -> None:
        View.__init__(self, **options)  # not the package's, which reads the provider's addresses from settings
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID

    def get(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the provider. Where it cannot be reached, the login page says why."""
        if not settings.OIDC_ISSUER:
            raise Http404
        try:
            self.OIDC_OP_AUTH_ENDPOINT = provider().authorization
        except TiltyardError as exc:
            return _not_signed_on(request, exc.message)
        answer: HttpResponse = super().get(request)
        return answer

    def get_extra_params(self, request: HttpRequest) -> dict[str, str]:
        """What the provider is asked besides: to have the person prove who they are now."""
        return {"prompt": "login", "max_age": "0"} if "confirm" in request.GET else {}


class SignOnCallback(OIDCAuthenticationCallbackView):  # type: ignore[misc]
    """Back from the provider: logged in, or the login page with the reason."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Check the answer, and log the person in."""
        if not settings.OIDC_ISSUER:
            raise Http404
        if "error" in request.GET:  # the package would also log out a person who is logged in
            if request.session.get("oidc_states", {}).pop(request.GET.get("state", ""), None):
                request.session.modified = True
            return self.login_failure()
        try:
            answer: HttpResponse = super().get(request)
        except SignOnRefused as exc:
            return _not_signed_on(request, " ".join(exc.messages))
        except TiltyardError as exc:
            return _not_signed_on(request, exc.message)
        except SuspiciousOperation as exc:
            logger.warning("sign-on refused", extra={"action": "sign_on", "error": str(exc)[:200]})
            return self.login_failure()
        return answer

    def login_success(self) -> HttpResponse:
        """Log in. It is a confirmation only where the person has just proved who they are at the provider."""
        proved, same = self.request.session.pop(AUTH_TIME, None), self.request.user == self.user
        answer: HttpResponse = super().login_success()
        if isinstance(proved, int) and -LEEWAY_S <= time.time() - proved < WINDOW_S:
            confirm(self.request)
        elif not same:
            unconfirm(self.request)
        return answer

    def login_failure(self) -> HttpResponse:
        """The provider said no, or its answer is not valid for this login."""
        said = clean_text(self.request.GET.get("error_description") or self.request.GET.get("error") or "")[:200]
        text = _("%(name)s did not log you in: %(said)s") % {"name": settings.OIDC_NAME, "said": said}
        without = _("The answer of %(name)s was not valid for this login; try again.") % {"name": settings.OIDC_NAME}
        return _not_signed_on(self.request, text if said else without)


def _not_signed_on(request: HttpRequest, why: str) -> HttpResponse:
    messages.error(request, why)
    return redirect("confirm" if request.user.is_authenticated else "login")


@never_cache
@require_http_methods(["GET", "POST"])
def login_link(request: HttpRequest, token: str) -> HttpResponse:
    """A one-time link. GET only shows a button, so that link previews and scanners do not burn it."""
    if request.method == "POST":
        user = login_link_use(token)
        if user is not None:
            login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
            request.session[BY_LINK] = True
            audit(AuditAction.LINK_USED, user, by=user)
            return redirect("set-password")
    usable = request.method == "GET" and login_link_usable(token)
    # SECURE_REFERRER_POLICY keeps this address to ourselves; "no-referrer" would send `Origin: null`, which fails the
    # CSRF check.
    return render(request, "teams/login_link.html", {"usable": usable}, status=200 if usable else 410)


@sensitive_post_parameters()
@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def set_password(request: HttpRequest) -> HttpResponse:
    """Set or change the password; people who came by a link, or have none yet, need no old one."""
    user = cast(User, request.user)
    first = bool(request.session.get(BY_LINK)) or not user.has_usable_password()
    if user.is_superuser and first:
        ask(request, Act.FIRST_PASSWORD)  # an old session of an administrator must not become a password
    form_class = SetPasswordForm if first else PasswordChangeForm
    form = form_class(user, request.POST if request.method == "POST" else None)
    # Sentences one after another: Django's list also has an item for each validator without a text.
    form.fields["new_password1"].help_text = " ".join(filter(None, password_validators_help_texts()))
    if form.is_valid():
        tokens = tokens_of(user).count()
        with transaction.atomic():
            form.save()
            audit(AuditAction.PASSWORD_SET, user)
        update_session_auth_hash(request, user)
        request.session.pop(BY_LINK, None)
        messages.success(request, _password_message(tokens))
        return redirect("home")
    status = 422 if request.method == "POST" else 200
    context = {"form": form, "first": first, "mail_form": MailForm(instance=user) if settings.EMAIL_HOST else None}
    context["tokens"] = tokens_of(user).count()
    return render(request, "teams/set_password.html", context, status=status)


def _password_message(tokens: int) -> str:
    """The sentence after a password was set."""
    message = _("Your password is set.")
    if not tokens:
        return message
    ended = ngettext("%(n)d API token ended with the old one.", "%(n)d API tokens ended with the old one.", tokens)
    return f"{message} {ended % {'n': tokens}}"


@never_cache
@login_required
@require_POST
def set_mail(request: HttpRequest) -> HttpResponse:
    """Set the address for reset links. It needs a confirmation: a stolen session must not become an account."""
    user = cast(User, request.user)
    ask(request, Act.MAIL, reverse("set-password"))
    form = MailForm(request.POST, instance=user)
    if form.is_valid():
        user.save(update_fields=["email"])
        audit(AuditAction.MAIL_SET, user)
        messages.success(request, _("Your mail address is saved."))
    else:
        messages.error(request, _("That is not a mail address."))
    return redirect("set-password")


@never_cache
@require_http_methods(["GET", "POST"])
def forgotten(request: HttpRequest) -> HttpResponse:
    """A reset link by mail, where a mail server is set. The answer is the same for every name, so that it does not show
    which accounts exist."""
    form = ForgottenForm(request.POST if request.method == "POST" else None)
    sent = False
    if form.is_valid() and settings.EMAIL_HOST:
        link_mail(request, form.cleaned_data["username"])
        sent = True
    status = 422 if request.method == "POST" and not sent else 200
    context = {"form": form, "sent": sent, "by_mail": bool(settings.EMAIL_HOST)}
    return render(request, "teams/forgotten.html", context, status=status)


@require_POST
def set_theme(request: HttpRequest) -> HttpResponse:
    """Keep the theme or the density in a cookie; the script does the same without a request."""
    response = redirect(own_address(request, request.POST.get("next", ""), "/"))
    for name, values in LOOKS.items():
        if (value := request.POST.get(name, "")) in values:
            response.set_cookie(
                look_cookie(name), value, max_age=THEME_AGE_S, samesite="Lax", secure=request.is_secure()
            )
    return response
