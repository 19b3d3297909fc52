"""A worker whose data folder is a cache: what it may take, and what the page of workers says."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from django.test import Client
from django.utils import timezone
from django.utils.html import escape

from training.errors import FilesAway
from webapp.common import objects
from webapp.common.workers import beating
from webapp.common.workers.beating import folder_problem, identity_file, training_problem
from webapp.common.workers.models import DataFolder, Worker
from webapp.people.teams.models import User
from webapp.site.workers import PROBLEMS

pytestmark = pytest.mark.django_db


@pytest.fixture
def hosts(tmp_path: Path, settings: Any) -> Any:
    """``hosts("site")`` and ``hosts("cache")``: this process works with that data folder, on one store."""
    DataFolder.objects.all().delete()
    settings.FILES = str(tmp_path / "store")
    (tmp_path / "site").mkdir()
    (tmp_path / "cache").mkdir()

    def go(name: str) -> None:
        settings.DATA_DIR = tmp_path / name

    go("site")
    assert folder_problem() == ""
    return go


def test_a_cache_takes_runs_once_the_site_has_claimed_the_store(hosts: Any) -> None:
    hosts("cache")
    assert (folder_problem(), training_problem()) == ("no_identity", "files_unclaimed")
    hosts("site")
    assert training_problem() == "" and not objects.is_cache()
    hosts("cache")
    assert (folder_problem(), training_problem()) == ("no_identity", "") and objects.is_cache()
    assert not identity_file().exists(), "a cache never becomes the site's folder by itself"


def test_without_a_store_another_folder_takes_nothing(hosts: Any, settings: Any) -> None:
    settings.FILES = ""
    hosts("cache")
    assert training_problem() == "no_identity" and not objects.is_cache()
    hosts("site")
    assert training_problem() == ""


def test_another_site_s_store_or_folder_is_refused(hosts: Any) -> None:
    assert training_problem() == ""
    DataFolder.objects.update(identity=uuid.uuid4())
    assert training_problem() == "other_identity"
    hosts("cache")
    assert training_problem() == "other_site"
    hosts("site")
    identity_file().write_text(str(DataFolder.objects.get().identity))
    assert training_problem() == "other_site", "the site does not take over what belongs to another"


def test_the_page_says_what_to_do_about_each_problem(alice: User, client_for: Callable[..., Client]) -> None:
    alice.is_superuser = True
    alice.save(update_fields=["is_superuser"])
    shown = []
    for problem in (found for part in get_args(beating.Problem) for found in get_args(part) or [part] if found):
        Worker.objects.update_or_create(
            name="train@far", defaults={"problem": problem, "started_at": timezone.now(), "beat_at": timezone.now()}
        )
        words, page = PROBLEMS[problem], client_for(alice).get("/workers/").content.decode()
        assert escape(words.sentence) in page and escape(words.hint) in page, problem
        assert ("adopt_data_folder" in page) == (problem in ("no_identity", "other_identity")), problem
        shown.append(problem)
    assert set(shown) == set(PROBLEMS)


def test_the_page_shows_what_a_child_found(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(*queues: str) -> str:
        beating.beat("one@far", 1, list(queues))
        return Worker.objects.get(name="one@far").problem

    assert training_problem() == ""
    hosts("cache")
    assert training_problem() == "" and shown("train", "endpoint") == ""
    assert shown("train", "short") == "no_identity", "people's work needs the site's folder"

    def away(*_args: Any, **_options: Any) -> Any:
        raise FilesAway("away")

    with monkeypatch.context() as patch:
        patch.setattr(objects, "_named_errors", away)
        assert training_problem() == "files_away" == shown("train")
    hosts("site")
    assert shown("train") == "files_away" and shown("short") == ""
    assert training_problem() == "" == shown("train")
