"""The form of an upload."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from webapp.common.ids import name_validator
from webapp.datasets.choice_forms import ChoicesForm, FilesField
from webapp.datasets.hub import source_clean
from webapp.datasets.several import files_clean


class DatasetForm(ChoicesForm):
    """Name, and a file or the id of a dataset. A file's content is judged by the check, never by its name."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=gettext_lazy("If the name exists, a new version is created; earlier versions do not change."),
    )
    file = FilesField(
        label=gettext_lazy("File"),
        max_length=10_000,
        allow_empty_file=True,
        required=False,
        help_text=gettext_lazy(
            "JSON Lines, JSON, CSV or Parquet; packed as gzip, or several of one format, together or as a zip "
            "archive: they become one dataset. The format of the rows is detected from their content."
        ),
    )
    hub = forms.CharField(
        label=gettext_lazy("Dataset of Hugging Face"),
        max_length=200,
        required=False,
        help_text=gettext_lazy("Instead of a file: an id such as openai/gsm8k. The server fetches its file."),
    )
    revision = forms.CharField(label=gettext_lazy("Revision"), max_length=100, required=False)
    split = forms.CharField(
        label=gettext_lazy("Split or file"),
        max_length=100,
        required=False,
        help_text=gettext_lazy("Part of the file's name if the dataset has several files, such as train."),
    )

    def clean_file(self) -> list[Any]:
        """One file, or several that are one dataset."""
        files: list[Any] = self.cleaned_data["file"]
        files_clean(files)
        return files

    def clean(self) -> dict[str, Any]:
        """Either files or an id."""
        clean = super().clean() or self.cleaned_data
        if clean.get("hub") and not self.errors:
            try:
                self.source = source_clean(clean["hub"], clean.get("revision", ""), clean.get("split", ""))
            except ValidationError as exc:
                self.add_error(None, exc)
        elif not clean.get("hub") and not clean.get("file") and "file" not in self.errors:
            self.add_error("file", _("Choose a file."))
        return clean
