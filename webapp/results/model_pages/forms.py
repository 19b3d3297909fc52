"""Forms of people's texts on a model."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from webapp.runs.registry.models import RegisteredModel
from webapp.runs.registry.selectors import (
    MAX_NOTES_CHARS,
    MAX_SECTION_CHARS,
    MAX_TAG_CHARS,
    MAX_TAGS,
    SECTIONS,
)

HELP = {
    "intended_use": gettext_lazy("What it is for, and for whom."),
    "limitations": gettext_lazy("Where it fails, and what it must not be used for."),
    "licence": gettext_lazy("The terms of use; those of its base model and of its data apply as well."),
}


class AboutForm(forms.Form):
    """Tags and notes. The service has the rules; this form only carries them."""

    tags = forms.CharField(
        label=gettext_lazy("Tags"),
        required=False,
        max_length=(MAX_TAG_CHARS + 2) * MAX_TAGS * 2,
        help_text=gettext_lazy("A few short words with spaces or commas between them, for example: tool-use 0.6b."),
    )
    notes = forms.CharField(
        label=gettext_lazy("Notes"),
        required=False,
        max_length=MAX_NOTES_CHARS * 2,
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text=gettext_lazy("Plain text for your team."),
    )

    @classmethod
    def of(cls, model: RegisteredModel) -> AboutForm:
        """The form with a model's present values."""
        return cls(initial={"tags": " ".join(model.tags), "notes": model.notes})

    def values(self) -> dict[str, Any]:
        """Arguments of ``model_describe``."""
        return {"tags": re.split(r"[\s,，、]+", self.cleaned_data["tags"]), "notes": self.cleaned_data["notes"]}


class PushForm(forms.Form):
    """Where a model is pushed to."""

    repository = forms.CharField(
        label=gettext_lazy("Name on the hub"),
        max_length=200,
        help_text=gettext_lazy("owner/name: the account that the server's token may write to, and a name."),
    )
    private = forms.BooleanField(label=gettext_lazy("Private: only that account sees it"), required=False, initial=True)
    confirm = forms.BooleanField(
        label=gettext_lazy("These weights may leave this server, and so may what they learned from their data."),
        required=False,
    )

    def values(self) -> dict[str, Any]:
        """Arguments of ``push_order``."""
        data = self.cleaned_data
        return {"repository": data["repository"], "private": data["private"], "confirmed": data["confirm"]}


class CardForm(forms.Form):
    """The team's own sections of the model card."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, label in SECTIONS.items():
            self.fields[name] = forms.CharField(
                label=label,
                required=False,
                max_length=MAX_SECTION_CHARS * 2,
                help_text=HELP[name],
                widget=forms.Textarea(attrs={"rows": 4}),
            )

    @classmethod
    def of(cls, model: RegisteredModel) -> CardForm:
        """The form with a model's present values."""
        return cls(initial=model.card)

    def values(self) -> dict[str, Any]:
        """Arguments of ``model_describe``."""
        return {"card": dict(self.cleaned_data)}
