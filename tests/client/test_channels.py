"""``tiltyard notify channel``: addresses and secrets come from where no history keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.conftest import Tool, answered, logged_in, refused
from tests.webapp.people.notifications.conftest import Service, service
from webapp.people.notifications.formats import Webhook, webhook_of
from webapp.people.notifications.models import Channel
from webapp.people.teams.models import Project, User

__all__ = ["service"]
pytestmark = pytest.mark.django_db(transaction=True)
ADD = ("notify", "channel", "add", "ops", "--kind", "json", "--event", "run_failed", "--event", "run_paused")


@pytest.fixture
def here(home: Any, live_server: Any, alice: User, project: Project, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """The command of an owner at a site in this process, which may reach the service."""
    for name in ("TILTYARD_CHANNEL_URL", "TILTYARD_CHANNEL_SECRET"):
        monkeypatch.delenv(name, raising=False)
    return logged_in(live_server.url, alice, "owner")


@pytest.fixture
def ops(here: Tool, service: Service) -> Channel:
    """A channel that signs."""
    made = here(*ADD, "--with-secret", input=f"{service.url()}\nk3y\n")
    assert made.exit_code == 0, made.output
    return Channel.objects.get()


def test_an_address_and_a_secret_come_from_the_input(here: Tool, service: Service) -> None:
    made = here(*ADD, "--with-secret", "--language", "zh-hans", input=f"{service.url()}\nk3y\n")
    assert (made.exit_code, made.stdout) == (0, "ops was added. Try it: tiltyard notify channel test ops\n")
    channel = Channel.objects.get()
    assert (channel.kind, channel.events, channel.language, channel.signed) == (
        "json", ["run_failed", "run_paused"], "zh-hans", True,
    )  # fmt: skip
    assert webhook_of(channel.pk) == Webhook(service.url(), "k3y")
    rows = answered(here("notify", "channel", "list", "--json"))
    assert [(row["name"], row["host"]) for row in rows] == [("ops", f"127.0.0.1:{service.port}")]
    shown = here("notify", "channel", "list").stdout
    assert "in use" in shown and "run_failed" in shown
    for secret in ("s3cret-in-url", "k3y"):
        assert secret not in made.output + shown
    refused(here(*ADD, input=service.url()), "This project has a channel with this name.")


def test_an_address_and_a_secret_come_from_the_environment(
    here: Tool, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILTYARD_CHANNEL_URL", service.url())
    monkeypatch.setenv("TILTYARD_CHANNEL_SECRET", "k3y")
    assert answered(here(*ADD, "--with-secret", "--json"))["signed"] is True
    assert webhook_of(Channel.objects.get().pk) == Webhook(service.url(), "k3y")


def test_what_is_missing_is_reported_and_nothing_is_made(here: Tool, service: Service) -> None:
    refused(here(*ADD, input=""), "No address was given.", 2)
    refused(here(*ADD, "--with-secret", input=f"{service.url()}\n"), "No secret was given.", 2)
    assert here("notify", "channel", "add", "ops", "--kind", "json", input=service.url()).exit_code == 2
    assert here(*ADD[:5], "telegram", *ADD[6:], input=service.url()).exit_code == 2
    assert here(*ADD, "--url", service.url()).exit_code == 2
    refused(here(*ADD, input="http://10.0.0.1/hook\n"), "TILTYARD_OUTBOUND_ALLOW")
    assert not Channel.objects.exists()


def test_what_is_named_is_changed_and_the_rest_stays(here: Tool, service: Service, ops: Channel) -> None:
    words = ("notify", "channel", "edit")
    assert here(*words, "ops", "--name", "night", "--event", "vote_asked").stdout == "night was changed.\n"
    ops.refresh_from_db()
    assert (ops.name, ops.kind, ops.events, ops.language) == ("night", "json", ["vote_asked"], "en")
    assert webhook_of(ops.pk) == Webhook(service.url(), "k3y")
    moved = service.url("/moved")
    assert answered(here(*words, "night", "--with-address", "--json", input=f"{moved}\n"))["signed"] is True
    assert webhook_of(ops.pk) == Webhook(moved, "k3y")
    assert here(*words, "night", "--with-secret", "--kind", "feishu", input="fresh\n").exit_code == 0
    assert webhook_of(ops.pk) == Webhook(moved, "fresh") and Channel.objects.get().kind == "feishu"
    assert answered(here(*words, "night", "--no-secret", "--language", "zh-hans", "--json"))["language"] == "zh-hans"
    assert webhook_of(ops.pk) == Webhook(moved, "")
    refused(here(*words, "night"), "Say what shall change", 2)
    refused(here(*words, "night", "--with-secret", "--no-secret"), "not both", 2)
    refused(here(*words, "nothing", "--name", "x"), "There is no channel 'nothing' in joust.")


def test_a_secret_never_meets_another_server(here: Tool, service: Service, ops: Channel, settings: Any) -> None:
    settings.OUTBOUND_ALLOW = [*settings.OUTBOUND_ALLOW, "127.0.0.1:1"]
    words = ("notify", "channel", "edit", "ops", "--with-address")
    refused(here(*words, input="http://127.0.0.1:1/hook\n"), "enter the secret again")
    assert webhook_of(ops.pk) == Webhook(service.url(), "k3y")
    assert here(*words, "--with-secret", input="http://127.0.0.1:1/hook\nfresh\n").exit_code == 0
    assert webhook_of(ops.pk) == Webhook("http://127.0.0.1:1/hook", "fresh")


def test_a_test_says_what_the_service_answered(here: Tool, service: Service, ops: Channel) -> None:
    assert here("notify", "channel", "test", "ops").stdout == "ops: Delivered.\n"
    service.say((401, {}, "who?"))
    broken = here("notify", "channel", "test", "ops")
    assert broken.exit_code == 1 and "refuses us (HTTP 401)" in broken.stdout
    assert answered(here("notify", "channel", "test", "ops", "--json"), 1)["ok"] is False
    assert len(service.got) == 3


def test_a_paused_channel_is_used_again(here: Tool, ops: Channel) -> None:
    Channel.objects.update(paused_at="2026-01-01T00:00:00Z", failures=8)
    assert "paused" in here("notify", "channel", "list").stdout
    assert here("notify", "channel", "resume", "ops").stdout == "ops is used again; 0 messages follow.\n"
    assert answered(here("notify", "channel", "resume", "ops", "--json")) == {"sent": 0}
    assert Channel.objects.get().paused_at is None


def test_deleting_asks_unless_yes_is_given(here: Tool, ops: Channel) -> None:
    refused(here("notify", "channel", "delete", "ops", input="y\n"), "--yes", 2)
    assert Channel.objects.exists()
    assert here("notify", "channel", "delete", "ops", "--yes").stdout == "ops was deleted.\n"
    assert not Channel.objects.exists() and webhook_of(ops.pk) is None


def test_members_see_them_and_change_nothing(home: Any, live_server: Any, here: Tool, ops: Channel, bob: User) -> None:
    tool = logged_in(live_server.url, bob)
    assert [row["name"] for row in answered(tool("notify", "channel", "list", "--json"))] == ["ops"]
    for words in (("edit", "ops", "--name", "mine"), ("test", "ops"), ("resume", "ops"), ("delete", "ops", "--yes")):
        refused(tool("notify", "channel", *words), "Your role in this team is editor")
    assert Channel.objects.get().name == "ops"
