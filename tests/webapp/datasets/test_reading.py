"""How an upload is recognised, looked at, read differently, and what its check says."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import translation

from tests.working import done
from webapp.common.serving import cell
from webapp.common.text import message_of
from webapp.datasets import services, versions
from webapp.datasets.choices import Choices, companions_of
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.quality import PER_PAGE, evidence_of, finding_sentence, findings_page, plots_of
from webapp.datasets.services import source_clean
from webapp.datasets.versions import dataset_append
from webapp.people.teams.models import Project, User

pytestmark = pytest.mark.usefixtures("no_broker")
TABLE = "问题,solution,topic\nWhat is 2 + 3?,5,sums\n二加三是多少?,5,sums\n,7,sums\n".encode()
ROW = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
GOOD = (json.dumps(ROW) + "\n").encode()
QUESTION = {
    "id": "multi_turn_base_0",
    "question": [[{"role": "user", "content": "list"}]],
    "initial_config": {},
    "involved_classes": ["GorillaFileSystem"],
}
ANSWER = {"id": "multi_turn_base_0", "ground_truth": [["ls()"]]}
DOCUMENT = {"name": "ls", "description": "List.", "parameters": {"type": "dict", "properties": {}, "required": []}}


def _file(data: bytes | dict[str, Any], name: str = "x.json") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n")


def _checked(project: Project, user: User, data: bytes | dict[str, Any] = GOOD, **chosen: Any) -> Dataset:
    made = services.dataset_create(
        project=project, user=user, name="tasks", file=_file(data), file_name="x", choices=Choices(**chosen)
    )
    return _check(made)


def _check(dataset: Dataset) -> Dataset:
    return done(dataset)


def _rows(dataset: Dataset) -> list[dict[str, Any]]:
    return [json.loads(line) for line in dataset.rows_path.read_text().splitlines()]


def _address(name: str, dataset: Dataset) -> str:
    return reverse(name, args=[dataset.project.slug, dataset.pk])


def test_a_table_is_mapped_looked_at_and_then_checked(
    project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    dataset = _checked(project, bob, TABLE)
    assert (dataset.state, dataset.rows, dataset.rows_path.exists()) == (DatasetState.NEEDS_MAPPING, 0, False)
    assert [item["name"] for item in dataset.report["recognised"]["columns"]] == ["问题", "solution", "topic"]
    client = client_for(bob)
    page = client.get(_address("dataset-read", dataset)).content.decode()
    assert '<option value="问题" label="What is 2 + 3?">' in page and '<option value="columns" selected>' in page
    form = {"format": "columns", "map_prompt": "问题", "map_answer": "solution", "shape": "sft", "cut": "none"}
    look = client.post(_address("dataset-read-preview", dataset), form).content.decode()
    assert "Of the first 3 rows, 2 are good and 1 would be left out" in look and "二加三是多少?" in look
    dataset.refresh_from_db()
    assert dataset.state == DatasetState.NEEDS_MAPPING  # a look changes nothing
    assert client.post(_address("dataset-read", dataset), form).status_code == 302
    dataset = _check(Dataset.objects.get(pk=dataset.pk))
    assert (dataset.version, dataset.state, dataset.rows, dataset.bad_rows) == (1, DatasetState.NEEDS_CHOICE, 2, 1)
    assert _rows(dataset)[0]["messages"] == [
        {"role": "user", "content": "What is 2 + 3?"},
        {"role": "assistant", "content": "5"},
    ]
    assert dataset.reading == {"format": "columns", "mapping": {"prompt": "问题", "answer": "solution"}, "shape": "sft"}


def test_what_is_not_read_yet_is_not_added_to(project: Project, bob: User, make_dataset: Any) -> None:
    make_dataset(name="d", state=DatasetState.NEEDS_MAPPING)
    with pytest.raises(ValidationError, match="has not been read yet"):
        dataset_append(project=project, user=bob, name="d", rows=[ROW], file_name="x.jsonl")


def test_a_sure_format_asks_nothing_unless_look_is_chosen(project: Project, bob: User) -> None:
    assert _checked(project, bob).state == DatasetState.READY
    assert _checked(project, bob, look=True).state == DatasetState.NEEDS_MAPPING
    assert _checked(project, bob, TABLE, reading={"mapping": {"prompt": "问题"}}).rows == 2


def test_a_ready_version_is_read_differently_as_the_next_one(project: Project, bob: User) -> None:
    first = _checked(project, bob)
    before = first.rows_path.read_bytes()
    made = versions.dataset_read_again(dataset=first, user=bob, choices=Choices(reading={"cut": "query"}))
    made = _check(made)
    assert (made.version, made.state, made.source) == (2, DatasetState.READY, {"copied": "dataset:tasks@1"})
    assert len(_rows(made)[0]["messages"]) == 1 and first.rows_path.read_bytes() == before
    services.dataset_delete(dataset=first)
    assert made.upload_path.exists()


def test_a_version_with_bad_rows_is_read_again_in_its_place(project: Project, bob: User) -> None:
    dataset = _checked(project, bob, GOOD + b"nope\n")
    assert dataset.state == DatasetState.NEEDS_CHOICE
    again = versions.dataset_read_again(dataset=dataset, user=bob, choices=Choices(checking={"refuse": ["duplicate"]}))
    assert (again.pk, again.version, again.state) == (dataset.pk, 1, DatasetState.CHECKING)
    assert not dataset.rows_path.exists()
    with pytest.raises(ValidationError, match="being checked"):
        versions.dataset_read_again(dataset=again, user=bob, choices=Choices())


def test_several_documents_come_by_the_form(project: Project, bob: User, client_for: Callable[..., Client]) -> None:
    documents = [_file(DOCUMENT, f"{name}.json") for name in ("gorilla_file_system", "math_api")]
    form = {"name": "q", "cut": "none", "shape": "rl", "file": _file(QUESTION), "answers": _file(ANSWER)}
    address = reverse("dataset-new", args=[project.slug])
    assert client_for(bob).post(address, {**form, "documents": documents}).status_code == 302
    dataset = _check(Dataset.objects.get())
    assert (dataset.state, dataset.rows) == (DatasetState.READY, 1)
    assert companions_of(dataset) == ["answers", "documents"] and _rows(dataset)[0]["tools"]
    wrong = {**form, "file": _file(QUESTION), "answers": _file(ANSWER), "documents": [_file(DOCUMENT, "x.json")]}
    assert "gorilla_file_system.json" in client_for(bob).post(address, wrong).content.decode()


def test_files_next_to_a_dataset_are_joined_to_its_rows(project: Project, bob: User) -> None:
    companions: dict[str, Any] = {
        "answers": [_file(ANSWER)],
        "documents": [_file(DOCUMENT, "gorilla_file_system.json")],
    }
    dataset = _checked(project, bob, QUESTION, companions=companions)
    assert dataset.reading == {"answers": "file", "documents": "file"}
    assert companions_of(dataset) == ["answers", "documents"]
    row = _rows(dataset)[0]
    assert row["ground_truth"] == [["ls()"]] and row["tools"][0]["function"]["name"] == "ls"
    answers = _checked(project, bob, ANSWER)
    again = _checked(project, bob, QUESTION, reading={"answers": answers.reference})
    assert _rows(again)[0]["ground_truth"] == [["ls()"]]


@pytest.mark.parametrize(
    ("chosen", "field"),
    [
        ({"reading": {"answers": "/etc/passwd"}}, "answers"),
        ({"reading": {"answers": "file"}}, "answers"),
        ({"reading": {"documents": "dataset:tasks@1"}}, "documents"),
        ({"reading": {"ids": "dataset:../x@1"}}, "ids"),
        ({"checking": {"other": "/etc/passwd"}}, "other"),
        ({"checking": {"model": "model:../../etc"}}, "model"),
        ({"checking": {"refuse": ["nonsense"]}}, "refuse"),
        ({"reading": {"format": "nonsense"}}, "format"),
        ({"reading": {"nonsense": 1}}, "nonsense"),
        ({"reading": {"mapping": {"answer": "x"}}}, "mapping"),
        ({"companions": {"documents": [_file(DOCUMENT, "../../x.json")]}}, "documents"),
    ],
)
def test_a_choice_is_never_a_path(chosen: dict[str, Any], field: str, project: Project, bob: User) -> None:
    with pytest.raises(ValidationError) as caught:
        _checked(project, bob, **chosen)
    assert list(caught.value.message_dict) == [field] and not Dataset.objects.exists()


HOSTILE = {
    "deep": b"[" * 100_000,
    "encoding": "你好,再见\n一,二\n".encode("gb18030"),
    "cut off": b'[{"messages": [',
    "parquet": b"PAR1" + b"\xff" * 500 + b"PAR1",
    "archive": b"PK\x03\x04" + b"\0" * 100,
    "wide": b"a," * 5000 + b"a\n1\n",
    "quote": b'a,b\n"' + b"x" * 5_000_000,
}


SLOW = {"cut off", "parquet", "archive"}  # known by their first bytes, as tests/training/data knows them


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in HOSTILE]
)
def test_a_look_at_a_hostile_file_ends_with_a_sentence(
    name: str, project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    dataset = _checked(project, bob, HOSTILE[name])
    form = {"format": "columns", "map_prompt": ""}
    answer = client_for(bob).post(_address("dataset-read-preview", dataset), form)
    page = answer.content.decode()
    assert answer.status_code == 200 and ("notice" in page or "Would be left out" in page)
    assert dataset.state in (DatasetState.REJECTED, DatasetState.NEEDS_MAPPING, DatasetState.NEEDS_CHOICE)
    assert len(message_of(dataset.report)) > 10


def test_who_may_read_differently(
    project: Project, make_dataset: Any, bob: User, rita: User, charlie: User, client_for: Callable[..., Client]
) -> None:
    dataset = make_dataset()
    for name, method, statuses in (
        ("dataset-read", "get", (200, 403, 404, 302)),
        ("dataset-read-preview", "post", (200, 403, 404, 302)),
        ("dataset-quality", "get", (200, 200, 404, 302)),
        ("dataset-findings", "get", (200, 200, 404, 302)),
        ("dataset-findings-csv", "get", (200, 200, 404, 302)),
    ):
        people = (bob, rita, charlie, None)
        found = tuple(getattr(client_for(who), method)(_address(name, dataset)).status_code for who in people)
        assert found == statuses, name
        if name != "dataset-read":
            wrong = "get" if method == "post" else "post"
            assert getattr(client_for(bob), wrong)(_address(name, dataset)).status_code == 405
    refused = client_for(bob).post(_address("dataset-read", dataset), {"format": "nonsense"})
    assert refused.status_code == 422 and "errorlist" in refused.content.decode()


def test_bad_rows_are_listed_filtered_and_downloaded(
    project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    bad = [b"nope"] * 150 + [json.dumps({"messages": [{"role": "=cmd|' /C calc'!A0", "content": ""}]}).encode()]
    dataset = _checked(project, bob, GOOD * 2 + b"\n".join(bad) + b"\n")
    assert (dataset.rows, dataset.bad_rows) == (2, 151)
    client = client_for(bob)
    found = b"".join(client.get(_address("dataset-findings-csv", dataset))).decode()  # type: ignore[arg-type]
    lines = list(csv.reader(io.StringIO(found.lstrip("\ufeff"))))
    left_out = [line for line in lines[1:] if line[2] == "left out"]
    assert len(left_out) == dataset.bad_rows  # rows in = rows kept + rows listed as bad
    assert [line[0] for line in lines if line[1] == "duplicate"] == ["2"]
    assert not any(text.startswith(("=", "+", "-", "@")) for line in lines for text in line)
    assert cell("=1+1") == "'=1+1" and cell("fine") == "fine"
    page = client.get(_address("dataset-findings", dataset) + "?code=role_unknown").content.decode()
    assert page.count("<code>role_unknown</code>") == 1 and "<code>json</code>" not in page
    second = client.get(_address("dataset-findings", dataset) + "?code=json&page=2").content.decode()
    assert second.count("<code>json</code>") == 50


def test_quality_is_shown_in_numbers(project: Project, bob: User, client_for: Callable[..., Client]) -> None:
    lines = [{**ROW, "category": name} for name in ("a", "a", "b")]
    dataset = _checked(project, bob, "".join(json.dumps(line) + "\n" for line in lines).encode())
    plots = {plot.key: plot for plot in plots_of(dataset.report, dataset.rows, dataset.bad_rows)}
    assert [(bar.label, bar.rows, bar.width) for bar in plots["categories"].bars] == [("a", 2, 100), ("b", 1, 50)]
    assert [(bar.label, bar.rows, bar.share) for bar in plots["lengths"].bars] == [("3", 3, 1.0)]
    assert plots["lengths"].note == "tokens (estimated) · median 3 · 95% below 3 · longest 3"
    assert [(bar.label, bar.rows) for bar in plots["turns"].bars] == [("2", 3)]
    first = plots["duplicates"].bars[0]
    assert (first.label, first.rows) == ("unique rows", 1)
    assert plots["tools"].bars == [] and "No row has tools" in plots["tools"].empty
    page = client_for(bob).get(_address("dataset-quality", dataset)).content.decode()
    assert page.count("data-plot=") == 8 and "66.7%" in page


def test_only_an_editor_is_offered_to_read_a_file_differently(
    make_dataset: Callable[..., Dataset], bob: User, rita: User, client_for: Callable[..., Client]
) -> None:
    dataset = make_dataset()
    offered = f'href="{_address("dataset-read", dataset)}"'
    page = _address("dataset-detail", dataset)
    assert offered in client_for(bob).get(page).content.decode()
    assert offered not in client_for(rita).get(page).content.decode()


@pytest.mark.parametrize("key", ["turns", "tools", "categories"])
def test_twelve_values_have_a_bar_each(key: str) -> None:
    counts = {str(number): 14 - number for number in range(1, 14)}
    twelve = {name: count for name, count in counts.items() if name != "13"}

    def labels(found: dict[str, int]) -> list[str]:
        return next([bar.label for bar in plot.bars] for plot in plots_of({key: found}, 91, 0) if plot.key == key)

    assert labels(twelve) == [str(number) for number in range(1, 13)]
    ranges = [f"{first}–{first + 1}" for first in range(1, 14, 2)]
    assert labels(counts) == ([*twelve, "1 others"] if key == "categories" else ranges)


def test_many_numbers_of_turns_share_at_most_twelve_bars() -> None:
    turns = {str(number): number for number in range(1, 14)}
    (plot,) = (plot for plot in plots_of({"turns": turns}, 91, 0) if plot.key == "turns")
    assert [(bar.label, bar.rows) for bar in plot.bars] == [
        ("1–2", 3),
        ("3–4", 7),
        ("5–6", 11),
        ("7–8", 15),
        ("9–10", 19),
        ("11–12", 23),
        ("13–14", 13),
    ]


@pytest.mark.parametrize(("more", "shown", "has_next"), [(-1, 99, False), (0, 100, False), (1, 100, True)])
def test_a_page_of_findings_offers_the_next_only_where_it_has_any(more: int, shown: int, has_next: bool) -> None:
    dataset = Dataset(report={"bad": [{"line": line, "code": "json"} for line in range(1, PER_PAGE + more + 1)]})
    page = findings_page(dataset, "", 1)
    assert (len(page.items), page.number, page.has_next) == (shown, 1, has_next)
    assert [findings_page(dataset, "", number).number for number in (-1, 0, 50, 51)] == [1, 1, 50, 50]


def test_findings_have_at_most_fifty_pages() -> None:
    dataset = Dataset(report={"bad": [{"line": line, "code": "json"} for line in range(1, 5102)]})
    pages = [findings_page(dataset, "", number) for number in (49, 50)]
    assert [(page.items[0].line, page.has_next) for page in pages] == [(4801, True), (4901, False)]


@pytest.mark.parametrize(("length", "cut"), [(-1, False), (0, False), (1, True)])
def test_a_long_reason_is_cut_to_its_limit(length: int, cut: bool) -> None:
    limit = len(finding_sentence({"code": "json", "values": {"detail": "x" * 5000}}))
    short = len(finding_sentence({"code": "json", "values": {"detail": ""}}))
    said = finding_sentence({"code": "json", "values": {"detail": "x" * (limit - short + length)}})
    assert (said.endswith("…"), len(said)) == (cut, min(limit, limit + length))


def test_the_evidence_of_an_earlier_version_is_shown_as_it_was_kept() -> None:
    assert evidence_of({"format": {"evidence": ["old", 4]}}) == ["old", "4"] and evidence_of({}) == []


@pytest.mark.parametrize(
    ("most", "last"),
    [(13, [("11–12", 2), ("13+", 6)]), (14, [("13–14", 2), ("15+", 5)]), (15, [("13–14", 2), ("15+", 6)])],
)
def test_the_last_bar_of_many_is_one_without_an_end_where_its_count_has_none(
    most: int, last: list[tuple[str, int]]
) -> None:
    """Rows with 13 and rows with 14 or more were two bars, "13–14" and "13+"."""
    turns = {**{str(number): 1 for number in range(1, most + 1)}, f"{most + 1}+": 5}
    (plot,) = (plot for plot in plots_of({"turns": turns}, most + 5, 0) if plot.key == "turns")
    assert [(bar.label, bar.rows) for bar in plot.bars][-2:] == last


def test_findings_are_in_the_readers_language() -> None:
    finding = {
        "code": "role_unknown",
        "values": {"where": "message 3", "role": "'x'", "known": "user", "inside": "`a`"},
    }
    assert finding_sentence(finding) == "`a`: message 3 has the unknown role 'x'; known are user"
    nested = {
        "template": "not valid JSON: {detail}",
        "values": {"detail": {"template": "{a} at {b}", "values": {"a": 1}}},
    }
    assert message_of({"told": [nested]}) == "not valid JSON: 1 at {b}"
    with translation.override("zh-hans"):
        assert finding_sentence({"code": "gone", "reason": "as it stood"}) == "as it stood"


def test_the_api_takes_the_same_choices(project: Project, bob: User, client_for: Callable[..., Client]) -> None:
    address = f"/api/v1/projects/{project.slug}/datasets"
    chosen = {"reading": json.dumps({"mapping": {"prompt": "问题"}}), "checking": json.dumps({"window": 50})}
    client = client_for(bob)
    made = client.post(address, {"name": "t", "file": _file(TABLE), **chosen})
    assert made.status_code == 201
    dataset = _check(Dataset.objects.get())
    assert (dataset.rows, dataset.checking) == (2, {"window": 50})
    for wrong in ("[", "[]", '{"format": 3}', '{"answers": "/etc/passwd"}'):
        assert client.post(address, {"name": "t", "file": _file(TABLE), "reading": wrong}).status_code == 422
    with_files = client.post(address, {"name": "q", "file": _file(QUESTION), "answers": _file(ANSWER)})
    assert with_files.status_code == 201 and companions_of(Dataset.objects.get(name="q")) == ["answers"]


class _Hub(BaseHTTPRequestHandler):
    """A hub with one dataset, whose file lies elsewhere behind a redirect."""

    def do_GET(self) -> None:
        port = self.server.server_port  # type: ignore[attr-defined]
        if self.path == "/api/datasets/some/data/revision/main":
            listing = {"sha": "abc123", "siblings": [{"rfilename": "README.md"}, {"rfilename": "data/train.jsonl"}]}
            self._answer(200, json.dumps(listing).encode())
        elif self.path == "/datasets/some/data/resolve/abc123/data/train.jsonl":
            self._answer(302, b"", f"http://127.0.0.1:{port}/store?sig=a%2Fb")
        elif self.path == "/store?sig=a%2Fb":
            self._answer(200, GOOD * 3)
        elif self.path.startswith("/api/datasets/some/inside"):
            self._answer(302, b"", "http://169.254.169.254/latest/meta-data")
        else:
            self._answer(404, b"")

    def _answer(self, status: int, body: bytes, location: str = "") -> None:
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def hub(settings: Any) -> Iterator[str]:
    """A hub on this machine that the outbound policy allows."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    settings.HUB_URL = f"http://127.0.0.1:{server.server_port}"
    settings.OUTBOUND_ALLOW = [f"127.0.0.1:{server.server_port}"]
    yield settings.HUB_URL
    server.shutdown()
    server.server_close()


def _fetched(project: Project, user: User, identifier: str) -> Dataset:
    made = services.dataset_fetch(project=project, user=user, name="hub", hub=source_clean(identifier))
    return _check(made)


def test_a_dataset_of_the_hub_is_fetched_and_checked(project: Project, bob: User, hub: str) -> None:
    dataset = _fetched(project, bob, "some/data")
    assert (dataset.state, dataset.rows, dataset.file_name) == (DatasetState.READY, 3, "train.jsonl"), dataset.report
    assert dataset.source["hub"]["commit"] == "abc123" and dataset.bytes == len(GOOD) * 3


@pytest.mark.parametrize(
    ("identifier", "words"), [("some/thing", "has no public dataset some/thing"), ("some/inside", "never allowed")]
)
def test_what_the_hub_does_not_give_is_reported(
    identifier: str, words: str, project: Project, bob: User, hub: str
) -> None:
    dataset = _fetched(project, bob, identifier)
    assert dataset.state == DatasetState.REJECTED and words in dataset.report["message"]


def test_a_hub_that_cannot_be_reached_is_reported(
    project: Project, bob: User, settings: Any, client_for: Callable[..., Client]
) -> None:
    settings.HUB_URL = "http://127.0.0.1:9"
    form = {"name": "far", "hub": "openai/gsm8k", "cut": "none", "shape": "rl"}
    assert client_for(bob).post(reverse("dataset-new", args=[project.slug]), form).status_code == 302
    dataset = _check(Dataset.objects.get())
    page = client_for(bob).get(_address("dataset-detail", dataset)).content.decode()
    assert "could not be fetched from" in page and not Path(dataset.upload_path).exists()
    for wrong in ("gsm8k", "a/b/c", "../x/y", "a/b?c"):
        assert (
            client_for(bob).post(reverse("dataset-new", args=[project.slug]), {**form, "hub": wrong}).status_code == 422
        )
