"""How a dataset is read and checked: a person's choices, stored with the dataset, and their meaning at check time.

The library takes paths for the companions of a file. No path is typed here: a choice is ``file`` (a companion that
was uploaded with the dataset) or ``dataset:<name>@<version>`` (the upload, or the rows, of another one of the project).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.base import File
from django.utils.translation import gettext as _
from pydantic import BaseModel
from pydantic import ValidationError as ShapeError

from training.data.formats import FORMATS
from training.data.formats.bfcl import CLASSES
from training.data.options import CheckOptions, ReadOptions
from training.data.problems import PROBLEMS
from webapp.common.fields import error_sentence
from webapp.common.storage import companion, inside, run_dir
from webapp.datasets.models import Dataset, DatasetState
from webapp.people.teams.models import Project
from webapp.runs.registry.models import ModelKind, RegisteredModel

UPLOADED = "file"
BESIDE = ("answers", "documents", "ids")
MAX_REFERENCE_CHARS = 200
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
        if kind not in BESIDE or not files:
            del choices.companions[kind]
        elif kind in ("answers", "ids") and len(files) > 1:
            raise ValidationError({kind: _("One file is needed here.")})
        else:
            choices.reading[kind] = UPLOADED
    if "documents" in choices.companions:
        documents_named(choices.companions["documents"])
    present = {*uploaded, *choices.companions}
    beside = {name: choices.reading.pop(name) for name in BESIDE if choices.reading.get(name)}
    others = {name: choices.checking.pop(name) for name in ("other", "model") if choices.checking.get(name)}
    choices.reading = _validate_options(ReadOptions, choices.reading)
    choices.checking = _validate_options(CheckOptions, choices.checking)
    _require_known(choices)
    for name, reference in beside.items():
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
    choices.reading |= beside
    choices.checking |= others


def _validate_options(model: type[BaseModel], given: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(given, dict) or set(given) & {*BESIDE, "other"}:
        given = {name: value for name, value in dict(given).items() if name not in (*BESIDE, "other")}
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
    name, _at, version = text.removeprefix("dataset:").partition("@")
    found = None
    if text.startswith("dataset:") and version.isascii() and version.isdigit() and len(version) < 9:
        found = Dataset.objects.filter(project=project, name=name, version=int(version)).first()
    if found is None:
        raise ValidationError({option: _("There is no dataset “%s” in this project.") % text})
    if option == "other" and found.state != DatasetState.READY:
        raise ValidationError({option: _("“%s” is not ready.") % found})
    return found


def tokenizer_folder(project: Project, reference: Any) -> Path:
    """The folder of a registered model whose tokenizer counts. Raises ``ValidationError``."""
    name = str(reference).removeprefix("model:")
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
    return [kind for kind in BESIDE if companion(dataset.pk, kind).exists()]


def resolved(dataset: Dataset, reading: dict[str, Any] | None = None) -> Resolved:
    """The options of a dataset's check with a path for each reference. Raises ``ValidationError`` for one that is gone.

    ``reading`` replaces the stored choices, for a preview of others.
    """
    read = dict(dataset.reading if reading is None else reading)
    check = dict(dataset.checking)
    for kind in BESIDE:
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
