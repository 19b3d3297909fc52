"""The base of operations' forms."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import name_validator
from webapp.datasets.models import Dataset

SEED_LIMIT = 2**31 - 1


def name_field(label: Any = None, help_text: Any = "") -> forms.CharField:
    return forms.CharField(label=label or _("Name"), max_length=80, validators=[name_validator], help_text=help_text)


def seed_field(**over: Any) -> forms.IntegerField:
    return forms.IntegerField(label=_("Seed"), min_value=0, max_value=SEED_LIMIT, initial=42, **over)


class OperationForm(forms.Form):
    """Base: the new dataset's name."""

    operation: ClassVar[str]
    tail: ClassVar[str]
    name = name_field(help_text=_("If the name exists, a new version is created; earlier versions do not change."))

    def __init__(self, dataset: Dataset, data: Any = None) -> None:
        super().__init__(data)
        self.dataset = dataset
        if "name" in self.fields:
            self.fields["name"].initial = named(dataset, self.tail)
        self.order_fields([name for name in self.fields if name != "name"] + ["name"])

    def chosen_operation(self) -> str:
        """The operation's name."""
        return self.operation

    def options(self) -> dict[str, Any]:
        """Its options."""
        return {}

    def names(self) -> list[str]:
        """The new datasets' names."""
        return [self.cleaned_data["name"]]

    def parents(self) -> list[Dataset]:
        """The datasets that it is made of."""
        return [self.dataset]


def named(dataset: Dataset, tail: str) -> str:
    """A suggested name with the operation in it."""
    return f"{dataset.name[: 79 - len(tail)]}-{tail}"
