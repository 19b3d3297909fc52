"""The reference of the API as a page.

Its operations are laid out once for each language; a stranger's whole page, which tells of no person, once for each
language and theme. The server's name in the request takes the place of ``ADDRESS`` last.
"""

from __future__ import annotations

from functools import cache, lru_cache

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from webapp.api.constant import Constant, constant, constant_answer
from webapp.api.reference import subjects
from webapp.common.context import page

ADDRESS = "http://address.of.this.server.invalid"
MOST_ADDRESSES = 32  # names of one server, languages and themes together
CACHE_CONTROL = "private, no-cache"  # who has just logged in sees another frame around it


def docs_answer(request: HttpRequest) -> HttpResponseBase:
    """The page: the same bytes for every stranger, with a frame of their own for whoever has logged in."""
    address, language = request.build_absolute_uri("/").rstrip("/"), get_language() or ""
    if not request.user.is_authenticated:
        made = _strangers_at(language, str(page(request)["theme"]), address)
        return constant_answer(request, made, cache_control=CACHE_CONTROL)
    context = {**_context(language), "operations": _at(_operations(language), address), "address": address}
    response = render(request, "api/docs.html", context)
    response["Cache-Control"] = CACHE_CONTROL
    return response


def _context(language: str) -> dict[str, object]:
    found = subjects()
    return {
        "subjects": found,
        "count": sum(len(subject.operations) for subject in found),
        "strings": {"api.found": _("{n} of {all} operations")},
        "operations": _operations(language),
        "address": ADDRESS,
    }


@cache
def _operations(_language: str) -> SafeString:
    return render_to_string("api/_operations.html", {"subjects": subjects(), "address": ADDRESS})


@cache
def _strangers(language: str, theme: str, product_name: str) -> str:
    return render_to_string("api/docs.html", {**_context(language), "theme": theme, "product_name": product_name})


@lru_cache(maxsize=MOST_ADDRESSES)
def _strangers_at(language: str, theme: str, address: str) -> Constant:
    whole = _strangers(language, theme, settings.PRODUCT_NAME)
    return constant(_at(whole, address).encode(), "text/html; charset=utf-8")


def _at(text: str, address: str) -> SafeString:
    return mark_safe(text.replace(ADDRESS, escape(address)))  # noqa: S308 (the text is a template's; the rest is escaped)
