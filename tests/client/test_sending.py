"""``tiltyard model push`` and ``tiltyard run import``: files that leave, and files that come in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as site_settings
from tiltyard_client.api import Tiltyard

from tests.client.conftest import Tool, answered, logged_in, refused
from tests.webapp.foreign.test_foreign_imports import LOG
from tests.working import at_once, done
from webapp.datasets.models import Dataset
from webapp.foreign.models import RunImport
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.registry.models import ModelKind, ModelPush, RegisteredModel

pytestmark = pytest.mark.django_db(transaction=True)
Meanwhile = Callable[[Callable[[], Any]], None]


@pytest.fixture
def here(home: Path, live_server: Any, bob: User, project: Project, settings: Any, monkeypatch: Any) -> Tool:
    """The command at a site in this process, whose workers work when a test says so."""
    settings.HUB_TOKEN, settings.HUB_URL = "token", "https://hub.example"
    at_once(monkeypatch)
    return logged_in(live_server.url, bob)


@pytest.fixture
def small(project: Project) -> RegisteredModel:
    """A model with weights in the models folder."""
    folder = Path(site_settings.MODELS_DIR) / "push-small"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    return RegisteredModel.objects.create(project=project, name="small", kind=ModelKind.FOLDER, source=folder.name)


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """``meanwhile(work)``: a worker does this between the command's first look and its second."""
    order = Tiltyard.call

    def later(work: Callable[[], Any]) -> None:
        looks: list[str] = []

        def call(site: Tiltyard, method: str, path: str, **options: Any) -> Any:
            found = order(site, method, path, **options)
            if method == "GET" and ("/pushes" in path or "/run-imports/" in path):
                looks.append(path)
                if len(looks) == 1:
                    work()
            return found

        monkeypatch.setattr(Tiltyard, "call", call)

    return later


# --- Models out -----------------------------------------------------------------------------------------------------
def test_a_model_is_pushed_and_its_commit_is_printed(here: Tool, small: RegisteredModel, meanwhile: Meanwhile) -> None:
    ended = {"state": "done", "commit": "c0ffee", "url": "https://hub.example/team/small/commit/c0ffee"}
    meanwhile(lambda: ModelPush.objects.update(**ended, progress={"bytes": 7, "total": 7}))
    made = here("model", "push", "small", "team/small", "--yes")
    assert (made.exit_code, made.stdout) == (0, f"small → team/small: done {ended['url']}\n"), made.output
    push = ModelPush.objects.get()
    assert (push.repository, push.private, push.hub) == ("team/small", True, "https://hub.example")


def test_a_push_that_fails_says_why(here: Tool, small: RegisteredModel, meanwhile: Meanwhile) -> None:
    error = {
        "code": "hub",
        "boundary": "model",
        "message": "The hub refuses the token.",
        "hint": "Ask for one.",
    }
    meanwhile(lambda: ModelPush.objects.update(state="failed", error=error))
    refused(here("model", "push", "small", "team/small", "-y"), "The hub refuses the token. Ask for one.")
    meanwhile(lambda: ModelPush.objects.update(state="failed", error=error))
    assert answered(here("model", "push", "small", "team/small", "-y", "--json"), 1)["state"] == "failed"


def test_a_push_is_asked_for_and_left(here: Tool, small: RegisteredModel) -> None:
    made = answered(here("model", "push", "model:small", "team/small", "--public", "--yes", "--no-wait", "--json"))
    assert (made["state"], made["private"], ModelPush.objects.get().private) == ("waiting", False, False)
    refused(here("model", "push", "small", "team/small", "--yes"), "It is being pushed already.")


def test_weights_leave_only_if_the_caller_says_so(here: Tool, small: RegisteredModel, settings: Any) -> None:
    refused(here("model", "push", "small", "team/small", input="y\n"), "--yes", 2)
    refused(here("model", "push", "small", "small", "-y"), "Write the name as owner/name")
    refused(here("model", "push", "nothing", "team/small", "-y"), "There is no model 'nothing' in joust.")
    settings.HUB_TOKEN = ""
    refused(here("model", "push", "small", "team/small", "-y"), "Pushing is off")
    assert not ModelPush.objects.exists()


# --- Runs in --------------------------------------------------------------------------------------------------------
@pytest.fixture
def log(home: Path) -> Path:
    """A log of verl's."""
    path = home / "train.log"
    path.write_bytes(LOG)
    return path


def test_a_run_is_imported_and_its_page_is_printed(here: Tool, log: Path, meanwhile: Meanwhile) -> None:
    meanwhile(lambda: done(RunImport.objects.get()))
    more = log.with_name("more.jsonl")
    more.write_text('{"step": 3, "reward": 0.5}\n')
    made = here("run", "import", str(log), str(more), "--name", "night-9")
    run = Run.objects.get()
    assert made.exit_code == 0 and made.stdout.startswith("night-9: imported, 3 steps http"), made.output
    assert made.stdout.endswith(f"/p/joust/runs/{run.pk}/\n") and run.imported_from == "verl"
    assert [item["name"] for item in RunImport.objects.get().files] == ["train.log", "more.jsonl"]


def test_the_same_run_is_reported_to_be_there(here: Tool, log: Path, meanwhile: Meanwhile) -> None:
    for sentence in ("train: imported, 2 steps", "train: was imported before, 2 steps"):
        meanwhile(lambda: done(RunImport.objects.order_by("-created_at")[0]))
        assert here("run", "import", str(log)).stdout.startswith(sentence)
    assert Run.objects.count() == 1


def test_what_cannot_be_read_is_exit_code_1(here: Tool, home: Path, meanwhile: Meanwhile) -> None:
    (home / "poem.txt").write_text("Roses are red\n")
    meanwhile(lambda: done(RunImport.objects.get()))
    made = answered(here("run", "import", "poem.txt", "--json"), 1)
    assert made["state"] == "rejected" and made["message"] and made["run"] is None
    (home / "empty.log").write_text("")
    refused(here("run", "import", "empty.log"), "The file is empty.")
    assert here("run", "import", "nothing.log").exit_code == 2 and here("run", "import").exit_code == 2


def test_an_import_is_begun_and_left(here: Tool, log: Path) -> None:
    made = here("run", "import", str(log), "--no-wait")
    assert made.exit_code == 0 and made.stdout.startswith("being read http")
    assert RunImport.objects.get().state == "reading" and not Run.objects.exists()


def test_files_of_several_megabytes_come_in_by_token(tool: Tool, home: Path) -> None:
    """At a real server, which looks at the size of a body before anybody has read it."""
    row = '{"messages": [{"role": "user", "content": "%s"}, {"role": "assistant", "content": "b"}]}\n'
    (home / "large.jsonl").write_text((row % ("a" * 1000)) * 3000)
    made = answered(tool("dataset", "upload", "large.jsonl", "--no-wait", "--json"))
    assert (made["name"], Dataset.objects.get().bytes) == ("large", (home / "large.jsonl").stat().st_size)
    (home / "large.log").write_bytes(LOG * 20_000)
    assert answered(tool("run", "import", "large.log", "--no-wait", "--json"))["files"][0]["bytes"] > 3_000_000
