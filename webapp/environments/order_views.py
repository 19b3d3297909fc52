"""Pages of options and datasets: changing what servers are started with, asking for tasks."""

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
from django.views.decorators.http import require_GET, require_http_methods

from webapp.common.ids import name_validator
from webapp.common.pages import add_errors
from webapp.environments.builtin import BuiltIn
from webapp.environments.models import Environment
from webapp.environments.options import OptionsForm
from webapp.environments.orders import order_create
from webapp.environments.selectors import argument_texts, environments_of, order_rows
from webapp.environments.services import environment_change
from webapp.environments.strings import OptionText, command_text
from webapp.environments.views import EnvironmentEditForm
from webapp.people.teams.access import can_edit, own
from webapp.people.teams.models import Role, User

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
        """What the service takes."""
        return {name: self.cleaned_data[name] for name in ("name", "command", "arguments")}

    def helps(self) -> list[OptionText]:
        """What each command is for."""
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
            changed = environment_change(environment=environment, **form.chosen(environment))
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
