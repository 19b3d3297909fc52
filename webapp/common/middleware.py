"""Request ids, the content security policy, and the one JSON error shape."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse

from webapp.common.errors import TooMany, error_body, outage, server_error, too_many
from webapp.common.logs import about
from webapp.common.pages import PROBES_WINDOW_S
from webapp.common.text import NUL_SHOWN, clean_text

logger = logging.getLogger(__name__)
GetResponse = Callable[[HttpRequest], HttpResponse]

# Nothing inline, nothing from elsewhere. Plotly sets styles on its own elements, which `style-src` must allow.
CSP = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

_NUL = re.compile("%00|\x00")


class CleanAddressMiddleware:
    """Give views an address of text that can be stored and searched: ``clean_text`` for its path and query.

    A parameter that reached the database with a NUL would be an error there, and there are hundreds of parameters.
    Half a surrogate pair is not UTF-8: decoding the query has replaced it already.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.path, request.path_info = clean_text(request.path), clean_text(request.path_info)
        request.META["QUERY_STRING"] = _NUL.sub(quote(NUL_SHOWN), request.META.get("QUERY_STRING", ""))
        return self.get_response(request)


_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


class RequestIdMiddleware:
    """Give each request an id that the answer, errors and all log lines carry, also those of the tasks that it asks
    for. The id of a proxy or a client (``X-Request-ID``) is kept if it is plain."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        sent = request.headers.get("X-Request-ID", "")
        request_id = sent if _REQUEST_ID.fullmatch(sent) else uuid.uuid4().hex[:12]
        request.request_id = request_id  # type: ignore[attr-defined]
        with about(request_id=request_id):
            response = self.get_response(request)
        response["X-Request-Id"] = request_id
        return response


class ContentSecurityPolicyMiddleware:
    """Set the policy on every response."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", CSP)
        return response


class PrivateAnswersMiddleware:
    """Keep what a person was shown out of every cache and off the disk of a shared browser, unless a view says
    otherwise. Files that are downloaded may be kept by the person's own browser, which may resume one that broke
    off; files of ``static/`` never come here."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if request.session.accessed or "Authorization" in request.headers:
            download = response.get("Content-Disposition", "").startswith("attachment")
            response.headers.setdefault("Cache-Control", "private" if download else "private, no-store")
        return response


class ErrorShapeMiddleware:
    """Turn errors of API requests into ``{ok, code, message, detail, request_id}``; pages keep Django's templates."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Add ``Retry-After`` to every 429 that has none: a minute."""
        response = self.get_response(request)
        if response.status_code == 429:
            response.headers.setdefault("Retry-After", str(PROBES_WINDOW_S))
        return response

    def process_exception(self, request: HttpRequest, exc: Exception) -> HttpResponse | None:
        """Answer API requests, and ``TooMany``. An unexpected error is logged with the request's id, which the answer
        names."""
        if isinstance(exc, TooMany):
            return too_many(request, exc)
        if not request.path.startswith("/api/"):
            return None
        if isinstance(exc, Http404):
            return JsonResponse(error_body(request, "not_found"), status=404)
        if isinstance(exc, PermissionDenied):
            return JsonResponse(error_body(request, "forbidden", str(exc)), status=403)
        if outage(exc):
            return server_error(request, exc)
        logger.exception("api request failed")
        return JsonResponse(error_body(request, "internal"), status=500)


# --- Context --------------------------------------------------------------------------------------------------------
# The context of every page's template.


LOOKS = {"theme": ("system", "light", "dark"), "density": ("comfortable", "compact")}
"""What a person may choose of the looks of all pages, the usual first; each is kept in a cookie."""


def look_cookie(name: str) -> str:
    """The cookie that keeps a choice of looks; the script of every page sets it too."""
    return f"tiltyard-{name}"


def _chosen_look(request: HttpRequest, name: str) -> str:
    chosen = request.COOKIES.get(look_cookie(name), "")
    return chosen if chosen in LOOKS[name] else LOOKS[name][0]


def page(request: HttpRequest) -> dict[str, Any]:
    """Looks (theme and density) and the product's name; the project is set by the view that authorised it."""
    return {
        **{name: _chosen_look(request, name) for name in LOOKS},
        "product_name": settings.PRODUCT_NAME,
    }
