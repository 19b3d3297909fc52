"""The form of a filter: up to four rules, all of which must hold."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from webapp.datasets.models import Dataset
from webapp.datasets.operations.form_base import OperationForm

RULES = 4
TESTS = [
    ("equals", _("is")),
    ("contains", _("contains")),
    ("min_length", _("has at least this length")),
    ("max_length", _("has at most this length")),
]


class FilterForm(OperationForm):
    """Rows that meet all rules."""

    operation, tail = "filter", "filtered"

    def __init__(self, dataset: Dataset, data: Any = None) -> None:
        super().__init__(dataset, data)
        columns = list(dataset.report.get("columns") or {})[:50]
        self.suggestions = ["text", "turns", "tools", *columns]
        for number in range(1, RULES + 1):
            field = forms.CharField(label=_("Field"), max_length=200, required=False)
            field.widget.attrs |= {"list": "filter-fields", "autocomplete": "off"}
            self.fields[f"field_{number}"] = field
            self.fields[f"test_{number}"] = forms.ChoiceField(label=_("Condition"), choices=TESTS, required=False)
            self.fields[f"value_{number}"] = forms.CharField(label=_("Value"), max_length=1000, required=False)
            self.fields[f"negate_{number}"] = forms.BooleanField(label=_("not"), required=False)
        self.fields["field_1"].initial = "text"
        self.fields["test_1"].initial = "contains"

    def rows_of_fields(self) -> list[dict[str, forms.BoundField]]:
        """The rules as the page shows them."""
        parts = ("field", "negate", "test", "value")
        return [{part: self[f"{part}_{number}"] for part in parts} for number in range(1, RULES + 1)]

    def clean(self) -> dict[str, Any]:
        """The rules that were filled in."""
        data = super().clean() or {}
        rules = []
        for number in range(1, RULES + 1):
            name, value = (data.get(f"field_{number}") or "").strip(), data.get(f"value_{number}") or ""
            if name and (value or number > 1 or data.get(f"test_{number}") == "equals"):
                rules.append(self._rule(number, name, data.get(f"test_{number}") or "equals", value))
        data["rules"] = [rule for rule in rules if rule]
        if not rules:
            self.add_error("value_1", _t("Fill in at least one rule."))
        return data

    def _rule(self, number: int, name: str, test: str, value: str) -> dict[str, Any] | None:
        negate = {"negate": True} if self.cleaned_data.get(f"negate_{number}") else {}
        if test in ("min_length", "max_length"):
            if not (value.isascii() and value.isdigit()):
                self.add_error(f"value_{number}", _t("A length is a whole number."))
                return None
            return {"field": name, test: int(value), **negate}
        return {"field": name, test: _parse_scalar(value) if test == "equals" else value, **negate}

    def options(self) -> dict[str, Any]:
        """All rules."""
        return {"rules": self.cleaned_data["rules"]}


def _parse_scalar(text: str) -> Any:
    """A number, true, false, null or quoted text as JSON has it; anything else is text."""
    try:
        value = json.loads(text, parse_constant=lambda _name: text)
    except ValueError:
        return text
    return value if isinstance(value, str | int | float | bool | None) else text
