"""The reader of a page, and what every page shows of them; read once for each page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from webapp.people.notifications.selectors import PageProject, projects_and_unread


class PageReader(NamedTuple):
    """The reader's projects, by name, and how many of their notifications are unread."""

    projects: Sequence[PageProject]
    unread: int


def reader_of_page(context: dict[str, Any]) -> PageReader:
    """The reader of the page that a template draws; without projects where it has none."""
    request = context.get("request")
    user = getattr(request, "user", None)
    if request is None or user is None or not user.is_authenticated:
        return PageReader([], 0)
    found: PageReader | None = getattr(request, "page_reader", None)
    if found is None:
        found = request.page_reader = PageReader(*projects_and_unread(user))
    return found
