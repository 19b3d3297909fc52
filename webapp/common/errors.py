"""The one JSON error shape of the API and the sockets: ``{ok, code, message, detail, request_id}``."""

from __future__ import annotations

import logging
import sys
from typing import Any

from django.db import InterfaceError, InternalError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import get_template
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from training.machine import DISK_FAULTS

logger = logging.getLogger(__name__)
MESSAGES = {
    "not_found": gettext_noop("There is nothing here, or you may not see it."),
    "forbidden": gettext_noop("Your role does not allow this."),
    "confirm_first": gettext_noop("Confirm that it is you first."),
    "login_required": gettext_noop("Log in first."),
    "method_not_allowed": gettext_noop("This address does not accept that method."),
    "invalid": gettext_noop("The request is not valid; see the detail."),
    "conflict": gettext_noop("That is not possible in the current state."),
    "in_progress": gettext_noop("The first call under this key is still being answered; try again in a moment."),
    "key_reused": gettext_noop("This idempotency key was used for another request; use a new one."),
    "changed_meanwhile": gettext_noop("It was changed after you read it; read it again."),
    "too_large": gettext_noop("That is larger than the limit."),
    "rate_limited": gettext_noop("Too many requests; wait a little and try again."),
    "unavailable": gettext_noop("The database does not answer now. Nothing is lost; try again in a moment."),
    "storage_failed": gettext_noop(
        "The disk of the data folder cannot be written now, so what you sent was not stored. Stored data can be "
        "read; the operator of this site has to free or repair the disk."
    ),
    "internal": gettext_noop("Tiltyard failed to answer; the log has the details under this request id."),
}


class TooMany(Exception):
    """More at once than one person may have: a 429 that asks to try again in ``wait_s`` seconds."""

    def __init__(self, message: str, *, wait_s: int) -> None:
        super().__init__(message)
        self.wait_s = wait_s


RETRY_AFTER_S = 5
DATABASE_AWAY = (OperationalError, InterfaceError, InternalError)
"""Gone, restarting, too busy to answer in time; an ``InternalError`` is a transaction that the database has ended, such
as one that waited for us for too long (25P03). This is the only list of them: code that catches one
closes its connection."""


def outage(exc: BaseException | None) -> tuple[int, str] | None:
    """Status and code of an outage that is not our fault: the database is away, or the disk cannot be written."""
    if isinstance(exc, DATABASE_AWAY):
        return 503, "unavailable"
    if isinstance(exc, OSError) and exc.errno in DISK_FAULTS:
        return 507, "storage_failed"
    return None


def log_outage(status: int, request: str, exc: BaseException | None) -> None:
    """A line for the operator: the answer names no cause."""
    line = request.encode("unicode_escape").decode("ascii")  # an address may hold a line break
    logger.warning("%s is answered with %d: %s: %s", line, status, type(exc).__name__, str(exc).partition("\n")[0])


def server_error(request: HttpRequest, exc: BaseException | None = None) -> HttpResponse:
    """The answer to an error that was not caught elsewhere: that of an outage, else 500, each in the one shape."""
    passes = outage(exc or sys.exc_info()[1])
    status, code = passes or (500, "internal")
    if passes:
        log_outage(status, f"{request.method} {request.path}", exc or sys.exc_info()[1])
    headers = {"Retry-After": str(RETRY_AFTER_S)} if passes else {}
    if _wants_json(request):
        return JsonResponse(error_body(request, code), status=status, headers=headers)
    # A browser loads what it only reads again by itself: time repairs this. A form that was sent is left to its person.
    if code == "unavailable" and request.method == "GET":
        headers["Refresh"] = str(RETRY_AFTER_S)
    # Without the request: a context processor might ask the database.
    page = get_template(f"{status}.html").render({"again_s": headers.get("Refresh")})
    return HttpResponse(page, status=status, headers=headers)


def too_many(request: HttpRequest, exc: TooMany) -> HttpResponse:
    """The 429 for a person with too much at once: the one shape for scripts, the sentence for pages."""
    headers = {"Retry-After": str(exc.wait_s)}
    if _wants_json(request):
        return JsonResponse(error_body(request, "rate_limited", str(exc)), status=429, headers=headers)
    return HttpResponse(str(exc), status=429, headers=headers, content_type="text/plain; charset=utf-8")


def _wants_json(request: HttpRequest) -> bool:
    return request.path.startswith("/api/") or request.headers.get("Accept", "").startswith("application/json")


def error_body(request: HttpRequest | None, code: str, message: str = "", detail: Any = None) -> dict[str, Any]:
    """The body of one error answer; ``code`` is a key of ``MESSAGES`` or of ``training.errors``."""
    return {
        "ok": False,
        "code": code,
        "message": message or _(MESSAGES.get(code, MESSAGES["internal"])),
        "detail": detail,
        "request_id": getattr(request, "request_id", ""),
    }
