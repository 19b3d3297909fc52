"""Adding rows to a dataset and reading it again: what is refused, and what the next version is."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from tests.working import at_once
from webapp.common.storage import companion
from webapp.datasets import versions
from webapp.datasets.choices import Choices
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.versions import can_read_again, dataset_append, dataset_read_again
from webapp.people.teams.models import AuditEntry, Project, User

Builder = Callable[..., Any]
ROW = {"messages": [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "二"}]}
LINE = json.dumps(ROW, ensure_ascii=False) + "\n"


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The checks that were asked for."""
    return at_once(monkeypatch)


def append(project: Project, user: User, rows: list[dict[str, Any]] | None = None, name: str = "d") -> Dataset:
    return dataset_append(project=project, user=user, name=name, rows=rows or [ROW], file_name="x.jsonl")


def test_rows_are_added_to_the_newest_version_that_was_not_rejected(
    project: Project,
    bob: User,
    charlie: User,
    make_dataset: Builder,
    asked: list[str],
    django_capture_on_commit_callbacks: Any,
) -> None:
    make_dataset(name="d")
    base = make_dataset(name="d", version=2, lines=[{"n": 2}])
    make_dataset(name="d", version=3, state=DatasetState.REJECTED)
    make_dataset(name="d", version=9, project=Project.objects.get(slug="elsewhere"))
    with django_capture_on_commit_callbacks(execute=True):
        made = append(project, bob)
    text = '{"n": 2}\n' + LINE
    assert made.upload_path.read_text() == text and made.bytes == len(text.encode())
    assert stat.S_IMODE(made.upload_path.stat().st_mode) == 0o600
    assert (made.version, made.state, made.created_by, made.file_name) == (4, "checking", bob, "x.jsonl")
    assert made.lineage["options"] == {"rows": 1} and made.lineage["parents"][0]["id"] == str(base.pk)
    assert asked == [str(made.pk)]
    assert AuditEntry.objects.get(action="dataset_added").object_id == str(made.pk)


def test_rows_under_a_new_name_are_the_first_version(project: Project, bob: User) -> None:
    made = append(project, bob, [ROW, ROW], name="new")
    assert (made.version, made.upload_path.read_text(), made.bytes) == (1, LINE * 2, len((LINE * 2).encode()))
    assert made.lineage == {"operation": "append", "options": {"rows": 2}, "parents": []}


@pytest.mark.parametrize(
    ("state", "words"),
    [("checking", "still being checked"), ("needs_mapping", "not been read yet"), ("needs_choice", "has bad rows")],
)
def test_a_version_whose_rows_are_not_known_is_not_added_to(
    state: str, words: str, project: Project, bob: User, make_dataset: Builder
) -> None:
    make_dataset(name="d")
    make_dataset(name="d", version=2, state=state)
    with pytest.raises(ValidationError, match=words):
        append(project, bob)
    assert Dataset.objects.count() == 2


@pytest.mark.parametrize(("count", "good"), [(0, False), (1, True), (1000, True), (1001, False)])
def test_up_to_a_thousand_rows_are_added_at_once(count: int, good: bool) -> None:
    if good:
        assert versions._rows_as_lines([ROW] * count).count(b"\n") == count
        return
    with pytest.raises(ValidationError, match="Between 1 and 1000 rows"):
        versions._rows_as_lines([ROW] * count)


@pytest.mark.parametrize(
    "row", [{"messages": []}, {**ROW, "score": float("nan")}, {**ROW, "deep": json.loads("[" * 90 + "]" * 90)}]
)
def test_a_row_that_the_check_would_leave_out_is_not_added(row: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="A dataset cannot hold this row"):
        versions._rows_as_lines([row])


def test_rows_that_make_the_file_too_large_are_not_added(
    project: Project, bob: User, make_dataset: Builder, settings: Any
) -> None:
    base = make_dataset(name="d")
    whole = base.bytes + len(LINE.encode())
    settings.MAX_UPLOAD_BYTES = whole - 1
    with pytest.raises(ValidationError, match="The file is larger than"):
        append(project, bob)
    assert Dataset.objects.count() == 1
    settings.MAX_UPLOAD_BYTES = whole
    assert append(project, bob).bytes == whole


def test_rows_that_another_person_added_meanwhile_are_not_lost(
    project: Project, bob: User, make_dataset: Builder, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    write, files = versions._write_file, Path(settings.DATA_DIR) / "datasets"
    before = set(files.glob("*/upload"))
    make_dataset(name="d")
    late: list[int] = [2]

    def slowly(*given: Any) -> int:
        if late:
            version = late.pop()
            make_dataset(name="d", version=version, lines=[{"n": version}])
        return write(*given)

    monkeypatch.setattr(versions, "_write_file", slowly)
    made = append(project, bob)
    assert (made.version, made.upload_path.read_text()) == (3, '{"n": 2}\n' + LINE)
    made.rows_path.write_text("")
    Dataset.objects.filter(pk=made.pk).update(state=DatasetState.READY)
    late.extend([6, 5, 4])
    with pytest.raises(ValidationError, match="Someone else is adding"):
        append(project, bob)
    assert late == [] and not Dataset.objects.filter(state=DatasetState.CHECKING).exists()
    kept = {path.parent.name for path in set(files.glob("*/upload")) - before}
    assert kept == {str(pk) for pk in Dataset.objects.values_list("pk", flat=True)}, "files of lost tries are removed"


def test_a_version_that_is_being_checked_meanwhile_is_not_read_again(make_dataset: Builder, bob: User) -> None:
    late = make_dataset(state=DatasetState.NEEDS_CHOICE, rows=3)
    Dataset.objects.filter(pk=late.pk).update(state=DatasetState.READY)
    with pytest.raises(ValidationError, match="being checked, or its file is gone"):
        dataset_read_again(dataset=late, user=bob, choices=Choices())
    late.refresh_from_db()
    assert (late.state, late.rows) == (DatasetState.READY, 3) and late.rows_path.exists()


@pytest.mark.parametrize("state", ["needs_mapping", "needs_choice", "rejected"])
def test_a_version_that_no_run_can_have_used_is_read_again_in_its_place(
    state: str, make_dataset: Builder, bob: User, asked: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    hub = {"id": "some/data"}
    dataset = make_dataset(
        state=state,
        bad_rows=2,
        sha256="ab" * 32,
        report={"rows": 3},
        progress={"bytes": 1},
        source={"look": True, "hub": hub},
    )
    paths = (dataset.rows_path, dataset.identities_path, dataset.findings_path)
    for path in paths:
        path.write_text("of the last check")
    with django_capture_on_commit_callbacks(execute=True):
        again = dataset_read_again(dataset=dataset, user=bob, choices=Choices(reading={"cut": "query"}))
    assert (again.pk, again.state, again.rows, again.bad_rows) == (dataset.pk, "checking", 0, 0)
    assert (again.sha256, again.report, again.progress, again.source) == ("", {}, {}, {"hub": hub})
    assert again.reading == {"cut": "query"} and asked == [str(again.pk)] and not any(path.exists() for path in paths)
    assert not can_read_again(again)


def test_the_next_version_has_the_files_that_came_with_the_upload(make_dataset: Builder, bob: User) -> None:
    hub = {"id": "some/data"}
    dataset = make_dataset(name="d", reading={"answers": "file", "ids": "file"}, source={"hub": hub, "look": True})
    for kind in ("answers", "ids", "documents"):
        place = companion(dataset.pk, kind)
        place.parent.mkdir(parents=True, exist_ok=True)
        if kind == "documents":
            place.mkdir()
            place = place / "math_api.json"
        place.write_text(kind)
    reading = {"answers": "file", "documents": "file"}
    made = dataset_read_again(dataset=dataset, user=bob, choices=Choices(reading=reading))
    assert (made.version, made.bytes, made.created_by, made.source) == (
        2,
        dataset.bytes,
        bob,
        {"hub": hub, "copied": "dataset:d@1"},
    )
    assert companion(made.pk, "answers").read_text() == "answers"
    assert (companion(made.pk, "documents") / "math_api.json").read_text() == "documents"
    assert not companion(made.pk, "ids").exists(), "no choice names it"
    dataset.upload_path.unlink()
    with pytest.raises(ValidationError, match="its file is gone"):
        dataset_read_again(dataset=dataset, user=bob, choices=Choices())
