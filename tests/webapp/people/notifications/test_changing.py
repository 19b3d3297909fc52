"""Changing a channel, on its page and over the API: what is left empty stays, and no secret meets another host."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.webapp.people.notifications.conftest import EVENTS, Service, work_off
from tests.webapp.people.notifications.test_api import ask
from webapp.common.secrets.models import Kind, Secret
from webapp.common.secrets.vault import seal
from webapp.people.notifications.formats import Webhook, webhook_of
from webapp.people.notifications.models import Channel, Event
from webapp.people.teams.models import AuditEntry, User

pytestmark = pytest.mark.django_db(transaction=True)
PAGE = "/p/joust/settings/channels/{}/edit/"
AGAIN = "The address is another server's: enter the secret again, or remove it."


@pytest.fixture(autouse=True)
def _asked(sent: list[str]) -> None:
    """No message reaches a real worker."""


def form(channel: Channel, **over: Any) -> dict[str, Any]:
    """What the page sends where nothing was touched: address and secret are empty."""
    kept = {"name": channel.name, "kind": channel.kind, "events": channel.events, "language": channel.language}
    return kept | {"url": "", "secret": ""} | over


def kept(channel: Channel) -> tuple[Any, ...]:
    """All that can be changed, as it is stored."""
    channel = Channel.objects.get(pk=channel.pk)
    columns = (channel.name, channel.kind, channel.host, channel.signed, channel.events, channel.language)
    return *columns, webhook_of(channel.pk)


def test_an_owner_renames_a_channel_and_its_address_and_secret_stay(
    client_for: Callable[..., Client], alice: User, service: Service, make_channel: Callable[..., Channel]
) -> None:
    channel = make_channel("json", name="ops", secret="k3y-of-the-channel")
    client, page = client_for(alice), PAGE.format(channel.pk)
    shown = client.get(page).content.decode()
    assert 'value="ops"' in shown and f"It posts to 127.0.0.1:{service.port}" in shown
    assert "s3cret-in-url" not in shown and "k3y-of-the-channel" not in shown
    assert "There is a secret. Leave this empty to keep it" in shown
    changed = {"name": "night", "events": ["run_failed", "vote_asked"], "language": "zh-hans"}
    answer = client.post(page, form(channel) | changed, follow=True)
    assert answer.redirect_chain == [("/p/joust/settings/channels/", 302)]
    assert "night is changed. Send a test to see whether it works." in answer.content.decode()
    assert kept(channel) == (
        *("night", "json", f"127.0.0.1:{service.port}", True, ["run_failed", "vote_asked"], "zh-hans"),
        Webhook(service.url(), "k3y-of-the-channel"),
    )
    row = AuditEntry.objects.get(action="channel_changed")
    assert (row.username, row.subject, row.project_name) == ("alice", "night", "Joust")


def test_a_new_address_at_the_same_server_keeps_the_secret(
    client_for: Callable[..., Client], alice: User, service: Service, make_channel: Callable[..., Channel]
) -> None:
    channel = make_channel("json", secret="k3y-of-the-channel")
    assert client_for(alice).post(PAGE.format(channel.pk), form(channel, url=service.url("/other"))).status_code == 302
    assert webhook_of(channel.pk) == Webhook(service.url("/other"), "k3y-of-the-channel")
    assert Channel.objects.get().host == f"127.0.0.1:{service.port}"


@pytest.mark.parametrize("place", ["http://127.0.0.1:{other}/hook", "https://127.0.0.1:{port}/hook"])
def test_a_secret_never_meets_another_server(
    client_for: Callable[..., Client],
    alice: User,
    service: Service,
    free_port: int,
    make_channel: Callable[..., Channel],
    place: str,
) -> None:
    channel = make_channel("json", name="ops", secret="k3y-of-the-channel")
    before, client, page = kept(channel), client_for(alice), PAGE.format(channel.pk)
    url = place.format(other=free_port, port=service.port)
    answer = client.post(page, form(channel, name="moved", url=url))
    assert (answer.status_code, answer.context["form"].errors) == (422, {"secret": [AGAIN]})
    assert "<h1>Change ops</h1>" in answer.content.decode() and kept(channel) == before
    assert not AuditEntry.objects.filter(action="channel_changed").exists()
    assert client.post(page, form(channel, url=url, secret="fresh")).status_code == 302
    assert webhook_of(channel.pk) == Webhook(url, "fresh")
    assert client.post(page, form(channel, url=service.url(), remove_secret="on")).status_code == 302
    assert webhook_of(channel.pk) == Webhook(service.url(), "") and Channel.objects.get().signed is False


def test_a_channel_without_a_secret_moves_freely_and_can_get_one(
    client_for: Callable[..., Client], alice: User, free_port: int, make_channel: Callable[..., Channel]
) -> None:
    channel, client = make_channel("slack"), client_for(alice)
    page = PAGE.format(channel.pk)
    assert "Remove the secret" not in client.get(page).content.decode()
    url = f"http://127.0.0.1:{free_port}/hook"
    assert client.post(page, form(channel, url=url)).status_code == 302
    assert webhook_of(channel.pk) == Webhook(url, "") and Channel.objects.get().host == f"127.0.0.1:{free_port}"
    assert client.post(page, form(channel, kind="json", secret="k3y-of-the-channel")).status_code == 302
    assert webhook_of(channel.pk) == Webhook(url, "k3y-of-the-channel") and Channel.objects.get().signed is True


@pytest.mark.parametrize(
    ("field", "wrong", "message"),
    [
        ("url", {"url": "http://10.0.0.1/hook"}, "TILTYARD_OUTBOUND_ALLOW"),
        ("url", {"url": "http://8.8.8.8/a b"}, "without spaces or #"),
        ("name", {"name": "<b>"}, "Use letters"),
        ("name", {"name": "taken"}, "This project has a channel with this name."),
        ("kind", {"kind": "telegram"}, "not one of the available choices"),
        ("events", {"events": []}, "required"),
        ("secret", {"secret": "ключ"}, "printable ASCII"),
        ("language", {"language": "xx"}, "not one of the available choices"),
    ],
)
def test_what_cannot_be_changes_nothing_and_the_form_says_why(
    client_for: Callable[..., Client],
    alice: User,
    make_channel: Callable[..., Channel],
    field: str,
    wrong: dict[str, Any],
    message: str,
) -> None:
    make_channel(name="taken")
    channel = make_channel("json", name="ops", secret="k3y-of-the-channel")
    before = kept(channel)
    answer = client_for(alice).post(PAGE.format(channel.pk), form(channel, **wrong))
    assert answer.status_code == 422 and kept(channel) == before
    assert any(message in error for error in answer.context["form"].errors[field]), answer.context["form"].errors
    assert "k3y-of-the-channel" not in answer.content.decode()


def test_only_owners_change_channels(
    client_for: Callable[..., Client], bob: User, rita: User, charlie: User, make_channel: Callable[..., Channel]
) -> None:
    channel = make_channel(name="ops")
    page, before = PAGE.format(channel.pk), kept(channel)
    for user, status in ((bob, 403), (rita, 403), (charlie, 404)):
        client = client_for(user)
        assert client.get(page).status_code == client.post(page, form(channel, name="mine")).status_code == status
        assert page not in client.get("/p/joust/settings/channels/").content.decode()
    anonymous = client_for(None)
    assert anonymous.post(page, form(channel, name="mine"))["Location"].startswith("/login/")
    assert kept(channel) == before


def test_messages_that_wait_go_to_the_new_address(
    client_for: Callable[..., Client],
    alice: User,
    service: Service,
    make_channel: Callable[..., Channel],
    happened: Callable[..., Event],
) -> None:
    channel = make_channel("json", secret="k3y-of-the-channel")
    happened()
    work_off(Event)
    client_for(alice).post(PAGE.format(channel.pk), form(channel, url=service.url("/moved"), events=["run_failed"]))
    work_off()
    assert [got.path for got in service.got] == ["/moved"]
    happened(key="second")  # of a kind that is not posted any more
    work_off()
    assert len(service.got) == 1


@pytest.mark.parametrize("gone", [True, False])
def test_a_channel_whose_address_is_gone_or_unreadable_is_mended_with_its_address(
    gone: bool,
    client_for: Callable[..., Client],
    alice: User,
    service: Service,
    make_channel: Callable[..., Channel],
) -> None:
    channel, client = make_channel("json", secret="k3y-of-the-channel"), client_for(alice)
    if gone:
        Secret.objects.all().delete()
    else:
        Secret.objects.update(sealed=seal(Kind.WEBHOOK, uuid.uuid4(), "stored by another site"))
    page = PAGE.format(channel.pk)
    assert "url" in client.post(page, form(channel, secret="new")).context["form"].errors
    assert "secret" in client.post(page, form(channel, url=service.url())).context["form"].errors
    assert client.post(page, form(channel, url=service.url(), secret="new")).status_code == 302
    assert webhook_of(channel.pk) == Webhook(service.url(), "new")


def test_a_script_changes_what_it_names(
    alice: User, bob: User, service: Service, free_port: int, make_channel: Callable[..., Channel]
) -> None:
    channel = make_channel("json", name="ops", secret="k3y-of-the-channel")
    address, host = f"channels/{channel.pk}", f"127.0.0.1:{service.port}"
    assert ask(alice, "patch", address, {"name": "night"}).json() == {
        "id": str(channel.pk),
        "name": "night",
        "kind": "json",
        "host": host,
        "signed": True,
        "events": EVENTS,
        "language": "en",
        "failures": 0,
        "paused_at": None,
    }
    moved = {"url": f"http://127.0.0.1:{free_port}/h"}
    refused = ask(alice, "patch", address, moved)
    assert refused.status_code == 422
    assert [(item["path"], item["message"]) for item in refused.json()["detail"]] == [("secret", AGAIN)]
    assert webhook_of(channel.pk) == Webhook(service.url(), "k3y-of-the-channel")
    assert ask(alice, "patch", address, moved | {"secret": ""}).json()["signed"] is False
    assert webhook_of(channel.pk) == Webhook(moved["url"], "")
    assert ask(bob, "patch", address, {"name": "mine"}).status_code == 403
    assert ask(alice, "patch", address, {"name": "mine"}, role="editor").status_code == 403
    assert Channel.objects.get().name == "night"


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"kind": "telegram"}, "kind"),
        ({"events": ["birthday"]}, "events"),
        ({"events": []}, "body.body.events"),
        ({"language": "xx"}, "language"),
        ({"name": ""}, "body.body.name"),
        ({"paused_at": None}, "body.body.paused_at"),
    ],
)
def test_a_wrong_change_is_refused_by_field(
    alice: User, make_channel: Callable[..., Channel], wrong: dict[str, Any], path: str
) -> None:
    channel = make_channel(name="ops")
    before = kept(channel)
    answer = ask(alice, "patch", f"channels/{channel.pk}", wrong)
    assert (answer.status_code, answer.json()["detail"][0]["path"]) == (422, path)
    assert kept(channel) == before
