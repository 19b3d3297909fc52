"""What a channel says of each answer, through the real outbound client against a real server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import translation

from tests.webapp.people.notifications.conftest import Service
from webapp.common import outbound
from webapp.common.text import in_words
from webapp.people.notifications.channels import channel_test
from webapp.people.notifications.models import Channel

pytestmark = pytest.mark.django_db
HTML = "<!DOCTYPE html><html><body>Welcome to the proxy</body></html>"
BUSY = "The service has had too many messages and asks to wait."
# kind, status, headers, body, delivered, tried again, seconds named, message
TABLE: list[tuple[str, int, dict[str, str], Any, bool, bool, float | None, str]] = [
    ("slack", 200, {}, "ok", True, False, None, "Delivered."),
    ("slack", 200, {}, "no_text", False, False, None, "This server said: no_text"),
    ("slack", 200, {}, HTML, False, False, None, "This server said: a web page"),
    ("slack", 404, {}, "no_service", False, False, None, "No such webhook (HTTP 404)"),
    ("slack", 410, {}, "channel_is_archived", False, False, None, "It said: channel_is_archived"),
    ("slack", 403, {}, "action_prohibited", False, False, None, "refuses us (HTTP 403)"),
    ("slack", 400, {}, "invalid_payload", False, False, None, "It said: invalid_payload"),
    ("slack", 429, {"Retry-After": "17"}, "rate_limited", False, True, 17.0, BUSY),
    ("slack", 408, {}, "slow", False, True, None, "The server failed (HTTP 408). It said: slow"),
    ("slack", 409, {}, "busy", False, False, None, "did not accept the message (HTTP 409). It said: busy"),
    ("slack", 500, {}, "rollup_error", False, True, None, "The server failed (HTTP 500). It said: rollup_error"),
    ("feishu", 200, {}, {"code": 0, "msg": "success"}, True, False, None, "Delivered."),
    ("feishu", 200, {}, {"StatusCode": 0, "StatusMessage": "success"}, True, False, None, "Delivered."),
    ("feishu", 200, {}, {"code": 19021, "msg": "sign match fail"}, False, False, None, "does not accept the signature"),
    ("feishu", 200, {}, {"code": 19024, "msg": "Key Words Not Found"}, False, False, None, "robot's keywords"),
    ("feishu", 200, {}, {"code": 11232, "msg": "frequency limited"}, False, True, None, BUSY),
    ("feishu", 200, {}, {"code": 9499, "msg": "Bad Request"}, False, False, None, "(code 9499)"),
    ("feishu", 200, {}, HTML, False, False, None, "no answer of this service"),
    ("feishu", 200, {}, "ok", False, False, None, "no answer of this service"),
    ("feishu", 200, {}, "[" * 5000, False, False, None, "no answer of this service"),
    ("dingtalk", 200, {}, {"errcode": 0, "errmsg": "ok"}, True, False, None, "Delivered."),
    ("dingtalk", 200, {}, {"errcode": 310000, "errmsg": "sign not match"}, False, False, None, "sign not match"),
    ("dingtalk", 200, {}, {"errcode": 130101, "errmsg": "send too fast"}, False, True, None, BUSY),
    ("dingtalk", 200, {}, {"errcode": -1, "errmsg": "system busy"}, False, True, None, "(code -1)"),
    ("dingtalk", 200, {}, {"errcode": True}, False, False, None, "no answer of this service"),
    ("dingtalk", 200, {}, {"errcode": 10**9}, False, False, None, "(code 1000000000)"),
    ("dingtalk", 200, {}, {"errcode": 10**9 + 1}, False, False, None, "no answer of this service"),
    ("discord", 204, {}, "", True, False, None, "Delivered."),
    ("discord", 401, {}, {"message": "Invalid Webhook Token"}, False, False, None, "Invalid Webhook Token"),
    ("discord", 429, {}, {"message": "limited", "retry_after": 0.5}, False, True, 0.5, BUSY),
    ("discord", 503, {"Retry-After": "120"}, HTML, False, True, 120.0, "It said: a web page"),
    ("json", 202, {}, "", True, False, None, "Delivered."),
    ("json", 301, {"Location": "http://169.254.169.254/"}, "", False, False, None, "redirects are not followed"),
    ("json", 422, {}, "", False, False, None, "It said: nothing"),
    ("json", 429, {"Retry-After": "soon"}, "", False, True, None, BUSY),
    ("json", 429, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, "", False, True, 0.0, BUSY),
    ("json", 429, {"Retry-After": "nan"}, "", False, True, None, BUSY),
]


@pytest.mark.parametrize(("kind", "status", "headers", "body", "ok", "again", "after_s", "message"), TABLE)
def test_the_meaning_of_an_answer(
    service: Service,
    make_channel: Callable[..., Channel],
    kind: str,
    status: int,
    headers: dict[str, str],
    body: Any,
    ok: bool,
    again: bool,
    after_s: float | None,
    message: str,
) -> None:
    service.say((status, headers, body))
    verdict = channel_test(make_channel(kind))
    assert (verdict.ok, verdict.again, verdict.after_s) == (ok, again, after_s)
    assert message in str(verdict.told) and message in in_words(verdict.told.data)


def test_an_answer_that_never_comes_is_worth_another_try(
    service: Service, make_channel: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(outbound.post.__kwdefaults__, "total_s", 0.5)
    service.hold = True
    verdict = channel_test(make_channel())
    assert (verdict.ok, verdict.again) == (False, True)
    assert str(verdict.told) == "The server did not answer in time."


def test_a_closed_port_is_worth_another_try(free_port: int, make_channel: Callable[..., Channel]) -> None:
    verdict = channel_test(make_channel(url=f"http://127.0.0.1:{free_port}/hook"))
    assert (verdict.ok, verdict.again) == (False, True)
    assert str(verdict.told) == "Nothing accepts connections at this address."
    with translation.override("zh-hans"):
        assert in_words(verdict.told.data) == "该地址没有接受连接。"


def test_an_address_that_may_not_be_reached_any_more_is_refused_without_a_request(
    service: Service, make_channel: Callable[..., Channel], settings: Any
) -> None:
    channel = make_channel()
    settings.OUTBOUND_ALLOW = []
    verdict = channel_test(channel)
    assert (verdict.ok, verdict.again, service.got) == (False, False, [])
    assert "TILTYARD_OUTBOUND_ALLOW" in str(verdict.told)
    with translation.override("zh-hans"):
        assert in_words(verdict.told.data) != str(verdict.told)


def test_what_a_server_repeats_of_the_secret_is_not_shown(
    service: Service, make_channel: Callable[..., Channel]
) -> None:
    channel = make_channel("dingtalk", secret="SEC-very-private")
    service.say((400, {}, f"cannot post to {service.url()} with SEC-very-private"))
    message = str(channel_test(channel).told)
    assert "s3cret-in-url" not in message and "SEC-very-private" not in message and "cannot post to … with …" in message


def test_a_very_long_answer_is_read_in_part(service: Service, make_channel: Callable[..., Channel]) -> None:
    service.say((500, {}, "x" * 300_000))
    verdict = channel_test(make_channel())
    assert (verdict.again, str(verdict.told)) == (True, "The server failed (HTTP 500). It said: " + "x" * 200)


def test_the_request_is_a_post_of_json_under_our_name(service: Service, make_channel: Callable[..., Channel]) -> None:
    channel_test(make_channel("json", secret="signing-key"))
    (got,) = service.got
    assert got.path == "/hook/abc?access_token=s3cret-in-url"
    assert got.headers["Content-Type"] == "application/json; charset=utf-8"
    assert got.headers["User-Agent"] == "tiltyard" and got.headers["X-Tiltyard-Event"] == "test"
    assert got.json["title"] == "Test from Tiltyard" and got.json["project"] == {"slug": "joust", "name": "Joust"}
    assert "Cookie" not in got.headers and "Authorization" not in got.headers


@pytest.mark.parametrize(
    "body",
    [
        '{"status":404,"path":"/services/T0/S3cretS3cret"}',
        '{"path":"\\/services\\/T0\\/S3cretS3cret"}',
        "cannot POST %2Fservices%2FT0%2FS3cretS3cret",
        "no token in access_token=s3cret%2Din-url",
        "no token s3cret-in-url",
        "unknown hook S3cretS3cret",
    ],
)
def test_a_part_of_the_address_that_a_server_repeats_is_not_shown(
    service: Service, make_channel: Callable[..., Channel], body: str
) -> None:
    """Anyone who knows the path of a webhook may post there, and frameworks repeat it in their 404."""
    channel = make_channel("json", url=service.url("/services/T0/S3cretS3cret?access_token=s3cret-in-url"))
    service.say((404, {}, body))
    message = str(channel_test(channel).told)
    assert "…" in message and "S3cret" not in message and "in-url" not in message, message
