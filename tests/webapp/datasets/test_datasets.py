"""Uploading, checking, choosing, deleting."""

from __future__ import annotations

import io
import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from tests.working import at_once, claimed, done, perform
from training.errors import DataError
from webapp.common import objects, work
from webapp.common.storage import dataset_dir
from webapp.datasets import services
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.selectors import histogram_of, latest_datasets, preview_of
from webapp.people.teams.models import Project, User

ROW = {"messages": [{"role": "user", "content": "What is 2 + 3?"}, {"role": "assistant", "content": "5"}]}
GOOD = (json.dumps(ROW) + "\n").encode() * 5


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    return at_once(monkeypatch)


def _create(project: Project, user: User, data: bytes = GOOD, name: str = "tasks") -> Dataset:
    file = SimpleUploadedFile("rows.jsonl", data)
    return services.dataset_create(project=project, user=user, name=name, file=file, file_name="rows.jsonl")


def _checked(dataset: Dataset) -> Dataset:
    return done(dataset)


def test_other_columns_are_shown_as_their_file_had_them() -> None:
    row = {
        "messages": [{"role": "user", "content": "hi"}],
        "answer": {"contains": ["二"]},
        "n": 3,
        "ok": True,
        "x": None,
    }
    shown = preview_of({"preview": [row]})[0]["extra"]
    assert shown == [("answer", '{"contains": ["二"]}'), ("n", 3), ("ok", "true"), ("x", "null")]


def test_versions_follow_each_other(project: Project, bob: User) -> None:
    first, second = _create(project, bob), _create(project, bob)
    assert (first.version, second.version) == (1, 2)
    assert [item.pk for item in latest_datasets(project)] == [second.pk]
    assert latest_datasets(project)[0].versions == 2


def test_file_is_private_and_stored_under_the_id(project: Project, bob: User) -> None:
    dataset = _create(project, bob)
    assert stat.S_IMODE(dataset.upload_path.stat().st_mode) == 0o600
    assert dataset.upload_path == dataset_dir(dataset.pk) / "upload"


def test_good_file_becomes_ready(project: Project, bob: User) -> None:
    dataset = _checked(_create(project, bob))
    assert (dataset.state, dataset.rows, dataset.progress) == (DatasetState.READY, 5, {})
    assert dataset.rows_path.read_text().count("\n") == 5
    assert len(dataset.sha256) == 64
    histogram = histogram_of(dataset.report)
    assert histogram is not None and sum(bar.rows for bar in histogram.bars) == 5
    assert preview_of(dataset.report)[0]["messages"][0]["role"] == "user"
    assert not (dataset_dir(dataset.pk) / "checks").exists() or not list((dataset_dir(dataset.pk) / "checks").iterdir())


def test_without_a_store_of_files_nothing_is_written_there(
    project: Project, bob: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert _checked(_create(project, bob)).state == DatasetState.READY and list(here.iterdir()) == []


def test_checked_rows_can_be_fetched_by_other_hosts(project: Project, bob: User, settings: Any, tmp_path: Path) -> None:
    settings.FILES = str(tmp_path / "store")
    dataset = _checked(_create(project, bob))
    rows = dataset.rows_path.read_text()
    settings.DATA_DIR = tmp_path / "cache"
    settings.DATA_DIR.mkdir()
    assert objects.fetch(dataset.rows_path).read_text() == rows and dataset.rows_path.is_relative_to(tmp_path)


def test_bad_rows_ask_for_a_choice(project: Project, bob: User, client_for: Callable[..., Client]) -> None:
    dataset = _checked(_create(project, bob, GOOD + b'{"messages": 3}\nnope\n'))
    assert (dataset.state, dataset.rows, dataset.bad_rows) == (DatasetState.NEEDS_CHOICE, 5, 2)
    client = client_for(bob)
    page = client.get(reverse("dataset-detail", args=[project.slug, dataset.pk])).content.decode()
    assert "Keep 5 good rows" in page and 'data-label="Line">6</td>' in page
    other = _checked(_create(project, bob, GOOD + b"nope\n", name="other"))
    assert services.dataset_keep_good_rows(dataset=other).state == DatasetState.READY
    dataset.refresh_from_db()
    assert dataset.state == DatasetState.NEEDS_CHOICE
    assert client.post(reverse("dataset-keep", args=[project.slug, dataset.pk])).status_code == 302
    dataset.refresh_from_db()
    assert dataset.state == DatasetState.READY
    with pytest.raises(ValidationError):
        services.dataset_keep_good_rows(dataset=dataset)


@pytest.mark.parametrize(
    "data",
    [b"\x00\xff\x89PNG" * 500, "你好".encode("gb18030") * 50, b"{}\n", b"[" * 100_000, b"\n\n", b'{"messages":[NaN]}'],
)
def test_hostile_files_are_rejected_with_a_sentence(data: bytes, project: Project, bob: User) -> None:
    dataset = _checked(_create(project, bob, data))
    assert dataset.state == DatasetState.REJECTED
    assert len(dataset.report["message"]) > 10
    assert not dataset.rows_path.exists()


def test_empty_file_is_refused(project: Project, bob: User) -> None:
    with pytest.raises(ValidationError, match="empty"):
        _create(project, bob, b"")
    assert not Dataset.objects.exists()


def _dies(error: BaseException) -> work.Kind[Dataset]:
    def run(_claim: work.Claim[Dataset]) -> None:
        raise error

    return replace(work.KINDS["datasets.dataset"], run=run)


def test_a_worker_that_lost_its_check_changes_nothing(project: Project, bob: User) -> None:
    """Neither its outcome nor its failure, nor its running out of time, which rejected the successor's work."""
    dataset = _create(project, bob)
    late = claimed(dataset)
    Dataset.objects.update(token="another")
    perform(late)
    work.perform(_dies(DataError("broken")), late)
    work.perform(_dies(SoftTimeLimitExceeded()), late)
    dataset.refresh_from_db()
    assert (dataset.state, dataset.token, dataset.report) == (DatasetState.CHECKING, "another", {})
    assert not dataset.rows_path.exists()


def test_message_is_sent_after_commit(
    project: Project, bob: User, _no_broker: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        dataset = _create(project, bob)
        assert _no_broker == []
    assert _no_broker == [str(dataset.pk)]


def _upload(
    client: Client, project: Project, data: bytes, name: str = "tasks", file_name: str = "a.jsonl", **headers: Any
) -> Any:
    file = io.BytesIO(data)
    file.name = file_name
    return client.post(reverse("dataset-new", args=[project.slug]), {"name": name, "file": file}, headers=headers)


def test_upload_page_takes_a_file(project: Project, bob: User, client_for: Callable[..., Client]) -> None:
    client = client_for(bob)
    made = _upload(client, project, GOOD)
    dataset = Dataset.objects.get()
    assert made.status_code == 302 and str(dataset.pk) in made["Location"]
    script = _upload(client, project, GOOD, accept="application/json")
    assert script.json()["ok"] and Dataset.objects.count() == 2


def _upload_all(client: Client, project: Project, files: dict[str, bytes]) -> Any:
    sent = [SimpleUploadedFile(name, data) for name, data in files.items()]
    address = reverse("dataset-new", args=[project.slug])
    return client.post(address, {"name": "tasks", "file": sent}, headers={"accept": "application/json"})


def _rows(first: int, last: int) -> bytes:
    rows = [{"messages": [{"role": "user", "content": f"What is {n} + 1?"}]} for n in range(first, last)]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_several_files_are_one_dataset(project: Project, bob: User, client_for: Callable[..., Client]) -> None:
    """The command line took several files, the form one."""
    files = {"part-10.jsonl": _rows(20, 24), "part-2.jsonl": _rows(0, 20)}
    made = _upload_all(client_for(bob), project, files)
    assert made.status_code == 200, made.content
    dataset = done(Dataset.objects.get())
    assert (dataset.state, dataset.rows, dataset.bad_rows) == (DatasetState.READY, 24, 0), dataset.report
    assert dataset.file_name == "part-10.jsonl + 1"
    questions = [json.loads(line)["messages"][0]["content"] for line in dataset.rows_path.read_text().splitlines()]
    assert questions == [f"What is {n} + 1?" for n in range(24)], "part 2 is before part 10"


REFUSED: dict[str, tuple[dict[str, bytes], str]] = {
    "two formats": ({"a.jsonl": GOOD, "b.csv": b"a,b\n1,2\n"}, "these are .csv, .jsonl"),
    "no data": ({"a.jsonl": GOOD, "notes.docx": b"hello"}, "does not: notes.docx"),
    "parts that stay apart": ({"train.jsonl": GOOD, "test.jsonl": GOOD}, "parts of a dataset (test, train)"),
    "an empty one": ({"a.jsonl": GOOD, "b.jsonl": b""}, "The file b.jsonl is empty."),
}


@pytest.mark.parametrize("what", REFUSED)
def test_files_that_are_not_one_dataset_are_refused_with_the_reason(
    what: str, project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    files, reason = REFUSED[what]
    answer = _upload_all(client_for(bob), project, files)
    assert answer.status_code == 422 and not Dataset.objects.exists()
    assert reason in answer.json()["detail"]["file"][0]["message"]


def test_upload_over_the_limit_is_stopped(
    project: Project, bob: User, client_for: Callable[..., Client], settings: Any
) -> None:
    settings.MAX_UPLOAD_BYTES = 100_000
    for size in (120_000, 2_000_000):  # stopped while counting, refused by its length
        answer = _upload(client_for(bob), project, b"x" * size)
        assert answer.status_code == 413 and "larger than" in answer.content.decode()
        assert list(answer.context["form"].errors) == ["file"], "what else lacks was not read"
        script = _upload(client_for(bob), project, b"x" * size, accept="application/json")
        assert script.status_code == 413 and script.json()["code"] == "too_large"
    assert not Dataset.objects.exists()


@pytest.mark.parametrize(
    "file_name",
    ["..\\..\\x", "../../etc/passwd", "a\x00b.jsonl", "a\nb.jsonl", "<img src=x onerror=alert(1)>", "名" * 300, "."],
)
def test_file_names_are_only_ever_shown(
    file_name: str, project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    file = SimpleUploadedFile("x", GOOD)
    dataset = services.dataset_create(project=project, user=bob, name="d", file=file, file_name=file_name)
    assert dataset.upload_path.parent.name == str(dataset.pk)
    page = client_for(bob).get(reverse("dataset-detail", args=[project.slug, dataset.pk])).content.decode()
    assert "<img src=x" not in page and "\x00" not in page


def test_wrong_names_are_errors_at_the_field(project: Project, bob: User, client_for: Callable[..., Client]) -> None:
    for name in ("", "a/b", "x" * 81, "../x", "a\x00b"):
        answer = _upload(client_for(bob), project, GOOD, name=name)
        assert answer.status_code == 422 and "errorlist" in answer.content.decode()
    assert not Dataset.objects.exists()


def test_dataset_in_use_is_not_deleted(
    project: Project, bob: User, make_dataset: Any, make_run: Any, client_for: Callable[..., Client]
) -> None:
    dataset = make_dataset()
    run = make_run(config={"data": {"train": dataset.reference}})
    client, address = client_for(bob), reverse("dataset-delete", args=[project.slug, dataset.pk])
    assert run.name in client.post(address, follow=True).content.decode()
    assert Dataset.objects.filter(pk=dataset.pk).exists()
    type(run).objects.update(state="failed")
    client.post(address)
    assert not Dataset.objects.exists()


def test_progress_fragment_reloads_the_page_at_the_end(
    project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    dataset = _create(project, bob)
    client, address = client_for(bob), reverse("dataset-progress", args=[project.slug, dataset.pk])
    assert "HX-Refresh" not in client.get(address).headers
    _checked(dataset)
    assert client.get(address)["HX-Refresh"] == "true"
