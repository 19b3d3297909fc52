"""The form that registers a server."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _

from webapp.ids import name_validator
from webapp.outbound import MAX_URL_CHARS


class EnvironmentForm(forms.Form):
    """Name and address; the address itself is judged by ``webapp.outbound``."""

    name = forms.CharField(
        label=_("Name"), max_length=80, validators=[name_validator], help_text=_("How runs of this project name it.")
    )
    url = forms.CharField(
        label=_("Server URL"),
        max_length=MAX_URL_CHARS,
        help_text=_("http:// or https:// address of the server. It is asked for its name before it is saved."),
    )
