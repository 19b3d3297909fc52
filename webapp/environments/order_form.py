"""The form that asks a built-in environment for a dataset."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import name_validator
from webapp.environments.builtin import BuiltIn
from webapp.environments.models import Environment
from webapp.environments.option_fields import OptionsForm
from webapp.environments.selectors import argument_texts
from webapp.environments.strings import OptionText, command_text


class OrderForm(OptionsForm):
    """The command, the dataset's name, and the options of the command."""

    command = forms.ChoiceField(label=_("What"), widget=forms.RadioSelect)
    name = forms.CharField(
        label=_("Name"),
        max_length=80,
        validators=[name_validator],
        required=False,
        help_text=_("Empty: named after the environment and the data. An existing name gets a new version."),
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
