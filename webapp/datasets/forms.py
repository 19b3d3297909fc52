"""The form of an upload."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _

from webapp.ids import name_validator


class DatasetForm(forms.Form):
    """Name and file. The file's content is judged by the check, never by its name."""

    name = forms.CharField(
        label=_("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=_("A name that exists already gets a new version; earlier versions stay as they are."),
    )
    file = forms.FileField(
        label=_("File"),
        max_length=10_000,
        allow_empty_file=True,
        help_text=_("JSON Lines, a JSON list, CSV or Parquet. What its rows are is recognised from their content."),
    )
