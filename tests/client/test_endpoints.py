"""``tiltyard endpoint``: its key comes from where no history keeps it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiltyard_client import cli
from typer.testing import CliRunner

from tests.chat_stub import Stub, call, says, stub
from tests.client.conftest import Tool, answered, logged_in, refused
from webapp.endpoints.models import Endpoint
from webapp.endpoints.services import key_of
from webapp.people.teams.models import Project, User

__all__ = ["stub"]
pytestmark = pytest.mark.django_db(transaction=True)
KEY = "sk-live-0123456789abcdefghij"


@pytest.fixture
def here(home: Path, live_server: Any, bob: User, project: Project, stub: Stub, settings: Any) -> Tool:
    """The command at a site that may reach the stub."""
    settings.OUTBOUND_ALLOW = [*settings.OUTBOUND_ALLOW, f"127.0.0.1:{stub.server_address[1]}"]
    return logged_in(live_server.url, bob)


def _add(here: Tool, stub: Stub, *words: str, **options: Any) -> Any:
    return here("endpoint", "add", "gpt", "--url", stub.url, "--model", "gpt-oss", *words, **options)


def test_a_key_comes_from_the_input(here: Tool, stub: Stub) -> None:
    made = _add(here, stub, "--price-in", "0.5", "--currency", "usd", "--max-day-tokens", "1000", input=f"{KEY}\n")
    assert made.exit_code == 0 and made.stdout == "endpoint:gpt was added. Try it: tiltyard endpoint test gpt\n"
    endpoint = Endpoint.objects.get()
    assert key_of(endpoint.pk) == KEY and KEY not in made.output
    assert (endpoint.model, endpoint.price_in, endpoint.currency, endpoint.max_day_tokens) == (
        "gpt-oss", 0.5, "USD", 1000,
    )  # fmt: skip
    assert (endpoint.concurrency, endpoint.timeout_s, endpoint.price_out) == (8, 120.0, None)
    rows = answered(here("endpoint", "list", "--json"))
    assert [(row["name"], row["has_key"], row["state"]) for row in rows] == [("gpt", True, "untested")]
    shown = here("endpoint", "list").stdout
    assert "gpt-oss" in shown and "not tested" in shown and KEY not in shown
    refused(_add(here, stub, input=f"{KEY}\n"), "exists already")


def test_a_key_comes_from_the_environment(here: Tool, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTYARD_ENDPOINT_KEY", KEY)
    made = answered(_add(here, stub, "--json"))
    assert made["has_key"] and "key" not in made and key_of(Endpoint.objects.get().pk) == KEY


def test_a_missing_key_must_be_stated(here: Tool, stub: Stub) -> None:
    refused(_add(here, stub, input=""), "--no-key", 2)
    assert not Endpoint.objects.exists()
    assert answered(_add(here, stub, "--no-key", "--json"))["has_key"] is False


def test_there_is_no_option_for_a_key(here: Tool, stub: Stub) -> None:
    assert _add(here, stub, "--key", KEY).exit_code == 2
    assert _add(here, stub, KEY).exit_code == 2 and not Endpoint.objects.exists()


def test_a_test_says_what_works(here: Tool, stub: Stub) -> None:
    assert _add(here, stub, "--no-key").exit_code == 0
    added = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": json.dumps({"a": 2, "b": 3})}}
    stub.replies = [says("", tool_calls=[added])]
    shown = here("endpoint", "test", "gpt")
    assert shown.exit_code == 0 and shown.stdout.startswith("gpt: works\n") and "It called the tool" in shown.stdout
    stub.replies = [says("Five.")]
    assert here("endpoint", "test", "endpoint:gpt").stdout.startswith("gpt: works in part\n")
    stub.replies = [(401, b"{}", {})]
    broken = here("endpoint", "test", "gpt")
    assert broken.exit_code == 1 and "does not work" in broken.stdout and "asks for a key (401)" in broken.stdout
    found = answered(here("endpoint", "test", "gpt", "--json"), 1)
    assert found["state"] == "bad" and found["findings"][0]["state"] == "bad"
    refused(here("endpoint", "test", "nothing"), "There is no endpoint 'nothing' in joust.")
    assert call("x")["id"] == "c9"


def test_deleting_asks_unless_yes_is_given(here: Tool, stub: Stub) -> None:
    assert _add(here, stub, "--no-key").exit_code == 0
    refused(here("endpoint", "delete", "gpt", input="y\n"), "--yes", 2)
    assert Endpoint.objects.exists()
    assert answered(here("endpoint", "delete", "gpt", "--yes", "--json")) == {"deleted": "endpoint:gpt"}
    assert not Endpoint.objects.exists()
    refused(here("endpoint", "delete", "gpt", "--yes"), "There is no endpoint 'gpt' in joust.")


def test_an_address_that_may_not_be_reached_is_named(here: Tool, stub: Stub) -> None:
    words = ["endpoint", "add", "inner", "--url", "http://10.0.0.1/v1", "--model", "x", "--no-key"]
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 1 and "url" in result.stderr and not Endpoint.objects.exists()
