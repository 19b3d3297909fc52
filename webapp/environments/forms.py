"""The forms that register an environment (at an address, from a built-in server, from an image) and change one."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from training.config import EnvironmentConfig
from webapp.common.ids import name_validator
from webapp.common.outbound import MAX_URL_CHARS
from webapp.common.text import json_words
from webapp.environments.builtin import BuiltIn, builtin_of_image, builtins
from webapp.environments.models import MAX_REPLICAS, Environment, Kind
from webapp.environments.option_fields import Group, OptionsForm

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
    """What each replica is started with."""

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
        help_text=gettext_lazy("Sent to the server as a bearer token. It is kept in a file and never shown again."),
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
        """What the service of the chosen way takes."""
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
        """What the service takes."""
        data = self.cleaned_data
        return {"pids": environment.pids} | {
            name: data[name] for name in (*LimitsForm.base_fields, "arguments") if name in data
        }
