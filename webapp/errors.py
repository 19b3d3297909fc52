"""The one JSON error shape of the API and the sockets: ``{ok, code, message, detail, request_id}``."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

MESSAGES = {
    "not_found": gettext_noop("There is nothing here, or it is not yours to see."),
    "forbidden": gettext_noop("Your role does not allow this."),
    "login_required": gettext_noop("Log in first."),
    "method_not_allowed": gettext_noop("This address does not take that method."),
    "invalid": gettext_noop("Something in the request is not right; see the detail."),
    "conflict": gettext_noop("That is not possible in the present state."),
    "too_large": gettext_noop("That is larger than the limit."),
    "rate_limited": gettext_noop("Too many requests; wait a little and try again."),
    "unavailable": gettext_noop("Tiltyard cannot reach its database now. Nothing is lost; try again in a moment."),
    "internal": gettext_noop("Tiltyard failed to answer; the log has the details under this request id."),
}


def error_body(request: HttpRequest | None, code: str, message: str = "", detail: Any = None) -> dict[str, Any]:
    """The body of one error answer; ``code`` is a key of ``MESSAGES`` or of ``training.errors``."""
    return {
        "ok": False,
        "code": code,
        "message": message or _(MESSAGES.get(code, MESSAGES["internal"])),
        "detail": detail,
        "request_id": getattr(request, "request_id", ""),
    }
