"""What every answer carries: its policy, how long it may be kept, when to come again, and the shape of an error."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.test import RequestFactory

from webapp.common.errors import TooMany
from webapp.common.middleware import (
    CleanAddressMiddleware,
    ContentSecurityPolicyMiddleware,
    ErrorShapeMiddleware,
    PrivateAnswersMiddleware,
    page,
)


def asked(path: str = "/", *, accessed: bool = False, **headers: str) -> HttpRequest:
    request = RequestFactory().get(path, headers=headers)
    request.session = SimpleNamespace(accessed=accessed)  # type: ignore[assignment]
    return request


def answered(middleware: Any, request: HttpRequest, status: int = 200, **headers: str) -> HttpResponse:
    return middleware(lambda _request: HttpResponse(status=status, headers=headers))(request)  # type: ignore[no-any-return]


def test_a_page_may_load_and_send_within_the_site_alone_unless_its_view_says_otherwise() -> None:
    name = "Content-Security-Policy"
    policy = answered(ContentSecurityPolicyMiddleware, asked())[name].split("; ")
    for rule in ("default-src 'self'", "script-src 'self'", "object-src 'none'", "frame-ancestors 'none'"):
        assert rule in policy
    assert answered(ContentSecurityPolicyMiddleware, asked(), **{name: "sandbox"})[name] == "sandbox"


@pytest.mark.parametrize(
    ("request_", "headers", "kept"),
    [
        (asked(), {}, None),
        (asked(accessed=True), {}, "private, no-store"),
        (asked(Authorization="Bearer x"), {}, "private, no-store"),
        (asked(accessed=True), {"Content-Disposition": 'attachment; filename="a.csv"'}, "private"),
        (asked(accessed=True), {"Content-Disposition": "inline"}, "private, no-store"),
        (asked(accessed=True), {"Cache-Control": "no-store"}, "no-store"),
    ],
)
def test_what_a_person_was_shown_is_kept_nowhere(
    request_: HttpRequest, headers: dict[str, str], kept: str | None
) -> None:
    assert answered(PrivateAnswersMiddleware, request_, **headers).get("Cache-Control") == kept


def test_who_asks_too_often_learns_when_to_come_again() -> None:
    found = [answered(ErrorShapeMiddleware, asked(), status) for status in (200, 429)]
    assert [answer.get("Retry-After") for answer in found] == [None, "60"]
    assert answered(ErrorShapeMiddleware, asked(), 429, **{"Retry-After": "5"})["Retry-After"] == "5"


@pytest.mark.parametrize(
    ("error", "status", "code", "message"),
    [
        (Http404("secret"), 404, "not_found", "There is nothing here, or you may not see it."),
        (PermissionDenied("Only owners may."), 403, "forbidden", "Only owners may."),
        (OperationalError("secret"), 503, "unavailable", "The database does not answer now."),
        (ValueError("secret"), 500, "internal", "Tiltyard failed to answer"),
        (TooMany("At most 3.", wait_s=7), 429, "rate_limited", "At most 3."),
    ],
)
def test_an_error_of_the_api_has_the_one_shape(error: Exception, status: int, code: str, message: str) -> None:
    middleware = ErrorShapeMiddleware(lambda _request: HttpResponse())
    answer = middleware.process_exception(asked("/api/v1/x"), error)
    assert answer is not None
    body = json.loads(answer.content)
    assert (answer.status_code, body["code"], body["ok"]) == (status, code, False)
    assert body["message"].startswith(message) and "secret" not in answer.content.decode()
    shown = middleware.process_exception(asked("/p/api/"), error)
    assert (shown.status_code if shown is not None else None) == (429 if status == 429 else None), (
        "pages have templates"
    )


def test_views_get_an_address_that_can_be_stored() -> None:
    seen: list[HttpRequest] = []
    request = asked("/a%00b/?q=x%00y&z=%0")
    CleanAddressMiddleware(lambda given: seen.append(given) or HttpResponse())(request)
    assert (seen[0].path, seen[0].path_info, seen[0].GET["q"]) == ("/a␀b/", "/a␀b/", "x␀y")


def test_looks_are_those_that_were_chosen() -> None:
    request = asked()
    assert (page(request)["theme"], page(request)["density"]) == ("system", "comfortable")
    request.COOKIES = {"tiltyard-theme": "dark", "tiltyard-density": "<b>"}
    assert (page(request)["theme"], page(request)["density"]) == ("dark", "comfortable")
