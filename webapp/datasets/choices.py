"""How a dataset is read and checked: a person's choices, stored with the dataset, and their meaning at check time.

The library takes paths for the companions of a file. No path is typed here: a choice is ``file`` (a companion that
was uploaded with the dataset) or ``dataset:<name>@<version>`` (the upload, or the rows, of another one of the project).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.base import File
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest
from django.utils.datastructures import MultiValueDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from pydantic import BaseModel
from pydantic import ValidationError as ShapeError

from training.config import kind_in, name_in
from training.data import CLASSES, CUT_WORDS, FORMATS, PROBLEMS, USUAL, CheckOptions, ColumnMapping, ReadOptions
from training.plain import number_in
from webapp.common.fields import LinesField, error_sentence, help_text
from webapp.common.storage import companion, inside, run_dir
from webapp.common.text import translated
from webapp.datasets.models import Dataset, DatasetState
from webapp.people.teams.models import Project
from webapp.runs.registry.models import ModelKind, RegisteredModel

UPLOADED = "file"
COMPANIONS = ("answers", "documents", "ids")
MAX_REFERENCE_CHARS = 200
MAX_PLACE_CHARS = 2000
_TYPES = {"answers": "bfcl", "documents": "bfcl", "ids": "toolbench_queries"}
TOKENIZER = "tokenizer.json"
COUNTABLE_MOST = 500  # how many models are searched, the newest first


@dataclass
class Choices:
    """The choices before a file is read: options with references, companion files, whether to show a preview first."""

    reading: dict[str, Any] = field(default_factory=dict)
    checking: dict[str, Any] = field(default_factory=dict)
    companions: dict[str, list[File[bytes]]] = field(default_factory=dict)
    look: bool = False


class Resolved(NamedTuple):
    """The options with paths for references, as the check takes them."""

    reading: ReadOptions
    checking: CheckOptions
    tokenizer: Path | None


def choices_clean(project: Project, choices: Choices, uploaded: Iterable[str] = ()) -> None:
    """Check the choices, and leave out empty ones. Raises ``ValidationError`` by field.

    ``uploaded`` are companions that the dataset has already.
    """
    for kind, files in list(choices.companions.items()):
        if kind not in COMPANIONS or not files:
            del choices.companions[kind]
        elif kind in ("answers", "ids") and len(files) > 1:
            raise ValidationError({kind: _("One file is needed here.")})
        else:
            choices.reading[kind] = UPLOADED
    if "documents" in choices.companions:
        documents_named(choices.companions["documents"])
    present = {*uploaded, *choices.companions}
    references = {name: choices.reading.pop(name) for name in COMPANIONS if choices.reading.get(name)}
    others = {name: choices.checking.pop(name) for name in ("other", "model") if choices.checking.get(name)}
    choices.reading = _validate_options(ReadOptions, choices.reading)
    choices.checking = _validate_options(CheckOptions, choices.checking)
    _require_known(choices)
    for name, reference in references.items():
        if reference == UPLOADED and name not in present:
            raise ValidationError({name: _("No such file was uploaded with this dataset.")})
        if reference != UPLOADED:
            if name == "documents":
                raise ValidationError({name: _("Function documents are uploaded with the dataset.")})
            dataset_named(project, name, reference)
    if "other" in others:
        dataset_named(project, "other", others["other"])
    if "model" in others:
        tokenizer_folder(project, others["model"])
    choices.reading |= references
    choices.checking |= others


def _validate_options(model: type[BaseModel], given: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(given, dict) or set(given) & {*COMPANIONS, "other"}:
        given = {name: value for name, value in dict(given).items() if name not in (*COMPANIONS, "other")}
    try:
        return model.model_validate(given).model_dump(mode="json", exclude_defaults=True)
    except ShapeError as exc:
        errors = exc.errors(include_url=False, include_input=False)
        fields = [".".join(str(part) for part in error["loc"]) for error in errors]
        raise ValidationError(
            {name or "mapping": [error_sentence(error)] for name, error in zip(fields, errors, strict=True)}
        ) from exc


def _require_known(choices: Choices) -> None:
    form = choices.reading.get("format", "")
    if form and form not in FORMATS:
        raise ValidationError({"format": _("There is no such format.")})
    unknown = set(choices.checking.get("refuse", [])) - set(PROBLEMS)
    if unknown:
        raise ValidationError({"refuse": _("There is no check “%s”.") % min(unknown)[:40]})


def documents_named(files: list[File[bytes]]) -> dict[str, File[bytes]]:
    """Function documents by the names that BFCL gives them; nothing else of an uploaded name is ever used."""
    known = {f"{stem}.json": stem for stem in CLASSES.values()}
    found = {known[name]: file for file in files if (name := str(file.name)) in known}
    if len(found) != len(files):
        names = ", ".join(sorted(known))
        raise ValidationError({"documents": _("Function documents have these names: %s.") % names})
    return found


def dataset_named(project: Project, option: str, reference: Any) -> Dataset:
    """The dataset that a reference names. Raises ``ValidationError`` for the option."""
    text = str(reference)[:MAX_REFERENCE_CHARS]
    name, _at, version = name_in("dataset", text).partition("@")
    found, number = None, number_in(version, 8)
    if kind_in(text) == "dataset" and number is not None:
        found = Dataset.objects.filter(project=project, name=name, version=number).first()
    if found is None:
        raise ValidationError({option: _("There is no dataset “%s” in this project.") % text})
    if option == "other" and found.state != DatasetState.READY:
        raise ValidationError({option: _("“%s” is not ready.") % found})
    return found


def tokenizer_folder(project: Project, reference: Any) -> Path:
    """The folder of a registered model whose tokenizer counts. Raises ``ValidationError``."""
    name = name_in("model", str(reference))
    model = RegisteredModel.objects.filter(project=project, name=name).select_related("checkpoint").first()
    folder = _tokenizer_of(model) if model is not None else None
    if folder is None:
        raise ValidationError({"model": _("The files of this model hold no tokenizer.json.")})
    return folder


def _tokenizer_of(model: RegisteredModel) -> Path | None:
    """The model's folder if there is a tokenizer in it."""
    if model.kind == ModelKind.RUN and model.checkpoint:
        root, relative = run_dir(model.checkpoint.run_id), model.checkpoint.path
    elif model.kind == ModelKind.FOLDER:
        root, relative = Path(settings.MODELS_DIR), model.source
    else:
        return None
    if not os.path.isfile(f"{root}/{relative}/{TOKENIZER}"):  # cheaper than to follow every link on the way there
        return None
    try:
        folder = inside(root, relative)
    except ValueError:
        return None
    return folder if (folder / TOKENIZER).is_file() else None


def countable_models(project: Project) -> list[RegisteredModel]:
    """Models of the project whose tokenizer is here, so that it can count."""
    rows = RegisteredModel.objects.filter(project=project).select_related("checkpoint")
    models = rows.only("name", "kind", "source", "checkpoint__run", "checkpoint__path")[:COUNTABLE_MOST]
    return [model for model in models if _tokenizer_of(model) is not None]


def companions_of(dataset: Dataset) -> list[str]:
    """Which companions were uploaded with a dataset."""
    return [kind for kind in COMPANIONS if companion(dataset.pk, kind).exists()]


def resolved(dataset: Dataset, reading: dict[str, Any] | None = None) -> Resolved:
    """The options of a dataset's check with a path for each reference. Raises ``ValidationError`` for one that is gone.

    ``reading`` replaces the stored choices, for a preview of others.
    """
    read = dict(dataset.reading if reading is None else reading)
    check = dict(dataset.checking)
    for kind in COMPANIONS:
        if reference := read.get(kind):
            read[kind] = _companion_path(dataset, kind, reference)
    other, model = check.pop("other", None), check.pop("model", None)
    if other:
        check["other"] = dataset_named(dataset.project, "other", other).rows_path
    tokenizer = tokenizer_folder(dataset.project, model) if model else None
    return Resolved(ReadOptions.model_validate(read), CheckOptions.model_validate(check), tokenizer)


def _companion_path(dataset: Dataset, kind: str, reference: str) -> Path:
    if reference == UPLOADED:
        path = companion(dataset.pk, kind)
        if not path.exists():
            raise ValidationError({kind: _("No such file was uploaded with this dataset.")})
        return path
    return dataset_named(dataset.project, kind, reference).upload_path


# --- Choice forms ---------------------------------------------------------------------------------------------------
# The forms of how a dataset is read and checked: with an upload, and for a file that is here already.

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
            "model", [("", _("estimated")), *((each.reference, each.name) for each in countable_models(project))]
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
        self.columns = columns_of(dataset.report)
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
            self.fields[f"map_{part}"] = forms.CharField(
                max_length=MAX_PLACE_CHARS,
                required=False,
                label=words[part],
                help_text=help_text(info.description),
                widget=forms.TextInput(attrs={"list": "columns-of-file", "autocomplete": "off", "class": "mono"}),
            )
        for kind in COMPANIONS:
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
    return {kind: [file for file in files.getlist(kind) if file] for kind in COMPANIONS if files.getlist(kind)}


def form_of(request: HttpRequest, dataset: Dataset) -> ReadForm:
    """The form as it was sent."""
    return ReadForm(dataset, request.POST, request.FILES)


def columns_of(report: dict[str, Any]) -> list[tuple[str, str]]:
    """The columns of a file and the fields in their objects, each with its first value."""
    recognised = report.get("recognised") or {}
    return [(str(item["name"]), str(item.get("example", ""))) for item in recognised.get("columns") or []]


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
        **{f"{kind}_from": read.get(kind, "") for kind in COMPANIONS},
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
