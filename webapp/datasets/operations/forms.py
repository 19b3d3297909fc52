"""The forms of operations. Each gives what ``operation_order`` takes: options, names and further parents."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from training.data import Cut
from training.plain import number_in
from webapp.datasets.models import Dataset
from webapp.datasets.operations.exports import targets
from webapp.datasets.operations.form_base import OperationForm, name_field, named, seed_field
from webapp.datasets.selectors import ready_datasets

# --- Filter form ----------------------------------------------------------------------------------------------------
# The form of a filter: up to four rules, all of which must hold.

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
            length = number_in(value)
            if length is None:
                self.add_error(f"value_{number}", _t("A length is a whole number."))
                return None
            return {"field": name, test: length, **negate}
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


MIXED = 4


class SplitForm(OperationForm):
    """Two parts."""

    operation, tail = "split", "train"
    train_ratio = forms.FloatField(
        label=_("Share of the training part"),
        min_value=0,
        max_value=1,
        initial=0.9,
        widget=forms.NumberInput(attrs={"step": "any"}),
        help_text=_("0.9 puts nine of ten rows into the training part."),
    )
    seed = seed_field(help_text=_("The rows are shuffled with it first. 42 is what ToolBench's converter uses."))
    name = name_field(_("Name of the training part"))
    validation_name = name_field(_("Name of the validation part"))

    def __init__(self, dataset: Dataset, data: Any = None) -> None:
        super().__init__(dataset, data)
        self.fields["validation_name"].initial = named(dataset, "val")
        self.order_fields(["train_ratio", "seed", "name", "validation_name"])

    def options(self) -> dict[str, Any]:
        """Ratio and seed."""
        return {name: self.cleaned_data[name] for name in ("train_ratio", "seed")}

    def names(self) -> list[str]:
        """Both parts' names."""
        return [self.cleaned_data["name"], self.cleaned_data["validation_name"]]


class SubsetForm(OperationForm):
    """Some of the rows."""

    operation, tail = "subset", "subset"
    way = forms.ChoiceField(
        label=_("Which rows"),
        widget=forms.RadioSelect,
        initial="first",
        choices=[("first", _("The first rows")), ("drawn", _("Rows drawn at random")), ("ids", _("Rows by their ids"))],
    )
    rows = forms.IntegerField(label=_("How many rows"), min_value=1, initial=75, required=False)
    seed = seed_field(required=False, help_text=_("For rows that are drawn: the same seed draws the same rows."))
    field = forms.CharField(
        label=_("Column of the id"),
        max_length=200,
        initial="id",
        required=False,
        help_text=_("A dotted path such as extra_info.sample_id."),
    )
    ids = forms.CharField(
        label=_("Ids"),
        required=False,
        max_length=500_000,
        widget=forms.Textarea(attrs={"class": "mono", "rows": 5}),
        help_text=_("One per line, or separated by commas."),
    )

    def clean(self) -> dict[str, Any]:
        """Require the fields of the chosen way."""
        data = super().clean() or {}
        if data.get("way") == "ids":
            data["ids"] = [part.strip() for line in (data.get("ids") or "").splitlines() for part in line.split(",")]
            data["ids"] = [name for name in data["ids"] if name]
            if not data["ids"]:
                self.add_error("ids", _t("Give at least one id."))
        elif data.get("way") and not data.get("rows") and "rows" not in self.errors:
            self.add_error("rows", _t("Say how many rows."))
        return data

    def chosen_operation(self) -> str:
        """The operation's name: the choice by ids is an operation of its own."""
        return "pick" if self.cleaned_data["way"] == "ids" else "subset"

    def options(self) -> dict[str, Any]:
        """The options of the chosen way."""
        data = self.cleaned_data
        if data["way"] == "ids":
            return {"ids": data["ids"], "field": data["field"] or "id"}
        return {"rows": data["rows"], "seed": (data["seed"] or 0) if data["way"] == "drawn" else None}


class MixForm(OperationForm):
    """Several datasets by weight."""

    operation, tail = "mix", "mix"
    weight = forms.FloatField(label=_("Weight"), min_value=0, max_value=1e6, initial=1)
    rows = forms.IntegerField(
        label=_("Rows"),
        min_value=1,
        required=False,
        help_text=_("Empty: until one of the datasets is used up, so that the shares match the weights."),
    )
    seed = seed_field(help_text=_("The same seed draws the same mixture."))

    def __init__(self, dataset: Dataset, data: Any = None) -> None:
        super().__init__(dataset, data)
        others = ready_datasets(dataset.project).exclude(pk=dataset.pk)
        for number in range(1, MIXED + 1):
            self.fields[f"dataset_{number}"] = forms.ModelChoiceField(
                queryset=others,
                label=_("Dataset"),
                required=number == 1,
                empty_label="–",
            )
            self.fields[f"weight_{number}"] = forms.FloatField(
                label=_("Weight"), min_value=0, max_value=1e6, initial=1, required=False
            )

    def others(self) -> list[dict[str, forms.BoundField]]:
        """The further datasets as the page shows them."""
        numbers = range(1, MIXED + 1)
        return [{"dataset": self[f"dataset_{number}"], "weight": self[f"weight_{number}"]} for number in numbers]

    def parents(self) -> list[Dataset]:
        """This dataset and the others."""
        chosen = (self.cleaned_data.get(f"dataset_{number}") for number in range(1, MIXED + 1))
        return [self.dataset, *(item for item in chosen if item)]

    def options(self) -> dict[str, Any]:
        """Weights, rows and seed."""
        data = self.cleaned_data
        weights = [data["weight"]]
        weights += [data.get(f"weight_{n}") or 0 for n in range(1, MIXED + 1) if data.get(f"dataset_{n}")]
        return {"weights": weights, "rows": data["rows"], "seed": data["seed"]}


class CutForm(OperationForm):
    """Conversations up to the turn where the model continues."""

    operation, tail = "cut", "cut"
    cut = forms.ChoiceField(
        label=_("Where"),
        widget=forms.RadioSelect,
        initial=Cut.QUERY.value,
        choices=[
            (Cut.QUERY.value, _("From the query: cut at the first assistant turn; the model works the whole task")),
            (Cut.LAST_TURN.value, _("Before the last assistant turn: the model makes one step")),
        ],
    )

    def options(self) -> dict[str, Any]:
        """Where to cut."""
        return {"cut": self.cleaned_data["cut"]}


FORMS: dict[str, type[OperationForm]] = {
    form.operation: form for form in (SplitForm, SubsetForm, FilterForm, MixForm, CutForm)
}


class ExportForm(forms.Form):
    """A file to download."""

    to = forms.ChoiceField(label=_("Format"))
    split = forms.BooleanField(
        label=_("Two parts, training and validation"),
        required=False,
        help_text=_("Shuffled with seed 42 and cut, as ToolBench's converter does; both files come in one zip."),
    )
    train_ratio = forms.FloatField(
        label=_("Share of the training part"),
        min_value=0,
        max_value=1,
        initial=0.9,
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    max_samples = forms.IntegerField(
        label=_("Rows at most"), min_value=1, required=False, help_text=_("From the beginning; empty takes all.")
    )

    def __init__(self, data: Any = None) -> None:
        super().__init__(data)
        self.fields["to"].choices = [(target.name, target.label) for target in targets()]  # type: ignore[attr-defined]
