"""Small parts of pages: which address a request may be sent to, its page and token, errors, and counted uploads."""

from __future__ import annotations

from typing import Any

import pytest
from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadhandler import StopUpload
from django.test import RequestFactory

from webapp.common.pages import (
    OVERHEAD_BYTES,
    CountingUploadHandler,
    add_errors,
    bearer,
    errors_by_field,
    newest_only,
    own_address,
    page_number,
    upload_count,
    wants_json,
)


@pytest.mark.parametrize(
    ("asked", "own"),
    [
        *(("/p/joust/", True), ("/", True), ("http://testserver/p/", True)),
        *(("", False), ("run-list", False), ("//evil.example/", False), ("https://evil.example/", False)),
        *(("javascript:alert(1)/", False), ("/\\evil.example/", False)),
    ],
)
def test_a_request_leads_to_an_address_of_ours(asked: str, own: bool) -> None:
    request = RequestFactory().get("/")
    assert own_address(request, asked, "/else/") == (asked if own else "/else/")


def test_a_secure_page_leads_to_no_open_one() -> None:
    request = RequestFactory().get("/", secure=True)
    asked = ("http://testserver/p/", "https://testserver/p/")
    assert [own_address(request, each, "/") for each in asked] == ["/", "https://testserver/p/"]


@pytest.mark.parametrize(
    ("raw", "number"),
    [(None, 1), ("", 1), ("x", 1), ("-3", 1), ("0", 1), ("1", 1), (2, 2), ("10000", 10_000), ("10001", 10_000)],
)
def test_a_page_has_a_number(raw: Any, number: int) -> None:
    assert page_number(raw) == number


@pytest.mark.parametrize(
    ("header", "token"),
    [(None, ""), ("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("Basic abc", ""), ("abc", ""), ("Bearer", "")],
)
def test_the_token_of_a_request(header: str | None, token: str) -> None:
    request = RequestFactory().get("/", headers={} if header is None else {"Authorization": header})
    assert bearer(request) == token


def test_a_script_asks_for_json_first() -> None:
    asked = ["application/json", "application/json, text/html", "text/html, application/json", ""]
    requests = [RequestFactory().get("/", headers={"Accept": each}) for each in asked]
    assert [wants_json(request) for request in requests] == [True, True, False, False]


def test_a_list_of_choices_says_where_it_ends() -> None:
    assert [newest_only(listed, 200) for listed in (199, 200)] == ["", "The newest 200 are listed."]


def test_errors_of_a_service_come_to_their_fields() -> None:
    class Form(forms.Form):
        name = forms.CharField()

    form = Form({"name": "a"})
    by_field = ValidationError({"name": ["taken"], "files": ["too many", "too large"]})
    add_errors(form, by_field)
    add_errors(form, ValidationError("closed"))
    assert form.errors == {"name": ["taken"], "__all__": ["too many", "too large", "closed"]}
    assert errors_by_field(by_field) == {"name": ["taken"], "files": ["too many", "too large"]}
    assert errors_by_field(ValidationError("closed")) == {"__all__": ["closed"]}


@pytest.mark.parametrize(("more", "taken"), [(0, True), (1, False)])
def test_a_body_that_says_that_it_is_too_large_is_not_read(settings: Any, more: int, taken: bool) -> None:
    settings.MAX_UPLOAD_BYTES = 10
    request = RequestFactory().post("/", headers={"Content-Length": str(10 + OVERHEAD_BYTES + more)})
    assert upload_count(request) is taken
    assert isinstance(request.upload_handlers[0], CountingUploadHandler) is taken


def test_an_upload_is_cut_off_at_the_byte_that_is_too_many() -> None:
    """Over all of its files."""
    request = RequestFactory().post("/")
    handler = CountingUploadHandler(request, 10)
    assert (handler.receive_data_chunk(b"123456", 0), handler.receive_data_chunk(b"7890", 0)) == (b"123456", b"7890")
    assert handler.file_complete(10) is None and not hasattr(request, "upload_too_large")
    with pytest.raises(StopUpload) as stopped:
        handler.receive_data_chunk(b"1", 0)
    assert stopped.value.connection_reset and request.upload_too_large  # type: ignore[attr-defined]
