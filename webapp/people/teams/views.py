"""Pages of teams: a new project, its members, its Hugging Face token."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.common.ids import name_validator
from webapp.common.pages import add_errors
from webapp.common.secrets.models import Kind
from webapp.common.secrets.vault import secret_state
from webapp.common.text import duration
from webapp.people.teams import services, sudo
from webapp.people.teams.access import project_for, projects_of
from webapp.people.teams.logins import login_succeeded, login_wait_s
from webapp.people.teams.models import Membership, Project, Role, Team, TokenScope, User
from webapp.people.teams.selectors import member_rows, membership_in, teams_owned
from webapp.people.teams.sudo import Act, ask

# Forms of people, teams and projects.


class LoginForm(AuthenticationForm):
    """Name and password; every failure reads the same, and too many of them wait (``wait_s`` seconds)."""

    wait_s = 0.0

    error_messages = {
        **AuthenticationForm.error_messages,
        "invalid_login": gettext_lazy("That name and password do not match an account."),
        "inactive": gettext_lazy("That name and password do not match an account."),
        "throttled": gettext_lazy(
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
        label=gettext_lazy("Password"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
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
                gettext_lazy("Too many failed tries. Try again in %(wait)s."), code="throttled", params=params
            )
        if not user.check_password(password):
            raise forms.ValidationError(gettext_lazy("That is not your password."))
        login_succeeded(user.username, address)
        return password


class MailForm(forms.ModelForm):  # type: ignore[type-arg]
    """Where a reset link may be sent."""

    class Meta:
        model = User
        fields = ["email"]
        labels = {"email": gettext_lazy("Mail address")}
        help_texts = {"email": gettext_lazy("If you forget your password, a link that logs you in once is sent there.")}


class ForgottenForm(forms.Form):
    """The account whose password was forgotten."""

    username = forms.CharField(
        label=gettext_lazy("User name"),
        max_length=150,
        widget=forms.TextInput(attrs={"autocomplete": "username", "autocapitalize": "none", "spellcheck": "false"}),
    )


class MemberForm(forms.Form):
    """The new member of the team, and their role."""

    username = forms.CharField(
        label=gettext_lazy("User name"),
        max_length=150,
        validators=User._meta.get_field("username").validators,
        help_text=gettext_lazy(
            "Someone with an account joins at once. A new name gets an account and a one-time login link."
        ),
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )
    role = forms.ChoiceField(label=gettext_lazy("Role"), choices=Role.choices, initial=Role.EDITOR)


class HubTokenForm(forms.Form):
    """A project's Hugging Face token; it is only ever written."""

    token = forms.CharField(
        label=gettext_lazy("Token"),
        max_length=500,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=gettext_lazy(
            "A token with read access is enough. It is stored encrypted, never shown again, and given only to trainers "
            "of this project."
        ),
    )


class RoleForm(forms.Form):
    """A member's role."""

    role = forms.ChoiceField(label=gettext_lazy("Role"), choices=Role.choices)


class ProjectForm(forms.Form):
    """A new project in one of the teams that the person owns."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=gettext_lazy("What this project trains, in a few words."),
    )
    team = forms.ModelChoiceField(label=gettext_lazy("Team"), queryset=Team.objects.none(), empty_label=None)

    def __init__(self, *args: Any, teams: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["team"]
        assert isinstance(field, forms.ModelChoiceField)  # noqa: S101 - for the type checker
        field.queryset = teams
        if len(teams) == 1:
            field.widget = forms.HiddenInput()
            field.initial = teams[0].pk


DAYS = [
    (7, gettext_lazy("7 days")),
    (30, gettext_lazy("30 days")),
    (90, gettext_lazy("90 days")),
    (365, gettext_lazy("one year")),
    (0, gettext_lazy("no limit")),
]
METRICS_TOLD = gettext_lazy("read runs and their metrics: no transcripts, datasets or chats")
INGEST_TOLD = gettext_lazy("send in datasets and runs of other trainers, and read nothing")


class TokenDaysForm(forms.Form):
    """For how long a token is valid."""

    days = forms.TypedChoiceField(label=gettext_lazy("Valid for"), coerce=int, choices=DAYS, initial=90)


class MachineForm(TokenDaysForm):
    """A machine account and its first token."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=User._meta.get_field("username").validators,
        help_text=gettext_lazy("Runs and the audit show it, such as nightly-ci. It cannot log in."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )
    may = forms.ChoiceField(
        label=gettext_lazy("What it may do"),
        choices=[
            (TokenScope.METRICS, METRICS_TOLD),
            (TokenScope.INGEST, INGEST_TOLD),
            (Role.VIEWER, gettext_lazy("read")),
            (Role.EDITOR, gettext_lazy("read, create and run")),
        ],
        initial=Role.EDITOR,
        help_text=gettext_lazy("Never what only owners may do: a person does that."),
    )
    everywhere = forms.TypedChoiceField(label=gettext_lazy("Only in"), coerce=lambda chosen: chosen == "yes")
    field_order = ("name", "may", "everywhere", "days")

    def __init__(self, *args: Any, project: Project, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        places = [("no", project.name), ("yes", gettext_lazy("all projects of the team"))]
        self.fields["everywhere"].choices = places  # type: ignore[attr-defined]


class TokenForm(TokenDaysForm):
    """The rights of a new token, and its lifetime."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=gettext_lazy("Where it is used, such as night-jobs."),
    )
    role = forms.ChoiceField(
        label=gettext_lazy("What it may do"),
        choices=[
            (TokenScope.METRICS, METRICS_TOLD),
            (TokenScope.INGEST, INGEST_TOLD),
            (Role.VIEWER, gettext_lazy("read")),
            (Role.EDITOR, gettext_lazy("read, create and run")),
            (Role.OWNER, gettext_lazy("everything that you may, deleting included")),
        ],
        initial=Role.EDITOR,
        help_text=gettext_lazy("Never more than you may do yourself."),
    )
    project = forms.ModelChoiceField(
        label=gettext_lazy("Only in"),
        queryset=Project.objects.none(),
        required=False,
        empty_label=gettext_lazy("all your projects"),
    )
    field_order = ("name", "role", "project", "days")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["project"].queryset = projects_of(user)  # type: ignore[attr-defined]


@login_required
@require_http_methods(["GET", "POST"])
def project_new(request: HttpRequest) -> HttpResponse:
    """Start a project in a team that the person owns."""
    user = cast(User, request.user)
    teams = teams_owned(user)
    if not teams:
        raise PermissionDenied(_("Only an owner of a team can start a project."))
    form = ProjectForm(request.POST if request.method == "POST" else None, teams=teams)
    if form.is_valid():
        try:
            project = services.project_create(by=user, **form.cleaned_data)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            return redirect("project-page", slug=project.slug)
    return render(request, "teams/project_new.html", {"form": form}, status=422 if request.method == "POST" else 200)


def settings_page(request: HttpRequest, project: Project, *, status: int = 200, **more: object) -> HttpResponse:
    """The page of the settings, with the result of a form on it."""
    context = {
        "project": project,
        "members": member_rows(project, cast(User, request.user)),
        "form": MemberForm(),
        "roles": Role.choices,
        "is_owner": getattr(project, "role", None) == Role.OWNER,
        "hub_form": HubTokenForm(),
        "hub_token_since": services.hub_token_since(project),
        "hub_token_state": secret_state(Kind.HUB_TOKEN, project.pk),
    }
    return render(request, "teams/settings.html", context | more, status=status)


@login_required
@require_GET
def team_settings(request: HttpRequest, slug: str) -> HttpResponse:
    """The team's members; an owner manages them here."""
    return settings_page(request, project_for(request.user, slug))


def _link_url(request: HttpRequest, token: str) -> str:
    return request.build_absolute_uri(reverse("login-link", args=[token]))


@never_cache
@login_required
@require_POST
def member_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Add a person. The one-time link of a new account is shown in this answer and never again."""
    project = project_for(request.user, slug, need=Role.OWNER)
    form = MemberForm(request.POST)
    if form.is_valid():
        _ask_confirmation(request, sudo.Act.MEMBER, project)
        try:
            added = services.member_add(team=project.team, by=cast(User, request.user), **form.cleaned_data)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            if added.token:
                return settings_page(
                    request, project, link=_link_url(request, added.token), link_for=added.membership.user
                )
            messages.success(request, _("%(name)s joined the team.") % {"name": added.membership.user.username})
            return redirect("team-settings", slug=slug)
    return settings_page(request, project, form=form, status=422)


def _member_of(request: HttpRequest, slug: str, pk: int) -> tuple[Project, Membership]:
    project = project_for(request.user, slug, need=Role.OWNER)
    membership = membership_in(project, pk)
    if membership is None:
        raise Http404
    return project, membership


def _ask_confirmation(request: HttpRequest, act: sudo.Act, project: Project) -> None:
    sudo.ask(request, act, reverse("team-settings", args=[project.slug]))


@login_required
@require_POST
def member_role(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Change a member's role."""
    project, membership = _member_of(request, slug, pk)
    form = RoleForm(request.POST)
    if not form.is_valid():
        messages.error(request, _("There is no such role."))
        return redirect("team-settings", slug=slug)
    _ask_confirmation(request, sudo.Act.MEMBER, project)
    try:
        by = cast(User, request.user)
        services.member_set_role(membership=membership, role=form.cleaned_data["role"], by=by)
        messages.success(
            request,
            _("%(name)s is now %(role)s.") % {"name": membership.user.username, "role": membership.get_role_display()},
        )
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
    return redirect("team-settings", slug=slug)


@login_required
@require_POST
def member_remove(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Take a member out of the team."""
    project, membership = _member_of(request, slug, pk)
    _ask_confirmation(request, sudo.Act.MEMBER, project)
    try:
        by = cast(User, request.user)
        services.member_remove(membership=membership, by=by)
        messages.success(request, _("%(name)s left the team.") % {"name": membership.user.username})
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
        return redirect("team-settings", slug=slug)
    left = membership.user_id == request.user.pk
    return redirect("home") if left else redirect("team-settings", slug=slug)


@never_cache
@login_required
@require_POST
def member_link(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """A new one-time link for a member who lost theirs, or forgot the password. It is shown in this answer alone."""
    project, membership = _member_of(request, slug, pk)
    _ask_confirmation(request, sudo.Act.LOGIN_LINK, project)
    by = cast(User, request.user)
    token = services.person_login_link(user=membership.user, by=by)
    return settings_page(request, project, link=_link_url(request, token), link_for=membership.user)


@login_required
@require_POST
def member_active(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Deactivate a person, or let them in again."""
    project, membership = _member_of(request, slug, pk)
    _ask_confirmation(request, sudo.Act.ACTIVE, project)
    set_active(request, membership.user, active=request.POST.get("active") == "yes")
    return redirect("team-settings", slug=slug)


def set_active(request: HttpRequest, user: User, *, active: bool) -> None:
    """Deactivate the person, or let them in again, with a message."""
    by = cast(User, request.user)
    services.person_set_active(user=user, active=active, by=by)
    text = _("%(name)s can log in again.") if active else _("%(name)s is logged out and can no longer log in.")
    messages.success(request, text % {"name": user.username})


# Setting and removing a project's Hugging Face token, on the page of its settings.


@login_required
@require_POST
def hub_token_keep(request: HttpRequest, slug: str) -> HttpResponse:
    """Set the token, or replace it."""
    project = project_for(request.user, slug, need=Role.OWNER)
    form = HubTokenForm(request.POST)
    if form.is_valid():
        ask(request, Act.HUB_TOKEN, reverse("team-settings", args=[slug]))
        try:
            services.hub_token_set(project=project, token=form.cleaned_data["token"])
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            messages.success(
                request, _("The token is kept. Runs that start from now on fetch their base model with it.")
            )
            return redirect("team-settings", slug=slug)
    return settings_page(request, project, hub_form=form, status=422)


@login_required
@require_POST
def hub_token_forget(request: HttpRequest, slug: str) -> HttpResponse:
    """Remove the token."""
    project = project_for(request.user, slug, need=Role.OWNER)
    if services.hub_token_remove(project=project):
        messages.success(request, _("The token is removed. Gated and private models can no longer be fetched."))
    return redirect("team-settings", slug=slug)
