"""Pages of operations and of files to download."""

from __future__ import annotations

import json
from typing import Any, ClassVar, cast
from uuid import UUID

from django import forms
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET, require_http_methods

from training.data import Cut, FilterOptions
from training.data.making import matching
from training.plain import number_in
from webapp.common.ids import name_validator
from webapp.common.pages import add_errors
from webapp.datasets.models import Dataset, DatasetExport, DatasetState, ExportState
from webapp.datasets.operations import OPEN, ExportOptions, export_order, operation_order, targets
from webapp.datasets.selectors import datasets_of, ready_datasets
from webapp.people.teams.access import own
from webapp.people.teams.models import Role, User

# --- Forms ----------------------------------------------------------------------------------------------------------
# Each gives what ``operation_order`` takes: options, names and further parents.

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


# --- Pages ----------------------------------------------------------------------------------------------------------
# Pages of operations and of files to download.

COUNT_LIMIT_S = 0.4


@login_required
@require_http_methods(["GET", "POST"])
def operation_new(request: HttpRequest, slug: str, pk: UUID, operation: str) -> HttpResponse:
    """Ask for a split, a subset, a filter, a mix or a cut; it is made in the background."""
    project, dataset = own(request, slug, Dataset, pk, need=Role.EDITOR, within=datasets_of)
    if operation not in FORMS:
        raise Http404
    form = FORMS[operation](dataset, request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            made = operation_order(
                parents=form.parents(),
                user=cast(User, request.user),
                operation=form.chosen_operation(),
                options=form.options(),
                names=form.names(),
            )
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            return redirect("dataset-detail", slug=slug, pk=made[0].pk)
    context = {"project": project, "dataset": dataset, "form": form, "operation": operation}
    return render(request, "datasets/operations/new.html", context, status=422 if form.errors else 200)


@login_required
@require_GET
def filter_count(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """How many rows a filter would keep, of the first rows that can be read in an instant."""
    _project, dataset = own(request, slug, Dataset, pk, need=Role.EDITOR, within=datasets_of)
    form = FilterForm(dataset, request.GET)
    context: dict[str, Any] = {"dataset": dataset}
    form.full_clean()
    faults = [name for name in form.errors if name != "name"]
    if not faults and dataset.state == DatasetState.READY and dataset.rows_path.is_file():
        options = FilterOptions.model_validate(form.options())
        found, seen, whole = matching(dataset.rows_path, options, COUNT_LIMIT_S)
        context |= {"found": found, "seen": seen, "whole": whole, "counted": True}
        context["percent"] = round(100 * found / seen) if seen else 0
    return render(request, "datasets/operations/_count.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def export_page(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Ask for a file in another format, and see those that were asked for."""
    project, dataset = own(request, slug, Dataset, pk, within=datasets_of)
    form = ExportForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            export_order(dataset=dataset, user=cast(User, request.user), options=ExportOptions(**form.cleaned_data))
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            return redirect("dataset-export", slug=slug, pk=pk)
    context = {"project": project, "dataset": dataset, "form": form, **_exports_context(dataset)}
    return render(request, "datasets/operations/export.html", context, status=422 if form.errors else 200)


@login_required
@require_GET
def export_list(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The files; the part polls while one is being written."""
    project, dataset = own(request, slug, Dataset, pk, within=datasets_of)
    return render(request, "components/exports.html", {"project": project, **_exports_context(dataset)})


def _exports_context(dataset: Dataset) -> dict[str, Any]:
    exports = list(DatasetExport.objects.filter(dataset=dataset)[:20])
    for export in exports:
        rows = int(export.progress.get("rows") or 0)
        export.percent = min(99, round(100 * rows / dataset.rows)) if dataset.rows else 0  # type: ignore[attr-defined]
    busy = any(export.state in OPEN for export in exports)
    url = reverse("dataset-exports", args=[dataset.project.slug, dataset.pk])
    return {"exports": exports, "busy": busy, "exports_url": url}


@login_required
@require_GET
def export_file(request: HttpRequest, slug: str, pk: UUID, export_id: UUID) -> HttpResponseBase:
    """The file itself."""
    _project, dataset = own(request, slug, Dataset, pk, within=datasets_of)
    export = DatasetExport.objects.filter(pk=export_id, dataset=dataset, state=ExportState.DONE).first()
    if export is None or not export.path.is_file():
        raise Http404
    return FileResponse(export.path.open("rb"), as_attachment=True, filename=export.file_name)
