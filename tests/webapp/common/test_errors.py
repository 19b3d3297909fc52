"""Which errors are outages, how each is answered, and which names an object may have."""

from __future__ import annotations

import errno
import json

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, InterfaceError, InternalError, OperationalError
from django.test import RequestFactory

from webapp.common.errors import TooMany, error_body, outage, server_error, too_many
from webapp.common.pages import clean_name


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        *((error(), (503, "unavailable")) for error in (OperationalError, InterfaceError, InternalError)),
        *((OSError(number, "x"), (507, "storage_failed")) for number in (errno.ENOSPC, errno.EROFS, errno.EIO)),
        *((OSError(errno.ENOENT, "x"), None), (IntegrityError(), None), (ValueError(), None), (None, None)),
    ],
)
def test_an_outage_is_not_our_fault(error: Exception | None, answer: tuple[int, str] | None) -> None:
    assert outage(error) == answer


@pytest.mark.parametrize(
    ("path", "accept", "as_json"),
    [
        ("/api/v1/runs", "text/html", True),
        ("/p/joust/", "application/json", True),
        ("/p/joust/", "text/html, application/json", False),
        ("/p/api/", "", False),
    ],
)
def test_scripts_get_the_one_shape_and_pages_a_page(path: str, accept: str, as_json: bool) -> None:
    request = RequestFactory().get(path, headers={"Accept": accept})
    away, fault = server_error(request, OperationalError("gone")), server_error(request, ValueError("secret"))
    many = too_many(request, TooMany("At most 3.", wait_s=7))
    found = [(answer.status_code, answer.get("Retry-After")) for answer in (away, fault, many)]
    assert found == [(503, "5"), (500, None), (429, "7")]
    assert all(answer["Content-Type"].startswith("application/json") is as_json for answer in (away, fault, many))
    assert b"secret" not in fault.content and "At most 3." in many.content.decode()
    if as_json:
        bodies = [json.loads(answer.content) for answer in (away, fault, many)]
        assert [body["code"] for body in bodies] == ["unavailable", "internal", "rate_limited"]


@pytest.mark.parametrize(
    ("method", "error", "refresh"),
    [
        ("GET", OperationalError("gone"), "5"),
        ("POST", OperationalError("gone"), None),
        ("GET", OSError(errno.ENOSPC, "full"), None),
        ("GET", ValueError("secret"), None),
    ],
)
def test_a_page_that_time_repairs_is_loaded_again(method: str, error: Exception, refresh: str | None) -> None:
    answer = server_error(RequestFactory().generic(method, "/p/joust/"), error)
    assert answer.get("Refresh") == refresh
    assert ("Your browser loads it again every 5 seconds." in answer.content.decode()) is (refresh is not None)


def test_an_outage_is_logged_in_one_line_and_a_fault_by_who_raised_it(caplog: pytest.LogCaptureFixture) -> None:
    request = RequestFactory().get("/p/a%0Ab/")
    try:
        raise OSError(errno.ENOSPC, "full")
    except OSError:
        assert server_error(request).status_code == 507
    assert server_error(request).status_code == 500
    assert caplog.messages == [r"GET /p/a\nb/ is answered with 507: OSError: [Errno 28] full"]


def test_a_body_has_a_sentence_for_each_code() -> None:
    assert error_body(None, "forbidden") == {
        "ok": False,
        "code": "forbidden",
        "message": "Your role does not allow this.",
        "detail": None,
        "request_id": "",
    }
    assert error_body(None, "odd")["message"].startswith("Tiltyard failed to answer")
    assert error_body(None, "odd", "A sentence.", [1])["message"] == "A sentence."


@pytest.mark.parametrize(
    ("name", "kept"), [(" a ", "a"), ("x" * 80, "x" * 80), ("天气 (2)", "天气 (2)"), ("9.a_b+c-d", "9.a_b+c-d")]
)
def test_what_may_be_a_name(name: str, kept: str) -> None:
    assert clean_name(name) == kept


@pytest.mark.parametrize("name", ["", " ", "x" * 81, "-a", ".a", "a/b", "<b>", "a\nb", "a\x00"])
def test_what_is_no_name_is_refused_at_its_field(name: str) -> None:
    with pytest.raises(ValidationError) as refused:
        clean_name(name)
    assert list(refused.value.message_dict) == ["name"]
