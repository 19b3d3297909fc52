"""Pages of environments: the list, registering, one environment, its history and logs, its options and datasets."""

from __future__ import annotations

import json
from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from training.config import EnvironmentConfig
from training.errors import TiltyardError
from training.plain import number_in
from webapp.common.ids import name_validator
from webapp.common.outbound import MAX_URL_CHARS
from webapp.common.pages import add_errors, probe_allowed
from webapp.common.text import json_words
from webapp.environments import services
from webapp.environments.builtin import (
    BuiltIn,
    Group,
    OptionsForm,
    OptionText,
    builtin_of_image,
    builtins,
    command_text,
)
from webapp.environments.launchers import launchers
from webapp.environments.models import MAX_REPLICAS, Environment, Kind
from webapp.environments.orders import order_create
from webapp.environments.selectors import (
    argument_texts,
    environments_of,
    health_view,
    history,
    order_rows,
    replica_rows,
    reservations_of,
    runs_on,
    validation_view,
)
from webapp.people.teams.access import can_edit, own, project_for
from webapp.people.teams.models import Project, Role, User

# --- Forms ----------------------------------------------------------------------------------------------------------
# The forms that register an environment (at an address, from a built-in server, from an image) and change one.

MAX_OPTIONS_CHARS = 8_192
NEEDS = {Kind.URL: "url", Kind.PROCESS: "program", Kind.DOCKER: "image"}
WAYS = [
    (Kind.URL, gettext_lazy("At an address: a server that runs elsewhere")),
    (Kind.PROCESS, gettext_lazy("Built-in server: Tiltyard starts it as a process")),
    (Kind.DOCKER, gettext_lazy("Container image: Tiltyard starts it with Docker")),
]


def protocol_choices() -> list[tuple[str, str]]:
    """The protocols of ``EnvironmentConfig``, in the reader's language."""
    extra: Any = EnvironmentConfig.model_fields["protocol"].json_schema_extra
    return [(value, _(text)) for value, text in extra["choices"].items()]


def program_choices() -> list[tuple[str, str]]:
    """The built-in servers with what they are about."""
    return [(item.name, f"{item.name} {item.version} · {', '.join(item.tags)}") for item in builtins().values()]


class LimitsForm(OptionsForm):
    """The limits that each replica is started with."""

    slots = forms.IntegerField(
        label=gettext_lazy("Slots"),
        initial=128,
        min_value=1,
        max_value=4096,
        required=False,
        help_text=gettext_lazy("Sessions of each replica."),
    )
    memory_mb = forms.IntegerField(
        label=gettext_lazy("Memory limit"),
        initial=1024,
        min_value=64,
        max_value=262_144,
        required=False,
        help_text=gettext_lazy("Of each replica."),
    )
    cpus = forms.FloatField(
        label=gettext_lazy("CPU limit"),
        initial=1.0,
        min_value=0.1,
        max_value=64,
        required=False,
        help_text=gettext_lazy("Of each replica."),
    )
    pids = forms.IntegerField(
        label=gettext_lazy("Process limit"),
        initial=128,
        min_value=8,
        max_value=4096,
        required=False,
        help_text=gettext_lazy("Processes and threads of each container."),
    )


class EnvironmentForm(LimitsForm):
    """The address itself is judged by ``webapp.common.outbound``, an image by the administrator's patterns."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=gettext_lazy("Name that runs of this project use for it."),
    )
    kind = forms.ChoiceField(
        label=gettext_lazy("Where it runs"), choices=WAYS, initial=Kind.URL, widget=forms.RadioSelect, required=False
    )
    url = forms.CharField(
        label=gettext_lazy("Server URL"),
        max_length=MAX_URL_CHARS,
        required=False,
        help_text=gettext_lazy("http:// or https:// address of the server."),
    )
    token = forms.CharField(
        label=gettext_lazy("Access token"),
        max_length=500,
        required=False,
        strip=True,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=gettext_lazy("Sent to the server as a bearer token. It is stored encrypted and never shown again."),
    )
    server_name = forms.CharField(
        label=gettext_lazy("Identity"),
        max_length=80,
        required=False,
        help_text=gettext_lazy("The environment expected at the address, such as webshop. Empty accepts any."),
    )
    protocol = forms.ChoiceField(
        label=gettext_lazy("Protocol"),
        choices=protocol_choices,
        initial="openenv",
        required=False,
        help_text=gettext_lazy("Protocol of the server."),
    )
    options = forms.CharField(
        label=gettext_lazy("Protocol options"),
        required=False,
        max_length=MAX_OPTIONS_CHARS,
        widget=forms.Textarea(attrs={"rows": 3, "class": "mono", "spellcheck": "false"}),
        help_text=gettext_lazy("A JSON object with what the protocol needs besides the address, if anything."),
    )
    program = forms.ChoiceField(
        label=gettext_lazy("Server"),
        choices=program_choices,
        required=False,
        help_text=gettext_lazy("It listens on this machine only, protected by its own token."),
    )
    image = forms.CharField(
        label=gettext_lazy("Image"),
        max_length=200,
        required=False,
        help_text=gettext_lazy("Name of an image on this machine, such as tiltyard-env-webshop. Nothing is pulled."),
    )
    wanted = forms.IntegerField(
        label=gettext_lazy("Replicas"),
        initial=1,
        min_value=0,
        max_value=MAX_REPLICAS,
        required=False,
        help_text=gettext_lazy("Servers that run at once; can be changed at any time."),
    )
    accept = forms.BooleanField(label=gettext_lazy("Register anyway"), required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups = [self.add_options(item.name, item.options) for item in builtins().values() if item.options]

    def clean_options(self) -> dict[str, Any]:
        """The options as an object."""
        text = self.cleaned_data["options"].strip()
        try:
            found = json.loads(text) if text else {}
        except (ValueError, RecursionError) as exc:
            raise ValidationError(json_words(exc)) from exc
        if not isinstance(found, dict):
            raise ValidationError(_("Write a JSON object, such as {}."))
        return found

    def clean(self) -> dict[str, Any]:
        """Fill in what was left empty, and ask for what the chosen way needs."""
        data = super().clean() or {}
        data["kind"] = data.get("kind") or Kind.URL
        data["arguments"] = self.read_options(self._chosen_group())
        for name, field in self.fields.items():
            if data.get(name) in (None, "") and name not in self.errors and field.initial is not None:
                data[name] = field.initial
        needed = NEEDS[data["kind"]]
        if not data.get(needed) and needed not in self.errors:
            self.add_error(needed, _("Required."))
        return data

    def _chosen_group(self) -> Group | None:
        """The options of the server that was chosen; those of others do not matter."""
        data = self.cleaned_data
        program: BuiltIn | None = None
        if data.get("kind") == Kind.PROCESS:
            program = builtins().get(data.get("program", ""))
        elif data.get("kind") == Kind.DOCKER and data.get("protocol") in ("", "openenv"):
            program = builtin_of_image(data.get("image", ""))
        return next((group for group in self.groups if program and group.name == program.name), None)

    def chosen(self) -> dict[str, Any]:
        """The arguments of the service for the chosen way."""
        data = self.cleaned_data
        common = ("name", "protocol", "options")
        names = {
            Kind.URL: (*common, "url", "token", "server_name", "accept"),
            Kind.PROCESS: ("name", "kind", "program", "arguments", "wanted", "slots", "memory_mb", "cpus"),
            Kind.DOCKER: (*common, "kind", "image", "arguments", "wanted", "slots", "memory_mb", "cpus", "pids"),
        }[data["kind"]]
        return {name: data[name] for name in names}


class EnvironmentEditForm(LimitsForm):
    """Limits and options of an environment that we start."""

    def __init__(self, environment: Environment, data: Any = None) -> None:
        super().__init__(data, initial={name: getattr(environment, name) for name in LimitsForm.base_fields})
        program = environment.built_in
        options = program.options if program else []
        self.group = self.add_options(program.name, options, environment.arguments) if program and options else None
        for name in LimitsForm.base_fields:
            self.fields[name].required = True
        if environment.kind != Kind.DOCKER:
            del self.fields["pids"]

    def clean(self) -> dict[str, Any]:
        """The options as one value."""
        data = super().clean() or {}
        data["arguments"] = self.read_options(self.group)
        return data

    def chosen(self, environment: Environment) -> dict[str, Any]:
        """The arguments of the service."""
        data = self.cleaned_data
        return {"pids": environment.pids} | {
            name: data[name] for name in (*LimitsForm.base_fields, "arguments") if name in data
        }


@login_required
@require_GET
def environment_list(request: HttpRequest, slug: str) -> HttpResponse:
    """All environments of the project; the table polls every few seconds."""
    project = project_for(request.user, slug)
    rows = [(item, health_view(item)) for item in environments_of(project)]
    context = {
        "project": project,
        "rows": rows,
        "can_edit": can_edit(project),
        "builtins": builtins(),
        "most": MAX_REPLICAS,
    }
    fragment = request.headers.get("HX-Request") == "true"
    return render(request, "environments/_table.html" if fragment else "environments/list.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def environment_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Register an environment in one of three ways; a server at an address is checked first."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    if request.method == "GET":
        program = request.GET.get("program", "")
        first = {"kind": Kind.PROCESS, "program": program, "name": program} if program in builtins() else None
        return _render_form(request, project, EnvironmentForm(initial=first))
    form = EnvironmentForm(request.POST)
    findings: list[Any] = []
    if form.is_valid() and not probe_allowed(request.user):
        form.add_error(None, _("Too many checks in one minute; wait a moment."))
        return _render_form(request, project, form, status=429)
    if form.is_valid():
        values, user = form.chosen(), cast(User, request.user)
        make = services.environment_register if form.cleaned_data["kind"] == Kind.URL else services.environment_launch
        try:
            made = make(project=project, user=user, **values)
        except ValidationError as exc:
            if isinstance(exc, services.RegistrationRefused):
                findings = exc.findings  # they say all of it
            else:
                add_errors(form, exc)
        else:
            notice = _("%(name)s starts now.") if made.launched else _("%(name)s answers and is registered.")
            messages.success(request, notice % {"name": made.name})
            return redirect("environment-detail", slug=slug, pk=made.pk)
    return _render_form(request, project, form, findings=findings, status=422)


def _render_form(
    request: HttpRequest,
    project: Project,
    form: EnvironmentForm,
    *,
    findings: list[Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    found = findings or []
    resources = {item.name: {"memory_mb": item.memory_mb, "cpus": item.cpus} for item in builtins().values()}
    context = {
        "project": project,
        "form": form,
        "findings": found,
        "resources": resources,
        "doubtful": any(not item.ok for item in found) and all(item.ok or item.may_pass for item in found),
    }
    return render(request, "environments/new.html", context, status=status)


def live_context(project: Project, environment: Environment) -> dict[str, Any]:
    """The context of the live part of an environment's page."""
    return {
        "project": project,
        "item": environment,
        "health": health_view(environment),
        "replicas": replica_rows(environment),
        "validation": validation_view(environment),
        "reserved": reservations_of(environment),
        "can_edit": can_edit(project),
        "most": MAX_REPLICAS,
        "arguments": argument_texts(environment),
    }


@login_required
@require_GET
def environment_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """One environment; its live part polls every few seconds."""
    project, environment = own(request, slug, Environment, pk, within=environments_of)
    context = live_context(project, environment)
    if request.headers.get("HX-Request") == "true":
        return render(request, "environments/_live.html", context)
    urls = {"history": reverse("environment-history", args=[slug, pk])}
    program = environment.built_in
    context |= {"runs": runs_on(environment), "data": urls, "writes": bool(program and program.datasets)}
    return render(request, "environments/detail.html", context | order_rows(environment))


@login_required
@require_GET
def environment_history(request: HttpRequest, slug: str, pk: UUID) -> JsonResponse:
    """The load of the last day, for the charts."""
    _project, environment = own(request, slug, Environment, pk, within=environments_of)
    return JsonResponse(history(environment))


@login_required
@require_GET
def replica_log_page(request: HttpRequest, slug: str, pk: UUID, number: int) -> HttpResponse:
    """The last lines that one replica printed; what it prints is escaped as text."""
    project, environment = own(request, slug, Environment, pk, within=environments_of)
    replica = next((item for item in environment.replicas.all() if item.number == number), None)
    if replica is None:
        raise Http404
    lines, problem = [], ""
    try:
        if environment.launched:
            lines = launchers()[environment.kind].logs(replica)
        else:
            problem = _("This server runs outside Tiltyard; see its own log.")
    except TiltyardError as exc:
        problem = " ".join(part for part in (exc.message, exc.hint) if part)
    context = {"project": project, "item": environment, "replica": replica, "lines": lines, "problem": problem}
    fragment = request.headers.get("HX-Request") == "true"
    return render(request, "environments/_log.html" if fragment else "environments/log.html", context)


# --- Control views --------------------------------------------------------------------------------------------------
# Pages that act on an environment. Each writes what is wanted; the keeper does it.

TOO_MANY = 99


def _live_response(
    request: HttpRequest, project: Project, environment: Environment, notice: str, *, ok: bool
) -> HttpResponse:
    """The part of the page that asked, or the environment's page."""
    if request.headers.get("HX-Request") != "true":
        (messages.success if ok else messages.error)(request, notice)
        return redirect("environment-detail", slug=project.slug, pk=environment.pk)
    if request.GET.get("part") == "preflight":
        return render(request, "environments/_offered.html", {"notice": notice, "ok": ok})
    return render(
        request, "environments/_live.html", live_context(project, environment) | {"notice": "" if ok else notice}
    )


@login_required
@require_POST
def environment_recheck(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Check one environment now, and have it validate itself."""
    project, environment = own(request, slug, Environment, pk, need=Role.EDITOR, within=environments_of)
    if not probe_allowed(request.user):
        return HttpResponse(_("Too many checks in one minute; wait a moment."), status=429)
    services.environment_check(environment=environment)
    _project, environment = own(request, slug, Environment, pk, need=Role.EDITOR, within=environments_of)
    if request.GET.get("part") == "row":
        context = {"project": project, "item": environment, "health": health_view(environment), "can_edit": True}
        return render(request, "environments/_row.html", context)
    return _live_response(
        request, project, environment, _("%(name)s was checked.") % {"name": environment.name}, ok=True
    )


@login_required
@require_POST
def environment_scale_view(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Set how many replicas are wanted (``wanted``), or how many more (``add``, also negative)."""
    project, environment = own(request, slug, Environment, pk, need=Role.EDITOR, within=environments_of)
    wanted, more = _parse_count(request.POST.get("wanted", "")), _parse_count(request.POST.get("add", ""))
    if more is not None:
        wanted = min(MAX_REPLICAS, max(0, environment.wanted + more))
    try:
        if wanted is None:
            raise ValidationError(_("Enter the number of replicas."))
        environment = services.environment_scale(environment=environment, wanted=wanted)
    except ValidationError as exc:
        return _live_response(request, project, environment, " ".join(exc.messages), ok=False)
    notice = ngettext("%(count)d replica is wanted now.", "%(count)d replicas are wanted now.", wanted)
    return _live_response(request, project, environment, notice % {"count": wanted}, ok=True)


@login_required
@require_POST
def environment_restart_view(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Restart one replica (``number``), or all."""
    project, environment = own(request, slug, Environment, pk, need=Role.EDITOR, within=environments_of)
    try:
        count = services.environment_restart(
            environment=environment, number=_parse_count(request.POST.get("number", ""))
        )
    except ValidationError as exc:
        return _live_response(request, project, environment, " ".join(exc.messages), ok=False)
    notice = ngettext("%(count)d replica restarts.", "%(count)d replicas restart.", count) % {"count": count}
    return _live_response(request, project, environment, notice, ok=True)


@login_required
@require_POST
def environment_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete one environment."""
    _project, environment = own(request, slug, Environment, pk, need=Role.EDITOR, within=environments_of)
    try:
        services.environment_delete(environment=environment)
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
        return redirect("environment-detail", slug=slug, pk=pk)
    messages.success(request, _("%(name)s was removed.") % {"name": environment.name})
    return redirect("environment-list", slug=slug)


def _parse_count(text: str) -> int | None:
    """A small whole number, or ``None`` for anything else."""
    digits = text.removeprefix("-")
    number = number_in(digits, 3)
    if number is None:
        return None
    return max(-TOO_MANY, min(TOO_MANY, number if text == digits else -number))


# --- Order form -----------------------------------------------------------------------------------------------------
# The form that asks a built-in environment for a dataset.


class OrderForm(OptionsForm):
    """The command, the dataset's name, and the options of the command."""

    command = forms.ChoiceField(label=gettext_lazy("What"), widget=forms.RadioSelect)
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=[name_validator],
        required=False,
        help_text=gettext_lazy("Empty: named after the environment and the data. An existing name gets a new version."),
    )

    def __init__(self, environment: Environment, program: BuiltIn, data: Any = None) -> None:
        names = list(program.datasets)
        super().__init__(data, initial={"command": names[0]})
        self.environment, self.program = environment, program
        self.fields["command"].choices = [(name, command_text(name).label) for name in names]  # type: ignore[attr-defined]
        # Where the server has an option of the same name, the rows are as the server would have them.
        self.groups = [
            self.add_options(name, command.options, environment.arguments, program=program.name)
            for name, command in program.datasets.items()
        ]

    def clean(self) -> dict[str, Any]:
        """The options of the chosen command as one value."""
        data = super().clean() or {}
        if not data.get("name") and data.get("command"):
            data["name"] = f"{self.environment.name[: 79 - len(data['command'])]}-{data['command']}"
        data["arguments"] = self.read_options(next((g for g in self.groups if g.name == data.get("command")), None))
        return data

    def chosen(self) -> dict[str, Any]:
        """The arguments of the service."""
        return {name: self.cleaned_data[name] for name in ("name", "command", "arguments")}

    def helps(self) -> list[OptionText]:
        """The purpose of each command."""
        return [command_text(name) for name in self.program.datasets]

    def shared_texts(self) -> list[tuple[str, str]]:
        """The options of the server that the rows follow."""
        names = {option.name for command in self.program.datasets.values() for option in command.shared}
        return argument_texts(self.environment, only=names)


@login_required
@require_http_methods(["GET", "POST"])
def environment_edit(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Change limits and options; the replicas restart with them."""
    project, environment = own(request, slug, Environment, pk, need=Role.EDITOR, within=environments_of)
    if not environment.launched:
        messages.error(request, _("This server was started elsewhere, so it cannot be started or stopped here."))
        return redirect("environment-detail", slug=slug, pk=pk)
    form = EnvironmentEditForm(environment, request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            changed = services.environment_change(environment=environment, **form.chosen(environment))
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            notice = _("%(name)s restarts with the new settings.") if changed else _("Nothing was changed.")
            messages.success(request, notice % {"name": environment.name} if changed else notice)
            return redirect("environment-detail", slug=slug, pk=pk)
    context = {"project": project, "item": environment, "form": form}
    return render(request, "environments/edit.html", context, status=422 if form.errors else 200)


@login_required
@require_http_methods(["GET", "POST"])
def order_new(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Ask a built-in environment for a dataset; it is written in the background."""
    project, environment = own(request, slug, Environment, pk, need=Role.EDITOR, within=environments_of)
    program = environment.built_in
    if program is None or not program.datasets:
        messages.error(request, _("Only environments that come with Tiltyard can generate datasets."))
        return redirect("environment-detail", slug=slug, pk=pk)
    form = OrderForm(environment, program, request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            order_create(environment=environment, user=cast(User, request.user), **form.chosen())
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            response = redirect("environment-detail", slug=slug, pk=pk)
            response["Location"] += "#orders"
            return response
    context = {"project": project, "item": environment, "form": form, "shared": form.shared_texts()}
    return render(request, "environments/order.html", context, status=422 if form.errors else 200)


@login_required
@require_GET
def order_list(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The datasets that were asked for; the part polls while one is under way."""
    project, environment = own(request, slug, Environment, pk, within=environments_of)
    context: dict[str, Any] = {"project": project, "item": environment, "can_edit": can_edit(project)}
    return render(request, "environments/_orders.html", context | order_rows(environment))
