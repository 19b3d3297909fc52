"""What is written needs room on the server's disk, and a project has only so much work at once: both sides."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile

from webapp.datasets import services
from webapp.datasets.models import Dataset, DatasetExport, DatasetState
from webapp.datasets.operations import ExportOptions, export_order, operation_order
from webapp.datasets.services import files_clean, packed, source_clean, too_large_sentence
from webapp.datasets.versions import dataset_append
from webapp.people.teams.models import Project, User

pytestmark = pytest.mark.usefixtures("no_broker")
Builder = Callable[..., Any]
GIB = 1024**3
ROW = {"messages": [{"role": "user", "content": "hi"}]}
LINE = b'{"messages": [{"role": "user", "content": "hi"}]}\n'


def sent(name: str = "a.jsonl", data: bytes = LINE) -> SimpleUploadedFile:
    return SimpleUploadedFile(name, data)


def pack() -> None:
    with packed([sent("a.jsonl"), sent("b.jsonl")]) as (file, _name):
        assert file.size


@pytest.mark.parametrize("what", ["upload", "append", "subset", "export", "several"])
def test_nothing_is_written_to_a_disk_that_is_nearly_full(
    what: str, project: Project, bob: User, make_dataset: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = make_dataset(name="d", lines=[ROW])
    size = len(LINE)
    asks: dict[str, tuple[int, Callable[[], Any]]] = {
        "upload": (
            2 * size,
            lambda: services.dataset_create(project=project, user=bob, name="n", file=sent(), file_name="n"),
        ),
        "append": (
            4 * size,
            lambda: dataset_append(project=project, user=bob, name="d", rows=[ROW], file_name="n"),
        ),
        "subset": (
            2 * size,
            lambda: operation_order(parents=[parent], user=bob, operation="subset", options={"rows": 1}, names=["n"]),
        ),
        "export": (4 * size, lambda: export_order(dataset=parent, user=bob, options=ExportOptions(to="jsonl"))),
        "several": (6 * size, pack),
    }
    need, ask = asks[what]
    free = need + GIB - 1
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free))
    with pytest.raises(ValidationError, match="disk is nearly full"):
        ask()
    assert Dataset.objects.count() == 1 and not DatasetExport.objects.exists()
    free += 1
    ask()


def test_a_project_makes_six_datasets_at_once(
    project: Project, bob: User, charlie: User, make_dataset: Builder
) -> None:
    parent, other = make_dataset(), Project.objects.get(slug="elsewhere")
    waiting = {"state": DatasetState.CHECKING, "lineage": {"parents": [{"id": "x"}]}}
    for _number in range(5):
        make_dataset(**waiting)
    make_dataset(**waiting, project=other)
    make_dataset(state=DatasetState.CHECKING, lineage={"parents": []})
    make_dataset(lineage={"parents": [{"id": "x"}]})

    def ask() -> list[Dataset]:
        return operation_order(parents=[parent], user=bob, operation="subset", options={"rows": 1}, names=["n"])

    (made,) = ask()
    assert (made.state, made.created_by, made.reading) == ("checking", bob, {"format": "conversation"})
    with pytest.raises(ValidationError, match="being created in this project already"):
        ask()


def test_datasets_of_another_project_are_not_mixed_and_each_is_chosen_once(
    make_dataset: Builder, charlie: User
) -> None:
    mine, other = make_dataset(), make_dataset(project=Project.objects.get(slug="elsewhere"))
    for parents, words in (
        ([mine, other], "one project"),
        ([mine, mine], "each dataset once"),
        ([mine], "at least two"),
    ):
        with pytest.raises(ValidationError, match=words):
            operation_order(parents=parents, user=None, operation="mix", options={"weights": [1] * 2}, names=["n"])
    with pytest.raises(ValidationError, match="This takes one dataset"):
        operation_order(parents=[mine, make_dataset()], user=None, operation="subset", options={"rows": 1}, names=["n"])


def test_files_that_another_project_waits_for_do_not_count(make_dataset: Builder, bob: User, charlie: User) -> None:
    mine, other = make_dataset(), make_dataset(project=Project.objects.get(slug="elsewhere"))
    for _number in range(3):
        DatasetExport.objects.create(dataset=other, state="waiting")
    assert export_order(dataset=mine, user=bob, options=ExportOptions(to="jsonl")).state == "waiting"
    DatasetExport.objects.all().delete()
    unready = make_dataset(state=DatasetState.NEEDS_CHOICE)
    with pytest.raises(ValidationError, match="not ready"):
        export_order(dataset=unready, user=bob, options=ExportOptions(to="jsonl"))
    with pytest.raises(ValidationError, match="no such format"):
        export_order(dataset=mine, user=bob, options=ExportOptions(to="exe"))


@pytest.mark.parametrize(
    ("limit", "words"), [(GIB - 1, "1024 MB"), (GIB, "1 GB"), (5 * GIB // 2, "2.5 GB"), (1536 * 1024, "1.5 MB")]
)
def test_the_limit_of_an_upload_is_shown_in_its_unit(limit: int, words: str, settings: Any) -> None:
    settings.MAX_UPLOAD_BYTES = limit
    assert too_large_sentence().startswith(f"The file is larger than {words},")


def test_an_upload_of_just_the_limit_is_kept_and_its_companions_count(
    project: Project, bob: User, settings: Any
) -> None:
    settings.MAX_UPLOAD_BYTES = len(LINE)

    def ask(**more: Any) -> Dataset:
        return services.dataset_create(project=project, user=bob, name="n", file=sent(), file_name="n", **more)

    assert ask().bytes == len(LINE)
    with pytest.raises(ValidationError, match="larger than"):
        ask(choices=services.Choices(companions={"answers": [sent("x", b"1")]}))
    assert Dataset.objects.count() == 1


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (("gsm8k",), "hub"),
        (("a/b--c",), "hub"),
        (("a/b..c",), "hub"),
        (("-a/b",), "hub"),
        ((f"a/{'b' * 97}",), "hub"),
        (("a/b", "x y"), "revision"),
        (("a/b", "../x"), "revision"),
        (("a/b", "r" * 101), "revision"),
        (("a/b", "", "a..b"), "split"),
        (("a/b", "", "s" * 101), "split"),
        (("a/b", "", "a?b"), "split"),
    ],
)
def test_what_is_no_dataset_of_the_hub_is_refused_at_its_field(given: tuple[str, ...], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        source_clean(*given)
    assert list(caught.value.message_dict) == [field]


def test_a_dataset_of_the_hub_has_a_revision() -> None:
    assert source_clean(" a/b ") == {"id": "a/b", "revision": "main", "split": ""}
    name, revision, split = f"a/{'b' * 96}", "r" * 100, "s" * 100
    assert source_clean(name, f" {revision}", f"{split} ") == {"id": name, "revision": revision, "split": split}


def test_several_files_are_refused_only_above_their_limit(settings: Any) -> None:
    files = [sent("a.jsonl"), sent("b.jsonl.gz")]
    settings.DATA_UPLOAD_MAX_NUMBER_FILES = 2
    files_clean(files)
    files_clean([sent("notes.docx")])
    settings.DATA_UPLOAD_MAX_NUMBER_FILES = 1
    with pytest.raises(ValidationError, match="At most 1 files at once"):
        files_clean(files)


def test_a_report_keeps_few_rows_and_no_nul() -> None:
    kept = services._storable_report({"preview": [{"n": n} for n in range(12)], "text": "a\x00b"})
    assert [row["n"] for row in kept["preview"]] == list(range(10)) and kept["text"] == "a\ufffdb"
    assert services._storable_report({})["preview"] == []
    most = 256 * 1024 - len('["", ""]')
    assert len(services._storable_report({"preview": ["x" * (most - 1), "y"]})["preview"]) == 2
    assert len(services._storable_report({"preview": ["x" * most, "y"]})["preview"]) == 1
