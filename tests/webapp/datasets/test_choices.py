"""What can be chosen for reading and checking a file: only what is of its project, ready, and here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.files.base import ContentFile
from django.utils import timezone

from webapp.common.storage import companion
from webapp.datasets.choices import (
    Choices,
    ChoicesForm,
    ReadForm,
    choices_clean,
    countable_models,
    dataset_named,
    resolved,
    tokenizer_folder,
)
from webapp.datasets.models import DatasetState
from webapp.people.teams.models import Project
from webapp.runs.registry.models import Checkpoint, ModelKind, RegisteredModel

Builder = Callable[..., Any]


def folder(settings: Any, path: Path, *names: str) -> None:
    """Models with a tokenizer."""
    settings.MODELS_DIR = str(path)
    for name in names:
        (path / name).mkdir()
        (path / name / "tokenizer.json").write_text("{}")


def test_a_reference_names_a_dataset_of_the_project(
    make_dataset: Builder, project: Project, elsewhere: Project
) -> None:
    first, second = make_dataset(name="d"), make_dataset(name="d", version=2)
    make_dataset(name="theirs", project=elsewhere)
    assert dataset_named(project, "answers", "dataset:d@1") == first
    assert dataset_named(project, "answers", "dataset:d@2") == second
    for reference in ("dataset:theirs@1", "dataset:d@3", "dataset:d", "dataset:d@x", "model:d@1", "d@1", "dataset:e@1"):
        with pytest.raises(ValidationError, match="There is no dataset"):
            dataset_named(project, "answers", reference)
    make_dataset(name="bad", state=DatasetState.NEEDS_CHOICE)
    assert dataset_named(project, "answers", "dataset:bad@1").name == "bad"
    with pytest.raises(ValidationError, match="“bad@1” is not ready"):
        dataset_named(project, "other", "dataset:bad@1")


def test_a_model_counts_if_its_tokenizer_is_here_and_of_the_project(
    project: Project, elsewhere: Project, settings: Any, tmp_path: Path, make_run: Builder
) -> None:
    folder(settings, tmp_path, "mine", "theirs")
    (tmp_path / "empty").mkdir()
    run = make_run()
    kept = Checkpoint.objects.create(
        project=project, run=run, attempt=1, step=1, path="1/model", bytes=1, seq=1, created_at=timezone.now()
    )
    kept.folder.mkdir(parents=True)
    (kept.folder / "tokenizer.json").write_text("{}")
    RegisteredModel.objects.create(project=project, name="trained", kind=ModelKind.RUN, checkpoint=kept)
    RegisteredModel.objects.create(project=project, name="lost", kind=ModelKind.RUN)
    for name, kind, source, owner in (
        ("mine", ModelKind.FOLDER, "mine", project),
        ("empty", ModelKind.FOLDER, "empty", project),
        ("hub", ModelKind.HUB, "a/b", project),
        ("theirs", ModelKind.FOLDER, "theirs", elsewhere),
        ("odd", ModelKind.FOLDER, "../x", project),
    ):
        RegisteredModel.objects.create(project=owner, name=name, kind=kind, source=source)
    assert {model.name for model in countable_models(project)} == {"mine", "trained"}
    assert tokenizer_folder(project, "model:mine") == tmp_path / "mine"
    assert tokenizer_folder(project, "model:trained") == kept.folder
    for name in ("empty", "hub", "theirs", "odd", "absent", "lost"):
        with pytest.raises(ValidationError, match="hold no tokenizer"):
            tokenizer_folder(project, f"model:{name}")


def test_a_form_offers_ready_datasets_of_the_project_the_newest_version_first(
    make_dataset: Builder, project: Project, elsewhere: Project
) -> None:
    for name, version, more in (("b", 1, {}), ("a", 1, {}), ("a", 2, {}), ("c", 1, {"state": DatasetState.CHECKING})):
        make_dataset(name=name, version=version, **more)
    mine = make_dataset(name="d", reading={"answers": "file"})
    make_dataset(name="theirs", project=elsewhere)
    others = ["dataset:a@2", "dataset:a@1", "dataset:b@1"]
    fields: dict[str, Any] = dict(ChoicesForm(project).fields)
    assert [value for value, _label in fields["other"].choices] == ["", *others, "dataset:d@1"]
    assert fields["model"].help_text == "A model registered in this project whose files are on the server."
    assert fields["documents"].help_text.startswith("The eight files of multi_turn_func_doc;")
    assert [bool(fields[name].help_text) for name in ("format", "cut", "shape", "window")] == [False] * 3 + [True]
    fields = dict(ReadForm(mine).fields)
    others.append("dataset:c@1")
    assert [value for value, _label in fields["answers_from"].choices] == ["", "file", *others]
    assert [value for value, _label in fields["ids_from"].choices] == ["", *others]
    assert "look" not in fields and "documents_from" not in fields


def read(dataset: Any, **data: str) -> dict[str, Any]:
    form = ReadForm(dataset, {"cut": "none", "shape": "rl", **data})
    assert form.is_valid(), form.errors
    return form.reading()


def test_only_what_the_format_takes_is_chosen(make_dataset: Builder) -> None:
    dataset = make_dataset(name="d", reading={"documents": "file", "answers": "file"})
    mapped = {"map_prompt": "q", "map_answer": "", "answers_from": "file"}
    plain = {"cut": "none", "shape": "rl"}
    assert read(dataset, format="columns", **mapped) == {**plain, "format": "columns", "mapping": {"prompt": "q"}}
    assert read(dataset, format="columns") == {**plain, "format": "columns"}
    assert read(dataset, format="bfcl", **mapped) == {
        **plain,
        "format": "bfcl",
        "answers": "file",
        "documents": "file",
    }
    assert read(dataset, **mapped) == {**plain, "answers": "file", "documents": "file"}
    assert read(make_dataset(), format="bfcl") == {**plain, "format": "bfcl"}


def test_a_form_begins_with_what_was_chosen_or_else_recognised(make_dataset: Builder) -> None:
    recognised = {"candidates": [{"format": "bfcl"}, {"format": "gsm8k"}], "mapping": {"prompt": "q"}}
    form = ReadForm(make_dataset(report={"recognised": recognised}))
    assert (form.initial["format"], form.initial["map_prompt"], form.initial["cut"]) == ("bfcl", "q", "none")
    fields: dict[str, Any] = dict(form.fields)
    assert [value for value, _label in fields["format"].choices][:2] == ["bfcl", "gsm8k"]
    assert [label.endswith("(recognised)") for _value, label in fields["format"].choices][:3] == [True, True, False]
    chosen = {"format": "columns", "mapping": {"prompt": "p"}, "cut": "query"}
    form = ReadForm(make_dataset(report={"recognised": recognised}, reading=chosen))
    assert (form.initial["format"], form.initial["map_prompt"], form.initial["cut"]) == ("columns", "p", "query")
    for report, first in (({}, "conversation"), ({"columns": [{"name": "q", "example": "why"}]}, "columns")):
        form = ReadForm(make_dataset(report={"recognised": report}))
        assert form.initial["format"] == first
        assert form.columns == ([("q", "why")] if report else [])


def test_a_companion_is_one_file_and_unknown_ones_are_left_out(project: Project) -> None:
    one, two = ContentFile(b"1", "a.json"), ContentFile(b"2", "b.json")
    choices = Choices(companions={"answers": [one], "ids": [], "nonsense": [one]})
    choices_clean(project, choices)
    assert choices.companions == {"answers": [one]} and choices.reading == {"answers": "file"}
    for kind in ("answers", "ids"):
        with pytest.raises(ValidationError, match="One file is needed here"):
            choices_clean(project, Choices(companions={kind: [one, two]}))
    kept = Choices(reading={"answers": "file"})
    choices_clean(project, kept, ["answers"])
    assert kept.reading == {"answers": "file"}


def test_references_become_paths_while_they_are_there(
    make_dataset: Builder, project: Project, settings: Any, tmp_path: Path
) -> None:
    folder(settings, tmp_path, "mine")
    model = RegisteredModel.objects.create(project=project, name="mine", kind=ModelKind.FOLDER, source="mine")
    other = make_dataset(name="o")
    dataset = make_dataset(
        reading={"answers": "file", "ids": "dataset:o@1"}, checking={"other": "dataset:o@1", "model": "model:mine"}
    )
    with pytest.raises(ValidationError, match="No such file was uploaded"):
        resolved(dataset)
    place = companion(dataset.pk, "answers")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("{}")
    found = resolved(dataset)
    assert (found.reading.answers, found.reading.ids) == (place, other.upload_path)
    assert (found.checking.other, found.tokenizer) == (other.rows_path, tmp_path / "mine")
    assert resolved(dataset, {}).reading.answers is None, "these choices replace the stored ones"
    model.delete()
    with pytest.raises(ValidationError, match="hold no tokenizer"):
        resolved(dataset)
