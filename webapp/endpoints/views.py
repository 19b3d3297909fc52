"""Pages of endpoints: the list, one endpoint with its test and spending, adding, changing, deleting."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.common.ids import name_validator
from webapp.common.outbound import MAX_URL_CHARS
from webapp.common.pages import add_errors, probe_allowed
from webapp.common.secrets.models import Kind
from webapp.common.secrets.vault import secret_state
from webapp.endpoints import selectors
from webapp.endpoints.models import Endpoint, ToolFormat
from webapp.endpoints.services import CHANGED, MAX_KEY_CHARS, endpoint_change, endpoint_create, endpoint_delete, has_key
from webapp.endpoints.testing import endpoint_test, findings_of
from webapp.people.teams.access import can_edit, own, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.people.teams.sudo import Act, ask

# --- Forms ----------------------------------------------------------------------------------------------------------
# The form of an endpoint. Its limits are judged by the service, as those of the API are.


def _amount_field(label: Any, help_text: Any = "") -> forms.FloatField:
    field = forms.FloatField(label=label, help_text=help_text, required=False)
    field.widget.attrs["step"] = "any"
    return field


class EndpointForm(forms.Form):
    """All of an endpoint; the key is only ever written. The name of one that exists cannot be changed."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=gettext_lazy("Its name in runs and comparisons."),
    )
    url = forms.CharField(
        label=gettext_lazy("Address"),
        max_length=MAX_URL_CHARS,
        help_text=gettext_lazy(
            "Up to and including the version, such as https://api.example.com/v1 or http://gpu-1:8000/v1."
        ),
    )
    model = forms.CharField(
        label=gettext_lazy("Model"), max_length=200, help_text=gettext_lazy("The name of the model on the server.")
    )
    key = forms.CharField(
        label=gettext_lazy("Key"),
        max_length=MAX_KEY_CHARS,
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=gettext_lazy(
            "Sent as a bearer token, to this server alone. It is stored encrypted and never shown again."
        ),
    )
    remove_key = forms.BooleanField(label=gettext_lazy("Remove the key"), required=False)
    tool_format = forms.ChoiceField(
        label=gettext_lazy("Tool calls"),
        choices=ToolFormat.choices,
        initial=ToolFormat.NATIVE,
        help_text=gettext_lazy("How tools are described to it and how it calls them; the test shows which form works."),
    )
    context_tokens = forms.IntegerField(
        label=gettext_lazy("Context"),
        required=False,
        help_text=gettext_lazy("Longest prompt and answer together; the launch check uses it."),
    )
    concurrency = forms.IntegerField(
        label=gettext_lazy("Concurrent requests"),
        initial=8,
        help_text=gettext_lazy("Requests of one run at once, at most."),
    )
    timeout_s = forms.FloatField(
        label=gettext_lazy("Answer within"),
        initial=120,
        help_text=gettext_lazy("Time limit of one request, retries included."),
    )
    price_in = _amount_field(gettext_lazy("Price of input"), gettext_lazy("Of a million prompt tokens."))
    price_out = _amount_field(gettext_lazy("Price of output"), gettext_lazy("Of a million sampled tokens."))
    currency = forms.CharField(
        label=gettext_lazy("Currency"),
        max_length=3,
        required=False,
        help_text=gettext_lazy("Three letters, such as USD or CNY."),
    )
    max_run_tokens = forms.IntegerField(label=gettext_lazy("Tokens of a run, at most"), required=False)
    max_run_cost = _amount_field(gettext_lazy("Cost of a run, at most"))
    max_day_tokens = forms.IntegerField(label=gettext_lazy("Tokens of a day, at most"), required=False)
    max_day_cost = _amount_field(gettext_lazy("Cost of a day, at most"))

    def __init__(self, data: Any = None, *, endpoint: Endpoint | None = None, keyed: bool = False) -> None:
        initial = {name: getattr(endpoint, name) for name in CHANGED} if endpoint is not None else None
        super().__init__(data, initial=initial)
        if endpoint is not None:
            del self.fields["name"]
        if not keyed:
            del self.fields["remove_key"]
        else:
            self.fields["key"].help_text = gettext_lazy(
                "There is a key. Leave this empty to keep it; what you enter replaces it."
            )

    def values(self) -> dict[str, Any]:
        """Arguments of the services; ``key`` is ``None`` where it does not change."""
        data = self.cleaned_data
        given = {name: data[name] for name in (*CHANGED, "name") if name in data}
        return given | {"key": "" if data.get("remove_key") else data["key"] or None}


@login_required
@require_GET
def endpoint_list(request: HttpRequest, slug: str) -> HttpResponse:
    """All endpoints of the project, with their spending."""
    project = project_for(request.user, slug)
    found = [selectors.row_of(item) for item in selectors.with_use(selectors.endpoints_of(project))]
    rows = [(row, selectors.cost_text(row.item, row.today), selectors.cost_text(row.item, row.total)) for row in found]
    return render(request, "endpoints/list.html", {"project": project, "rows": rows, "can_edit": can_edit(project)})


@login_required
@require_GET
def endpoint_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """One endpoint: its last test, its limits, its spending by day, the runs that ask it."""
    project, endpoint = own(request, slug, Endpoint, pk, within=selectors.endpoints_of)
    return render(request, "endpoints/detail.html", _page_context(project, endpoint))


def _page_context(project: Project, endpoint: Endpoint) -> dict[str, Any]:
    days = selectors.days_of(endpoint)
    runs, count = selectors.uses_of(endpoint)
    lines = [
        (
            day,
            selectors.cost_text(endpoint, day.used),
            [(row, selectors.money(row.cost, endpoint.currency)) for row in day.users[: selectors.RUNS_SHOWN]],
        )
        for day in days
    ]
    return {
        "project": project,
        "item": endpoint,
        "state": selectors.endpoint_state(endpoint),
        "findings": findings_of(endpoint),
        "key_state": secret_state(Kind.ENDPOINT_KEY, endpoint.pk),
        "price": selectors.price_text(endpoint),
        "limit": selectors.limit_text(endpoint),
        "bars": selectors.day_bars(endpoint),
        "days": lines,
        "there": selectors.runs_there(project, days),
        "runs": runs,
        "run_count": count,
        "can_edit": can_edit(project),
    }


@login_required
@require_http_methods(["GET", "POST"])
def endpoint_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Add an endpoint. It is not asked yet: the test is a button of its page."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    form = EndpointForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        values = form.values()
        if values["key"]:
            ask(request, Act.ENDPOINT_KEY)
        try:
            made = endpoint_create(
                project=project, user=cast(User, request.user), **values | {"key": values["key"] or ""}
            )
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            messages.success(request, _("%(name)s is added; test it now.") % {"name": made.name})
            return redirect("endpoint-detail", slug=slug, pk=made.pk)
    context = {"project": project, "form": form}
    return render(request, "endpoints/edit.html", context, status=422 if form.is_bound else 200)


@login_required
@require_http_methods(["GET", "POST"])
def endpoint_edit(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Change an endpoint, replace its key or remove it."""
    project, endpoint = own(request, slug, Endpoint, pk, need=Role.EDITOR, within=selectors.endpoints_of)
    posted = request.POST if request.method == "POST" else None
    form = EndpointForm(posted, endpoint=endpoint, keyed=has_key(endpoint.pk))
    if form.is_valid():
        values = form.values()
        if values["key"] is not None:
            ask(request, Act.ENDPOINT_KEY)
        try:
            endpoint_change(endpoint=endpoint, **values)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            messages.success(
                request,
                _("%(name)s is changed; active runs keep the values that they began with.") % {"name": endpoint},
            )
            return redirect("endpoint-detail", slug=slug, pk=pk)
    context = {"project": project, "form": form, "item": _reloaded(endpoint)}
    return render(request, "endpoints/edit.html", context, status=422 if form.is_bound else 200)


def _reloaded(endpoint: Endpoint) -> Endpoint:
    """The endpoint as it is stored, without the values of a refused form."""
    endpoint.refresh_from_db()
    return endpoint


@login_required
@require_POST
def endpoint_try(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Test an endpoint: one tiny chat with a tool."""
    project, endpoint = own(request, slug, Endpoint, pk, need=Role.EDITOR, within=selectors.endpoints_of)
    if not probe_allowed(request.user):
        messages.error(request, _("Too many checks in one minute; wait a moment."))
        return redirect("endpoint-detail", slug=slug, pk=pk)
    endpoint = endpoint_test(endpoint)
    if request.headers.get("HX-Request") == "true":
        return render(request, "endpoints/_test.html", _page_context(project, endpoint))
    return redirect("endpoint-detail", slug=slug, pk=pk)


@login_required
@require_POST
def endpoint_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete an endpoint with its key; runs keep their records."""
    _project, endpoint = own(request, slug, Endpoint, pk, need=Role.EDITOR, within=selectors.endpoints_of)
    try:
        endpoint_delete(endpoint=endpoint)
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
        return redirect("endpoint-detail", slug=slug, pk=pk)
    messages.success(request, _("%(name)s is deleted, and its key with it.") % {"name": endpoint.name})
    return redirect("endpoint-list", slug=slug)
