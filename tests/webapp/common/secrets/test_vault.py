"""Secrets in the database: encrypted for one owner, read with the secret key or its fallbacks, and taken from files."""

from __future__ import annotations

import importlib
import json
import logging
import os
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from training.config import JobConfig
from training.errors import SecretUnreadable
from webapp.common.secrets.models import Kind, Secret
from webapp.common.secrets.vault import (
    SITE_OWNER,
    SITE_TEXT,
    key_problem,
    seal,
    secret_of,
    secret_set,
    secret_since,
    secret_state,
    secrets_forget,
    secrets_reencrypt,
)
from webapp.common.workers.beating import folder_problem
from webapp.endpoints.models import Endpoint
from webapp.endpoints.services import endpoint_create, key_env
from webapp.endpoints.testing import endpoint_test, findings_of
from webapp.environments.services import environment_check
from webapp.environments.tokens import token_write
from webapp.launch.preflight import preflight
from webapp.people.teams.models import Project, User
from webapp.people.teams.services import hub_token_set

pytestmark = pytest.mark.django_db
OTHER = "another secret key of this site, with more than fifty characters"
KEY = "sk-of-a-paid-account"
migration = importlib.import_module("webapp.common.secrets.migrations.0001_secrets")


@pytest.fixture
def sealed_site() -> None:
    """As the migration leaves a site."""
    values = {"sealed": seal(Kind.SITE, SITE_OWNER, SITE_TEXT), "set_at": datetime.now(UTC)}
    Secret.objects.update_or_create(kind=Kind.SITE, owner=SITE_OWNER, defaults=values)


def test_a_secret_is_set_replaced_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    one, other = uuid.uuid4(), uuid.uuid4()
    assert (secret_of(Kind.ENDPOINT_KEY, one), secret_since(Kind.ENDPOINT_KEY, one)) == ("", None)
    secret_set(Kind.ENDPOINT_KEY, one, KEY)
    secret_set(Kind.ENDPOINT_KEY, one, "sk-二")
    secret_set(Kind.WEBHOOK, one, KEY)
    secret_set(Kind.WEBHOOK, other, KEY)
    assert secret_of(Kind.ENDPOINT_KEY, one) == "sk-二" and Secret.objects.filter(owner=one).count() == 2
    stored = " ".join(Secret.objects.values_list("sealed", flat=True))
    assert KEY not in stored + caplog.text and len(set(stored.split())) == len(stored.split())
    assert secrets_forget([one], Kind.WEBHOOK) and not secrets_forget([one], Kind.WEBHOOK)
    assert secret_of(Kind.ENDPOINT_KEY, one) == "sk-二" and secret_of(Kind.WEBHOOK, other) == KEY
    assert secrets_forget([one, other]) and not Secret.objects.filter(owner__in=[one, other]).exists()


def test_a_row_is_read_by_its_own_owner_and_kind_only() -> None:
    """Else writing to the database would send a key to the server of another endpoint."""
    one, other = uuid.uuid4(), uuid.uuid4()
    secret_set(Kind.ENDPOINT_KEY, one, KEY)
    Secret.objects.filter(owner=one).update(owner=other)
    with pytest.raises(SecretUnreadable, match="The endpoint's key cannot be read"):
        secret_of(Kind.ENDPOINT_KEY, other)
    Secret.objects.filter(owner=other).update(owner=one, kind=Kind.WEBHOOK)
    with pytest.raises(SecretUnreadable):
        secret_of(Kind.WEBHOOK, one)
    Secret.objects.filter(owner=one).update(kind=Kind.ENDPOINT_KEY)
    assert secret_of(Kind.ENDPOINT_KEY, one) == KEY
    others = ((Kind.WEBHOOK, one), (Kind.ENDPOINT_KEY, other))
    assert [(secret_of(*each), secret_since(*each)) for each in others] == [("", None)] * 2


def test_the_secret_key_is_replaced_with_a_fallback(settings: Any, sealed_site: None) -> None:
    owner, old = uuid.uuid4(), settings.SECRET_KEY
    secret_set(Kind.HUB_TOKEN, owner, KEY)
    since = secret_since(Kind.HUB_TOKEN, owner)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = OTHER, [old]
    assert secret_of(Kind.HUB_TOKEN, owner) == KEY and not key_problem()
    assert secrets_reencrypt() == (1, [])
    settings.SECRET_KEY_FALLBACKS = []
    assert secret_of(Kind.HUB_TOKEN, owner) == KEY and not key_problem()
    assert secret_since(Kind.HUB_TOKEN, owner) == since
    settings.SECRET_KEY = old
    assert secret_state(Kind.HUB_TOKEN, owner) == "unreadable" and key_problem()


def test_a_lost_key_is_named_until_what_it_encrypted_is_deleted(
    settings: Any, sealed_site: None, tmp_path: Path
) -> None:
    settings.DATA_DIR = tmp_path
    lost, kept, out = uuid.uuid4(), uuid.uuid4(), StringIO()
    secret_set(Kind.HUB_TOKEN, lost, KEY)
    assert folder_problem() == "" and secret_state(Kind.HUB_TOKEN, lost) == "kept"
    settings.SECRET_KEY = OTHER
    secret_set(Kind.HUB_TOKEN, kept, KEY)
    assert folder_problem() == "other_key" and secret_state(Kind.HUB_TOKEN, lost) == "unreadable"
    with pytest.raises(CommandError, match="1 cannot be read"):
        call_command("reencrypt_secrets", stdout=out)
    assert out.getvalue() == f"1 secrets are encrypted with the secret key.\nNot readable: hub_token of {lost}\n"
    assert folder_problem() == "other_key" and Secret.objects.count() == 3
    call_command("reencrypt_secrets", "--forget-unreadable", stdout=out)
    assert f"Deleted: hub_token of {lost}" in out.getvalue()
    assert folder_problem() == "" and secret_state(Kind.HUB_TOKEN, lost) == "none"
    assert secret_of(Kind.HUB_TOKEN, kept) == KEY and Secret.objects.count() == 2


# --- Where a person looks ---------------------------------------------------------------------------------------------
def test_an_endpoint_says_that_its_key_cannot_be_read(
    project: Project, alice: User, client_for: Callable[..., Client], settings: Any
) -> None:
    endpoint = endpoint_create(
        project=project, user=alice, name="gpt", url="https://93.184.216.34/v1", model="m", key=KEY
    )
    page, client = reverse("endpoint-detail", args=[project.slug, endpoint.pk]), client_for(alice)
    assert "kept, and never shown" in client.get(page).content.decode()
    settings.SECRET_KEY = OTHER
    shown = client_for(alice).get(page)
    assert shown.status_code == 200 and "cannot be read" in shown.content.decode()
    assert client_for(alice).get(f"/api/v1/endpoints/{endpoint.pk}").json()["has_key"] is True
    endpoint_test(endpoint)  # no request: the address is not ours to reach
    assert [finding.state for finding in findings_of(endpoint)] == ["bad"] and "key" in findings_of(endpoint)[
        0
    ].sentence
    config = JobConfig.model_validate({"kind": "evaluate", "model": {"source": "endpoint:gpt"}, "data": {"train": "x"}})
    resolved = config.model_copy(deep=True)
    resolved.endpoint.name, resolved.endpoint.url = "gpt", endpoint.url
    resolved.endpoint.key_variable = "TILTYARD_ENDPOINT_KEY"
    with pytest.raises(SecretUnreadable):
        key_env(project, resolved.endpoint)
    Endpoint.objects.update(name="other")
    assert key_env(project, resolved.endpoint) == {}


def test_a_run_that_needs_a_token_is_refused_before_it_starts(
    project: Project, alice: User, client_for: Callable[..., Client], settings: Any, make_dataset: Any
) -> None:
    hub_token_set(project=project, token="hf_of-the-project")
    dataset = make_dataset()
    asked = {"kind": "sft", "model": {"source": "team/base"}, "data": {"train": f"dataset:{dataset.name}"}}
    config = JobConfig.model_validate(asked)
    titles = {check.title for check in preflight(project, config, full=False).checks}
    assert "Keys and tokens" not in titles
    settings.SECRET_KEY = OTHER
    check = next(c for c in preflight(project, config, full=False).checks if c.title == "Keys and tokens")
    assert (check.ok, check.hard) == (False, True) and "Hugging Face token" in check.message
    assert "TILTYARD_SECRET_KEY_FALLBACKS" in check.hint
    shown = client_for(alice).get(reverse("team-settings", args=[project.slug]))
    assert shown.status_code == 200 and "cannot be read" in shown.content.decode()


def test_an_environment_is_unhealthy_with_the_reason(make_environment: Any, settings: Any) -> None:
    environment = make_environment()
    token_write(environment.pk, "a token")
    settings.SECRET_KEY = OTHER
    environment_check(environment=environment)
    replica = environment.replicas.get()
    assert (replica.state, replica.error["code"]) == ("unhealthy", "secret_unreadable")
    assert not environment.healthy


# --- Files of before --------------------------------------------------------------------------------------------------
@pytest.fixture
def before(settings: Any, tmp_path: Path) -> dict[str, Path]:
    """A data folder as 0.2 left it: a file of each kind, a foreign file, and an empty key."""
    Secret.objects.all().delete()
    settings.DATA_DIR = tmp_path
    texts = {
        "endpoints/key": KEY,
        "projects/hub-token": "hf_x",
        "environments/token": "tok",
        "channels/webhook.json": '{"url": "u", "secret": ""}',
    }
    found = {}
    for place, text in texts.items():
        folder, name = place.split("/")
        found[folder] = tmp_path / folder / str(uuid.uuid4()) / name
        found[folder].parent.mkdir(parents=True)
        found[folder].write_text(f"{text}\n")
        os.utime(found[folder], (1_700_000_000, 1_700_000_000))
    (tmp_path / "endpoints" / "notes").mkdir()
    (tmp_path / "endpoints" / "notes" / "key").write_text("not ours")
    empty = tmp_path / "endpoints" / str(uuid.uuid4())
    empty.mkdir()
    (empty / "key").write_text("")
    return found


def test_files_are_taken_once_and_written_again_on_the_way_back(
    before: dict[str, Path], tmp_path: Path, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks() as callbacks:
        migration.take_files(apps, None)
    assert all(path.exists() for path in before.values()), "they stay until the rows are committed"
    for callback in callbacks:
        callback()
    owners = {folder: uuid.UUID(path.parent.name) for folder, path in before.items()}
    assert secret_of(Kind.ENDPOINT_KEY, owners["endpoints"]) == KEY
    assert secret_of(Kind.HUB_TOKEN, owners["projects"]) == "hf_x"
    assert secret_of(Kind.ENVIRONMENT_TOKEN, owners["environments"]) == "tok"
    assert json.loads(secret_of(Kind.WEBHOOK, owners["channels"])) == {"url": "u", "secret": ""}
    assert secret_since(Kind.HUB_TOKEN, owners["projects"]) == datetime.fromtimestamp(1_700_000_000, UTC)
    assert not key_problem() and Secret.objects.count() == 5
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["key"], "only the foreign one"
    migration.write_files(apps, None)
    for path in before.values():
        assert path.stat().st_mode & 0o777 == 0o600
    assert before["endpoints"].read_text().strip() == KEY and before["projects"].read_text().strip() == "hf_x"


def test_the_way_back_stops_where_a_secret_cannot_be_read(before: dict[str, Path], settings: Any) -> None:
    migration.take_files(apps, None)
    settings.SECRET_KEY = OTHER
    with pytest.raises(SecretUnreadable):
        migration.write_files(apps, None)
