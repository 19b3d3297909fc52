"""Endpoints of a project: added, changed and deleted; their keys; what was spent there."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core import serializers
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.chat_stub import Stub
from tests.webapp.endpoints.conftest import KEY
from webapp.endpoints.models import Endpoint, EndpointSpend
from webapp.endpoints.selectors import days_of
from webapp.endpoints.services import endpoint_change, endpoint_delete, key_of
from webapp.endpoints.spending import chat_left, day_limit, run_used, spend_add, used_on
from webapp.people.teams.models import AuditEntry, Project, User

pytestmark = pytest.mark.django_db
FORM = {"name": "gpt", "model": "gpt-oss", "tool_format": "native", "concurrency": "4", "timeout_s": "60"}


def test_an_editor_adds_one_and_no_person_reads_its_key(
    project: Project,
    bob: User,
    rita: User,
    stub: Stub,
    settings: Any,
    client_for: Callable[..., Client],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    settings.OUTBOUND_ALLOW = [*settings.OUTBOUND_ALLOW, f"127.0.0.1:{stub.server_address[1]}"]
    client = client_for(bob)
    sent = FORM | {"url": f"{stub.url}/chat/completions/", "key": KEY, "price_in": "0.5", "currency": "usd"}
    answer = client.post(reverse("endpoint-new", args=[project.slug]), sent)
    endpoint = Endpoint.objects.get(project=project)
    assert answer.url == reverse("endpoint-detail", args=[project.slug, endpoint.pk])  # type: ignore[attr-defined]
    assert (endpoint.url, endpoint.currency, endpoint.price_in, endpoint.price_out) == (stub.url, "USD", 0.5, None)
    assert key_of(endpoint.pk) == KEY and not (Path(settings.DATA_DIR) / "endpoints").exists()
    pages = [
        client_for(person).get(address).content.decode()
        for person in (bob, rita)
        for address in (
            reverse("endpoint-list", args=[project.slug]),
            reverse("endpoint-detail", args=[project.slug, endpoint.pk]),
            f"/api/v1/endpoints/{endpoint.pk}",
            f"/api/v1/projects/{project.slug}/endpoints",
        )
    ]
    pages.append(client.get(reverse("endpoint-edit", args=[project.slug, endpoint.pk])).content.decode())
    stored = serializers.serialize("json", [endpoint, *AuditEntry.objects.all()])
    assert not [text for text in [*pages, stored, caplog.text] if KEY in text or KEY[:12] in text]
    assert not stub.keys  # nothing was asked yet
    shown = json.loads(pages[2])
    assert (shown["has_key"], shown["state"], shown["used_today"]["tokens"]) == (True, "untested", 0)
    assert "key" not in shown


@pytest.mark.parametrize(
    ("over", "field"),
    [
        ({"url": "http://10.0.0.1/v1"}, "url"),
        ({"url": "http://169.254.169.254/v1"}, "url"),
        ({"url": "file:///etc/passwd"}, "url"),
        ({"url": "http://user:pass@example.org/v1"}, "url"),
        ({"url": ""}, "url"),
        ({"model": ""}, "model"),
        ({"key": "two words"}, "key"),
        ({"key": "sk-\r\nHost: x"}, "key"),
        ({"max_day_cost": 5.0}, "max_day_cost"),
        ({"max_run_cost": 1.0, "price_in": 0.0, "price_out": 0.0}, "max_run_cost"),
        ({"price_in": -1.0}, "price_in"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"currency": "$$$"}, "currency"),
        ({"concurrency": 1000}, "concurrency"),
        ({"max_run_tokens": 0}, "max_run_tokens"),
        ({"tool_format": "xml"}, "tool_format"),
        ({"name": "<b>"}, "name"),
    ],
)
def test_what_cannot_be_is_refused_at_its_field(
    make_endpoint: Callable[..., Endpoint], over: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        make_endpoint(**over)
    assert set(refused.value.message_dict) == {field} and not Endpoint.objects.exists()


def test_a_name_is_taken_once(make_endpoint: Callable[..., Endpoint]) -> None:
    make_endpoint()
    with pytest.raises(ValidationError, match="exists already"):
        make_endpoint()


def test_a_key_never_goes_to_another_server(
    project: Project, bob: User, make_endpoint: Callable[..., Endpoint], client_for: Callable[..., Client]
) -> None:
    """A person who may edit could otherwise have the key sent to a server of their own."""
    endpoint, client = make_endpoint(), client_for(bob)
    page = reverse("endpoint-edit", args=[project.slug, endpoint.pk])
    moved = FORM | {"url": "https://93.184.216.34/v1"}
    answer = client.post(page, moved)
    endpoint.refresh_from_db()
    assert answer.status_code == 422 and "enter the key again" in answer.content.decode()
    assert "127.0.0.1" in endpoint.url and key_of(endpoint.pk) == KEY
    api = f"/api/v1/endpoints/{endpoint.pk}"
    refused = client.patch(api, json.dumps({"url": "https://93.184.216.34/v1"}), content_type="application/json")
    assert refused.status_code == 422 and key_of(endpoint.pk) == KEY
    assert client.post(page, moved | {"key": "another-key-of-theirs"}).status_code == 302
    endpoint.refresh_from_db()
    assert endpoint.url == "https://93.184.216.34/v1" and key_of(endpoint.pk) == "another-key-of-theirs"
    assert client.post(page, moved | {"remove_key": "on"}).status_code == 302 and key_of(endpoint.pk) == ""


def test_a_change_makes_the_last_test_void_and_is_audited(
    make_endpoint: Callable[..., Endpoint], alice: User, client_for: Callable[..., Client]
) -> None:
    endpoint = make_endpoint()
    Endpoint.objects.update(test={"state": "ok", "findings": []}, tested_at=timezone.now())
    endpoint.refresh_from_db()
    api, client = f"/api/v1/endpoints/{endpoint.pk}", client_for(alice)
    shown = client.patch(api, json.dumps({"concurrency": 2}), content_type="application/json").json()
    assert (shown["concurrency"], shown["state"], shown["model"]) == (2, "ok", "gpt-oss")
    shown = client.patch(api, json.dumps({"key": ""}), content_type="application/json").json()
    assert (shown["has_key"], shown["state"]) == (False, "untested") and key_of(endpoint.pk) == ""
    acts = list(AuditEntry.objects.order_by("pk").values_list("action", flat=True))
    assert acts == ["endpoint_added", "endpoint_changed", "endpoint_key"]


def test_it_is_deleted_with_its_key_unless_a_run_asks_it_now(
    project: Project,
    make_endpoint: Callable[..., Endpoint],
    make_run: Any,
    django_capture_on_commit_callbacks: Any,
) -> None:
    endpoint = make_endpoint()
    config = {"kind": "evaluate", "model": {"source": "endpoint:gpt"}}
    run = make_run(config=config, state="running", attempt=1)
    with pytest.raises(ValidationError, match="run-1"):
        endpoint_delete(endpoint=endpoint)
    assert key_of(endpoint.pk) == KEY
    run.state = "paused"
    run.save(update_fields=["state"])
    pk = endpoint.pk
    with django_capture_on_commit_callbacks(execute=True):
        endpoint_delete(endpoint=endpoint)
    assert not Endpoint.objects.exists() and key_of(pk) == ""


def _used(endpoint: Endpoint, run: Any, tokens: int, cost: float | None, at: Any = None) -> None:
    known = {"project_id": endpoint.project_id, "name": endpoint.name, "run_id": run.pk, "run_name": run.name}
    run_used(**known, tokens=tokens, cost=cost, at=at or timezone.now())


def test_what_runs_use_is_kept_by_day_and_outlives_them(
    project: Project,
    alice: User,
    make_endpoint: Callable[..., Endpoint],
    make_run: Any,
    client_for: Callable[..., Client],
) -> None:
    endpoint = make_endpoint(price_in=1.0, price_out=2.0, currency="EUR")
    first, second = make_run(name="first"), make_run(name="second")
    yesterday = timezone.now() - timedelta(days=1)
    _used(endpoint, first, 1000, 0.01, yesterday)
    _used(endpoint, first, 1500, 0.015, yesterday)
    _used(endpoint, first, 2500, 0.025)  # its total: 1,000 tokens of them are today's
    _used(endpoint, first, 2500, 0.025)  # reported twice
    _used(endpoint, first, 2000, 0.02)  # an attempt that knew less
    _used(endpoint, second, 300, 0.003)
    assert [used_on(endpoint, day).tokens for day in (yesterday.date(), timezone.localdate())] == [1500, 1300]
    assert used_on(endpoint).cost == pytest.approx(0.013)
    second.delete()
    page = client_for(alice).get(reverse("endpoint-detail", args=[project.slug, endpoint.pk])).content.decode()
    assert "first" in page and "second" in page and "0.013 EUR" in page and "deleted" in page
    assert EndpointSpend.objects.filter(name="second", tokens=300).exists()


def test_without_a_price_nothing_costs_0(
    project: Project,
    alice: User,
    make_endpoint: Callable[..., Endpoint],
    make_run: Any,
    client_for: Callable[..., Client],
) -> None:
    endpoint = make_endpoint()
    _used(endpoint, make_run(), 1000, None)
    client = client_for(alice)
    for address in ("endpoint-list", "endpoint-detail"):
        place = [project.slug] if address == "endpoint-list" else [project.slug, endpoint.pk]
        page = client.get(reverse(address, args=place)).content.decode()
        assert "no price set" in page and "1,000" in page
    assert client.get(f"/api/v1/endpoints/{endpoint.pk}").json()["used"]["cost"] is None
    assert [(day.used.tokens, day.used.cost) for day in days_of(endpoint)] == [(1000, None)]


def test_the_limits_of_a_day_count_all_runs(make_endpoint: Callable[..., Endpoint], make_run: Any) -> None:
    endpoint = make_endpoint(price_in=1.0, currency="USD", max_day_tokens=1000, max_day_cost=1.0)
    assert day_limit(endpoint) is None
    _used(endpoint, make_run(), 5000, 9.0, timezone.now() - timedelta(days=1))
    assert day_limit(endpoint) is None
    _used(endpoint, make_run(), 600, 0.5)
    assert day_limit(endpoint) is None
    _used(endpoint, make_run(), 400, 0.1)
    over = day_limit(endpoint)
    assert over is not None and over.pauses and "1000 tokens" in over.message
    _used(endpoint, make_run(), 1, 0.4)
    over = day_limit(endpoint)
    assert over is not None and "1 USD" in over.message and "gpt" in over.message
    endpoint_change(endpoint=endpoint, max_day_tokens=None, max_day_cost=2.0)
    assert day_limit(endpoint) is None


def test_an_answer_of_a_chat_may_use_what_the_tighter_limit_leaves(make_endpoint: Callable[..., Endpoint]) -> None:
    limits = {"max_run_tokens": 100, "max_day_tokens": 1000, "max_run_cost": 5.0, "max_day_cost": 2.0}
    endpoint, chat = make_endpoint(price_in=1.0, currency="USD", **limits), UUID(int=1)
    spend_add(endpoint, tokens=40, cost=0.5, at=timezone.now(), chat_id=chat)
    assert chat_left(endpoint, chat)[:2] == (60, 1.5), "tokens of the chat, money of the day"
    spend_add(endpoint, tokens=920, cost=1.0, at=timezone.now(), chat_id=UUID(int=2))
    assert chat_left(endpoint, chat)[:2] == (40, 0.5), "what other chats used counts for the day"
    endpoint_change(endpoint=endpoint, max_run_cost=0.75, max_day_tokens=None)
    assert chat_left(endpoint, chat)[:2] == (60, 0.25)


def test_a_use_is_of_the_day_that_it_is_in_the_time_zone_of_the_site(make_endpoint: Callable[..., Endpoint]) -> None:
    endpoint = make_endpoint()
    with timezone.override("Asia/Shanghai"):
        for hour, tokens in ((15, 10), (16, 7)):  # 23:00 there, and 00:00 of the next day
            spend_add(endpoint, tokens=tokens, cost=None, at=datetime(2026, 3, 9, hour, tzinfo=UTC))
    assert [used_on(endpoint, date(2026, 3, day)).tokens for day in (9, 10)] == [10, 7]


def test_a_list_of_many_costs_as_few_queries_as_one_of_few(
    project: Project,
    alice: User,
    make_endpoint: Callable[..., Endpoint],
    make_run: Any,
    client_for: Callable[..., Client],
    django_assert_max_num_queries: Any,
) -> None:
    for number in range(12):
        _used(make_endpoint(name=f"e{number}"), make_run(), 10, None)
    client = client_for(alice)
    for address in (reverse("endpoint-list", args=[project.slug]), f"/api/v1/projects/{project.slug}/endpoints"):
        with django_assert_max_num_queries(15):
            assert client.get(address).status_code == 200
