"""Forms of a person's settings and of a project's channels."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from django import forms
from django.conf import settings
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import name_validator
from webapp.people.notifications.channels import CHANGED, MAX_ADDRESS_CHARS, MAX_SECRET_CHARS
from webapp.people.notifications.models import Channel, ChannelKind, Kind, Reader, Scope
from webapp.people.notifications.selectors import Choice
from webapp.people.teams.models import Project

USUAL = [Kind.RUN_SUCCEEDED, Kind.RUN_FAILED, Kind.RUN_PAUSED, Kind.EVALUATION_READY]
SCOPE_LABEL, MAIL_LABEL = _("Runs"), _("Also by mail")


class ProjectFields(NamedTuple):
    """The two fields of one project."""

    project: Project
    scope: forms.BoundField
    mail: forms.BoundField


class SettingsForm(forms.Form):
    """What a person is notified of: kinds of events everywhere, and for each project whose runs, and whether by
    mail."""

    told = forms.MultipleChoiceField(
        label=_("Events"), choices=Kind.choices, widget=forms.CheckboxSelectMultiple, required=False
    )
    language = forms.ChoiceField(
        label=_("Language of your mail"),
        choices=settings.LANGUAGES,
        help_text=_("Pages keep the language that you chose in the top bar."),
    )

    def __init__(self, data: Any, *, reader: Reader, choices: list[Choice]) -> None:
        muted = set(reader.muted)
        initial: dict[str, Any] = {"told": [kind for kind in Kind.values if kind not in muted]}
        super().__init__(data, initial=initial | {"language": reader.language})
        self._choices = choices
        for choice in choices:
            scope = forms.ChoiceField(label=SCOPE_LABEL, choices=Scope.choices, initial=choice.scope)
            mail = forms.BooleanField(label=MAIL_LABEL, required=False, initial=choice.mail)
            self.fields[f"scope-{choice.project.pk}"] = scope
            self.fields[f"mail-{choice.project.pk}"] = mail

    @property
    def projects(self) -> list[ProjectFields]:
        """The fields by project."""
        return [
            ProjectFields(item.project, self[f"scope-{item.project.pk}"], self[f"mail-{item.project.pk}"])
            for item in self._choices
        ]

    def values(self) -> dict[str, Any]:
        """Arguments of ``settings_save``."""
        data = self.cleaned_data
        chosen: dict[UUID, tuple[str, bool]] = {
            item.project.pk: (data[f"scope-{item.project.pk}"], data[f"mail-{item.project.pk}"])
            for item in self._choices
        }
        return {"told": data["told"], "language": data["language"], "choices": chosen}


class ChannelForm(forms.Form):
    """A channel. Its address and secret are only ever written; of one that exists, what is left empty stays."""

    name = forms.CharField(
        label=_("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=_("What your team calls it, such as the chat that it posts to."),
    )
    kind = forms.ChoiceField(label=_("Service"), choices=ChannelKind.choices)
    url = forms.CharField(
        label=_("Address of the webhook"),
        max_length=MAX_ADDRESS_CHARS,
        help_text=_("The service shows it with an incoming webhook or a custom robot. It is not shown again here."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "inputmode": "url"}),
    )
    secret = forms.CharField(
        label=_("Secret"),
        required=False,
        max_length=MAX_SECRET_CHARS,
        help_text=_("Feishu, DingTalk and JSON: what messages are signed with. Slack and Discord have none."),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    remove_secret = forms.BooleanField(label=_("Remove the secret"), required=False)
    events = forms.MultipleChoiceField(
        label=_("Events"), choices=Kind.choices, widget=forms.CheckboxSelectMultiple, initial=USUAL
    )
    language = forms.ChoiceField(label=_("Language of the messages"), choices=settings.LANGUAGES)

    def __init__(self, data: Any = None, *, channel: Channel | None = None) -> None:
        initial = {name: getattr(channel, name) for name in CHANGED} if channel else {"language": get_language()}
        super().__init__(data, initial=initial)
        if channel is not None:
            self.fields["url"].required = False
            self.fields["url"].help_text = _("Leave this empty to keep the address; what you enter replaces it.")
        if channel is None or not channel.signed:
            del self.fields["remove_secret"]
        else:
            self.fields["secret"].help_text = _(
                "There is a secret. Leave this empty to keep it; what you enter replaces it."
            )

    def values(self) -> dict[str, Any]:
        """Arguments of ``channel_change``; ``secret`` is ``None`` where it stays as it is."""
        data = self.cleaned_data
        given = {name: data[name] for name in (*CHANGED, "url")}
        return given | {"secret": "" if data.get("remove_secret") else data["secret"] or None}
