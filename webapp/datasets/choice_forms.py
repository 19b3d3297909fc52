"""The forms of how a dataset is read and checked: with an upload, and for a file that is here already."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from django import forms
from django.core.files.base import File
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest
from django.utils.datastructures import MultiValueDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from training.data.formats import FORMATS
from training.data.formats.columns import USUAL
from training.data.options import CUT_WORDS, CheckOptions, ColumnMapping, ReadOptions
from training.data.problems import PROBLEMS
from webapp.common.fields import LinesField, help_text
from webapp.common.text import translated
from webapp.datasets.choices import BESIDE, UPLOADED, Choices, countable_models
from webapp.datasets.models import Dataset, DatasetState
from webapp.people.teams.models import Project

MAX_OFFERED = 200
MAPPED = tuple(USUAL)
READ, CHECK = ReadOptions.model_fields, CheckOptions.model_fields


class FilesInput(forms.ClearableFileInput):
    """An input for several files."""

    allow_multiple_selected = True


class FilesField(forms.FileField):
    """Several files, each judged like one."""

    widget = FilesInput

    def clean(self, data: Any, initial: Any = None) -> list[Any]:  # type: ignore[override]
        """The files that were sent."""
        files = data if isinstance(data, list | tuple) else [data]
        judge = super().clean
        return [judge(file, initial) for file in files if file]


class ChoicesForm(forms.Form):
    """The choices of reading and checking."""

    look = forms.BooleanField(
        required=False,
        label=gettext_lazy("Show the first rows before checking"),
    )
    format = forms.ChoiceField(required=False, label=gettext_lazy("Format"))
    cut = forms.ChoiceField(required=False, label=gettext_lazy("Cut conversations"))
    shape = forms.ChoiceField(required=False, label=gettext_lazy("Questions with answers"))
    version = forms.ChoiceField(
        required=False,
        label=gettext_lazy("Version of BFCL"),
        choices=[("", gettext_lazy("detected")), ("v3", "v3"), ("v4", "v4")],
    )
    answers = forms.FileField(required=False, label=gettext_lazy("BFCL answers"))
    documents = FilesField(
        required=False,
        label=gettext_lazy("BFCL function documents"),
        help_text=gettext_lazy("The eight files of multi_turn_func_doc; rows then carry their tools."),
    )
    ids = forms.FileField(required=False, label=gettext_lazy("StableToolBench query ids"))
    answer_fields = LinesField(max_items=20, required=False, label=gettext_lazy("Fields with the answer"))
    model = forms.ChoiceField(required=False, label=gettext_lazy("Count tokens as"))
    window = forms.IntegerField(
        required=False, min_value=0, max_value=10_000_000, label=gettext_lazy("Longest row, tokens")
    )
    other = forms.ChoiceField(required=False, label=gettext_lazy("Check for tasks shared with"))
    categories = LinesField(max_items=200, required=False, label=gettext_lazy("Known categories"))
    category_field = forms.CharField(required=False, max_length=200, label=gettext_lazy("Field with the category"))
    refuse = forms.MultipleChoiceField(
        required=False, label=gettext_lazy("Leave out rows with"), widget=forms.CheckboxSelectMultiple
    )

    def __init__(self, project: Project, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.project = project
        self._choices(
            "format",
            [
                ("", _("detected from its content")),
                *((each.name, translated(each.title)) for each in FORMATS.values()),
            ],
        )
        self._choices("cut", [(cut.value, translated(words)) for cut, words in CUT_WORDS.items()])
        self._choices(
            "shape",
            [("rl", _("keep the answer separate, for rewards")), ("sft", _("make the answer the last turn, for SFT"))],
        )
        self._choices(
            "model", [("", _("estimated")), *((f"model:{each.name}", each.name) for each in countable_models(project))]
        )
        ready = Dataset.objects.filter(project=project, state=DatasetState.READY).order_by("name", "-version")
        self._choices("other", [("", "–"), *((each.reference, str(each)) for each in ready[:MAX_OFFERED])])
        remarks = [(code, remark_words(code)) for code, problem in PROBLEMS.items() if not problem.drops]
        self._choices("refuse", remarks)
        for name, info in {**READ, **CHECK}.items():
            if name in self.fields and not self.fields[name].help_text and name not in ("format", "cut", "shape"):
                self.fields[name].help_text = help_text(info.description)
        self.fields["model"].help_text = _("A model registered in this project whose files are on the server.")
        self.fields["category_field"].widget.attrs["placeholder"] = "category"
        for name in ("answer_fields", "categories"):
            self.fields[name].widget.attrs["rows"] = 2

    def _choices(self, name: str, choices: list[tuple[str, str]]) -> None:
        cast(forms.ChoiceField, self.fields[name]).choices = choices

    def reading(self) -> dict[str, Any]:
        """The options of reading that were chosen, as plain data."""
        clean = self.cleaned_data
        return {name: clean[name] for name in ("format", "cut", "shape", "version") if clean.get(name)}

    def checking(self) -> dict[str, Any]:
        """The options of checking that were chosen, as plain data."""
        names = ("answer_fields", "window", "categories", "category_field", "refuse", "other", "model")
        return {name: self.cleaned_data[name] for name in names if self.cleaned_data.get(name)}

    def choices(self) -> Choices:
        """Everything that was chosen."""
        files = cast("MultiValueDict[str, UploadedFile]", self.files)
        return Choices(
            reading=self.reading(),
            checking=self.checking(),
            look=bool(self.cleaned_data.get("look")),
            companions=companions_sent(files),
        )


class ReadForm(ChoicesForm):
    """How a file that is here already is read: with the columns that it has, and the companions that it came with."""

    def __init__(self, dataset: Dataset, *args: Any, **kwargs: Any) -> None:
        report = dataset.report.get("recognised") or {}
        kwargs.setdefault("initial", _initial_values(dataset, report))
        super().__init__(dataset.project, *args, **kwargs)
        self.dataset = dataset
        del self.fields["look"]
        found = [item["format"] for item in report.get("candidates") or [] if item.get("format") in FORMATS]
        self._choices("format", _format_choices(found))
        columns = [(str(item["name"]), _column_label(item)) for item in report.get("columns") or []]
        words = {
            "messages": _("Messages"),
            "system": _("System text"),
            "prompt": _("User's text"),
            "input": _("Additional text"),
            "history": _("Earlier turns"),
            "answer": _("Answer"),
            "tools": _("Tools"),
            "category": _("Category"),
        }
        for part in MAPPED:
            info = ColumnMapping.model_fields[part]
            self.fields[f"map_{part}"] = forms.ChoiceField(
                choices=[("", "–"), *columns], required=False, label=words[part], help_text=help_text(info.description)
            )
        for kind in BESIDE:
            if kind != "documents":
                self.fields[f"{kind}_from"] = forms.ChoiceField(choices=self._sources(kind), required=False)

    def _sources(self, kind: str) -> list[tuple[str, str]]:
        """Where a companion can come from: the one that was uploaded, or another upload of the project."""
        uploaded = (
            [(UPLOADED, _("the file that was uploaded with it"))] if self.dataset.reading.get(kind) == UPLOADED else []
        )
        others = Dataset.objects.filter(project=self.project).exclude(pk=self.dataset.pk).order_by("name", "-version")
        return [("", "–"), *uploaded, *((each.reference, str(each)) for each in others[:MAX_OFFERED])]

    def mapped(self) -> list[forms.BoundField]:
        """The fields of the column mapping."""
        return [self[f"map_{part}"] for part in MAPPED]

    def reading(self) -> dict[str, Any]:
        """The options of reading, with the mapped columns and the sources of companions."""
        chosen = super().reading()
        clean = self.cleaned_data
        form = FORMATS.get(chosen.get("format", ""))
        if form is not None and "mapping" in form.options:
            mapping = {part: clean[f"map_{part}"] for part in MAPPED if clean.get(f"map_{part}")}
            chosen |= {"mapping": mapping} if mapping else {}
        for kind in ("answers", "ids"):
            if clean.get(f"{kind}_from") and (form is None or kind in form.options):
                chosen[kind] = clean[f"{kind}_from"]
        if self.dataset.reading.get("documents") and (form is None or "documents" in form.options):
            chosen["documents"] = UPLOADED
        return chosen


def companions_sent(files: MultiValueDict[str, UploadedFile]) -> dict[str, list[File[bytes]]]:
    """The companion files that were sent with the one to read."""
    return {kind: [file for file in files.getlist(kind) if file] for kind in BESIDE if files.getlist(kind)}


def form_of(request: HttpRequest, dataset: Dataset) -> ReadForm:
    """The form as it was sent."""
    return ReadForm(dataset, request.POST, request.FILES)


def _initial_values(dataset: Dataset, recognised: dict[str, Any]) -> dict[str, Any]:
    """The form's initial values: what was chosen, or else what was recognised."""
    candidates = recognised.get("candidates") or []
    first = candidates[0]["format"] if candidates else "columns" if recognised.get("columns") else "conversation"
    read, check = dataset.reading, dataset.checking
    mapping = read.get("mapping") or recognised.get("mapping") or {}
    return {
        "format": first,
        "cut": "none",
        "shape": "rl",
        **read,
        **check,
        **{f"map_{part}": column for part, column in mapping.items()},
        **{f"{kind}_from": read.get(kind, "") for kind in BESIDE},
    }


def _format_choices(found: Iterable[str]) -> list[tuple[str, str]]:
    """The formats that were recognised first, then all others."""
    names = list(dict.fromkeys([*found, *FORMATS]))
    recognised = set(found)
    titles = {name: translated(FORMATS[name].title) for name in names}
    return [
        (name, _("%(title)s (recognised)") % {"title": titles[name]} if name in recognised else titles[name])
        for name in names
    ]


def _column_label(item: dict[str, Any]) -> str:
    name, example = str(item["name"]), str(item.get("example", ""))
    return f"{name} · {example[:60]}" if example else name


def remark_words(code: str) -> str:
    """The subject of a remark, without the values of a single row."""
    words = {
        "role_order": _("turns out of order"),
        "turn_empty": _("a turn without text or calls"),
        "call_unknown": _("calls of unknown tools"),
        "call_breaks_schema": _("arguments that break their schema"),
        "tool_schema": _("tool schemas that are not valid"),
        "result_without_call": _("results without calls"),
        "answer_missing": _("no answer"),
        "too_long": _("more tokens than allowed"),
        "duplicate": _("Duplicate rows"),
        "leak": _("a task of the other dataset"),
        "category_unknown": _("an unknown category"),
        "apis_unreadable": _("a list of APIs that cannot be read"),
        "thinking_tag": _("a prompt with the wrong thinking tag"),
    }
    return words.get(code, code)
