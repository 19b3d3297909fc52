"""The form of an import."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import name_validator


class SeveralFiles(forms.ClearableFileInput):
    """A file input that takes several."""

    allow_multiple_selected = True


class FilesField(forms.FileField):
    """One or more files; each is cleaned as one."""

    def clean(self, data: Any, initial: Any = None) -> list[UploadedFile]:  # type: ignore[override]
        """The files. Raises ``ValidationError``."""
        given = data if isinstance(data, list | tuple) else [data]
        return [super(FilesField, self).clean(item, initial) for item in given or [None]]


class ImportForm(forms.Form):
    """Name and files. The kind of a file is recognised by its content, never by its name."""

    name = forms.CharField(
        label=_("Name"),
        max_length=80,
        required=False,
        validators=[name_validator],
        help_text=_("Name of the run; by default, the name of the first file."),
    )
    source_run = forms.CharField(
        label=_("Run in the file"),
        max_length=200,
        required=False,
        help_text=_("Where a chart or a database holds several runs: the one to import."),
    )
    uploads = FilesField(
        label=_("Files of one run"),
        max_length=10_000,
        allow_empty_file=True,
        widget=SeveralFiles(attrs={"multiple": True}),
        help_text=_(
            "verl's console log and rollout dumps, TRL's completions, tables of metrics as CSV or JSON Lines, "
            "or a zip archive of them. The format is detected from the content."
        ),
    )
