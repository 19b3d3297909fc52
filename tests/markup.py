"""Pages as tests compare them: the formatter of the templates decides where lines end, not what is shown."""

from __future__ import annotations

import html
import re
from types import SimpleNamespace
from typing import Any

from django.template import Context
from django.template.loader import get_template
from django.test import RequestFactory


def dense(page: str) -> str:
    """The page with one space for each white space, and none next to its tags or at their ends."""
    whole = re.sub(r"\s+", " ", page)
    return re.sub(r" ?(<[^<>]*?) ?(/?>) ?", r"\1\2", whole)


def words(page: str) -> str:
    """What a page says: its text without tags, and one space for each white space."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", page))).strip()


def drawn(template: str, **context: Any) -> str:
    """A part of a page, drawn by itself with what its view would give it; it is read by a viewer of `joust`. Of a whole
    page its main part."""
    project = SimpleNamespace(slug="joust", name="Joust", team_id=None, role=context.pop("role", "viewer"))
    request = RequestFactory().get("/here/")
    given = Context({"project": project, "request": request, **context})
    given.request = request
    page = dense(get_template(template).template.render(given))
    return page.partition('id="main" tabindex="-1">')[2].partition("</main>")[0] or page
