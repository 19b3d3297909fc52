"""The reference of the API as a page.

Its operations are laid out once for each language; the page without a login, which names no person, once for each
language and theme. The server's name in the request replaces ``ADDRESS`` last.
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
CACHE_CONTROL = "private, no-cache"  # after a login the page has another frame


def docs_answer(request: HttpRequest) -> HttpResponseBase:
    """The page: the same bytes for every stranger, with the person's own frame after a login."""
    address, language = request.build_absolute_uri("/").rstrip("/"), get_language() or ""
    if not request.user.is_authenticated:
        made = _stranger_page_at(language, str(page(request)["theme"]), address)
        return constant_answer(request, made, cache_control=CACHE_CONTROL)
    context = {
        **_page_context(language),
        "operations": _with_address(_operations_html(language), address),
        "address": address,
    }
    response = render(request, "api/docs.html", context)
    response["Cache-Control"] = CACHE_CONTROL
    return response


def _page_context(language: str) -> dict[str, object]:
    found = subjects()
    return {
        "subjects": found,
        "count": sum(len(subject.operations) for subject in found),
        "strings": {"api.found": _("{n} of {all} operations")},
        "operations": _operations_html(language),
        "address": ADDRESS,
    }


@cache
def _operations_html(_language: str) -> SafeString:
    return render_to_string("api/_operations.html", {"subjects": subjects(), "address": ADDRESS})


@cache
def _stranger_page(language: str, theme: str, product_name: str) -> str:
    return render_to_string("api/docs.html", {**_page_context(language), "theme": theme, "product_name": product_name})


@lru_cache(maxsize=MOST_ADDRESSES)
def _stranger_page_at(language: str, theme: str, address: str) -> Constant:
    whole = _stranger_page(language, theme, settings.PRODUCT_NAME)
    return constant(_with_address(whole, address).encode(), "text/html; charset=utf-8")


def _with_address(text: str, address: str) -> SafeString:
    return mark_safe(text.replace(ADDRESS, escape(address)))  # noqa: S308 (the text is a template's; the rest is escaped)
