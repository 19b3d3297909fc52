"""What a shared link opens, without an account: a report to read and to keep, and no way to anything else.

1. A link is looked up first, by the hash of its secret: the time that takes says nothing of the secret. An existing
   link opens, also after many guesses from that address; wrong guesses are counted, and too many have to wait.
2. Links that never were, have ended or were revoked look the same: one page, one status.
3. The answer has no link into the application, no script and no form; it sets no cookie, and names no host of ours.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone
from django.views.decorators.http import require_safe

from webapp.evaluation.comparison.figures import Line
from webapp.evaluation.comparison.options import OptionGroup, OptionRow
from webapp.evaluation.comparison.standalone import as_file
from webapp.evaluation.sharing.models import SharedLink
from webapp.evaluation.sharing.queries import opened
from webapp.evaluation.sharing.services import link_count, link_open
from webapp.people.teams.logins import guess_wait_s, open_wait_s

View = Callable[..., HttpResponse]
HEADERS = {
    "Cache-Control": "private, no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex, nofollow, noarchive",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self' data:; font-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
}
MAX_SECRET_CHARS = 100
UNTOLD = {"environment.options", "environment.replicas", "endpoint.key_variable"}  # where things run, and with what key


def for_anyone(view: View) -> View:
    """Look the secret up once for the view, and forbid browsers and search engines to keep it."""

    @functools.wraps(view)
    def answer(request: HttpRequest, secret: str) -> HttpResponse:
        response = _answer_link(view, request, secret)
        for name, value in HEADERS.items():
            response[name] = value
        return response

    return answer


def _answer_link(view: View, request: HttpRequest, secret: str) -> HttpResponse:
    address = request.META.get("REMOTE_ADDR", "")
    link = link_open(secret) if len(secret) <= MAX_SECRET_CHARS else None
    if wait_s := open_wait_s(address, str(link.pk)) if link else guess_wait_s(address):
        waits = render(request, "sharing/ended.html", {"wait_s": wait_s}, status=429)
        waits["Retry-After"] = str(math.ceil(wait_s))
        return waits
    if link is None:
        return render(request, "sharing/ended.html", status=404)
    answer = view(request, link)
    if request.method == "GET":
        link_count(link)
    return answer


@require_safe
@for_anyone
def shared_page(request: HttpRequest, link: SharedLink) -> HttpResponse:
    """The report."""
    return render(request, "sharing/shared.html", _public_context(link))


@require_safe
@for_anyone
def shared_file(request: HttpRequest, link: SharedLink) -> HttpResponse:
    """The report as one file that needs nothing else. It does not hold the link's address."""
    page = render_to_string("sharing/shared.html", _public_context(link) | {"as_file": True}, request)
    return as_file(page, "comparison.html", "pages/shared.css")


def _public_context(link: SharedLink) -> dict[str, Any]:
    found = opened(link.comparison)
    all_options = found.found.options if found.found else []
    told = _public_options(all_options)
    if found.found is not None:
        found.found.options = told
    return {
        "link": link,
        "saved": link.comparison,
        "opened": found,
        "found": found.found,
        "contestants": found.contestants,
        "success": _by_success(found.found.lines) if found.found else [],
        "standalone": True,
        "untold": told != all_options,
        "now": timezone.localtime(),
    }


def _by_success(lines: list[Line]) -> list[Line]:
    """Those whose success is known, the best first."""
    known = [(line.cells[0].bar[1], line) for line in lines if line.cells and line.cells[0].bar]
    return [line for _value, line in sorted(known, key=lambda pair: -pair[0])]


def _public_options(groups: list[OptionGroup]) -> list[OptionGroup]:
    """The options without those that name addresses of servers, files of ours or keys."""
    kept = [OptionGroup(group.name, [row for row in group.rows if not _names_location(row)]) for group in groups]
    return [group for group in kept if group.rows]


def _names_location(row: OptionRow) -> bool:
    return row.path in UNTOLD or any(value.startswith("/") or "://" in value for value, _other in row.values)
