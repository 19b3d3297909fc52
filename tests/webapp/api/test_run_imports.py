"""A run of another trainer is brought in by a script: the same service as the page's, and what became of the files."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests.webapp.foreign.test_foreign_imports import DUMP, LOG
from tests.working import done
from webapp.common.storage import import_dir
from webapp.foreign.models import RunImport
from webapp.people.teams.models import AuditEntry, Project, User
from webapp.people.teams.tokens import token_create
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db
ADDRESS = "/api/v1/projects/joust/runs/import"


def sent(client: Client, *files: tuple[str, bytes], **fields: Any) -> Any:
    return client.post(ADDRESS, fields | {"uploads": [SimpleUploadedFile(name, data) for name, data in files]})


@pytest.fixture
def script(bob: User, project: Project) -> Client:
    """With bob's token."""
    text = token_create(user=bob, name="night", role="editor")[1]
    return Client(headers={"Authorization": f"Bearer {text}"})


CHART = b'"Step","a - train/reward","b - train/reward"\n1,0.1,0.3\n2,0.2,0.4\n'


def test_a_chart_of_two_runs_asks_which_one_is_meant(script: Client) -> None:
    """Each of them is a run of its own, although the file is the same."""
    sent(script, ("chart.csv", CHART))
    item = RunImport.objects.get()
    assert "It holds the figures of 2 runs: a, b." in done(item).report["message"]
    assert (item.state, Run.objects.count()) == ("rejected", 0)
    for name, reward in (("b", 0.4), ("a", 0.2)):
        sent(script, ("chart.csv", CHART), name=f"run {name}", source_run=f" {name} ")
        done(RunImport.objects.exclude(state="done").exclude(state="rejected").get())
        assert Run.objects.get(name=f"run {name}").last_reward == reward
    sent(script, ("chart.csv", CHART), source_run="c")
    assert "It has no run c; its runs are a, b." in done(RunImport.objects.get(state="reading")).report["message"]


def test_a_script_imports_a_run_of_two_files(script: Client, bob: User) -> None:
    answer = sent(script, ("train.log", LOG), ("2.jsonl", DUMP), name="from verl")
    assert answer.status_code == 201
    item = RunImport.objects.get()
    assert answer.json() == {
        "id": str(item.pk),
        "name": "from verl",
        "state": "reading",
        "files": [{"name": "train.log", "bytes": len(LOG)}, {"name": "2.jsonl", "bytes": len(DUMP)}],
        "percent": 0,
        "run": None,
        "is_new": True,
        "message": "",
        "report": {},
        "url": f"/p/joust/runs/imports/{item.pk}/",
    }
    assert AuditEntry.objects.get(action="run_imported").username == "bob"
    done(item)
    found = script.get(f"/api/v1/run-imports/{item.pk}").json()
    run = Run.objects.get()
    assert (found["state"], found["percent"], found["run"], found["is_new"]) == ("done", 100, str(run.pk), True)
    assert (run.name, run.imported_from, run.step, run.created_by) == ("from verl", "verl", 2, bob)
    report = found["report"]
    assert (report["tool"], report["steps"], report["rollouts"], report["bad_rows"]) == ("verl", 2, 3, 1)
    assert [(file["name"], file["title"]) for file in report["files"]] == [
        ("train.log", "console log"),
        ("2.jsonl", "recorded rollouts"),
    ]


def test_the_same_files_make_one_run(script: Client) -> None:
    for expected in (True, False):
        item = RunImport.objects.get(pk=sent(script, ("a.log", LOG)).json()["id"])
        done(item)
        assert script.get(f"/api/v1/run-imports/{item.pk}").json()["is_new"] is expected
    assert Run.objects.count() == 1


def test_files_that_say_nothing_are_rejected_with_a_sentence(script: Client) -> None:
    item = RunImport.objects.get(pk=sent(script, ("poem.txt", b"Roses are red\n")).json()["id"])
    done(item)
    found = script.get(f"/api/v1/run-imports/{item.pk}").json()
    assert (found["state"], found["run"]) == ("rejected", None) and found["message"]
    chinese = script.get(f"/api/v1/run-imports/{item.pk}", headers={"Accept-Language": "zh-hans"}).json()
    assert chinese["message"] != found["message"]


@pytest.mark.parametrize(
    ("files", "fields", "path", "words"),
    [
        ([], {}, "uploads", "Choose at least one file."),
        ([("a.log", b"")], {}, "uploads", "The file is empty."),
        ([("a.log", LOG)], {"name": "<b>"}, "name", "Use letters"),
        ([("a.log", LOG)], {"name": "n" * 81}, "form.name", "at most 80"),
    ],
)
def test_what_cannot_be_is_refused_by_field(
    script: Client, files: Any, fields: dict[str, str], path: str, words: str
) -> None:
    answer = sent(script, *files, **fields)
    assert answer.status_code == 422 and answer.json()["detail"][0]["path"] == path, answer.json()
    assert words in answer.json()["detail"][0]["message"] and not RunImport.objects.exists()


def test_too_much_is_refused(script: Client, settings: Any) -> None:
    settings.MAX_UPLOAD_BYTES = 1000
    answer = sent(script, ("a.log", LOG * 9))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large") and not RunImport.objects.exists()
    settings.MAX_UPLOAD_BYTES = len(LOG) + 10  # each of them fits, both together do not
    assert sent(script, ("a.log", LOG), ("b.log", LOG)).status_code == 413


def test_who_may_not_gets_nothing(
    client_for: Callable[..., Client], bob: User, rita: User, charlie: User, project: Project
) -> None:
    for user, status in ((rita, 403), (charlie, 404), (None, 401)):
        assert sent(client_for(user), ("a.log", LOG)).status_code == status
    assert client_for(bob).get(ADDRESS).status_code == 405
    item = RunImport.objects.create(project=project, files=[{"name": "log", "bytes": 1}])
    for user, status in ((bob, 200), (rita, 200), (charlie, 404), (None, 401)):
        assert client_for(user).get(f"/api/v1/run-imports/{item.pk}").status_code == status
    assert client_for(bob).get(f"/api/v1/run-imports/{uuid.uuid4()}").status_code == 404
    assert not import_dir(item.pk).exists()
