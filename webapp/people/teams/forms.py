"""Forms of people, teams and projects."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from webapp.common.figures import duration
from webapp.common.ids import name_validator
from webapp.people.teams.access import projects_of
from webapp.people.teams.models import Project, Role, Team, TokenScope, User
from webapp.people.teams.throttle import login_succeeded, login_wait_s


class LoginForm(AuthenticationForm):
    """Name and password; every failure reads the same, and too many of them wait (``wait_s`` seconds)."""

    wait_s = 0.0

    error_messages = {
        **AuthenticationForm.error_messages,
        "invalid_login": _("That name and password do not match an account."),
        "inactive": _("That name and password do not match an account."),
        "throttled": _(
            "Too many failed tries. Try again in %(wait)s, or ask an owner of your team for a link that logs in once."
        ),
    }

    def clean(self) -> dict[str, Any]:
        """Authenticate, unless this address or account has failed too often."""
        account = str(self.cleaned_data.get("username") or "")
        address = self.request.META.get("REMOTE_ADDR", "") if self.request else ""
        wait_s = self.wait_s = login_wait_s(account, address)
        if wait_s:
            params = {"wait": duration(wait_s)}
            raise forms.ValidationError(self.error_messages["throttled"], code="throttled", params=params)
        cleaned = super().clean()
        login_succeeded(account, address)
        return dict(cleaned)


class ConfirmForm(forms.Form):
    """The person's own password once more; too many wrong ones wait, as at the login."""

    wait_s = 0.0

    password = forms.CharField(
        label=_("Password"), strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "current-password"})
    )

    def __init__(self, *args: Any, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._request = request

    def clean_password(self) -> str:
        """Compare it with the account's."""
        user, password = cast(User, self._request.user), str(self.cleaned_data["password"])
        address = self._request.META.get("REMOTE_ADDR", "")
        wait_s = self.wait_s = login_wait_s(user.username, address)
        if wait_s:
            params = {"wait": duration(wait_s)}
            raise forms.ValidationError(
                _("Too many failed tries. Try again in %(wait)s."), code="throttled", params=params
            )
        if not user.check_password(password):
            raise forms.ValidationError(_("That is not your password."))
        login_succeeded(user.username, address)
        return password


class MailForm(forms.ModelForm):  # type: ignore[type-arg]
    """Where a reset link may be sent."""

    class Meta:
        model = User
        fields = ["email"]
        labels = {"email": _("Mail address")}
        help_texts = {"email": _("If you forget your password, a link that logs you in once is sent there.")}


class ForgottenForm(forms.Form):
    """Whose password was forgotten."""

    username = forms.CharField(
        label=_("User name"),
        max_length=150,
        widget=forms.TextInput(attrs={"autocomplete": "username", "autocapitalize": "none", "spellcheck": "false"}),
    )


class MemberForm(forms.Form):
    """Who joins the team, and as what."""

    username = forms.CharField(
        label=_("User name"),
        max_length=150,
        validators=User._meta.get_field("username").validators,
        help_text=_("Someone with an account joins at once. A new name gets an account and a one-time login link."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )
    role = forms.ChoiceField(label=_("Role"), choices=Role.choices, initial=Role.EDITOR)


class HubTokenForm(forms.Form):
    """A project's Hugging Face token; it is only ever written."""

    token = forms.CharField(
        label=_("Token"),
        max_length=500,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=_(
            "A token with read access is enough. It is kept in a file, never shown again, and given only to trainers "
            "of this project."
        ),
    )


class RoleForm(forms.Form):
    """A member's role."""

    role = forms.ChoiceField(label=_("Role"), choices=Role.choices)


class ProjectForm(forms.Form):
    """A new project in one of the teams that the person owns."""

    name = forms.CharField(
        label=_("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=_("What this project trains, in a few words."),
    )
    team = forms.ModelChoiceField(label=_("Team"), queryset=Team.objects.none(), empty_label=None)

    def __init__(self, *args: Any, teams: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["team"]
        assert isinstance(field, forms.ModelChoiceField)  # noqa: S101 - for the type checker
        field.queryset = teams
        if len(teams) == 1:
            field.widget = forms.HiddenInput()
            field.initial = teams[0].pk


DAYS = [(7, _("7 days")), (30, _("30 days")), (90, _("90 days")), (365, _("one year")), (0, _("no limit"))]
METRICS_TOLD = _("read runs and their metrics: no transcripts, datasets or chats")
INGEST_TOLD = _("send in datasets and runs of other trainers, and read nothing")


class TokenDaysForm(forms.Form):
    """For how long a token is valid."""

    days = forms.TypedChoiceField(label=_("Valid for"), coerce=int, choices=DAYS, initial=90)


class MachineForm(TokenDaysForm):
    """A machine account and its first token."""

    name = forms.CharField(
        label=_("Name"),
        max_length=80,
        validators=User._meta.get_field("username").validators,
        help_text=_("Runs and the audit show it, such as nightly-ci. It cannot log in."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )
    may = forms.ChoiceField(
        label=_("What it may do"),
        choices=[
            (TokenScope.METRICS, METRICS_TOLD),
            (TokenScope.INGEST, INGEST_TOLD),
            (Role.VIEWER, _("read")),
            (Role.EDITOR, _("read, create and run")),
        ],
        initial=Role.EDITOR,
        help_text=_("Never what only owners may do: a person does that."),
    )
    everywhere = forms.TypedChoiceField(label=_("Only in"), coerce=lambda chosen: chosen == "yes")
    field_order = ("name", "may", "everywhere", "days")

    def __init__(self, *args: Any, project: Project, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        places = [("no", project.name), ("yes", _("all projects of the team"))]
        self.fields["everywhere"].choices = places  # type: ignore[attr-defined]


class TokenForm(TokenDaysForm):
    """What a new token may do, and for how long."""

    name = forms.CharField(
        label=_("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=_("Where it is used, such as night-jobs."),
    )
    role = forms.ChoiceField(
        label=_("What it may do"),
        choices=[
            (TokenScope.METRICS, METRICS_TOLD),
            (TokenScope.INGEST, INGEST_TOLD),
            (Role.VIEWER, _("read")),
            (Role.EDITOR, _("read, create and run")),
            (Role.OWNER, _("everything that you may, deleting included")),
        ],
        initial=Role.EDITOR,
        help_text=_("Never more than you may do yourself."),
    )
    project = forms.ModelChoiceField(
        label=_("Only in"), queryset=Project.objects.none(), required=False, empty_label=_("all your projects")
    )
    field_order = ("name", "role", "project", "days")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["project"].queryset = projects_of(user)  # type: ignore[attr-defined]
